//! How fast a model will generate and read: bytes per token by type of weights, over the rate at which this machine multiplies
//! that type; plus what each layer takes beside; plus attention at the depth in question.
//!
//! Rates come from a benchmark of this machine where there is one (`Hardware::measured`), else from assumptions about ordinary
//! machines, with a wide range. What answers have shown about earlier predictions corrects both.
use tandem_engine::arch::rounding;
use tandem_engine::cpu::Rounding;
use tandem_engine::gguf::{ModelFacts, TensorType};

use super::cards::CardSpeed;
use super::kernels::{self, PANEL_TOKENS};
use super::kv::LayerKv;
use super::sizes::{Sizes, elems, is_routed, sum};
use crate::wire::{Correction, DiskKind, Gpu, Hardware, KernelRate, MachineRates, RamModules};

/// Columns of the matrices that kernels are measured with, a common width of models.
pub(crate) const N_COLS: usize = 2048;
/// What one run of a measurement reads or multiplies: each run other memory, so that no cache helps; short, so that some run
/// is left in peace.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// What memory gives to all cores together. Likely: two channels of DDR4-3200 (51.2 GB/s) at 70 %; low: one channel of
/// DDR4-2666 (21.3 GB/s) at 65 %; high: two channels of DDR5-5600 (89.6 GB/s) at 75 %.
const MEMORY: Range = Range { low: 14e9, likely: 36e9, high: 67e9 };
/// What a disk gives to a program that reads here and there in a mapped file. Likely: NVMe at random; low: SATA;
/// high: PCIe 3.0 NVMe in long runs.
const DISK: Range = Range { low: 0.3e9, likely: 1.5e9, high: 3.5e9 };
/// The same of a hard disk, whose head has to move each time.
const HARD_DISK: Range = Range { low: 0.005e9, likely: 0.03e9, high: 0.12e9 };
/// Share of what memory gives that products of one token reach. Source: `docs/speed.md`, files of 6-bit and larger weights.
const GENERATION_EFFICIENCY: f64 = 0.75;
/// Threads meet several times per layer, between norms and attention; seconds per layer and token, where that is not measured.
/// Source: small models in `docs/speed.md`, less what their weights take.
const SECONDS_PER_LAYER: f64 = 100e-6;
/// What one core takes for a prompt token beside products: for a value of the residual stream in a layer (norms, rounding, gates);
/// for a row of weights that the benchmark's wider matrices do not have; for a head and for its values with each token before.
/// Source: profiles of SmolLM2-135M and Gemma 3 270M (`tandem bench --profile`), whose heads differ in width.
const SECONDS_PER_PROMPT_VALUE: f64 = 25e-9;
const SECONDS_PER_PROMPT_ROW: f64 = 5e-9;
const SECONDS_PER_ATTENDED_HEAD: f64 = 10e-9;
const SECONDS_PER_ATTENDED_VALUE: f64 = 0.04e-9;
/// Tokens of a prompt for which speed is told.
pub(super) const TYPICAL_PROMPT: u32 = 512;
/// How far from a prediction by measured rates a machine may be, and from one that answers have corrected.
const MEASURED_SPREAD: f64 = 0.2;
const CORRECTED_SPREAD: f64 = 0.1;

/// Longest work between two looks at the stop button, in seconds; one layer of one chunk.
const SECONDS_PER_STEP: f64 = 0.1;
const BATCHES: &[u32] = &[512, 256, 128, 64, 32];

/// A quantity that is not known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) likely: f64,
    pub(super) high: f64,
}

/// What a model asks of a machine, token by token.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    /// Weights read per generated token, bytes by type.
    generation: Vec<(TensorType, f64)>,
    /// Operations per prompt token, by type: of what all tokens of a chunk use, and of the experts.
    prompt: Vec<(TensorType, f64)>,
    expert_prompt: Vec<(TensorType, f64)>,
    /// Share of a chunk's tokens that one expert sees.
    expert_share: f64,
    /// What the layers remember.
    caches: Vec<LayerKv>,
    /// Width of the residual stream.
    pub(super) n_values: u64,
    /// Products per generated token, and rows of weights in them; rows that the benchmark's matrices would have for as many weights.
    n_products: f64,
    n_rows: f64,
    n_usual_rows: f64,
    /// The same rows of a prompt token.
    n_prompt_rows: f64,
    n_usual_prompt_rows: f64,
    /// Query heads of a layer, and their values together.
    n_heads: f64,
    n_query_values: f64,
    /// How finely products see activations.
    rounding: Rounding,
    /// Kind of model, as corrections name it.
    class: String,
}

impl Work {
    pub(super) fn of(facts: &ModelFacts, sizes: &Sizes) -> Self {
        let mut work = Self {
            generation: Vec::new(),
            prompt: Vec::new(),
            expert_prompt: Vec::new(),
            expert_share: sizes.expert_share(),
            caches: sizes.layers.iter().map(|layer| layer.kv).collect(),
            n_values: facts.tensor("token_embd.weight").and_then(|tensor| tensor.shape.last().copied()).unwrap_or(0),
            n_products: 0.0,
            n_rows: 0.0,
            n_usual_rows: 0.0,
            n_prompt_rows: 0.0,
            n_usual_prompt_rows: 0.0,
            n_heads: f64::from(sizes.n_heads),
            n_query_values: sizes.n_query_values as f64,
            rounding: rounding(facts),
            class: class_of(facts),
        };
        for tensor in &facts.tensors {
            let (bytes, ops) = (tensor.n_bytes as f64, 2.0 * elems(tensor) as f64);
            let (read_share, prompt_share) = match ModelFacts::layer_of(&tensor.name) {
                // Layers that predict tokens further ahead are not read.
                Some((i, _)) if i >= sizes.layers.len() => continue,
                Some((_, rest)) if is_routed(rest) => (sizes.expert_share(), sizes.expert_share()),
                Some(_) => (1.0, 1.0),
                None => (sizes.head_share(&tensor.name), 0.0),
            };
            add(&mut work.generation, tensor.tensor_type, bytes * read_share);
            let is_expert = ModelFacts::layer_of(&tensor.name).is_some_and(|(_, rest)| is_routed(rest));
            let prompt = if is_expert { &mut work.expert_prompt } else { &mut work.prompt };
            // A vector is no product.
            let [_, .., n_cols] = tensor.shape[..] else { continue };
            add(prompt, tensor.tensor_type, ops * prompt_share);
            let (n_rows, n_usual_rows) = (ops / 2.0 / n_cols.max(1) as f64, ops / 2.0 / N_COLS as f64);
            work.n_rows += n_rows * read_share;
            work.n_usual_rows += n_usual_rows * read_share;
            work.n_prompt_rows += n_rows * prompt_share;
            work.n_usual_prompt_rows += n_usual_rows * prompt_share;
            if read_share > 0.0 && !is_joined(&tensor.name) {
                work.n_products += 1.0;
            }
        }
        work
    }

    /// Weights read per generated token.
    pub(super) fn weights_bytes(&self) -> f64 {
        self.generation.iter().map(|(_, bytes)| bytes).sum()
    }

    fn n_layers(&self) -> f64 {
        self.caches.len().max(1) as f64
    }

    /// Weights read per generated token.
    pub(super) fn read_bytes(&self) -> f64 {
        self.generation.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Operations per prompt token.
    pub(super) fn prompt_ops(&self) -> f64 {
        self.prompt.iter().chain(&self.expert_prompt).map(|(_, ops)| ops).sum()
    }
}

/// Adds to the entry of a type.
fn add(list: &mut Vec<(TensorType, f64)>, tensor_type: TensorType, amount: f64) {
    match list.iter_mut().find(|(other, _)| *other == tensor_type) {
        Some((_, sum)) => *sum += amount,
        None if amount > 0.0 => list.push((tensor_type, amount)),
        None => {}
    }
}

/// Whether a matrix is multiplied together with another: keys and values with queries, up with gate.
fn is_joined(name: &str) -> bool {
    let rest = ModelFacts::layer_of(name).map_or("", |(_, rest)| rest);
    ["attn_k.", "attn_v.", "ffn_up"].iter().any(|start| rest.starts_with(start))
}

/// Kind of model: files of one class are mispredicted alike.
pub(super) fn class_of(facts: &ModelFacts) -> String {
    format!("{} {}", facts.architecture().unwrap_or_default(), facts.quant_label())
}

/// What this machine can do per second.
#[derive(Clone, Debug)]
pub(super) struct Rates<'a> {
    n_threads: u32,
    /// Weights read and multiplied for one token, bytes; where their type was not measured.
    memory: Range,
    /// Read from disk, bytes.
    disk: Range,
    /// Instruction set, and cores that compute.
    isa: &'a str,
    n_cores: f64,
    measured: Option<&'a MachineRates>,
    corrections: &'a [Correction],
}

impl<'a> Rates<'a> {
    /// As measured, or from what kind of machine it is.
    pub(super) fn of(hardware: &'a Hardware, n_threads: u32) -> Self {
        // More threads than physical cores share what the cores have.
        let n_cores = f64::from(n_threads.min(hardware.cpu.n_physical_cores).max(1));
        let measured = hardware.measured.rates.as_ref();
        let memory = match measured.and_then(|rates| bandwidth(rates, n_threads)) {
            Some(rate) => Range::around(rate, MEASURED_SPREAD),
            None => hardware.ram_modules.and_then(of_modules).unwrap_or(MEMORY),
        };
        let assumed_disk = if hardware.disk.kind == DiskKind::Rotating { HARD_DISK } else { DISK };
        let disk = measured.and_then(|rates| rates.disk_bytes_per_s).map_or(assumed_disk, |rate| Range {
            // Pages come back here and there, not in one run.
            low: rate / 4.0,
            likely: rate / 2.0,
            high: rate,
        });
        Self {
            n_threads,
            memory,
            disk,
            isa: &hardware.cpu.isa,
            n_cores,
            measured,
            corrections: &hardware.measured.corrections,
        }
    }

    fn kernel(&self, tensor_type: TensorType) -> Option<&'a KernelRate> {
        let name = tensor_type.row().name;
        self.measured?.kernels.iter().find(|kernel| kernel.tensor_type == name)
    }

    /// Seconds to read and multiply so many bytes of one type for one token.
    fn read_seconds(&self, tensor_type: TensorType, bytes: f64, rounding: Rounding) -> f64 {
        let rate = match (self.kernel(tensor_type), rounding) {
            (Some(kernel), Rounding::Once) => {
                self.between(kernel, kernel.one_thread_bytes_per_s, kernel.all_threads_bytes_per_s)
            }
            (Some(kernel), Rounding::Twice) => {
                self.between(kernel, kernel.one_thread_twice_bytes_per_s, kernel.all_threads_twice_bytes_per_s)
            }
            (None, _) => {
                let cores = kernels::read_per_core(self.isa, tensor_type, rounding) * self.n_cores;
                cores.min(self.memory.likely * GENERATION_EFFICIENCY)
            }
        };
        bytes / rate.max(1.0)
    }

    /// Seconds for so many operations on weights of one type for so many tokens at once.
    fn prompt_seconds(&self, tensor_type: TensorType, ops: f64, n_tokens: f64, rounding: Rounding) -> f64 {
        let ops = if rounding == Rounding::Twice { 2.0 * ops } else { ops };
        let rate = match self.kernel(tensor_type) {
            Some(kernel) => {
                let one = kernel.prompt_ops_per_s;
                let all = self.between(kernel, one, kernel.all_threads_prompt_ops_per_s);
                // Few tokens are multiplied one by one, from the cache.
                let one_by_one = 2.0 * kernel.cached_bytes_per_s / kernels::bytes_per_weight(tensor_type);
                if n_tokens < PANEL_TOKENS { one_by_one.min(one) * (all / one.max(1.0)) } else { all }
            }
            None => kernels::ops_per_core(self.isa, tensor_type, n_tokens) * self.n_cores,
        };
        ops / rate.max(1.0)
    }

    /// A rate with as many threads as compute, from those of one thread and of all: hyperthreads and memory are shared, so
    /// that all give less than one times their number.
    fn between(&self, kernel: &KernelRate, one: f64, all: f64) -> f64 {
        let n = f64::from(self.n_threads);
        if kernel.n_threads <= 1 || all <= 0.0 {
            // Threads that were never measured together.
            return (one * n).min(self.memory.likely.max(one));
        }
        let step = (all - one) / f64::from(kernel.n_threads - 1);
        step.mul_add(n - 1.0, one).max(one.min(all))
    }

    /// What a token takes beside reading weights and cache.
    fn layers_seconds(&self, work: &Work) -> f64 {
        let Some(rates) = self.measured else { return SECONDS_PER_LAYER * work.n_layers() };
        let layers_s = rates.layer_s_per_value.mul_add(work.n_values as f64, rates.layer_s) * work.n_layers();
        // The benchmark's own products and rows are part of its rates.
        let n_products = work.n_products - work.read_bytes() / PART_BYTES as f64;
        let (products_s, rows_s) =
            (rates.product_s * n_products.max(0.0), rates.row_s * (work.n_rows - work.n_usual_rows));
        (layers_s + products_s + rows_s).max(0.0)
    }

    /// What a prompt token takes beside products of weights, without what it has to look back at.
    fn prompt_layers_s(&self, work: &Work) -> f64 {
        let values_s = SECONDS_PER_PROMPT_VALUE * work.n_values as f64 * work.n_layers();
        let rows_s = SECONDS_PER_PROMPT_ROW * (work.n_prompt_rows - work.n_usual_prompt_rows);
        (values_s + rows_s.max(0.0)) / self.n_cores
    }

    /// What a prompt token takes in all layers for each token that it looks back at.
    fn prompt_position_s(&self, work: &Work) -> f64 {
        let values_s = SECONDS_PER_ATTENDED_VALUE * work.n_query_values;
        SECONDS_PER_ATTENDED_HEAD.mul_add(work.n_heads, values_s) / self.n_cores
    }

    /// How far a prediction may be off, as a factor on rates.
    pub(super) fn spread(&self, is_corrected: bool) -> Range {
        match (self.measured, is_corrected) {
            (_, true) => Range::around(1.0, CORRECTED_SPREAD),
            (Some(_), false) => Range::around(1.0, MEASURED_SPREAD),
            (None, false) => Range {
                low: self.memory.low / self.memory.likely,
                likely: 1.0,
                high: self.memory.high / self.memory.likely,
            },
        }
    }

    /// Read from disk, bytes per second.
    pub(super) fn disk(&self) -> Range {
        self.disk
    }

    /// What a card does per second.
    pub(super) fn card(&self, gpu: &Gpu) -> CardSpeed {
        CardSpeed::of(gpu, self.measured)
    }

    fn attention_rate(&self) -> f64 {
        self.measured.map_or(self.memory.likely * GENERATION_EFFICIENCY, |rates| rates.attention_bytes_per_s).max(1.0)
    }

    /// The correction for a kind of model: its own, else that of all.
    fn correction(&self, class: &str) -> Option<&'a Correction> {
        let find = |class: &str| self.corrections.iter().find(|correction| correction.class == class);
        find(class).or_else(|| find(""))
    }
}

impl Range {
    pub(super) fn around(likely: f64, spread: f64) -> Self {
        Self { low: likely * (1.0 - spread), likely, high: likely * (1.0 + spread) }
    }
}

/// What modules of known speed give, two channels at most: 8 bytes per transfer and channel, of which programs get about 70 %.
fn of_modules(modules: RamModules) -> Option<Range> {
    let transfers = f64::from(modules.mega_transfers_per_s?) * 1e6;
    let peak = transfers * 8.0 * f64::from(modules.n.clamp(1, 2));
    Some(Range { low: peak * 0.55, likely: peak * 0.7, high: peak * 0.8 })
}

/// Memory speed with so many threads: between what was measured, by interpolation.
fn bandwidth(rates: &MachineRates, n_threads: u32) -> Option<f64> {
    let above = rates.memory.iter().filter(|rate| rate.n_threads >= n_threads).min_by_key(|rate| rate.n_threads);
    let below = rates.memory.iter().filter(|rate| rate.n_threads <= n_threads).max_by_key(|rate| rate.n_threads);
    match (below, above) {
        (Some(below), Some(above)) if above.n_threads > below.n_threads => {
            let share = f64::from(n_threads - below.n_threads) / f64::from(above.n_threads - below.n_threads);
            Some(share.mul_add(above.bytes_per_s - below.bytes_per_s, below.bytes_per_s))
        }
        (Some(rate), _) | (None, Some(rate)) => Some(rate.bytes_per_s),
        (None, None) => None,
    }
}

/// How long one token takes, at any depth of the context.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Kind of model, as corrections name it.
    pub class: String,
    caches: Vec<LayerKv>,
    weights_s: f64,
    layers_s: f64,
    prompt_s: f64,
    prompt_position_s: f64,
    n_layers: f64,
    attention_bytes_per_s: f64,
    correction: Option<(f64, f64)>,
}

impl Forecast {
    /// n_batch  tokens of a prompt that are computed at once
    pub(super) fn new(work: &Work, rates: &Rates<'_>, n_batch: u32) -> Self {
        let read = |(tensor_type, bytes): &(TensorType, f64)| rates.read_seconds(*tensor_type, *bytes, work.rounding);
        let n_tokens = f64::from(n_batch);
        let compute = |list: &[(TensorType, f64)], n_tokens: f64| -> f64 {
            let seconds = |(tensor_type, ops): &(TensorType, f64)| {
                rates.prompt_seconds(*tensor_type, *ops, n_tokens, work.rounding)
            };
            list.iter().map(seconds).sum()
        };
        let layers_s = rates.layers_seconds(work);
        let experts_s = compute(&work.expert_prompt, n_tokens * work.expert_share);
        Self {
            class: work.class.clone(),
            caches: work.caches.clone(),
            weights_s: work.generation.iter().map(read).sum(),
            layers_s,
            // Threads meet once for a chunk as they do for one token.
            prompt_s: compute(&work.prompt, n_tokens)
                + experts_s
                + layers_s / n_tokens.max(1.0)
                + rates.prompt_layers_s(work),
            prompt_position_s: rates.prompt_position_s(work),
            n_layers: work.n_layers(),
            attention_bytes_per_s: rates.attention_rate(),
            correction: rates.correction(&work.class).map(|correction| (correction.generation, correction.prompt)),
        }
    }

    /// Seconds to read all weights that a token needs.
    pub(super) fn weights_s(&self) -> f64 {
        self.weights_s * self.generation_correction()
    }

    /// Seconds that all layers take beside.
    pub(super) fn layers_s(&self) -> f64 {
        self.layers_s * self.generation_correction()
    }

    /// Seconds to read so much of the cache.
    pub(super) fn cache_s(&self, bytes: f64) -> f64 {
        bytes / self.attention_bytes_per_s * self.generation_correction()
    }

    /// Whether answers have corrected it.
    pub(super) fn is_corrected(&self) -> bool {
        self.correction.is_some()
    }

    fn generation_correction(&self) -> f64 {
        self.correction.map_or(1.0, |(generation, _)| generation)
    }

    /// Seconds per generated token with `n_tokens` before it, as rates alone say.
    pub fn uncorrected_token_s(&self, n_tokens: u32) -> f64 {
        let cache = sum(self.caches.iter().map(|layer| layer.read_bytes(n_tokens))) as f64;
        self.weights_s + self.layers_s + cache / self.attention_bytes_per_s
    }

    /// Seconds per generated token with `n_tokens` before it.
    pub fn token_s(&self, n_tokens: u32) -> f64 {
        self.uncorrected_token_s(n_tokens) * self.generation_correction()
    }

    /// Seconds per token of a prompt of `n_tokens`, as rates alone say.
    pub fn uncorrected_prompt_token_s(&self, n_tokens: u32) -> f64 {
        // On average half of the prompt lies before a token, as far as layers look back.
        let n_seen = self.caches.iter().map(|layer| f64::from(layer.n_seen(n_tokens / 2))).sum::<f64>();
        n_seen.mul_add(self.prompt_position_s, self.prompt_s)
    }

    /// Seconds per token of a prompt of `n_tokens`.
    pub fn prompt_token_s(&self, n_tokens: u32) -> f64 {
        self.uncorrected_prompt_token_s(n_tokens) * self.correction.map_or(1.0, |(_, prompt)| prompt)
    }
}

/// The largest chunk of which one layer takes a moment, so that a prompt can be stopped at once.
pub(super) fn batch(work: &Work, rates: &Rates<'_>) -> u32 {
    let is_short = |batch: &&u32| {
        let forecast = Forecast::new(work, rates, **batch);
        forecast.prompt_token_s(TYPICAL_PROMPT) / forecast.n_layers * f64::from(**batch) <= SECONDS_PER_STEP
    };
    *BATCHES.iter().find(is_short).unwrap_or(&BATCHES[BATCHES.len() - 1])
}
