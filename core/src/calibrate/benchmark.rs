//! The benchmark: memory by number of threads, the kernel of every type of weights, a layer's own cost, the disk. Each figure
//! is the best of several short runs, so that moments taken by other programs do not count.

use std::path::Path;
use std::time::{Duration, Instant};

use tandem_engine::Flow;
use tandem_engine::cpu::{Cpu, Isa, Rounding};
use tandem_engine::error::EngineError;
use tandem_engine::probe::{NextWeights, ProductProbe, ProductShape, ReadProbe};
use tandem_engine::quant::FORMATS;

use super::{machine_name, small_model};
use crate::error::{Explain, FileError, cancelled};
use crate::hardware::uncached;
use crate::store::now_ms;
use crate::wire::{Failure, Hardware, KernelRate, MachineRates, ReadRate};

/// Memory that is read: more than caches hold, and a small part of what is free.
const MEMORY_BYTES: usize = 256 << 20;
const LEAST_MEMORY_BYTES: usize = 32 << 20;
/// What one run reads or multiplies: each run other memory, so that no cache helps; short, so that some run is left in peace.
const PART_BYTES: usize = 8 << 20;
/// What one thread multiplies from its cache.
const CACHED_BYTES: usize = 256 << 10;
/// Columns of the matrices, a common width of models, and tokens of a prompt.
const N_COLS: usize = 2048;
const N_PROMPT_TOKENS: usize = 64;
/// Runs of which the best counts: so many, or fewer where they take longer than this together.
const N_RUNS: usize = 24;
const MIN_RUNS: usize = 5;
const RUNS_TAKE: Duration = Duration::from_millis(60);

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// Somebody skipped it, or the engine was wanted for something else.
    #[error("the benchmark was stopped")]
    Cancelled,
    /// No memory, or no threads.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The small model could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Measures this machine.
///
/// folder   where models lie, for the disk
/// on       gets the part that is done, 0 to 1, about every 50 ms; `Break` stops
pub fn benchmark(
    hardware: &Hardware,
    folder: &Path,
    on: &mut dyn FnMut(f64) -> Flow,
) -> Result<MachineRates, CalibrateError> {
    let started = Instant::now();
    let n_threads = n_threads(hardware);
    let mut steps =
        Steps { n_done: 0, n_all: thread_counts(n_threads).len() + FORMATS.len() + small_model::N_STEPS + 1, on };
    steps.next()?;
    let free_bytes = usize::try_from(hardware.ram_available_bytes / 8).unwrap_or(usize::MAX);
    let memory = ReadProbe::new(MEMORY_BYTES.min(free_bytes).max(LEAST_MEMORY_BYTES))?;
    let isa = Isa::best();
    let one = Cpu::new(isa, 1).map_err(EngineError::from)?;
    let all = Cpu::new(isa, n_threads as usize).map_err(EngineError::from)?;

    let mut reads = Vec::new();
    for n in thread_counts(n_threads) {
        let cpu = Cpu::new(isa, n as usize).map_err(EngineError::from)?;
        let mut first = 0;
        let seconds = best_seconds(|| {
            std::hint::black_box(memory.read_part(&cpu, first..first + PART_BYTES));
            first = (first + PART_BYTES) % (memory.n_bytes() - PART_BYTES);
        });
        reads.push(ReadRate { n_threads: n, bytes_per_s: PART_BYTES as f64 / seconds });
        steps.next()?;
    }
    let mut kernels = Vec::new();
    for format in FORMATS {
        kernels.push(kernel(format.tensor_type, &memory, &one, &all, n_threads)?);
        steps.next()?;
    }
    drop(memory);
    let layers = small_model::measure(n_threads, &mut || steps.next())?;
    let disk_bytes_per_s = uncached::read_rate(folder);
    Ok(MachineRates {
        machine: machine_name(hardware),
        at_ms: now_ms(),
        took_ms: started.elapsed().as_secs_f64() * 1e3,
        memory: reads,
        kernels,
        layer_s: layers.layer_s,
        layer_s_per_value: layers.layer_s_per_value,
        attention_bytes_per_s: layers.attention_bytes_per_s,
        disk_bytes_per_s,
    })
}

/// As many threads as a plan takes where nobody wishes others.
fn n_threads(hardware: &Hardware) -> u32 {
    hardware.cpu.n_performance_cores.min(hardware.cpu.n_allowed_cores).max(1)
}

/// 1, 2, 4, … up to all.
fn thread_counts(n_threads: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|n| *n < n_threads);
    powers.chain([n_threads]).collect()
}

fn kernel(
    tensor_type: tandem_engine::gguf::TensorType,
    memory: &ReadProbe,
    one: &Cpu,
    all: &Cpu,
    n_threads: u32,
) -> Result<KernelRate, CalibrateError> {
    let (same, once) = (NextWeights::Same, Rounding::Once);
    let probe = |cpu: &Cpu, n_bytes: usize, next: NextWeights, n_tokens: usize, rounding: Rounding| {
        let shape = ProductShape { tensor_type, n_cols: N_COLS, n_bytes, next, n_tokens, rounding };
        ProductProbe::new(cpu, memory, shape)
    };
    let bytes_per_s = |cpu: &Cpu, n_bytes: usize, next: NextWeights, rounding: Rounding| -> Result<f64, EngineError> {
        let mut probe = probe(cpu, n_bytes, next, 1, rounding)?;
        let n_bytes = probe.n_bytes() as f64;
        Ok(n_bytes / best_seconds(|| probe.run(cpu)))
    };
    let mut prompt = probe(one, CACHED_BYTES, same, N_PROMPT_TOKENS, once)?;
    let n_ops = prompt.n_ops();
    Ok(KernelRate {
        tensor_type: tensor_type.to_string(),
        one_thread_bytes_per_s: bytes_per_s(one, PART_BYTES / 2, NextWeights::Other, once)?,
        one_thread_twice_bytes_per_s: bytes_per_s(one, PART_BYTES / 2, NextWeights::Other, Rounding::Twice)?,
        all_threads_bytes_per_s: bytes_per_s(all, PART_BYTES, NextWeights::Other, once)?,
        n_threads,
        cached_bytes_per_s: bytes_per_s(one, CACHED_BYTES, same, once)?,
        prompt_ops_per_s: n_ops / best_seconds(|| prompt.run(one)),
    })
}

/// Best of some runs behind one that is not counted, seconds.
fn best_seconds(mut run: impl FnMut()) -> f64 {
    run();
    let started = Instant::now();
    let mut best = Duration::MAX;
    for n in 0..N_RUNS {
        if n >= MIN_RUNS && started.elapsed() > RUNS_TAKE {
            break;
        }
        let started = Instant::now();
        run();
        best = best.min(started.elapsed());
    }
    best.as_secs_f64().max(1e-9)
}

/// What is done, told after each step.
struct Steps<'a> {
    n_done: usize,
    n_all: usize,
    on: &'a mut dyn FnMut(f64) -> Flow,
}

impl Steps<'_> {
    fn next(&mut self) -> Result<(), CalibrateError> {
        let progress = self.n_done as f64 / self.n_all as f64;
        self.n_done += 1;
        match (self.on)(progress.min(1.0)) {
            Flow::Continue => Ok(()),
            Flow::Break => Err(CalibrateError::Cancelled),
        }
    }
}

impl Explain for CalibrateError {
    fn explain(&self) -> Failure {
        match self {
            Self::Cancelled => cancelled(),
            Self::Engine(error) => error.explain(),
            Self::File(error) => error.explain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{ProbeOptions, Prober};

    #[test]
    fn threads_are_doubled_up_to_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn it_can_be_stopped_at_every_step() {
        let hardware = Prober::new(ProbeOptions::default()).hardware(Path::new("."));
        for n_left in [0, 1, 3] {
            let mut n_left = n_left;
            let result = benchmark(&hardware, Path::new("."), &mut |_| {
                n_left -= 1;
                if n_left < 0 { Flow::Break } else { Flow::Continue }
            });
            assert!(matches!(result, Err(CalibrateError::Cancelled)));
        }
    }
}
