//! The small operations between products: norms, activations, sums. Plain loops, compiled once per ISA.
//!
//! The arithmetic is written so that every ISA gives the same bits: sums run over 16 lanes, nothing is contracted.
use super::Cpu;
use super::isa::{LANES, per_isa};
use super::math::exp;
use super::shared::SharedSlice;

/// Elements per task; smaller operations run on the caller alone (a few microseconds).
const GRAIN: usize = 16 * 1024;

/// out = x / sqrt(mean(x^2) + eps) * weight, row by row.
///
/// x        [n_rows, n_cols] f32
/// weight   [n_cols]
/// out      [n_rows, n_cols] f32
/// Cost     O(n_rows * n_cols), no allocation
/// Source   Zhang, Sennrich 2019
pub fn rms_norm(cpu: &Cpu, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let n = weight.len();
    by_rows(cpu, out, n, &|rows, first| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { norm_rows(cpu.isa(), &x[first..first + rows.len()], weight, eps, rows) }
    });
}

/// As `rms_norm`, in place; for heads: `weight` is as long as one head.
///
/// x        [n_rows, n_cols] f32, changed in place
pub fn rms_norm_in_place(cpu: &Cpu, x: &mut [f32], weight: &[f32], eps: f32) {
    by_rows(cpu, x, weight.len(), &|rows, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { norm_rows_in_place(cpu.isa(), rows, weight, eps) }
    });
}

/// gate = silu(gate) * up, with silu(v) = v / (1 + e^-v).
///
/// gate     [n] f32, changed in place
/// up       [n] f32
/// Source   Shazeer 2020 (SwiGLU)
pub fn silu_mul(cpu: &Cpu, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    by_rows(cpu, gate, 1, &|gate, first| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { silu_mul_slice(cpu.isa(), gate, &up[first..first + gate.len()]) }
    });
}

/// x += y, where `y` is as long as `x` or one row that every row of `x` gets (a bias).
///
/// x        [n_rows, n_cols] f32, changed in place
/// y        [n_cols] or [n_rows, n_cols]
pub fn add(cpu: &Cpu, x: &mut [f32], y: &[f32]) {
    let n = y.len();
    by_rows(cpu, x, n, &|rows, _| {
        for row in rows.chunks_exact_mut(n) {
            // SAFETY: the ISA of a `Cpu` is present.
            unsafe { add_slice(cpu.isa(), row, y) };
        }
    });
}

/// Softmax of each row: e^(x - max) over their sum.
///
/// x        [n_rows, n_cols] f32, changed in place
pub fn softmax(cpu: &Cpu, x: &mut [f32], n_cols: usize) {
    by_rows(cpu, x, n_cols, &|rows, _| {
        for row in rows.chunks_exact_mut(n_cols) {
            // SAFETY: the ISA of a `Cpu` is present.
            unsafe { softmax_row(cpu.isa(), row) };
        }
    });
}

/// Calls `f(rows, index of their first element)` over parts of `x` of whole rows, on several threads if it is large.
pub(super) fn by_rows(cpu: &Cpu, x: &mut [f32], n_cols: usize, f: &(dyn Fn(&mut [f32], usize) + Sync)) {
    assert!(n_cols > 0 && x.len().is_multiple_of(n_cols), "{} elements in rows of {n_cols}", x.len());
    let n_rows = x.len() / n_cols;
    let x = SharedSlice::new(x);
    cpu.pool.split(n_rows, GRAIN.div_ceil(n_cols), &|rows| {
        let first = rows.start * n_cols;
        // SAFETY: `split` hands each row to one task.
        f(unsafe { x.part(first..rows.end * n_cols) }, first);
    });
}

per_isa! {
    unsafe fn norm_rows<V>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len();
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            let scale = norm_scale(x, eps);
            for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                *out = x * scale * w;
            }
        }
    }
}

per_isa! {
    unsafe fn norm_rows_in_place<V>(x: &mut [f32], weight: &[f32], eps: f32) {
        for x in x.chunks_exact_mut(weight.len()) {
            let scale = norm_scale(x, eps);
            for (x, w) in x.iter_mut().zip(weight) {
                *x = *x * scale * w;
            }
        }
    }
}

per_isa! {
    unsafe fn silu_mul_slice<V>(gate: &mut [f32], up: &[f32]) {
        for (g, u) in gate.iter_mut().zip(up) {
            *g = *g / (1.0 + exp(-*g)) * u;
        }
    }
}

per_isa! {
    unsafe fn add_slice<V>(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

per_isa! {
    unsafe fn softmax_row<V>(x: &mut [f32]) {
        let mut max = f32::NEG_INFINITY;
        for &v in &*x {
            max = if v > max { v } else { max };
        }
        for v in x.iter_mut() {
            *v = exp(*v - max);
        }
        let inverse = 1.0 / sum_of(x, |v| v);
        for v in x.iter_mut() {
            *v *= inverse;
        }
    }
}

/// 1 / sqrt(mean(x^2) + eps).
#[inline(always)]
pub(super) fn norm_scale(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of(x, |v| v * v) / x.len() as f32 + eps).sqrt()
}

/// Sum of f(v), over lanes: vectorises, and loses less than one long chain.
#[inline(always)]
pub(super) fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += f(*v);
        }
    }
    for (lane, v) in lanes.iter_mut().zip(rest) {
        *lane += f(*v);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin() * 3.0).collect()
    }

    /// Runs `f` on every ISA, on one and on several threads; all must give the same bits.
    fn on_all(f: impl Fn(&Cpu) -> Vec<f32>) -> Vec<f32> {
        let want = f(&Cpu::new(Isa::Scalar, 1).unwrap());
        for isa in Isa::present() {
            for n_threads in [1, 3] {
                let got = f(&Cpu::new(isa, n_threads).unwrap());
                assert!(got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa} {n_threads}");
            }
        }
        want
    }

    fn assert_close(got: &[f32], want: impl Iterator<Item = f64>, tolerance: f64) {
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert!((f64::from(*g) - w).abs() <= tolerance * w.abs().max(1e-3), "{i}: {g} {w}");
        }
    }

    const SIZES: [(usize, usize); 6] = [(1, 1), (3, 7), (1, 16), (5, 33), (2, 576), (70, 1536)];

    #[test]
    fn rms_norm_equals_f64() {
        for (rows, cols) in SIZES {
            let (x, w) = (wave(rows * cols, 0.37), wave(cols, 0.11));
            let got = on_all(|cpu| {
                let mut out = vec![f32::NAN; x.len()];
                rms_norm(cpu, &x, &w, 1e-5, &mut out);
                let mut in_place = x.clone();
                rms_norm_in_place(cpu, &mut in_place, &w, 1e-5);
                assert_eq!(out, in_place);
                out
            });
            let want = x.chunks_exact(cols).flat_map(|row| {
                let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / cols as f64;
                row.iter().zip(&w).map(move |(v, w)| f64::from(*v) / (mean + 1e-5).sqrt() * f64::from(*w))
            });
            assert_close(&got, want, 1e-6);
        }
    }

    #[test]
    fn silu_mul_equals_f64() {
        for (rows, cols) in SIZES {
            let (gate, up) = (wave(rows * cols, 0.9), wave(rows * cols, 0.21));
            let got = on_all(|cpu| {
                let mut gate = gate.clone();
                silu_mul(cpu, &mut gate, &up);
                gate
            });
            let want = gate.iter().zip(&up).map(|(g, u)| {
                let g = f64::from(*g);
                g / (1.0 + (-g).exp()) * f64::from(*u)
            });
            assert_close(&got, want, 1e-6);
        }
    }

    #[test]
    fn silu_of_large_values_is_finite() {
        let cpu = Cpu::new(Isa::best(), 1).unwrap();
        let mut gate = [-1000.0, -100.0, 100.0, 1000.0];
        silu_mul(&cpu, &mut gate, &[1.0; 4]);
        assert_eq!(gate, [0.0, 0.0, 100.0, 1000.0]);
    }

    #[test]
    fn add_takes_a_whole_or_a_row() {
        let (x, y) = (wave(70 * 1536, 0.3), wave(1536, 0.7));
        let got = on_all(|cpu| {
            let mut x = x.clone();
            add(cpu, &mut x, &y);
            x
        });
        assert!(got.iter().enumerate().all(|(i, v)| *v == x[i] + y[i % 1536]));
        let got = on_all(|cpu| {
            let mut x = x.clone();
            add(cpu, &mut x, &got);
            x
        });
        assert_eq!(got[5], x[5] + (x[5] + y[5]));
    }

    #[test]
    fn softmax_equals_f64_and_masks_are_zero() {
        for (rows, cols) in SIZES {
            let mut x = wave(rows * cols, 0.5);
            if cols > 1 {
                x[1] = f32::NEG_INFINITY;
            }
            let got = on_all(|cpu| {
                let mut x = x.clone();
                softmax(cpu, &mut x, cols);
                x
            });
            let want = x.chunks_exact(cols).flat_map(|row| {
                let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
                row.iter().map(move |v| f64::from(*v).exp() / sum)
            });
            assert_close(&got, want, 1e-6);
            assert!(cols == 1 || got[1] == 0.0);
        }
    }
}
