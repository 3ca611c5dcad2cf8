//! What `tandem bench` reports, as data.
use std::time::Duration;

use serde::Serialize;
use tandem_core::plan::TokenReads;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::profile::ProfileRow;
use tandem_engine::quant::FORMATS;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    pub(super) architecture: String,
    pub(super) quant: String,
    pub(super) size_bytes: u64,
    pub(super) n_params: u64,
    pub(super) isa: String,
    pub(super) n_threads: usize,
    pub(super) n_batch: usize,
    pub(super) cache_type_k: String,
    pub(super) cache_type_v: String,
    /// From opening the file to a session that can be given tokens, as it was found: perhaps not in memory yet.
    pub(super) load_ms: f64,
    /// The same again at once.
    pub(super) warm_load_ms: f64,
    /// How fast the threads read the file from memory and do nothing with it, between the tests.
    pub(super) read: Rate,
    pub(super) tests: Vec<Test>,
    pub(super) memory: Memory,
    /// One per type of weights, that of most bytes first.
    pub(super) kernels: Vec<Kernels>,
    /// Longest time between two looks at the stop button.
    pub(super) cancel_ms: f64,
}

/// A rate in bytes per second.
#[derive(Debug, Serialize)]
pub(super) struct Rate {
    pub(super) bytes_per_s: f64,
    pub(super) samples_bytes_per_s: Vec<f64>,
}

/// One kind of run.
#[derive(Debug, Serialize)]
pub(super) struct Test {
    /// As llama-bench writes it: `pp512`, `tg128 @ d8192`.
    pub(super) name: String,
    pub(super) n_prompt: usize,
    pub(super) n_generate: usize,
    pub(super) n_depth: usize,
    /// Median.
    pub(super) tokens_per_s: f64,
    pub(super) samples_tokens_per_s: Vec<f64>,
    /// What a token reads, of generation: a prompt reads weights once for many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reads: Option<Reads>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) profile: Vec<Operation>,
}

/// What generation reads from memory.
#[derive(Debug, Serialize)]
pub(super) struct Reads {
    pub(super) weights_bytes_per_token: u64,
    pub(super) cache_bytes_per_token: u64,
    pub(super) bytes_per_s: f64,
    /// Share of the rate at which memory can be read.
    pub(super) share: f64,
}

/// Which kernels multiply a type of weights.
#[derive(Debug, Serialize)]
pub(super) struct Kernels {
    pub(super) weights: String,
    /// In the whole file.
    pub(super) n_bytes: u64,
    pub(super) generation: &'static str,
    pub(super) prompt: &'static str,
}

/// What an operation took in a run.
#[derive(Debug, Serialize)]
pub(super) struct Operation {
    pub(super) stage: &'static str,
    pub(super) operation: &'static str,
    pub(super) weights: Vec<String>,
    pub(super) n_calls: u64,
    pub(super) weights_bytes: u64,
    pub(super) time_ms: f64,
    /// Of the run.
    pub(super) share: f64,
}

/// Main memory, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// The most that this process ever held, pages of the file among them; where the system says so.
    pub(super) peak: Option<u64>,
    pub(super) file: u64,
    pub(super) kv: u64,
    pub(super) checkpoints: u64,
    pub(super) buffers: u64,
}

impl Memory {
    /// What the plan counts.
    pub(super) fn stated(&self) -> u64 {
        self.file + self.kv + self.checkpoints + self.buffers
    }
}

impl Rate {
    pub(super) fn of(samples: Vec<f64>) -> Self {
        Self { bytes_per_s: median(&samples), samples_bytes_per_s: samples }
    }
}

impl Reads {
    pub(super) fn of(reads: TokenReads, tokens_per_s: f64, limit_bytes_per_s: f64) -> Self {
        let TokenReads { weights_bytes, cache_bytes } = reads;
        let bytes_per_s = (weights_bytes + cache_bytes) as f64 * tokens_per_s;
        Self {
            weights_bytes_per_token: weights_bytes,
            cache_bytes_per_token: cache_bytes,
            bytes_per_s,
            share: bytes_per_s / limit_bytes_per_s,
        }
    }
}

impl Kernels {
    /// Of every type that matrices of a model have.
    pub(super) fn of(facts: &ModelFacts, isa: Isa, n_batch: usize) -> Vec<Self> {
        let matrices = || facts.tensors.iter().filter(|tensor| tensor.shape.len() > 1);
        let mut kernels: Vec<Self> = FORMATS
            .iter()
            .map(|format| Self {
                weights: format.tensor_type.to_string(),
                n_bytes: matrices().filter(|t| t.tensor_type == format.tensor_type).map(|t| t.n_bytes).sum(),
                generation: format.kernel(isa, 1),
                prompt: format.kernel(isa, n_batch),
            })
            .filter(|kernels| kernels.n_bytes > 0)
            .collect();
        kernels.sort_by_key(|kernels| std::cmp::Reverse(kernels.n_bytes));
        kernels
    }
}

/// The rows of a run that took `time`, and what lies between them.
pub(super) fn operations(rows: Vec<ProfileRow>, time: Duration) -> Vec<Operation> {
    let between = time.saturating_sub(rows.iter().map(|row| row.time).sum());
    let share = |part: Duration| part.as_secs_f64() / time.as_secs_f64().max(1e-9);
    let mut operations: Vec<Operation> = rows
        .into_iter()
        .map(|row| Operation {
            stage: row.stage.name(),
            operation: row.operation,
            weights: row.weights.iter().map(ToString::to_string).collect(),
            n_calls: row.n_calls,
            weights_bytes: row.n_bytes,
            time_ms: row.time.as_secs_f64() * 1e3,
            share: share(row.time),
        })
        .collect();
    operations.push(Operation {
        stage: "",
        operation: "between operations",
        weights: Vec::new(),
        n_calls: 0,
        weights_bytes: 0,
        time_ms: between.as_secs_f64() * 1e3,
        share: share(between),
    });
    operations
}

/// The middle one of at least one value.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// How far values scatter; 0 for a single one.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0).max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_engine::profile::Stage;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 4.0, 1.0, 2.0]), 3.0);
    }

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(deviation(&[5.0]), 0.0);
        assert_eq!(deviation(&[1.0, 3.0]), 2.0_f64.sqrt());
    }

    #[test]
    fn operations_add_up_to_the_run() {
        let row = |ms| ProfileRow {
            stage: Stage::Mix,
            operation: "rope",
            weights: Vec::new(),
            n_calls: 3,
            n_bytes: 0,
            time: Duration::from_millis(ms),
        };
        let operations = operations(vec![row(25), row(25)], Duration::from_millis(100));
        let times: Vec<_> = operations.iter().map(|row| (row.operation, row.time_ms, row.share)).collect();
        assert_eq!(times, [("rope", 25.0, 0.25), ("rope", 25.0, 0.25), ("between operations", 50.0, 0.5)]);
    }

    #[test]
    fn a_share_of_the_limit_counts_weights_and_cache() {
        let reads = TokenReads { weights_bytes: 900, cache_bytes: 100 };
        let reads = Reads::of(reads, 5.0, 10_000.0);
        assert_eq!((reads.bytes_per_s, reads.share), (5000.0, 0.5));
    }
}
