//! Every type that crosses to the window, the command line or disk as JSON. Types only: no logic beyond small constructors.
//!
//! JSON uses the Rust names unchanged (snake_case); enums with data are tagged by `type`. TypeScript is generated
//! from here into `ui/src/lib/wire.ts`, and a test fails when that copy is stale. Times are milliseconds since the Unix
//! epoch, sizes are bytes; every integer stays below 2^53, so TypeScript sees plain numbers.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// A sentence in both of the app's languages; the reader picks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Text {
    /// English.
    pub en: String,
    /// Simplified Chinese.
    pub zh: String,
}

impl Text {
    /// The same sentence twice: `Text::new("the disk is full", "磁盘已满")`.
    pub fn new(en: impl Into<String>, zh: impl Into<String>) -> Self {
        Self { en: en.into(), zh: zh.into() }
    }
}

/// What went wrong, for a person: what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Failure {
    /// For programs; nobody matches on message text.
    pub code: ErrorCode,
    /// What happened.
    pub message: Text,
    /// What to do about it.
    pub hint: Text,
}

impl Failure {
    /// Puts the three together.
    pub fn new(code: ErrorCode, message: Text, hint: Text) -> Self {
        Self { code, message, hint }
    }
}

/// Kinds of failure that a program may tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The file is something else (safetensors, HTML, …).
    NotGguf,
    /// The file ends before what its header promises.
    GgufTruncated,
    /// The header contradicts itself or holds absurd values.
    GgufDamaged,
    /// A GGUF architecture this engine does not run.
    UnknownArchitecture,
    /// A tensor type this engine does not run.
    UnknownTensorType,
    /// A vocabulary or pre-tokenizer this engine does not know.
    UnknownTokenizer,
    /// A projector, adapter, draft or embedding file: not a chat model.
    NotAChatModel,
    /// The hub could not be reached.
    NoNetwork,
    /// The hub answered with something that is not a hub's answer.
    HubAnswerInvalid,
    /// The hub refused (5xx, disabled repo).
    HubRefused,
    /// No such repo, revision or file.
    NotFound,
    /// The repo wants a token or an accepted licence.
    Gated,
    /// Too many requests.
    RateLimited,
    /// The repo has no GGUF file.
    NoGgufInRepo,
    /// The target volume is full or too small.
    DiskFull,
    /// The finished file is not the file the hub promised.
    ChecksumMismatch,
    /// The file changed upstream between start and resume.
    ChangedUpstream,
    /// The model is not in the library, or its file is gone.
    ModelMissing,
    /// Nothing is loaded.
    NoModelLoaded,
    /// Not enough memory.
    OutOfMemory,
    /// The conversation does not fit the context.
    ContextFull,
    /// Stopped on request.
    Cancelled,
    /// Another copy of the app owns the data folder.
    AlreadyRunning,
    /// A second request while one is being answered.
    Busy,
    /// The chat database cannot be opened.
    StoreDamaged,
    /// The request makes no sense (unknown id, empty text).
    BadRequest,
    /// A file could not be read or written.
    Io,
    /// The engine failed; its worker lives on.
    EngineFailed,
}

// ---------------------------------------------------------------- settings

/// What a person can choose; nothing here must be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Settings {
    /// Language of the interface.
    pub language: Language,
    /// Colour scheme.
    pub theme: Theme,
    /// Base URL of the hub or of a mirror; empty: the default hub.
    pub hub_url: String,
    /// Folder for downloaded models; empty: the default folder.
    pub models_dir: String,
    /// Sampling; what is absent comes from the model file, then from defaults.
    pub sampling: Sampling,
    /// System prompt for new chats; empty: the model's own.
    pub system_prompt: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            language: Language::System,
            theme: Theme::System,
            hub_url: String::new(),
            models_dir: String::new(),
            sampling: Sampling::default(),
            system_prompt: String::new(),
        }
    }
}

/// Language of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// As the system says.
    System,
    /// English.
    En,
    /// 简体中文.
    Zh,
}

/// Colour scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// As the system says.
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

/// Sampling parameters; `None` means the model file's recommendation, or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Keep the k likeliest; 0 is off.
    pub top_k: Option<u32>,
    /// Keep the smallest set with this mass.
    pub top_p: Option<f32>,
    /// Keep what has at least this share of the likeliest.
    pub min_p: Option<f32>,
    /// Divide or multiply logits of repeated tokens; 1 is off.
    pub repeat_penalty: Option<f32>,
    /// Taken once from a token that occurred.
    pub presence_penalty: Option<f32>,
    /// Taken per occurrence.
    pub frequency_penalty: Option<f32>,
    /// Seed; absent: random.
    pub seed: Option<u32>,
    /// Most tokens to generate; absent: to the end of the context.
    pub max_tokens: Option<u32>,
}

// ---------------------------------------------------------------- hub

/// A search on the hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct SearchRequest {
    /// Free text; empty lists the most downloaded.
    pub query: String,
    /// Continue a page: what `SearchPage::next` said.
    pub cursor: Option<String>,
}

/// One page of search results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SearchPage {
    /// Repos, in the hub's order.
    pub models: Vec<HubModel>,
    /// More, if any.
    pub next: Option<String>,
}

/// A repo on the hub, as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct HubModel {
    /// `publisher/name`.
    pub id: String,
    /// Downloads in 30 days.
    #[ts(type = "number")]
    pub downloads: u64,
    /// Likes.
    #[ts(type = "number")]
    pub likes: u64,
    /// Whether a licence must be accepted first.
    pub gated: bool,
    /// ISO 8601, as the hub says.
    pub last_modified: Option<String>,
    /// Tags, as the hub says.
    pub tags: Vec<String>,
    /// Licence identifier, from the tags.
    pub license: Option<String>,
    /// `general.architecture`, from the hub's own parse.
    pub architecture: Option<String>,
    /// Parameters, from the hub's own parse.
    #[ts(type = "number | null")]
    pub n_params: Option<u64>,
    /// Trained context length in tokens, from the hub's own parse.
    #[ts(type = "number | null")]
    pub context_length: Option<u64>,
}

/// One file of a repo at a commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
pub struct RepoFile {
    /// `publisher/name`.
    pub repo: String,
    /// Commit the answer was pinned to.
    pub commit: String,
    /// Path in the repo, `/` between parts.
    pub path: String,
    /// Size.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// SHA256 in hex, where the hub tells it.
    pub sha256: Option<String>,
}

/// What a model's page shows; plans follow from `plan_versions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelPage {
    /// The repo.
    pub model: HubModel,
    /// Commit everything here is pinned to.
    pub commit: String,
    /// Quantised versions, smallest first; shards are one version.
    pub versions: Vec<ModelVersion>,
    /// Why there are none, or why none can be used.
    pub refusal: Option<Failure>,
}

/// One quantised version of a model: one file, or all shards of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelVersion {
    /// Quantisation label, such as `Q4_K_M`.
    pub quant: String,
    /// One file, or the shards in order.
    pub files: Vec<RepoFile>,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// Where this version stands on this machine.
    pub presence: Presence,
}

/// Where a version stands on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Presence {
    /// Not here.
    Absent,
    /// Being downloaded.
    Downloading {
        /// Download to look at.
        download_id: String,
    },
    /// In the library.
    Here {
        /// Library model to use.
        model_id: String,
    },
}

/// Asks for plans of all versions of a repo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlanVersionsRequest {
    /// `publisher/name`.
    pub repo: String,
    /// Constraints.
    pub wishes: Wishes,
}

/// Plans of all versions of a repo, from their headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlannedVersions {
    /// In the order of `ModelPage::versions`.
    pub versions: Vec<PlannedVersion>,
    /// Index of the version to take here, if any runs.
    #[ts(type = "number | null")]
    pub recommended: Option<usize>,
    /// Why that one, and what the next better and next smaller would cost.
    pub reason: Text,
}

/// One version's plan, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlannedVersion {
    /// Path of its first file.
    pub path: String,
    /// The plan.
    pub plan: Option<Plan>,
    /// Why it cannot run here at all.
    pub refusal: Option<Failure>,
}

// ---------------------------------------------------------------- downloads

/// Asks for a version to be downloaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct DownloadRequest {
    /// One file, or all shards.
    pub files: Vec<RepoFile>,
}

/// A download and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Download {
    /// Identifies it for pause, resume and cancel.
    pub id: String,
    /// What is being fetched.
    pub files: Vec<RepoFile>,
    /// Quantisation label.
    pub quant: String,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// On disk so far.
    #[ts(type = "number")]
    pub arrived_bytes: u64,
    /// Hashed so far.
    #[ts(type = "number")]
    pub verified_bytes: u64,
    /// Where it stands.
    pub state: DownloadState,
    /// Over the last seconds; 0 when not running.
    pub bytes_per_s: f64,
    /// At this rate.
    pub seconds_left: Option<f64>,
    /// Set while `state` is `Failed` or `Paused` by a fault.
    pub failure: Option<Failure>,
}

/// Where a download stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DownloadState {
    /// Waits for its turn.
    Queued,
    /// Bytes arrive.
    Running,
    /// Connection lost; tries again by itself.
    Retrying,
    /// Stopped; what arrived is kept.
    Paused,
    /// All bytes are here and are being hashed.
    Verifying,
    /// In the library.
    Done,
    /// Stopped for a reason a person must look at; what is good is kept.
    Failed,
}

// ---------------------------------------------------------------- library

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LibraryModel {
    /// Stable identifier.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Quantisation label.
    pub quant: String,
    /// `general.architecture`.
    pub architecture: String,
    /// First file.
    pub path: String,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// Elements over all tensors.
    #[ts(type = "number")]
    pub n_params: u64,
    /// Trained context length in tokens.
    #[ts(type = "number")]
    pub context_length: u64,
    /// Whether the bytes are what the hub promised.
    pub integrity: Integrity,
    /// Where it came from, if known.
    pub source: Option<RepoFile>,
    /// Why it cannot be used for chat, if so.
    pub refusal: Option<Failure>,
    /// When it was added.
    #[ts(type = "number")]
    pub added_at_ms: i64,
}

/// Whether a model file's bytes are known to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// SHA256 compared and equal.
    Verified,
    /// Nothing to compare with.
    Unverified,
    /// SHA256 differs.
    Mismatched,
}

// ---------------------------------------------------------------- hardware

/// What this machine has, measured now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Hardware {
    /// Processor.
    pub cpu: Cpu,
    /// Installed RAM.
    #[ts(type = "number")]
    pub ram_total_bytes: u64,
    /// RAM that programs can still take.
    #[ts(type = "number")]
    pub ram_available_bytes: u64,
    /// Graphics cards that could compute.
    pub gpus: Vec<Gpu>,
    /// How the search for cards ended.
    pub gpu_probe: GpuProbe,
    /// Volume of the models folder.
    pub disk: Disk,
    /// Operating system.
    pub os: String,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Cpu {
    /// Model name.
    pub name: String,
    /// Physical cores.
    pub n_physical_cores: u32,
    /// Logical cores.
    pub n_logical_cores: u32,
    /// Performance cores among the physical ones.
    pub n_performance_cores: u32,
    /// Cores this process may use (cpuset, cgroup).
    pub n_allowed_cores: u32,
    /// Instruction set the engine chose: `scalar`, `avx2`, `avxvnni`, `avx512vnni`.
    pub isa: String,
}

/// A graphics card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Gpu {
    /// NVML index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Total VRAM.
    #[ts(type = "number")]
    pub vram_total_bytes: u64,
    /// Free VRAM now.
    #[ts(type = "number")]
    pub vram_free_bytes: u64,
    /// Driver version.
    pub driver: String,
    /// Load in percent, if told.
    pub load_percent: Option<u32>,
    /// Temperature in °C, if told.
    pub temperature_c: Option<u32>,
}

/// How the search for graphics cards ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GpuProbe {
    /// Cards were found.
    Found,
    /// No NVIDIA driver on this machine: a normal case.
    NoDriver,
    /// The driver is there but there is no card.
    NoDevice,
    /// The driver answered with an error.
    Failed {
        /// The driver's words.
        reason: String,
    },
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Disk {
    /// Folder asked for.
    pub path: String,
    /// Size of the volume.
    #[ts(type = "number")]
    pub total_bytes: u64,
    /// Free for this user.
    #[ts(type = "number")]
    pub free_bytes: u64,
}

/// What the gauges show, once a second and on every change of phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Gauges {
    /// When.
    #[ts(type = "number")]
    pub at_ms: i64,
    /// Resident memory of the app and its windows.
    #[ts(type = "number")]
    pub ram_app_bytes: u64,
    /// RAM that programs can still take.
    #[ts(type = "number")]
    pub ram_available_bytes: u64,
    /// Installed RAM.
    #[ts(type = "number")]
    pub ram_total_bytes: u64,
    /// Cards, with VRAM now.
    pub gpus: Vec<Gpu>,
    /// Why there are none.
    pub gpu_probe: GpuProbe,
    /// What the engine is doing.
    pub phase: Phase,
    /// Tokens per second of what is running now (prompt or generation), or of the last answer.
    pub tokens_per_s: Option<f64>,
}

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing is loaded.
    Empty,
    /// A model is being loaded.
    Loading,
    /// Loaded and waiting.
    Idle,
    /// Reading a prompt.
    Prompt,
    /// Writing an answer.
    Generating,
}

// ---------------------------------------------------------------- plan

/// What the person wants; each is a constraint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Wishes {
    /// Context length in tokens.
    pub context_length: Option<u32>,
    /// Layers on the GPU.
    pub n_gpu_layers: Option<u32>,
    /// Compute threads.
    pub n_threads: Option<u32>,
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
    /// `f16` or `f32`.
    pub kv_type: String,
    /// One line per part: what, bytes, where, why.
    pub lines: Vec<PlanLine>,
    /// One line per choice: threads, context, …: what and why.
    pub choices: Vec<PlanChoice>,
    /// Bars: the GPU's, if there is one.
    pub gpu_bar: Option<MemoryBar>,
    /// Bars: RAM's.
    pub ram_bar: MemoryBar,
    /// Expected speed.
    pub speed: Speed,
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
    /// From 2 tokens/s.
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
}

/// Where a part lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Place {
    /// A graphics card's memory.
    Gpu {
        /// NVML index.
        index: u32,
    },
    /// Main memory.
    Ram,
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
    /// Prompt, likely.
    pub prompt_tokens_per_s: f64,
}

// ---------------------------------------------------------------- runtime

/// What is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RuntimeState {
    /// Nothing.
    Empty,
    /// A model is being loaded.
    Loading {
        /// Library model.
        model_id: String,
        /// 0 to 1.
        progress: f64,
    },
    /// A model is ready.
    Ready {
        /// Library model.
        model_id: String,
        /// How it runs.
        plan: Box<Plan>,
        /// Milliseconds the load took.
        load_ms: f64,
    },
    /// The last load failed.
    Failed {
        /// Library model.
        model_id: String,
        /// Why.
        failure: Failure,
    },
}

/// Asks for a model to be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LoadRequest {
    /// Library model.
    pub model_id: String,
    /// Constraints.
    pub wishes: Wishes,
}

/// What a load reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LoadEvent {
    /// On its way, 0 to 1.
    Progress {
        /// 0 to 1.
        progress: f64,
    },
    /// Ready.
    Ready {
        /// How it runs.
        plan: Box<Plan>,
        /// Milliseconds the load took.
        load_ms: f64,
    },
    /// Failed or cancelled.
    Failed {
        /// Why.
        failure: Failure,
    },
}

// ---------------------------------------------------------------- chats

/// A chat, as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ChatSummary {
    /// Identifier.
    #[ts(type = "number")]
    pub id: i64,
    /// First words, or what the person wrote.
    pub title: String,
    /// Last change.
    #[ts(type = "number")]
    pub updated_at_ms: i64,
    /// Messages in the tree.
    pub n_messages: u32,
}

/// A chat with all its messages: a tree, of which one path is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Chat {
    /// Summary.
    pub summary: ChatSummary,
    /// Every message, in order of creation. The first is the system message, empty where the model's own is used:
    /// the parent of the first question.
    pub messages: Vec<Message>,
    /// Last message of the path that is shown.
    #[ts(type = "number | null")]
    pub leaf: Option<i64>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Message {
    /// Identifier.
    #[ts(type = "number")]
    pub id: i64,
    /// The message it follows.
    #[ts(type = "number | null")]
    pub parent: Option<i64>,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub text: String,
    /// What was thought before, if the model shows it.
    pub reasoning: String,
    /// When it was written.
    #[ts(type = "number")]
    pub created_at_ms: i64,
    /// Name of the model that wrote it.
    pub model: Option<String>,
    /// How it ended; absent while it is written (or when the app died in mid-answer).
    pub end: Option<EndReason>,
    /// What it cost.
    pub stats: Option<GenerationStats>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model ended it.
    Complete,
    /// The person stopped it.
    Stopped,
    /// `max_tokens` was reached.
    Length,
    /// The context is full.
    ContextFull,
    /// An error; what was written is kept.
    Failed,
}

/// What an answer cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct GenerationStats {
    /// Tokens of the prompt.
    pub n_prompt_tokens: u32,
    /// Prompt tokens taken from the cache.
    pub n_reused_tokens: u32,
    /// Tokens generated.
    pub n_generated_tokens: u32,
    /// Time for the new prompt tokens.
    pub prompt_ms: f64,
    /// Time for the generated tokens.
    pub generation_ms: f64,
    /// New prompt tokens per second.
    pub prompt_tokens_per_s: f64,
    /// Generated tokens per second.
    pub generation_tokens_per_s: f64,
    /// From the request to the first token.
    pub first_token_ms: f64,
}

/// Asks for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SendRequest {
    /// Chat to go on with; absent: a new one.
    #[ts(type = "number | null")]
    pub chat_id: Option<i64>,
    /// Message that the new one follows; absent: the chat's leaf. A user message here with empty `text` is answered anew.
    #[ts(type = "number | null")]
    pub parent: Option<i64>,
    /// What the person says.
    pub text: String,
}

/// Asks for a chat's new title.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct RenameRequest {
    /// Chat.
    #[ts(type = "number")]
    pub chat_id: i64,
    /// New title.
    pub title: String,
}

/// Asks for another path of a chat to be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LeafRequest {
    /// Chat.
    #[ts(type = "number")]
    pub chat_id: i64,
    /// Message whose path is to be shown, down to its newest leaf.
    #[ts(type = "number")]
    pub message_id: i64,
}

/// What an answer reports while it is written: the one enum of all three carriers (window, HTTP, terminal).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChatEvent {
    /// The messages exist.
    Started {
        /// Chat.
        chat: ChatSummary,
        /// The person's message.
        user: Message,
        /// The answer, empty still.
        assistant: Message,
    },
    /// The prompt is being read.
    Prompt {
        /// Tokens done, reused ones included.
        n_done: u32,
        /// Tokens in all.
        n_total: u32,
        /// Tokens taken from the cache.
        n_reused: u32,
    },
    /// More of the answer.
    Delta {
        /// Whole characters.
        text: String,
    },
    /// More of the reasoning before it.
    Reasoning {
        /// Whole characters.
        text: String,
    },
    /// Figures so far, at most a few times a second.
    Stats {
        /// Figures.
        stats: GenerationStats,
    },
    /// Ended, for any reason but an error.
    Done {
        /// As it was stored.
        message: Message,
    },
    /// An error; what was written is kept.
    Failed {
        /// As it was stored, if it was.
        message: Option<Message>,
        /// Why.
        failure: Failure,
    },
}

// ---------------------------------------------------------------- the app as a whole

/// What the window needs at start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct AppInfo {
    /// Version of the app.
    pub version: String,
    /// Settings.
    pub settings: Settings,
    /// Hub in use.
    pub hub_url: String,
    /// Where data lies.
    pub data_dir: String,
    /// Where models lie.
    pub models_dir: String,
    /// The machine.
    pub hardware: Hardware,
    /// What is loaded.
    pub runtime: RuntimeState,
    /// Problems found at start that do not keep the app from running (a full disk, a damaged database set aside).
    pub notices: Vec<Failure>,
}

/// What the app tells the window without being asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// A download changed (at most four times a second each).
    Download {
        /// The download.
        download: Download,
    },
    /// A download was cancelled and is gone.
    DownloadGone {
        /// Its identifier.
        id: String,
    },
    /// The library changed.
    Library {
        /// All of it.
        models: Vec<LibraryModel>,
    },
    /// What is loaded changed.
    Runtime {
        /// Now.
        state: RuntimeState,
    },
    /// Gauges.
    Gauges {
        /// Now.
        gauges: Gauges,
    },
}
