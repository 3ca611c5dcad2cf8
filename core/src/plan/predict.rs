//! How fast a model will generate and read: bytes per token over the rate at which memory gives them, operations per
//! token over the rate at which cores do them.
use super::memory::Memory;
use super::sizes::{Sizes, sum};
use super::speed::{Range, Rates};

/// A page that was dropped is often one that is needed soon: what does not fit is read about twice.
const DISK_READS_PER_MISSING_BYTE: f64 = 2.0;
/// Share of the rates that a whole pass reaches between hand-overs, norms and attention.
const GENERATION_EFFICIENCY: f64 = 0.85;
const PROMPT_EFFICIENCY: f64 = 0.6;
/// Threads meet several times per layer; seconds per layer and token.
const SECONDS_PER_LAYER: f64 = 20e-6;
/// Tokens in the context for which generation is predicted.
const TYPICAL_TOKENS: u32 = 1024;

/// Longest work between two looks at the stop button, in seconds; one layer of one chunk.
const SECONDS_PER_STEP: f64 = 0.1;
const BATCHES: &[u32] = &[512, 256, 128, 64, 32];

/// Expected speed, tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) generation: Range,
    pub(super) prompt: f64,
}

/// The largest chunk of which one layer takes a moment, so that a prompt can be stopped at once.
pub(super) fn batch(sizes: &Sizes, rates: &Rates) -> u32 {
    let seconds_per_token = 1.0 / prompt_rate(sizes, rates);
    let per_layer = seconds_per_token / f64::from(sizes.n_layers().max(1));
    let is_short = |batch: &&u32| per_layer * f64::from(**batch) <= SECONDS_PER_STEP;
    *BATCHES.iter().find(is_short).unwrap_or(&BATCHES[BATCHES.len() - 1])
}

/// What will happen now, on the processor.
pub(super) fn predict(sizes: &Sizes, rates: &Rates, memory: &Memory, n_batch: u32) -> Prediction {
    let weights = sizes.active_bytes();
    let tokens = TYPICAL_TOKENS.min(memory.context);
    let cache = sum(sizes.layers.iter().map(|layer| layer.kv.read_bytes(tokens))) as f64;
    let missing = memory.missing_bytes as f64;
    let missing_share = missing / sizes.weights_bytes().max(1) as f64;
    let from_disk = weights * (missing_share * DISK_READS_PER_MISSING_BYTE).min(1.0);
    let meetings = f64::from(sizes.n_layers()) * SECONDS_PER_LAYER;
    let generation = |memory: f64, disk: f64| {
        1.0 / ((weights + cache) / (memory * GENERATION_EFFICIENCY) + from_disk / disk + meetings)
    };
    // A chunk of a prompt reads every weight once.
    Prediction {
        generation: Range {
            low: generation(rates.memory.low, rates.disk.low),
            likely: generation(rates.memory.likely, rates.disk.likely),
            high: generation(rates.memory.high, rates.disk.high),
        },
        prompt: 1.0 / (1.0 / prompt_rate(sizes, rates) + missing / rates.disk.likely / f64::from(n_batch)),
    }
}

fn prompt_rate(sizes: &Sizes, rates: &Rates) -> f64 {
    // A multiplication and an addition per weight.
    let ops = (2.0 * sizes.active_elems()).max(1.0);
    rates.ops * PROMPT_EFFICIENCY / ops
}
