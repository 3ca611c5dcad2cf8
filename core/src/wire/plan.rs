//! Plans: what goes where, why, and how fast it will be.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::Text;

/// What the person wants; each is a constraint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Wishes {
    /// Context length in tokens.
    pub context_length: Option<u32>,
    /// Layers on the GPU.
    pub n_gpu_layers: Option<u32>,
    /// Most layers whose experts may lie on the GPU.
    pub n_expert_layers: Option<u32>,
    /// Compute threads.
    pub n_threads: Option<u32>,
    /// Tokens per prompt chunk.
    pub n_batch: Option<u32>,
    /// What auto-tune found fastest: taken where nothing else is wished and memory allows.
    pub tuned: Option<Tuned>,
    /// Type of the KV cache, such as `q8_0`.
    pub kv_type: Option<String>,
    /// How the file is read.
    pub file_use: Option<FileUse>,
    /// What matters most where nothing is fixed.
    pub aim: Aim,
}

/// What auto-tune found fastest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct Tuned {
    /// Compute threads.
    pub n_threads: u32,
    /// Tokens per prompt chunk.
    pub n_batch: u32,
    /// Type of the KV cache.
    pub kv_type: String,
    /// How the file is read.
    pub file_use: FileUse,
}

/// What matters most to a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// A bit of everything.
    #[default]
    Balanced,
    /// The longest context that fits in memory.
    LongerContext,
    /// The best quality that runs and is not short of memory.
    BetterQuality,
    /// The fastest version whose answers are still good.
    Faster,
}

/// How a model would run on this machine, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Plan {
    /// `general.architecture`.
    pub architecture: String,
    /// Quantisation label.
    pub quant: String,
    /// In one word.
    pub verdict: Verdict,
    /// In one line: `Runs well: about 17 tokens/s, 8k context`.
    pub headline: Text,
    /// Layers of the model.
    pub n_layers: u32,
    /// Layers on the GPU, in llama.cpp's counting (the output layer is one more).
    pub n_gpu_layers: u32,
    /// Layers whose experts stay in RAM while the rest is on the GPU.
    pub n_cpu_moe_layers: u32,
    /// Compute threads.
    pub n_threads: u32,
    /// Context length in tokens.
    pub context_length: u32,
    /// Trained context length in tokens.
    pub max_context_length: u32,
    /// Tokens per prompt chunk.
    pub n_batch: u32,
    /// `f16`, `q8_0`, …; two names with a slash between where keys and values differ.
    pub kv_type: String,
    /// How the file is read.
    pub file_use: FileUse,
    /// What the quantisation costs.
    pub quality: Quality,
    /// The longest context that works here, tokens; 0 if none does.
    pub usable_context_length: u32,
    /// What other contexts would do, shortest first.
    pub contexts: Vec<ContextStep>,
    /// One line per part: what, bytes, where, why.
    pub lines: Vec<PlanLine>,
    /// Where each layer lives, in order.
    pub layers: Vec<PlanLayer>,
    /// One line per choice: threads, context, …: what and why.
    pub choices: Vec<PlanChoice>,
    /// Bars: the GPU's, if there is one.
    pub gpu_bar: Option<MemoryBar>,
    /// Bars: RAM's.
    pub ram_bar: MemoryBar,
    /// Bars: that of the volume of the models folder, with the whole file.
    pub disk_bar: MemoryBar,
    /// Expected speed.
    pub speed: Speed,
    /// What the time of a token goes to; together as long as the likely rate says.
    pub token_costs: Vec<TokenCost>,
    /// Said when the plan names a GPU but the CPU computes.
    pub cpu_computes: Option<Text>,
    /// In plain words.
    pub warnings: Vec<Text>,
    /// The same in llama.cpp's terms.
    pub llama_cpp_command: String,
}

/// A plan in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// From 20 tokens/s.
    Fast,
    /// From 8 tokens/s.
    RunsWell,
    /// From 2 tokens/s, and whatever is not quite too slow.
    Slow,
    /// Runs, with under 0.5 GiB to spare or partly from disk.
    Tight,
    /// Below 1 token/s, or not at all.
    TooLarge,
}

/// One part of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlanLine {
    /// Kind of part.
    pub part: Part,
    /// What it is.
    pub what: Text,
    /// Its size.
    #[ts(type = "number")]
    pub bytes: u64,
    /// Where it lives.
    pub place: Place,
    /// Why there.
    pub why: Text,
}

/// Where one layer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct PlanLayer {
    /// What it remembers.
    pub keeps: Keeps,
    /// Attention or state, norms, router, shared experts, dense feed-forward.
    pub mixer: Place,
    /// Its cache or state.
    pub cache: Place,
    /// Routed experts, if it has any.
    pub experts: Option<Place>,
}

/// What a layer remembers of the tokens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// All of them.
    All,
    /// The last ones.
    Window,
    /// A state of fixed size.
    State,
    /// Nothing.
    Nothing,
}

/// What a part of a token's time goes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct TokenCost {
    /// Kind.
    pub kind: CostKind,
    /// In words.
    pub what: Text,
    /// Milliseconds per token.
    pub ms: f64,
}

/// Kind of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    /// The graphics card.
    Gpu,
    /// Weights from memory.
    Weights,
    /// Keys, values and states from memory.
    Cache,
    /// Norms, attention's arithmetic, threads that wait for each other.
    Layers,
    /// From one device to the other and back.
    HandOver,
    /// Weights from the disk.
    Disk,
}

/// One choice of a plan that is not a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlanChoice {
    /// What was chosen, with its value: `2 threads`.
    pub what: Text,
    /// Why.
    pub why: Text,
}

/// Kind of part of a model in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Attention, norms, dense feed-forward.
    Attention,
    /// Routed experts.
    Experts,
    /// Token embeddings.
    Embeddings,
    /// Output head.
    Head,
    /// KV cache.
    Kv,
    /// Compute buffers.
    Buffers,
    /// The file itself.
    File,
}

/// Where a part lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Place {
    /// A graphics card's memory.
    Gpu {
        /// Index of the card.
        index: u32,
    },
    /// Main memory.
    Ram,
    /// The volume of the models folder.
    Disk,
}

/// One memory, its capacity and what lies in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct MemoryBar {
    /// Installed.
    #[ts(type = "number")]
    pub capacity_bytes: u64,
    /// Held by other programs.
    #[ts(type = "number")]
    pub others_bytes: u64,
    /// What the plan puts here, in ribbon order (from the seam outwards).
    pub parts: Vec<BarPart>,
    /// Short of this much, if it does not fit.
    #[ts(type = "number")]
    pub shortfall_bytes: u64,
}

/// One part in a bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct BarPart {
    /// Kind of part.
    pub part: Part,
    /// Its size.
    #[ts(type = "number")]
    pub bytes: u64,
}

/// Expected speed, tokens per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Speed {
    /// Generation, likely.
    pub generation_tokens_per_s: f64,
    /// Generation, lower end.
    pub generation_low_tokens_per_s: f64,
    /// Generation, upper end.
    pub generation_high_tokens_per_s: f64,
    /// Generation with a full context, likely.
    pub generation_full_tokens_per_s: f64,
    /// Prompt, likely.
    pub prompt_tokens_per_s: f64,
    /// Prompt, lower end.
    pub prompt_low_tokens_per_s: f64,
    /// Prompt, upper end.
    pub prompt_high_tokens_per_s: f64,
}

/// How the file of a model is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum FileUse {
    /// Mapped, and all of it read before the first token: other programs can have the memory back.
    #[default]
    ReadAhead,
    /// Mapped, and read page by page when first used: it does not fit in memory at once.
    AsNeeded,
    /// Copied into memory of its own, in large pages: quicker on some machines, and no other program gets it back.
    Copied,
}

/// What a quantisation costs in quality.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Quality {
    /// In a word.
    pub loss: QualityLoss,
    /// Mean divergence of the token probabilities from those of the full model, if it was ever measured.
    pub divergence: Option<f64>,
}

/// How much quality is lost, as one would tell a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum QualityLoss {
    /// Nobody can tell.
    None,
    /// Few notice.
    Small,
    /// It shows in hard questions.
    Noticeable,
    /// It shows in most answers.
    Strong,
    /// Nobody has measured it.
    Unknown,
}

/// What another context length would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ContextStep {
    /// Tokens.
    pub context_length: u32,
    /// What its cache takes.
    #[ts(type = "number")]
    pub kv_bytes: u64,
    /// How the cache would be stored.
    pub kv_type: String,
    /// Layers whose experts, or in a dense model all of whose weights, would be on the GPU.
    pub n_layers_on_gpu: u32,
    /// Generation with all of it in use, likely, tokens per second.
    pub generation_tokens_per_s: f64,
    /// In one word.
    pub verdict: Verdict,
}
