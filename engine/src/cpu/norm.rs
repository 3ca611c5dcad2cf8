//! Norms over rows: by root mean square, and by mean and variance. Written as in `ops`: every ISA gives the same bits.
use super::Cpu;
use super::isa::per_isa;
use super::ops::{by_rows, sum_of};

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

/// x = (x - mean) / sqrt(variance + eps), row by row; a weight and a bias are separate operations.
///
/// x        [n_rows, n_cols] f32, changed in place
/// Cost     O(n_rows * n_cols), no allocation
/// Source   Ba, Kiros, Hinton 2016
pub fn layer_norm_in_place(cpu: &Cpu, x: &mut [f32], n_cols: usize, eps: f32) {
    by_rows(cpu, x, n_cols, &|rows, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { centre_rows(cpu.isa(), rows, n_cols, eps) }
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
    unsafe fn centre_rows<V>(x: &mut [f32], n_cols: usize, eps: f32) {
        for x in x.chunks_exact_mut(n_cols) {
            let mean = sum_of(x, |v| v) / n_cols as f32;
            for x in x.iter_mut() {
                *x -= mean;
            }
            let scale = norm_scale(x, eps);
            for x in x {
                *x *= scale;
            }
        }
    }
}

/// 1 / sqrt(mean(x^2) + eps).
#[inline(always)]
pub(super) fn norm_scale(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of(x, |v| v * v) / x.len() as f32 + eps).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::check::{SIZES, assert_close, on_all, wave};

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
    fn layer_norm_equals_f64() {
        for (rows, cols) in SIZES {
            let x: Vec<f32> = wave(rows * cols, 0.37).iter().map(|v| v + 2.0).collect();
            let got = on_all(|cpu| {
                let mut x = x.clone();
                layer_norm_in_place(cpu, &mut x, cols, 1e-5);
                x
            });
            let want = x.chunks_exact(cols).flat_map(|row| {
                let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / cols as f64;
                let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / cols as f64;
                row.iter().map(move |v| (f64::from(*v) - mean) / (variance + 1e-5).sqrt())
            });
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                assert!((f64::from(*got) - want).abs() < 2e-6, "{i}: {got} {want}");
            }
        }
    }
}
