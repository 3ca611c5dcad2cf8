//! The benchmark: memory by number of threads, the kernel of every type of weights, a layer's own cost, the disk, and cards
//! where a device layer can measure them. Each figure is one that a tenth of many short runs stayed below: moments taken
//! by other programs do not count, and neither does the luckiest one.

use std::path::Path;
use std::time::{Duration, Instant};

use tandem_engine::Flow;
use tandem_engine::cpu::{Cpu, Isa, Rounding};
use tandem_engine::error::EngineError;
use tandem_engine::gguf::TensorType;
use tandem_engine::probe::{NextWeights, ProductProbe, ProductShape, ReadProbe};
use tandem_engine::quant::FORMATS;

use super::{machine_name, small_model};
use crate::error::{Explain, FileError, cancelled};
use crate::hardware::uncached;
use crate::plan::{N_COLS, PART_BYTES};
use crate::store::now_ms;
use crate::wire::{CardRates, Failure, Gpu, Hardware, KernelRate, MachineRates, ReadRate};

/// Memory that is read: more than caches hold, and a small part of what is free.
const MEMORY_BYTES: usize = 256 << 20;
const LEAST_MEMORY_BYTES: usize = 32 << 20;
/// What one thread multiplies from its cache.
const CACHED_BYTES: usize = 256 << 10;
/// A small matrix, as small models have them, for what a product takes beside its weights.
const SMALL_BYTES: usize = 512 << 10;
/// Of a narrow matrix, whose rows end sooner.
const FEW_COLS: usize = 512;
/// Of a prompt.
const N_PROMPT_TOKENS: usize = 64;
/// Runs of which the best counts: so many, or fewer where they take longer than this together.
const N_RUNS: usize = 80;
const MIN_RUNS: usize = 5;
const RUNS_TAKE: Duration = Duration::from_millis(40);
const WARM_UP: Duration = Duration::from_millis(5);

/// Measures a card; `None` if it cannot.
pub type MeasureCard = dyn Fn(&Gpu) -> Option<CardRates> + Send + Sync;

/// What is measured.
pub struct Subject<'a> {
    /// The machine.
    pub hardware: &'a Hardware,
    /// Where models lie, for the disk.
    pub folder: &'a Path,
    /// Types of weights; all that the engine knows if none is named.
    pub types: &'a [TensorType],
    /// The device layer, if there is one.
    pub measure_card: Option<&'a MeasureCard>,
}

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
/// on       gets the part that is done, 0 to 1, about every 50 ms; `Break` stops
pub fn benchmark(subject: &Subject<'_>, on: &mut dyn FnMut(f64) -> Flow) -> Result<MachineRates, CalibrateError> {
    let Subject { hardware, folder, types, measure_card } = *subject;
    let started = Instant::now();
    let n_threads = n_threads(hardware);
    let is_asked = |tensor_type: &TensorType| types.is_empty() || types.contains(tensor_type);
    let types: Vec<TensorType> = FORMATS.iter().map(|format| format.tensor_type).filter(is_asked).collect();
    let n_cards = measure_card.map_or(0, |_| hardware.gpus.len());
    let n_all = thread_counts(n_threads).len() + types.len() + small_model::N_STEPS + n_cards + 2;
    let mut steps = Steps { n_done: 0, n_all, on };
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
        let seconds = usual_seconds(|| {
            std::hint::black_box(memory.read_part(&cpu, first..first + PART_BYTES));
            first = (first + PART_BYTES) % (memory.n_bytes() - PART_BYTES);
        });
        reads.push(ReadRate { n_threads: n, bytes_per_s: PART_BYTES as f64 / seconds });
        steps.next()?;
    }
    let mut kernels = Vec::new();
    for tensor_type in types {
        kernels.push(kernel(tensor_type, &memory, &one, &all, n_threads)?);
        steps.next()?;
    }
    let products = products(&memory, &all)?;
    steps.next()?;
    let mut cards = Vec::new();
    for (gpu, measure) in hardware.gpus.iter().zip(measure_card.into_iter().cycle()) {
        cards.extend(measure(gpu));
        steps.next()?;
    }
    let cached_s = |n_cols, n_bytes| {
        product_seconds(&memory, &all, ProductShape { n_cols, n_bytes, next: NextWeights::Same, ..Q8_0_PRODUCT })
    };
    let layers = small_model::measure(n_threads, &cached_s, &mut || steps.next())?;
    drop(memory);
    let disk_bytes_per_s = uncached::read_rate(folder);
    Ok(MachineRates {
        machine: machine_name(hardware),
        at_ms: now_ms(),
        took_ms: started.elapsed().as_secs_f64() * 1e3,
        memory: reads,
        kernels,
        layer_s: layers.layer_s,
        layer_s_per_value: layers.layer_s_per_value,
        product_s: products.product_s,
        row_s: products.row_s,
        attention_bytes_per_s: layers.attention_bytes_per_s,
        disk_bytes_per_s,
        cards,
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
    tensor_type: TensorType,
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
        Ok(n_bytes / usual_seconds(|| probe.run(cpu)))
    };
    let ops_per_s = |cpu: &Cpu, n_bytes: usize| -> Result<f64, EngineError> {
        let mut probe = probe(cpu, n_bytes, same, N_PROMPT_TOKENS, once)?;
        let n_ops = probe.n_ops();
        Ok(n_ops / usual_seconds(|| probe.run(cpu)))
    };
    let other = NextWeights::Other;
    Ok(KernelRate {
        tensor_type: tensor_type.to_string(),
        one_thread_bytes_per_s: bytes_per_s(one, PART_BYTES / 2, other, once)?,
        one_thread_twice_bytes_per_s: bytes_per_s(one, PART_BYTES / 2, other, Rounding::Twice)?,
        all_threads_bytes_per_s: bytes_per_s(all, PART_BYTES, other, once)?,
        all_threads_twice_bytes_per_s: bytes_per_s(all, PART_BYTES, other, Rounding::Twice)?,
        n_threads,
        cached_bytes_per_s: bytes_per_s(one, CACHED_BYTES, same, once)?,
        prompt_ops_per_s: ops_per_s(one, CACHED_BYTES)?,
        all_threads_prompt_ops_per_s: ops_per_s(all, CACHED_BYTES * n_threads as usize)?,
    })
}

/// What products take beside their weights.
struct ProductCost {
    product_s: f64,
    row_s: f64,
}

/// From one token's products of matrices that differ in size, and in the length of their rows.
fn products(memory: &ReadProbe, all: &Cpu) -> Result<ProductCost, EngineError> {
    let seconds = |n_cols, n_bytes| product_seconds(memory, all, ProductShape { n_cols, n_bytes, ..Q8_0_PRODUCT });
    let (small_s, large_s) = (seconds(N_COLS, SMALL_BYTES)?, seconds(N_COLS, PART_BYTES)?);
    let narrow_s = seconds(FEW_COLS, PART_BYTES)?;
    let byte_s = (large_s - small_s) / (PART_BYTES - SMALL_BYTES) as f64;
    let n_rows = |n_cols: usize| PART_BYTES as f64 / TensorType::Q8_0.row_bytes(n_cols as u64).unwrap_or(1) as f64;
    Ok(ProductCost {
        product_s: byte_s.mul_add(-(SMALL_BYTES as f64), small_s).max(0.0),
        row_s: ((narrow_s - large_s) / (n_rows(FEW_COLS) - n_rows(N_COLS))).max(0.0),
    })
}

fn product_seconds(memory: &ReadProbe, cpu: &Cpu, shape: ProductShape) -> Result<f64, EngineError> {
    let mut probe = ProductProbe::new(cpu, memory, shape)?;
    Ok(usual_seconds(|| probe.run(cpu)))
}

/// One token with weights of a common type, from memory.
const Q8_0_PRODUCT: ProductShape = ProductShape {
    tensor_type: TensorType::Q8_0,
    n_cols: N_COLS,
    n_bytes: PART_BYTES,
    next: NextWeights::Other,
    n_tokens: 1,
    rounding: Rounding::Once,
};

/// What a tenth of some runs stayed below, seconds; behind some that are not counted, until all threads have a processor.
fn usual_seconds(mut run: impl FnMut()) -> f64 {
    let started = Instant::now();
    while {
        run();
        started.elapsed() < WARM_UP
    } {}
    let started = Instant::now();
    let mut times = Vec::with_capacity(N_RUNS);
    for n in 0..N_RUNS {
        if n >= MIN_RUNS && started.elapsed() > RUNS_TAKE {
            break;
        }
        let started = Instant::now();
        run();
        times.push(started.elapsed());
    }
    lower_tenth(&mut times).as_secs_f64().max(1e-9)
}

/// Time that a tenth stayed below; zero of none.
pub(super) fn lower_tenth(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 10).copied().unwrap_or_default()
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
            let result = benchmark(&subject(&hardware, None), &mut |_| {
                n_left -= 1;
                if n_left < 0 { Flow::Break } else { Flow::Continue }
            });
            assert!(matches!(result, Err(CalibrateError::Cancelled)));
        }
    }

    fn subject<'a>(hardware: &'a Hardware, measure_card: Option<&'a MeasureCard>) -> Subject<'a> {
        Subject { hardware, folder: Path::new("."), types: &[TensorType::Q4_K], measure_card }
    }

    #[test]
    fn only_what_is_asked_is_measured_and_cards_by_the_device_layer() {
        let mut hardware = Prober::new(ProbeOptions::default()).hardware(Path::new("."));
        let gpu = |index, name: &str| Gpu {
            index,
            name: name.to_owned(),
            vram_total_bytes: 8 << 30,
            vram_free_bytes: 7 << 30,
            driver: String::new(),
            load_percent: None,
            temperature_c: None,
            unusable: None,
        };
        hardware.gpus = vec![gpu(0, "one"), gpu(1, "another")];
        let measure = |gpu: &Gpu| {
            let rates = CardRates { name: gpu.name.clone(), read_bytes_per_s: 2e11, ..CardRates::default() };
            (gpu.index == 1).then_some(rates)
        };
        let mut seen = Vec::new();
        let mut note = |progress| {
            seen.push(progress);
            Flow::Continue
        };
        let rates = benchmark(&subject(&hardware, Some(&measure)), &mut note).unwrap();
        assert_eq!(rates.kernels.iter().map(|kernel| kernel.tensor_type.as_str()).collect::<Vec<_>>(), ["Q4_K"]);
        assert_eq!(rates.cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>(), ["another"]);
        assert!(seen.is_sorted() && seen.iter().all(|progress| (0.0..=1.0).contains(progress)), "{seen:?}");
        let kernel = &rates.kernels[0];
        assert!(kernel.all_threads_twice_bytes_per_s > 0.0 && kernel.all_threads_prompt_ops_per_s > 0.0);
    }

    #[test]
    fn a_tenth_of_the_runs_is_below() {
        let mut times: Vec<Duration> = (1..=24).rev().map(Duration::from_millis).collect();
        assert_eq!(lower_tenth(&mut times), Duration::from_millis(3));
        assert_eq!(lower_tenth(&mut []), Duration::ZERO);
    }
}
