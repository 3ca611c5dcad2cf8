//! Panels of eight rows in 256-bit registers: AVX2 by `maddubs`, VNNI by `vpdpbusd`.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of every method is the trait's: the CPU has the ISA, pointers hold what it names"
)]
#![expect(clippy::needless_range_loop, reason = "register arrays are walked in lock step")]

use super::vector::Panels;
use super::x86_256::{Dot, Ymm};
use super::x86_512::Avx512Vnni;
use std::arch::x86_64::*;
use std::hint::black_box;

/// What all machines share.
macro_rules! floats_of_eight {
    () => {
        type I = __m256i;
        type F = __m256;

        #[inline(always)]
        unsafe fn zero8() -> Self::F {
            _mm256_setzero_ps()
        }
        #[inline(always)]
        unsafe fn load8(p: *const f32) -> Self::F {
            _mm256_loadu_ps(p)
        }
        #[inline(always)]
        unsafe fn store8(f: Self::F, p: *mut f32) {
            _mm256_storeu_ps(p, f);
        }
        #[inline(always)]
        unsafe fn fold8(acc: Self::F, i: Self::I, s: *const f32, d: f32) -> Self::F {
            let s = _mm256_mul_ps(_mm256_loadu_ps(s), _mm256_set1_ps(d));
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), s, acc)
        }
        #[inline(always)]
        unsafe fn nfma8(acc: Self::F, a: *const f32, b: f32) -> Self::F {
            _mm256_fnmadd_ps(_mm256_loadu_ps(a), _mm256_set1_ps(b), acc)
        }
        #[inline(always)]
        unsafe fn turn8(rows: *const u8, row_bytes: usize, to: *mut u8, flip: u32) {
            turn8(rows, row_bytes, to, flip);
        }
    };
}

/// `Panels::quads` by an instruction that adds products of four bytes.
macro_rules! dpbusd {
    ($w:ident, $panel_bytes:ident, $x:ident, $r:ident, $n:ident, $quads:ident, $dot:ident) => {{
        let mut sums = [[_mm256_setzero_si256(); $n]; $r];
        for k in 0..$quads {
            for n in 0..$n {
                let a = _mm256_set1_epi32($x[n].cast::<i32>().add(k).read_unaligned());
                for r in 0..$r {
                    let q = _mm256_load_si256($w.add(r * $panel_bytes + 32 * k).cast());
                    sums[r][n] = $dot(sums[r][n], q, a);
                }
            }
        }
        sums
    }};
}
pub(super) use dpbusd;

impl<D: Dot> Panels for Ymm<D> {
    floats_of_eight!();

    #[inline(always)]
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[__m256i; N]; R] {
        D::quads::<R, N, QUADS, FIT, SIGNED>(w, panel_bytes, x)
    }
}

impl Panels for Avx512Vnni {
    floats_of_eight!();

    #[inline(always)]
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[__m256i; N]; R] {
        dpbusd!(w, panel_bytes, x, R, N, QUADS, _mm256_dpbusd_epi32)
    }
}

/// `Panels::quads` by `maddubs`: a weight's sign goes to the activation.
#[inline(always)]
pub(super) unsafe fn maddubs<
    const R: usize,
    const N: usize,
    const QUADS: usize,
    const FIT: usize,
    const SIGNED: bool,
>(
    w: *const u8,
    panel_bytes: usize,
    x: [*const i8; N],
) -> [[__m256i; N]; R] {
    let one = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_si256(); N]; R];
    // loops of unknown length are not unrolled: the compiler would want all weights in registers, which it has not
    let (n_rounds, n_quads) =
        (if FIT < 4 { black_box(QUADS / FIT) } else { QUADS / FIT }, if FIT < 4 { FIT } else { black_box(FIT) });
    for round in 0..n_rounds {
        let mut pairs = [[_mm256_setzero_si256(); N]; R];
        let mut k = round * FIT;
        let end = k + n_quads;
        while k < end {
            let mut q = [_mm256_setzero_si256(); R];
            for r in 0..R {
                q[r] = _mm256_load_si256(w.add(r * panel_bytes + 32 * k).cast());
            }
            for n in 0..N {
                let a = _mm256_set1_epi32(x[n].cast::<i32>().add(k).read_unaligned());
                for r in 0..R {
                    let t = if SIGNED {
                        _mm256_maddubs_epi16(_mm256_abs_epi8(q[r]), _mm256_sign_epi8(a, q[r]))
                    } else {
                        _mm256_maddubs_epi16(q[r], a)
                    };
                    pairs[r][n] = _mm256_add_epi16(pairs[r][n], t);
                }
            }
            k += 1;
        }
        for r in 0..R {
            for n in 0..N {
                sums[r][n] = _mm256_add_epi32(sums[r][n], _mm256_madd_epi16(pairs[r][n], one));
            }
        }
    }
    sums
}

/// As `Panels::turn8`.
#[inline(always)]
unsafe fn turn8(rows: *const u8, row_bytes: usize, to: *mut u8, flip: u32) {
    let mut r = [_mm256_setzero_si256(); 8];
    let flip = _mm256_set1_epi32(flip as i32);
    for i in 0..8 {
        r[i] = _mm256_xor_si256(_mm256_loadu_si256(rows.add(i * row_bytes).cast()), flip);
    }
    let mut t = r;
    for i in 0..4 {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for i in 0..2 {
        r[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for i in 0..4 {
        _mm256_store_si256(to.add(32 * i).cast(), _mm256_permute2x128_si256::<0x20>(r[i], r[i + 4]));
        _mm256_store_si256(to.add(32 * (i + 4)).cast(), _mm256_permute2x128_si256::<0x31>(r[i], r[i + 4]));
    }
}
