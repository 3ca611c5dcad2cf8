//! AVX2 and AVX-VNNI: everything is two 256-bit registers. The two differ in three dot-product steps (`Dot`).
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of every method is the trait's: the CPU has the ISA, pointers hold what it names"
)]

use super::Isa;
use super::vector::{Quants, Vector};
use super::x86_panel;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::mem::transmute;

/// AVX2: `maddubs` + `madd`; exact because unsigned weights stay below 128 and signed ones go through abs/sign.
pub(crate) type Avx2 = Ymm<Madd>;
/// AVX-VNNI: 256-bit `vpdpbusd`.
pub(crate) type AvxVnni = Ymm<Vnni>;

/// What AVX2 and AVX-VNNI do differently.
pub(crate) trait Dot: Copy + 'static {
    /// Which of the two.
    const ISA: Isa;
    /// Signed weights are flipped to unsigned.
    const FLIPS: bool;
    /// Eight sums of four products, weights unsigned.
    unsafe fn dot(u: __m256i, a: __m256i) -> __m256i;
    /// Eight sums of four products, weights signed.
    unsafe fn dot_i8(w: __m256i, a: __m256i) -> __m256i;
    /// acc + eight sums of two 16-bit products.
    unsafe fn madd(acc: __m256i, t: __m256i, k: __m256i) -> __m256i;
    /// As `Panels::quads`.
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[__m256i; N]; R];
}

#[derive(Clone, Copy)]
pub(crate) struct Madd;
impl Dot for Madd {
    const ISA: Isa = Isa::Avx2;
    const FLIPS: bool = false;
    #[inline(always)]
    unsafe fn dot(u: __m256i, a: __m256i) -> __m256i {
        _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), _mm256_set1_epi16(1))
    }
    #[inline(always)]
    unsafe fn dot_i8(w: __m256i, a: __m256i) -> __m256i {
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)), _mm256_set1_epi16(1))
    }
    #[inline(always)]
    unsafe fn madd(acc: __m256i, t: __m256i, k: __m256i) -> __m256i {
        _mm256_add_epi32(acc, _mm256_madd_epi16(t, k))
    }
    #[inline(always)]
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[__m256i; N]; R] {
        x86_panel::maddubs::<R, N, QUADS, FIT, SIGNED>(w, panel_bytes, x)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Vnni;
impl Dot for Vnni {
    const ISA: Isa = Isa::AvxVnni;
    const FLIPS: bool = true;
    #[inline(always)]
    unsafe fn dot(u: __m256i, a: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), u, a)
    }
    /// Never called: signed weights are flipped.
    #[inline(always)]
    unsafe fn dot_i8(_: __m256i, _: __m256i) -> __m256i {
        _mm256_setzero_si256()
    }
    #[inline(always)]
    unsafe fn madd(acc: __m256i, t: __m256i, k: __m256i) -> __m256i {
        _mm256_dpwssd_avx_epi32(acc, t, k)
    }
    #[inline(always)]
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[__m256i; N]; R] {
        x86_panel::dpbusd!(w, panel_bytes, x, R, N, QUADS, _mm256_dpbusd_avx_epi32)
    }
}

/// A 256-bit machine with dot products `D`.
#[derive(Clone, Copy)]
pub(crate) struct Ymm<D>(PhantomData<D>);

impl<D: Dot> Vector for Ymm<D> {
    type S = [__m256; 2];

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }

    #[inline(always)]
    unsafe fn zero() -> Self::S {
        [_mm256_setzero_ps(); 2]
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::S {
        [_mm256_set1_ps(v); 2]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::S {
        [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))]
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::S {
        let v = _mm256_loadu_si256(p.cast());
        [_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(v))]
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::S {
        let v = _mm256_loadu_si256(p.cast());
        let lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(v));
        let hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(v));
        [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(lo)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(hi))]
    }
    #[inline(always)]
    unsafe fn f16(h: u16) -> f32 {
        _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(h))))
    }
    #[inline(always)]
    unsafe fn u8x16(x: u128) -> Self::S {
        let x: __m128i = transmute(x);
        let (lo, hi) = (_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x)));
        [_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)]
    }
    #[inline(always)]
    unsafe fn i8x16(x: u128) -> Self::S {
        let x: __m128i = transmute(x);
        let (lo, hi) = (_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x)));
        [_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)]
    }
    #[inline(always)]
    unsafe fn store(s: Self::S, p: *mut f32) {
        _mm256_storeu_ps(p, s[0]);
        _mm256_storeu_ps(p.add(8), s[1]);
    }
    #[inline(always)]
    unsafe fn scale(s: Self::S, k: f32) -> Self::S {
        let k = _mm256_set1_ps(k);
        [_mm256_mul_ps(s[0], k), _mm256_mul_ps(s[1], k)]
    }
    #[inline(always)]
    unsafe fn mul(a: Self::S, b: Self::S) -> Self::S {
        [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
    }
    #[inline(always)]
    unsafe fn fma(a: Self::S, b: Self::S, c: Self::S) -> Self::S {
        [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
    }
    #[inline(always)]
    unsafe fn nfma(c: Self::S, a: Self::S, b: Self::S) -> Self::S {
        [_mm256_fnmadd_ps(a[0], b[0], c[0]), _mm256_fnmadd_ps(a[1], b[1], c[1])]
    }
    #[inline(always)]
    unsafe fn sum(s: Self::S) -> f32 {
        sum256(_mm256_add_ps(s[0], s[1]))
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

impl<D: Dot> Quants for Ymm<D> {
    const ISA: Isa = D::ISA;
    const FLIPS: bool = D::FLIPS;
    const INT_FORM: bool = true;
    type Q = [__m256i; 2];
    type W = __m256i;
    type K = [__m256i; 2];
    type A = [__m256i; 2];

    #[inline(always)]
    unsafe fn load64(p: *const u8) -> Self::Q {
        Self::pair32(p, p.add(32))
    }
    #[inline(always)]
    unsafe fn store64(q: Self::Q, p: *mut u8) {
        _mm256_storeu_si256(p.cast(), q[0]);
        _mm256_storeu_si256(p.add(32).cast(), q[1]);
    }
    #[inline(always)]
    unsafe fn words(w: [u64; 8]) -> Self::Q {
        let w = w.map(|w| w as i64);
        [_mm256_set_epi64x(w[3], w[2], w[1], w[0]), _mm256_set_epi64x(w[7], w[6], w[5], w[4])]
    }
    #[inline(always)]
    unsafe fn half_words(w: [u32; 16]) -> Self::Q {
        let w = w.map(|w| w as i32);
        [
            _mm256_setr_epi32(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]),
            _mm256_setr_epi32(w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]),
        ]
    }
    #[inline(always)]
    unsafe fn pair32(a: *const u8, b: *const u8) -> Self::Q {
        [_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast())]
    }
    #[inline(always)]
    unsafe fn spread32<const A: i32, const B: i32>(p: *const u8) -> Self::Q {
        let v = _mm256_loadu_si256(p.cast());
        [shift::<A>(v), shift::<B>(v)]
    }
    #[inline(always)]
    unsafe fn spread16(a: *const u8, b: *const u8) -> Self::Q {
        let by = _mm256_set_epi64x(4, 4, 0, 0);
        let a = _mm256_broadcastsi128_si256(_mm_loadu_si128(a.cast()));
        let b = _mm256_broadcastsi128_si256(_mm_loadu_si128(b.cast()));
        [_mm256_srlv_epi64(a, by), _mm256_srlv_epi64(b, by)]
    }
    #[inline(always)]
    unsafe fn spread8(p: *const u8) -> Self::Q {
        let v = _mm256_loadu_si256(p.cast());
        let by = _mm256_set_epi64x(4, 0, 4, 0);
        let (lo, hi) = (_mm256_permute4x64_epi64::<0b01_01_00_00>(v), _mm256_permute4x64_epi64::<0b11_11_10_10>(v));
        [_mm256_srlv_epi64(lo, by), _mm256_srlv_epi64(hi, by)]
    }
    #[inline(always)]
    unsafe fn bits32(a: u32, b: u32) -> Self::Q {
        [bits(a), bits(b)]
    }
    #[inline(always)]
    unsafe fn shr4(q: Self::Q) -> Self::Q {
        [_mm256_srli_epi16::<4>(q[0]), _mm256_srli_epi16::<4>(q[1])]
    }
    #[inline(always)]
    unsafe fn and(q: Self::Q, m: u8) -> Self::Q {
        let m = _mm256_set1_epi8(m as i8);
        [_mm256_and_si256(q[0], m), _mm256_and_si256(q[1], m)]
    }
    #[inline(always)]
    unsafe fn and_or(a: Self::Q, m: u8, b: Self::Q) -> Self::Q {
        let a = Self::and(a, m);
        [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
    }
    #[inline(always)]
    unsafe fn lut(q: Self::Q, table: &[i8; 16]) -> Self::Q {
        let t = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        [_mm256_shuffle_epi8(t, q[0]), _mm256_shuffle_epi8(t, q[1])]
    }
    #[inline(always)]
    unsafe fn mirror(q: Self::Q, bits: u64) -> Self::Q {
        // 128 - q = !q + 129
        let more = _mm256_set1_epi8(129_u8 as i8);
        let [a, b] = Self::bits32(bits as u32, (bits >> 32) as u32);
        [
            _mm256_add_epi8(_mm256_xor_si256(q[0], a), _mm256_and_si256(a, more)),
            _mm256_add_epi8(_mm256_xor_si256(q[1], b), _mm256_and_si256(b, more)),
        ]
    }
    #[inline(always)]
    unsafe fn flip(q: Self::Q) -> Self::Q {
        let m = _mm256_set1_epi8(-128);
        [_mm256_xor_si256(q[0], m), _mm256_xor_si256(q[1], m)]
    }

    #[inline(always)]
    unsafe fn f16x8(x: u128) -> Self::S {
        twice_each(_mm256_cvtph_ps(transmute::<u128, __m128i>(x)))
    }
    #[inline(always)]
    unsafe fn e8m0x8(x: u64) -> Self::S {
        let x = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(x as i64));
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(x, _mm256_set1_epi32(1)));
        let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), x);
        let is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), x);
        twice_each(_mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, is_denormal)))
    }
    #[inline(always)]
    unsafe fn ue4m3x16(x: u128) -> Self::S {
        let h = ue4m3_halves(x);
        let (lo, hi) = (_mm256_castsi256_si128(h), _mm256_extracti128_si256::<1>(h));
        Self::scale([_mm256_cvtph_ps(lo), _mm256_cvtph_ps(hi)], 256.0)
    }
    #[inline(always)]
    unsafe fn dot<const C: usize>(acc: Self::S, u: Self::Q, a: *const i8, s: Self::S) -> Self::S {
        let i0 = D::dot(u[0], _mm256_loadu_si256(a.cast()));
        let i1 = D::dot(u[1], _mm256_loadu_si256(a.add(32).cast()));
        fold::<C>(acc, [i0, i1], s)
    }
    #[inline(always)]
    unsafe fn dot_i8<const C: usize>(acc: Self::S, w: Self::Q, a: *const i8, s: Self::S) -> Self::S {
        let i0 = D::dot_i8(w[0], _mm256_loadu_si256(a.cast()));
        let i1 = D::dot_i8(w[1], _mm256_loadu_si256(a.add(32).cast()));
        fold::<C>(acc, [i0, i1], s)
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
        [_mm256_permute4x64_epi64::<0x44>(w), _mm256_permute4x64_epi64::<0xEE>(w)]
    }
    #[inline(always)]
    unsafe fn istart(w: Self::W, sums: *const i16, bias_log2: u32) -> Self::A {
        let m = _mm256_madd_epi16(w, _mm256_loadu_si256(sums.cast()));
        let m = _mm256_sll_epi32(m, _mm_cvtsi32_si128(bias_log2 as i32));
        [_mm256_sub_epi32(_mm256_setzero_si256(), m), _mm256_setzero_si256()]
    }
    #[inline(always)]
    unsafe fn izero() -> Self::A {
        [_mm256_setzero_si256(); 2]
    }
    #[inline(always)]
    unsafe fn idot<const C: usize>(acc: Self::A, u: Self::Q, a: *const i8, k: Self::K) -> Self::A {
        let t0 = _mm256_maddubs_epi16(u[0], _mm256_loadu_si256(a.cast()));
        let t1 = _mm256_maddubs_epi16(u[1], _mm256_loadu_si256(a.add(32).cast()));
        Self::weigh::<C>(acc, t0, t1, k)
    }
    #[inline(always)]
    unsafe fn idot_i8<const C: usize>(acc: Self::A, w: Self::Q, a: *const i8, k: Self::K) -> Self::A {
        let (a0, a1) = (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(a.add(32).cast()));
        let t0 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[0]), _mm256_sign_epi8(a0, w[0]));
        let t1 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[1]), _mm256_sign_epi8(a1, w[1]));
        Self::weigh::<C>(acc, t0, t1, k)
    }
    #[inline(always)]
    unsafe fn ifold(acc: Self::S, i: Self::A, d: f32) -> Self::S {
        let i = _mm256_cvtepi32_ps(_mm256_add_epi32(i[0], i[1]));
        [_mm256_fmadd_ps(i, _mm256_set1_ps(d), acc[0]), acc[1]]
    }
}

impl<D: Dot> Ymm<D> {
    /// acc + 16-bit products of chunk C times its four scales.
    #[inline(always)]
    unsafe fn weigh<const C: usize>(acc: [__m256i; 2], t0: __m256i, t1: __m256i, k: [__m256i; 2]) -> [__m256i; 2] {
        // every 16-bit lane takes scale g of the half of `k` that holds the chunk
        const fn lane(g: usize) -> i16 {
            (2 * g + 256 * (2 * g + 1)) as i16
        }
        let g = 4 * (C % 2);
        let i0 = _mm256_set_m128i(_mm_set1_epi16(lane(g + 1)), _mm_set1_epi16(lane(g)));
        let i1 = _mm256_set_m128i(_mm_set1_epi16(lane(g + 3)), _mm_set1_epi16(lane(g + 2)));
        let k = k[C / 2];
        [D::madd(acc[0], t0, _mm256_shuffle_epi8(k, i0)), D::madd(acc[1], t1, _mm256_shuffle_epi8(k, i1))]
    }
}

/// Sum of the eight lanes.
#[inline(always)]
pub(super) unsafe fn sum256(v: __m256) -> f32 {
    let x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
}

/// As `Vector::max_abs32`.
#[inline(always)]
pub(super) unsafe fn max_abs32(p: *const f32) -> f32 {
    // the bits of non-negative floats compare like integers; NaN compares highest
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let mut m = _mm256_and_si256(_mm256_loadu_si256(p.cast()), magnitude);
    m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_loadu_si256(p.add(8).cast()), magnitude));
    m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_loadu_si256(p.add(16).cast()), magnitude));
    m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_loadu_si256(p.add(24).cast()), magnitude));
    let m = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
    let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
    let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b10_11_00_01>(m));
    f32::from_bits(_mm_cvtsi128_si32(m) as u32)
}

/// As `Vector::quantise32`; the conversion rounds as the thread's rounding mode says, which Rust keeps at "nearest".
#[inline(always)]
pub(super) unsafe fn quantise32(p: *const f32, k: f32, q: *mut i8) -> [i16; 2] {
    let k = _mm256_set1_ps(k);
    let a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p), k));
    let b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p.add(8)), k));
    let c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p.add(16)), k));
    let d = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p.add(24)), k));
    // packing works within halves: a0 b0 c0 d0 | a1 b1 c1 d1, four bytes each
    let v = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(q.cast(), v);
    let sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1));
    let sums = _mm256_hadd_epi32(sums, sums);
    let sums = _mm256_hadd_epi32(sums, sums);
    [_mm256_extract_epi32::<0>(sums) as i16, _mm256_extract_epi32::<4>(sums) as i16]
}

/// `v >> A` in 16-bit units; negative A shifts left. Folds to one instruction.
#[inline(always)]
unsafe fn shift<const A: i32>(v: __m256i) -> __m256i {
    match A {
        -4 => _mm256_slli_epi16::<4>(v),
        -3 => _mm256_slli_epi16::<3>(v),
        -2 => _mm256_slli_epi16::<2>(v),
        -1 => _mm256_slli_epi16::<1>(v),
        0 => v,
        1 => _mm256_srli_epi16::<1>(v),
        2 => _mm256_srli_epi16::<2>(v),
        3 => _mm256_srli_epi16::<3>(v),
        4 => _mm256_srli_epi16::<4>(v),
        5 => _mm256_srli_epi16::<5>(v),
        _ => _mm256_srli_epi16::<6>(v),
    }
}

/// One byte per bit, 0xff or 0.
#[inline(always)]
unsafe fn bits(v: u32) -> __m256i {
    // byte i / 8 of v into byte i, then its bit i % 8
    let at = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let v = _mm256_shuffle_epi8(_mm256_set1_epi32(v as i32), at);
    _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit)
}

/// 16 UE4M3 as halves, which have the same fields with a bias that is larger by 8; 0x7f becomes 0.
#[inline(always)]
pub(super) unsafe fn ue4m3_halves(x: u128) -> __m256i {
    let x: __m128i = transmute(x);
    let top = _mm_set1_epi8(0x7f);
    let x = _mm_and_si128(_mm_andnot_si128(_mm_cmpeq_epi8(x, top), x), top);
    _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(x))
}

/// Eight lanes to sixteen, each twice.
#[inline(always)]
unsafe fn twice_each(f: __m256) -> [__m256; 2] {
    [
        _mm256_permutevar8x32_ps(f, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
        _mm256_permutevar8x32_ps(f, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)),
    ]
}

/// acc + dot products of chunk C times its four scales.
#[inline(always)]
unsafe fn fold<const C: usize>(acc: [__m256; 2], i: [__m256i; 2], s: [__m256; 2]) -> [__m256; 2] {
    let g = 4 * (C as i32 % 2);
    let s = s[C / 2];
    let s0 = _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(g, g, g, g, g + 1, g + 1, g + 1, g + 1));
    let s1 = _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(g + 2, g + 2, g + 2, g + 2, g + 3, g + 3, g + 3, g + 3));
    [_mm256_fmadd_ps(_mm256_cvtepi32_ps(i[0]), s0, acc[0]), _mm256_fmadd_ps(_mm256_cvtepi32_ps(i[1]), s1, acc[1])]
}
