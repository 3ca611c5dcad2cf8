//! The small operations between products: sums, factors, softmax. Plain loops, compiled once per ISA. Norms are in `norm`,
//! the functions of gates in `gate`.
//!
//! The arithmetic is written so that every ISA gives the same bits: sums run over 16 lanes, nothing is contracted.
use super::Cpu;
use super::isa::{LANES, per_isa};
use super::math::{exp, tanh};
use super::shared::SharedSlice;

/// Elements per task; smaller operations run on the caller alone (a few microseconds).
const GRAIN: usize = 16 * 1024;

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

/// x *= factor.
///
/// x        any number of elements, changed in place
pub fn scale(cpu: &Cpu, x: &mut [f32], factor: f32) {
    by_rows(cpu, x, 1, &|x, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { scale_slice(cpu.isa(), x, factor) }
    });
}

/// x *= y, where every row of `x` gets the same factors.
///
/// x        [n_rows, n_cols] f32, changed in place
/// y        [n_cols]
pub fn multiply(cpu: &Cpu, x: &mut [f32], y: &[f32]) {
    by_rows(cpu, x, y.len(), &|rows, _| {
        for row in rows.chunks_exact_mut(y.len()) {
            // SAFETY: the ISA of a `Cpu` is present.
            unsafe { multiply_slice(cpu.isa(), row, y) };
        }
    });
}

/// Keeps elements within -limit..limit.
///
/// x        any number of elements, changed in place
pub fn clamp(cpu: &Cpu, x: &mut [f32], limit: f32) {
    by_rows(cpu, x, 1, &|x, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { clamp_slice(cpu.isa(), x, limit) }
    });
}

/// x = cap * tanh(x / cap).
///
/// x        any number of elements, changed in place
/// Source   Gemma 2 report, section 2
pub fn softcap(cpu: &Cpu, x: &mut [f32], cap: f32) {
    by_rows(cpu, x, 1, &|x, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { softcap_slice(cpu.isa(), x, cap) }
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
    unsafe fn add_slice<V>(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

per_isa! {
    unsafe fn scale_slice<V>(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

per_isa! {
    unsafe fn multiply_slice<V>(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x *= y;
        }
    }
}

per_isa! {
    unsafe fn clamp_slice<V>(x: &mut [f32], limit: f32) {
        for x in x {
            // comparisons and not `clamp`, which is a call for NaN's sake on some targets
            *x = if *x > limit { limit } else { *x };
            *x = if *x < -limit { -limit } else { *x };
        }
    }
}

per_isa! {
    unsafe fn softcap_slice<V>(x: &mut [f32], cap: f32) {
        for x in x {
            *x = cap * tanh(*x / cap);
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
    use crate::cpu::check::{SIZES, assert_close, on_all, wave};

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
    fn elementwise_operations_equal_f64() {
        for (rows, cols) in SIZES {
            let (x, y) = (wave(rows * cols, 0.3), wave(cols, 0.7));
            let same = |f: &dyn Fn(&Cpu, &mut [f32]), want: &dyn Fn(usize, f64) -> f64| {
                let got = on_all(|cpu| {
                    let mut x = x.clone();
                    f(cpu, &mut x);
                    x
                });
                assert_close(&got, x.iter().enumerate().map(|(i, v)| want(i, f64::from(*v))), 2e-6);
            };
            same(&|cpu, x| scale(cpu, x, 1.7), &|_, v| v * f64::from(1.7f32));
            same(&|cpu, x| multiply(cpu, x, &y), &|i, v| v * f64::from(y[i % cols]));
            same(&|cpu, x| clamp(cpu, x, 1.5), &|_, v| v.clamp(-1.5, 1.5));
            same(&|cpu, x| softcap(cpu, x, 2.0), &|_, v| 2.0 * (v / 2.0).tanh());
        }
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
