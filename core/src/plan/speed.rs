//! How fast a model will generate and read: bytes per token over the rate at which memory gives them, operations per
//! token over the rate at which cores do them.
//!
//! The rates are assumptions about ordinary machines, so the range is wide; measured ones can take their place here
//! and nowhere else.
use super::memory::Memory;
use super::sizes::{Sizes, sum};
use crate::wire::Hardware;

/// Rate at which one core reads and multiplies weights, bytes per second, by instruction set. Source: `engine/NOTES.md`
/// for AVX2, the others in proportion of the kernels' prototypes; scalar code computes slower than memory delivers.
const READ_PER_CORE: &[(&str, f64)] = &[("scalar", 0.4e9), ("avx2", 12e9), ("avxvnni", 12e9), ("avx512vnni", 14e9)];
/// Rate of whole matrices against many tokens, operations per second and core. Source: as above.
const OPS_PER_CORE: &[(&str, f64)] = &[("scalar", 1.5e9), ("avx2", 60e9), ("avxvnni", 75e9), ("avx512vnni", 110e9)];

/// What memory gives to all cores together. Likely: two channels of DDR4-3200 (51.2 GB/s) at 70 %; low: one channel of
/// DDR4-2666 (21.3 GB/s) at 65 %; high: two channels of DDR5-5600 (89.6 GB/s) at 75 %.
const MEMORY: Range = Range { low: 14e9, likely: 36e9, high: 67e9 };
/// What a disk gives to a program that reads here and there in a mapped file. Likely: NVMe at random; low: SATA;
/// high: PCIe 3.0 NVMe in long runs.
const DISK: Range = Range { low: 0.3e9, likely: 1.5e9, high: 3.5e9 };
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

/// A quantity that is not known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) likely: f64,
    pub(super) high: f64,
}

/// What this machine can do per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Weights read and multiplied for one token, bytes.
    memory: Range,
    /// Read from disk, bytes.
    disk: Range,
    /// Operations on a prompt.
    ops: f64,
}

/// Expected speed, tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) generation: Range,
    pub(super) prompt: f64,
}

impl Rates {
    /// From what kind of machine it is, before anything was measured.
    pub(super) fn assumed(hardware: &Hardware, n_threads: u32) -> Self {
        let isa = hardware.cpu.isa.as_str();
        let of = |table: &[(&str, f64)]| table.iter().find(|(name, _)| *name == isa).unwrap_or(&table[0]).1;
        // More threads than physical cores share what the cores have.
        let n_cores = f64::from(n_threads.min(hardware.cpu.n_physical_cores).max(1));
        let cores = of(READ_PER_CORE) * n_cores;
        let memory = Range {
            low: MEMORY.low.min(cores * 0.6),
            likely: MEMORY.likely.min(cores),
            high: MEMORY.high.min(cores * 1.3),
        };
        Self { memory, disk: DISK, ops: of(OPS_PER_CORE) * n_cores }
    }
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
