//! The turn that makes heads fit for few bits: a Walsh-Hadamard transform spreads what is large in one channel over many.
//!
//! It keeps lengths and products, and undoes itself: scores of turned queries with turned keys are those of the plain ones,
//! and turned values give turned outputs, which are turned back. Heads are turned in runs of at most `MAX_RUN` channels.

use super::Cpu;
use super::shared::SharedSlice;

/// No length is best for all: Gemma's heads of 256 are nearest in runs of 128, and further in whole than in runs of 64
/// (`docs/correctness.md`).
const MAX_RUN: usize = 64;

/// Runs per task; one of 64 channels takes about 0.1 us.
const GRAIN_RUNS: usize = 64;

/// Channels that are turned together in heads of `dim`: the largest power of two that divides it, up to `MAX_RUN`.
pub fn turn_run(dim: usize) -> usize {
    MAX_RUN.min(1 << dim.trailing_zeros().min(MAX_RUN.trailing_zeros()))
}

/// Turns heads, or back.
///
/// x        whole runs, changed in place
/// run      channels that are turned together, a power of two
/// Errors   none; panics if x is no whole number of runs
/// Cost     O(n · log run), no allocation
/// Source   Ashkboos et al. 2024 (QuaRot)
pub fn turn(x: &mut [f32], run: usize) {
    assert!(run.is_power_of_two() && x.len().is_multiple_of(run), "{} elements in runs of {run}", x.len());
    let scale = 1.0 / (run as f32).sqrt();
    for run in x.chunks_exact_mut(run) {
        let mut half = 1;
        while half < run.len() {
            for pair in run.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        run.iter_mut().for_each(|x| *x *= scale);
    }
}

/// The same on all threads.
pub fn turn_all(cpu: &Cpu, x: &mut [f32], run: usize) {
    let n_runs = x.len() / run;
    let x = SharedSlice::new(x);
    cpu.pool.split(n_runs, GRAIN_RUNS, &|runs| {
        // SAFETY: each run belongs to one task.
        turn(unsafe { x.part(runs.start * run..runs.end * run) }, run);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.7).sin() * (1.0 + (i % 5) as f32)).collect()
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn is_the_matrix_of_its_definition() {
        for run in [1, 2, 8, 64] {
            let (x, mut turned) = (wave(3 * run), wave(3 * run));
            turn(&mut turned, run);
            for (i, got) in turned.iter().enumerate() {
                let sign = |j: usize| if ((i % run) & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let first = i / run * run;
                let want: f32 = (0..run).map(|j| sign(j) * x[first + j]).sum::<f32>() / (run as f32).sqrt();
                assert!((got - want).abs() < 1e-4, "{run}, {i}: {got}, {want}");
            }
        }
    }

    #[test]
    fn keeps_products_and_undoes_itself_on_all_threads() {
        let cpu = Cpu::new(Isa::Scalar, 2).unwrap();
        for (run, n_runs) in [(32, 1), (64, 500)] {
            let (a, b) = (wave(run * n_runs), wave(run * n_runs + 3)[3..].to_vec());
            let (mut turned_a, mut turned_b) = (a.clone(), b.clone());
            turn_all(&cpu, &mut turned_a, run);
            turn(&mut turned_b, run);
            assert!((dot(&turned_a, &turned_b) - dot(&a, &b)).abs() < 1e-5 * dot(&a, &a));
            turn_all(&cpu, &mut turned_a, run);
            assert!(turned_a.iter().zip(&a).all(|(got, want)| (got - want).abs() < 1e-5));
        }
    }

    #[test]
    fn runs_divide_heads() {
        for (dim, run) in [(7, 1), (32, 32), (80, 16), (96, 32), (128, 64), (576, 64)] {
            assert_eq!(turn_run(dim), run);
        }
    }
}
