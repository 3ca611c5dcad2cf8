//! What goes into the worker and what comes out, as data.

use std::sync::Arc;

use crate::Flow;
use crate::error::EngineError;
use crate::model::GpuMemory;
use crate::place::Staying;
use crate::sample::SamplerSettings;
use crate::session::{ExpertStats, PromptProgress};
use crate::token::Tokenizer;

/// What a load reports, in this order: progress, then one of the others.
#[derive(Debug)]
pub enum LoadEvent {
    /// Part that is done, 0 to 1.
    Progress(f32),
    /// The model answers.
    Ready(Ready),
    /// It does not; nothing is loaded.
    Failed(EngineError),
}

/// What is to be known of a loaded model.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its tokenizer, unless the file has none.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Size of the vocabulary.
    pub n_vocab: usize,
    /// Most tokens that the session holds.
    pub context_length: usize,
    /// What it holds on GPUs.
    pub gpu_memory: Vec<GpuMemory>,
    /// What stays with the processor although the placement has it on a GPU.
    pub staying: Vec<Staying>,
    /// Time the load took.
    pub load_ms: f64,
}

/// Asks for tokens.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The whole conversation so far.
    pub tokens: Vec<u32>,
    /// How to choose.
    pub sampler: SamplerSettings,
    /// Most tokens to generate; as many as fit if not said.
    pub max_new_tokens: Option<usize>,
    /// What a token that ends the answer does.
    pub at_end: AtEnd,
}

/// What a token that ends the answer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It ends the generation.
    Stop,
    /// It is a token like others; for benchmarks.
    GoOn,
}

/// What a generation reports, in this order: prompt progress, tokens, then one of the others.
#[derive(Debug)]
pub enum GenerateEvent {
    /// The prompt is being processed.
    Prompt(PromptProgress),
    /// One more token.
    Token {
        /// The token.
        id: u32,
        /// Its text; tokens may end in the middle of a character.
        bytes: Vec<u8>,
    },
    /// The end, for any reason but an error.
    Done {
        /// Why.
        reason: EndReason,
        /// What it cost.
        stats: GenerateStats,
    },
    /// An error; the tokens so far are valid.
    Failed(EngineError),
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The model ended it.
    EndOfGeneration,
    /// `max_new_tokens` was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The sink or the token said so.
    Stopped,
}

/// What a generation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerateStats {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Prompt tokens that were held already.
    pub n_reused: usize,
    /// Tokens generated.
    pub n_generated: usize,
    /// From the request to the first token.
    pub first_token_ms: f64,
    /// Time for the new prompt tokens.
    pub prompt_ms: f64,
    /// Time for the tokens after the first.
    pub generation_ms: f64,
    /// What came of copies of experts on cards.
    pub experts: ExpertStats,
}

impl GenerateStats {
    /// New prompt tokens per second.
    pub fn prompt_tokens_per_s(&self) -> f64 {
        per_s(self.n_prompt - self.n_reused, self.prompt_ms)
    }

    /// Generated tokens per second; the first one belongs to the prompt.
    pub fn generation_tokens_per_s(&self) -> f64 {
        per_s(self.n_generated.saturating_sub(1), self.generation_ms)
    }
}

/// Where the events of a load go.
pub type LoadSink = Box<dyn FnMut(LoadEvent) -> Flow + Send>;
/// Where the events of a generation go.
pub type GenerateSink = Box<dyn FnMut(GenerateEvent) -> Flow + Send>;

fn per_s(n_tokens: usize, ms: f64) -> f64 {
    if ms > 0.0 { n_tokens as f64 / ms * 1e3 } else { 0.0 }
}
