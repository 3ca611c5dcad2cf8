//! What this machine was measured to do.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, FileUse, Text};

/// What is known of this machine's speed; plans assume an ordinary machine where it is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Measured {
    /// From the benchmark.
    pub rates: Option<MachineRates>,
    /// From answers.
    pub corrections: Vec<Correction>,
}

/// What a benchmark of a few seconds found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct MachineRates {
    /// Processor, cores, instruction set and memory that were measured; on others the figures mean nothing.
    pub machine: String,
    /// When.
    #[ts(type = "number")]
    pub at_ms: i64,
    /// How long it took, milliseconds.
    pub took_ms: f64,
    /// Reading main memory, by number of threads.
    pub memory: Vec<ReadRate>,
    /// The engine's products, by type of weights.
    pub kernels: Vec<KernelRate>,
    /// What a layer takes for one token beside products of weights, seconds: norms, hand-overs between threads.
    pub layer_s: f64,
    /// The same for each value of the residual stream, seconds.
    pub layer_s_per_value: f64,
    /// What one product takes beside reading its weights, seconds: threads meet, and the last one is waited for.
    #[serde(default)]
    pub product_s: f64,
    /// What a row of weights takes beside its values, seconds: a sum at its end.
    #[serde(default)]
    pub row_s: f64,
    /// Reading keys and values, bytes per second.
    pub attention_bytes_per_s: f64,
    /// Reading a file that is not in memory yet, bytes per second; absent where that cannot be measured.
    pub disk_bytes_per_s: Option<f64>,
    /// Graphics cards, as far as a device layer could measure them.
    #[serde(default)]
    pub cards: Vec<CardRates>,
}

/// What a graphics card was measured to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct CardRates {
    /// Its name, as the driver gives it: another card's figures mean nothing.
    pub name: String,
    /// Weights from its own memory for one token after another, bytes per second.
    pub read_bytes_per_s: f64,
    /// From main memory to the card, bytes per second.
    pub upload_bytes_per_s: f64,
    /// A hand-over to the card and back, seconds.
    pub hand_over_s: f64,
}

/// Memory speed with so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ReadRate {
    /// Threads that read.
    pub n_threads: u32,
    /// All together.
    pub bytes_per_s: f64,
}

/// How fast weights of one type are multiplied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct KernelRate {
    /// GGUF's name of the type.
    pub tensor_type: String,
    /// One thread, weights from memory, one token: bytes per second.
    pub one_thread_bytes_per_s: f64,
    /// The same with activations rounded twice, as small models have them.
    pub one_thread_twice_bytes_per_s: f64,
    /// As many threads as a plan takes, the same.
    pub all_threads_bytes_per_s: f64,
    /// The same with activations rounded twice; 0 where only older figures are known.
    #[serde(default)]
    pub all_threads_twice_bytes_per_s: f64,
    /// How many those are.
    pub n_threads: u32,
    /// One thread, weights in its cache: what the kernel itself can do.
    pub cached_bytes_per_s: f64,
    /// Many tokens at once, one thread: operations per second.
    pub prompt_ops_per_s: f64,
    /// All threads, the same; 0 where only older figures are known.
    #[serde(default)]
    pub all_threads_prompt_ops_per_s: f64,
}

/// What answers of a kind of model showed about its predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Correction {
    /// Kind of model: architecture and quantisation; empty: any.
    pub class: String,
    /// Time taken over time predicted, for generation.
    pub generation: f64,
    /// The same for prompts.
    pub prompt: f64,
    /// Answers behind it.
    pub n_runs: u32,
}

/// The benchmark of this machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CalibrationState {
    /// It was never made on this machine, or somebody skipped it.
    Absent,
    /// It is being made.
    Running {
        /// 0 to 1.
        progress: f64,
    },
    /// It was made.
    Done {
        /// What it found.
        rates: MachineRates,
    },
    /// It could not be made.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// What was predicted for one answer, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Outcome {
    /// When.
    #[ts(type = "number")]
    pub at_ms: i64,
    /// Name of the model.
    pub model: String,
    /// Kind of model, as corrections name it.
    pub class: String,
    /// Machine that it ran on, as the benchmark names it.
    pub machine: String,
    /// Whether the prediction came from measured rates.
    pub is_measured: bool,
    /// Compute threads.
    pub n_threads: u32,
    /// Tokens in the context, on the average.
    pub n_context_tokens: u32,
    /// Generation as it was predicted, tokens per second.
    pub predicted_tokens_per_s: f64,
    /// The same before corrections.
    pub uncorrected_tokens_per_s: f64,
    /// Generation as it was.
    pub tokens_per_s: f64,
    /// Prompt tokens that were read anew.
    pub n_prompt_tokens: u32,
    /// Prompt as it was predicted, tokens per second.
    pub predicted_prompt_tokens_per_s: f64,
    /// The same before corrections.
    pub uncorrected_prompt_tokens_per_s: f64,
    /// Prompt as it was; 0 if there was too little of it to measure.
    pub prompt_tokens_per_s: f64,
}

/// How well this machine is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Predictions {
    /// The benchmark.
    pub calibration: CalibrationState,
    /// What answers have taught, by kind of model.
    pub corrections: Vec<Correction>,
    /// The last answers, latest first.
    pub outcomes: Vec<Outcome>,
}

/// One plan that was tried on the real engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct Trial {
    /// Compute threads.
    pub n_threads: u32,
    /// Tokens per prompt chunk.
    pub n_batch: u32,
    /// Type of the KV cache.
    pub kv_type: String,
    /// How the file was read.
    #[serde(default)]
    pub file_use: FileUse,
    /// Prompt, tokens per second.
    pub prompt_tokens_per_s: f64,
    /// Generation, tokens per second.
    pub tokens_per_s: f64,
    /// Whether nothing had to be given up for it and memory was left.
    pub is_safe: bool,
}

/// The fastest safe plan of those tried, for one model, machine and context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct Tuning {
    /// Library model.
    pub model_id: String,
    /// Machine, as the benchmark names it.
    pub machine: String,
    /// Context length that was wished; 0 if none was.
    pub context_length: u32,
    /// When.
    #[ts(type = "number")]
    pub at_ms: i64,
    /// How long it took, milliseconds.
    pub took_ms: f64,
    /// Compute threads.
    pub n_threads: u32,
    /// Tokens per prompt chunk.
    pub n_batch: u32,
    /// Type of the KV cache.
    pub kv_type: String,
    /// How the file is read.
    #[serde(default)]
    pub file_use: FileUse,
    /// Generation with it, tokens per second.
    pub tokens_per_s: f64,
    /// What was not tried, and why.
    #[serde(default)]
    pub not_tried: Vec<Text>,
    /// All that were tried, in order.
    pub trials: Vec<Trial>,
}

/// What auto-tune reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TuneEvent {
    /// One more plan was tried.
    Tried {
        /// Which, and how fast it was.
        trial: Trial,
        /// 0 to 1.
        progress: f64,
    },
    /// It is over; the model is loaded with the fastest plan.
    Done {
        /// What was found.
        tuning: Tuning,
    },
    /// It failed or was stopped.
    Failed {
        /// Why.
        failure: Failure,
    },
}
