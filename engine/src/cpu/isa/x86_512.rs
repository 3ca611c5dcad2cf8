//! AVX-512 with VNNI and VBMI: 512-bit `vpdpbusd`, `vpmultishiftqb` to take bit fields apart.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of every method is the trait's: the CPU has the ISA, pointers hold what it names"
)]

use super::Isa;
use super::vector::{Quants, Vector};
use super::x86_256::{max_abs32, quantise32, sum256, ue4m3_halves};
use std::arch::x86_64::*;
use std::mem::transmute;

/// AVX-512 F, VL, BW, DQ, VNNI, VBMI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vnni;

impl Vector for Avx512Vnni {
    type S = __m512;

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }

    #[inline(always)]
    unsafe fn zero() -> Self::S {
        _mm512_setzero_ps()
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::S {
        _mm512_set1_ps(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::S {
        _mm512_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::S {
        _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::S {
        let v = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(v))
    }
    #[inline(always)]
    unsafe fn f16(h: u16) -> f32 {
        _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(h))))
    }
    #[inline(always)]
    unsafe fn u8x16(x: u128) -> Self::S {
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(transmute::<u128, __m128i>(x)))
    }
    #[inline(always)]
    unsafe fn i8x16(x: u128) -> Self::S {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(transmute::<u128, __m128i>(x)))
    }
    #[inline(always)]
    unsafe fn store(s: Self::S, p: *mut f32) {
        _mm512_storeu_ps(p, s);
    }
    #[inline(always)]
    unsafe fn scale(s: Self::S, k: f32) -> Self::S {
        _mm512_mul_ps(s, _mm512_set1_ps(k))
    }
    #[inline(always)]
    unsafe fn mul(a: Self::S, b: Self::S) -> Self::S {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::S, b: Self::S, c: Self::S) -> Self::S {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn nfma(c: Self::S, a: Self::S, b: Self::S) -> Self::S {
        _mm512_fnmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn sum(s: Self::S) -> f32 {
        sum256(_mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps::<1>(s)))
    }

    #[inline(always)]
    unsafe fn max_abs32(p: *const f32) -> f32 {
        max_abs32(p)
    }
    #[inline(always)]
    unsafe fn quantise32(p: *const f32, k: f32, q: *mut i8) -> [i16; 2] {
        quantise32(p, k, q)
    }
}

impl Quants for Avx512Vnni {
    const ISA: Isa = Isa::Avx512Vnni;
    const FLIPS: bool = true;
    const INT_FORM: bool = false;
    type Q = __m512i;
    type W = __m256i;
    type K = __m512i;
    type A = __m512i;

    #[inline(always)]
    unsafe fn load64(p: *const u8) -> Self::Q {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn store64(q: Self::Q, p: *mut u8) {
        _mm512_storeu_si512(p.cast(), q);
    }
    #[inline(always)]
    unsafe fn words(w: [u64; 8]) -> Self::Q {
        _mm512_loadu_si512(w.as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn half_words(w: [u32; 16]) -> Self::Q {
        _mm512_loadu_si512(w.as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn pair32(a: *const u8, b: *const u8) -> Self::Q {
        let a = _mm512_castsi256_si512(_mm256_loadu_si256(a.cast()));
        _mm512_inserti64x4::<1>(a, _mm256_loadu_si256(b.cast()))
    }
    #[inline(always)]
    unsafe fn spread32<const A: i32, const B: i32>(p: *const u8) -> Self::Q {
        let v = _mm512_broadcast_i64x4(_mm256_loadu_si256(p.cast()));
        _mm512_multishift_epi64_epi8(_mm512_loadu_si512(Windows::<A, B>::CONTROL.as_ptr().cast()), v)
    }
    #[inline(always)]
    unsafe fn spread16(a: *const u8, b: *const u8) -> Self::Q {
        let a = _mm256_broadcastsi128_si256(_mm_loadu_si128(a.cast()));
        let b = _mm256_broadcastsi128_si256(_mm_loadu_si128(b.cast()));
        let v = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
        _mm512_srlv_epi64(v, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0))
    }
    #[inline(always)]
    unsafe fn spread8(p: *const u8) -> Self::Q {
        let v = _mm512_castsi256_si512(_mm256_loadu_si256(p.cast()));
        let v = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), v);
        _mm512_srlv_epi64(v, _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0))
    }
    #[inline(always)]
    unsafe fn bits32(a: u32, b: u32) -> Self::Q {
        _mm512_movm_epi8(u64::from(a) | u64::from(b) << 32)
    }
    #[inline(always)]
    unsafe fn shr4(q: Self::Q) -> Self::Q {
        _mm512_srli_epi16::<4>(q)
    }
    #[inline(always)]
    unsafe fn and(q: Self::Q, m: u8) -> Self::Q {
        _mm512_and_si512(q, _mm512_set1_epi8(m as i8))
    }
    #[inline(always)]
    unsafe fn and_or(a: Self::Q, m: u8, b: Self::Q) -> Self::Q {
        _mm512_ternarylogic_epi64::<0xEA>(a, _mm512_set1_epi8(m as i8), b)
    }
    #[inline(always)]
    unsafe fn lut(q: Self::Q, table: &[i8; 16]) -> Self::Q {
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), q)
    }
    #[inline(always)]
    unsafe fn mirror(q: Self::Q, bits: u64) -> Self::Q {
        _mm512_mask_sub_epi8(q, bits, _mm512_set1_epi8(-128), q)
    }
    #[inline(always)]
    unsafe fn flip(q: Self::Q) -> Self::Q {
        _mm512_xor_si512(q, _mm512_set1_epi8(-128))
    }

    #[inline(always)]
    unsafe fn f16x8(x: u128) -> Self::S {
        let x: __m128i = transmute(x);
        _mm512_cvtph_ps(_mm256_set_m128i(_mm_unpackhi_epi16(x, x), _mm_unpacklo_epi16(x, x)))
    }
    #[inline(always)]
    unsafe fn e8m0x8(x: u64) -> Self::S {
        let x = _mm_cvtsi64_si128(x as i64);
        let x = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(x, x));
        let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(x, _mm512_set1_epi32(1)));
        let is_denormal = _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(2));
        _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, is_denormal, _mm512_set1_epi32(1 << 21), x))
    }
    #[inline(always)]
    unsafe fn ue4m3x16(x: u128) -> Self::S {
        Self::scale(_mm512_cvtph_ps(ue4m3_halves(x)), 256.0)
    }
    #[inline(always)]
    unsafe fn dot<const C: usize>(acc: Self::S, u: Self::Q, a: *const i8, s: Self::S) -> Self::S {
        let i = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, _mm512_loadu_si512(a.cast()));
        let s = _mm512_permutexvar_ps(_mm512_loadu_si512(LANES32[C].as_ptr().cast()), s);
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), s, acc)
    }
    /// Never called: signed weights are flipped.
    #[inline(always)]
    unsafe fn dot_i8<const C: usize>(acc: Self::S, _: Self::Q, _: *const i8, _: Self::S) -> Self::S {
        acc
    }

    #[inline(always)]
    unsafe fn wu8x16(x: u128) -> Self::W {
        _mm256_cvtepu8_epi16(transmute::<u128, __m128i>(x))
    }
    #[inline(always)]
    unsafe fn wi8x16(x: u128) -> Self::W {
        _mm256_cvtepi8_epi16(transmute::<u128, __m128i>(x))
    }
    #[inline(always)]
    unsafe fn twice(x: u64) -> u128 {
        let x = _mm_cvtsi64_si128(x as i64);
        transmute(_mm_unpacklo_epi8(x, x))
    }
    #[inline(always)]
    unsafe fn wmul(w: Self::W, k: *const i16) -> Self::W {
        _mm256_mullo_epi16(w, _mm256_loadu_si256(k.cast()))
    }
    #[inline(always)]
    unsafe fn wprep(w: Self::W) -> Self::K {
        _mm512_castsi256_si512(w)
    }
    #[inline(always)]
    unsafe fn istart(w: Self::W, sums: *const i16, bias_log2: u32) -> Self::A {
        let m = _mm256_madd_epi16(w, _mm256_loadu_si256(sums.cast()));
        let m = _mm256_sll_epi32(m, _mm_cvtsi32_si128(bias_log2 as i32));
        _mm512_zextsi256_si512(_mm256_sub_epi32(_mm256_setzero_si256(), m))
    }
    #[inline(always)]
    unsafe fn izero() -> Self::A {
        _mm512_setzero_si512()
    }
    #[inline(always)]
    unsafe fn idot<const C: usize>(acc: Self::A, u: Self::Q, a: *const i8, k: Self::K) -> Self::A {
        let t = _mm512_maddubs_epi16(u, _mm512_loadu_si512(a.cast()));
        let k = _mm512_permutexvar_epi16(_mm512_loadu_si512(LANES16[C].as_ptr().cast()), k);
        _mm512_dpwssd_epi32(acc, t, k)
    }
    /// Never called: signed weights are flipped.
    #[inline(always)]
    unsafe fn idot_i8<const C: usize>(acc: Self::A, _: Self::Q, _: *const i8, _: Self::K) -> Self::A {
        acc
    }
    #[inline(always)]
    unsafe fn ifold(acc: Self::S, i: Self::A, d: f32) -> Self::S {
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_set1_ps(d), acc)
    }
}

/// Control bytes of `vpmultishiftqb`: bytes of the first half shifted right by A bits, of the second by B.
struct Windows<const A: i32, const B: i32>;
impl<const A: i32, const B: i32> Windows<A, B> {
    const CONTROL: [u8; 64] = {
        let mut control = [0; 64];
        let mut i = 0;
        while i < 64 {
            let by = if i < 32 { A } else { B };
            control[i] = ((8 * (i as i32 % 8) + by) & 63) as u8;
            i += 1;
        }
        control
    };
}

/// f32 lane -> scale index, per chunk.
static LANES32: [[i32; 16]; 4] = [lanes32(0), lanes32(1), lanes32(2), lanes32(3)];
/// i16 lane -> scale index, per chunk.
static LANES16: [[i16; 32]; 4] = [lanes16(0), lanes16(1), lanes16(2), lanes16(3)];

const fn lanes32(chunk: i32) -> [i32; 16] {
    let mut v = [0; 16];
    let mut i = 0;
    while i < 16 {
        v[i] = 4 * chunk + i as i32 / 4;
        i += 1;
    }
    v
}

const fn lanes16(chunk: i16) -> [i16; 32] {
    let mut v = [0; 32];
    let mut i = 0;
    while i < 32 {
        v[i] = 4 * chunk + i as i16 / 8;
        i += 1;
    }
    v
}
