//! The architectures that the engine runs: one row per `general.architecture`, one file per family. A family reads its
//! hyperparameters, names its weights and composes shared blocks in two halves per layer; it never names a device, a
//! thread, a quant type or an instruction set.

pub(crate) mod blocks;
mod deepseek;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt_oss;
mod granite;
mod granitehybrid;
mod lfm2;
mod llama;
mod loader;
mod nemotron_h;
mod olmo;
mod phi;
mod qwen;
mod qwen35;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Flow;
use crate::cpu::Rounding;
use crate::cuda::Gpus;
use crate::error::EngineError;
use crate::gguf::{MappedModel, ModelFacts};
use crate::kv::{CacheOptions, CacheShape};
use crate::place::Placement;
use blocks::{Embedding, Head, Rope, Sizes, Step};
pub(crate) use loader::{Loader, Part};

/// One architecture of the registry.
#[derive(Debug)]
pub struct ArchitectureRow {
    /// `general.architecture` of its files.
    pub name: &'static str,
    /// Its family's file, in this folder.
    pub file: &'static str,
    load: Load,
}

/// Every architecture that the engine runs.
pub static ARCHITECTURES: &[ArchitectureRow] = &[
    row("llama", "llama.rs", llama::load),
    row("mistral3", "llama.rs", llama::load_mistral3),
    row("smollm3", "llama.rs", llama::load_smollm3),
    row("qwen2", "qwen.rs", qwen::load_qwen2),
    row("qwen2moe", "qwen.rs", qwen::load_qwen2),
    row("qwen3", "qwen.rs", qwen::load_qwen3),
    row("qwen3moe", "qwen.rs", qwen::load_qwen3),
    row("gemma2", "gemma.rs", gemma::load_gemma2),
    row("gemma3", "gemma.rs", gemma::load_gemma3),
    row("gemma3n", "gemma3n.rs", gemma3n::load),
    row("gemma4", "gemma4.rs", gemma4::load),
    row("gpt-oss", "gpt_oss.rs", gpt_oss::load),
    row("deepseek2", "deepseek.rs", deepseek::load),
    row("glm4moe", "glm.rs", glm::load),
    row("phi3", "phi.rs", phi::load),
    row("granite", "granite.rs", granite::load),
    row("granitemoe", "granite.rs", granite::load),
    row("olmo", "olmo.rs", olmo::load_olmo),
    row("olmo2", "olmo.rs", olmo::load_olmo2),
    row("olmoe", "olmo.rs", olmo::load_olmoe),
    row("qwen35", "qwen35.rs", qwen35::load),
    row("qwen35moe", "qwen35.rs", qwen35::load),
    row("qwen3next", "qwen35.rs", qwen35::load_qwen3next),
    row("granitehybrid", "granitehybrid.rs", granitehybrid::load),
    row("lfm2", "lfm2.rs", lfm2::load),
    row("lfm2moe", "lfm2.rs", lfm2::load),
    row("nemotron_h", "nemotron_h.rs", nemotron_h::load),
    row("nemotron_h_moe", "nemotron_h.rs", nemotron_h::load),
];

type Load = fn(&Loader) -> Result<Box<dyn Architecture>, EngineError>;

const fn row(name: &'static str, file: &'static str, load: Load) -> ArchitectureRow {
    ArchitectureRow { name, file, load }
}

/// Whether the engine runs files with this `general.architecture`.
pub fn supports(architecture: &str) -> bool {
    find(architecture).is_some()
}

/// A loaded model of some family: its weights, and its forward pass in pieces between which devices may change.
pub(crate) trait Architecture: fmt::Debug + Send + Sync {
    /// The buffers that a step needs.
    fn sizes(&self) -> Sizes;

    /// Its token embedding.
    fn embedding(&self) -> &Embedding;

    /// Its output norm and head.
    fn output(&self) -> &Head;

    /// The rotary embeddings that its layers choose from, by index.
    fn ropes(&self) -> &[Rope];

    /// What a layer keeps.
    fn cache_shape(&self, layer: usize) -> CacheShape;

    /// Tokens to activations: fills `x`.
    fn embed(&self, step: &mut Step<'_>) {
        self.embedding().run(step);
    }

    /// The half of a layer that mixes tokens.
    fn mix(&self, layer: usize, step: &mut Step<'_>);

    /// The half of a layer that looks at each token alone.
    fn ffn(&self, layer: usize, step: &mut Step<'_>);

    /// Activations of some rows to logits: fills `logits`.
    fn head(&self, rows: Range<usize>, step: &mut Step<'_>) {
        self.output().run(rows, step);
    }

    /// Size of the vocabulary.
    fn n_vocab(&self) -> usize {
        self.embedding().n_vocab()
    }
}

/// What a model will need, known from its header alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// What each layer keeps.
    pub caches: Vec<CacheShape>,
    sizes: Sizes,
}

impl Survey {
    /// Bytes of all caches.
    pub fn cache_bytes(&self, options: &CacheOptions) -> u64 {
        self.caches.iter().fold(0, |sum, shape| sum.saturating_add(shape.n_bytes(options)))
    }

    /// Bytes of the buffers of a step of `n_batch` tokens.
    pub fn buffer_bytes(&self, n_batch: usize) -> u64 {
        self.sizes.n_bytes(n_batch)
    }
}

/// Goes through a header as a load would: every hyperparameter and every weight that the family wants must be there and fit.
///
/// Errors   what a load would say, but for what only the weights themselves can show
pub fn survey(facts: &ModelFacts) -> Result<Survey, EngineError> {
    let placement = Placement::all_cpu(facts.n_layers()? as usize);
    let model = MappedModel::header_only(facts.clone());
    let context_length = facts.context_length()? as usize;
    let on_copied = |_| Flow::Continue;
    let loader = Loader::new(Arc::new(model), placement.clone(), Gpus::default(), context_length, &on_copied);
    let architecture = load(&loader)?;
    let caches = (0..placement.layers.len()).map(|layer| architecture.cache_shape(layer)).collect();
    Ok(Survey { caches, sizes: sizes(architecture.as_ref(), facts) })
}

/// Models with fewer weights have their activations rounded twice.
///
/// Rounding once moves the logits of SmolLM2 (0.13 G weights) and Gemma 3 270M by a mean KL divergence of 3e-3 from those of
/// exact activations, as other engines do; twice by under 1e-6. Such models are quick enough to pay for it, and the
/// smaller a model the more it has to lose.
const ROUNDED_TWICE_BELOW: u64 = 1 << 29;

/// How finely a model's products see activations.
pub fn rounding(facts: &ModelFacts) -> Rounding {
    if facts.n_params() < ROUNDED_TWICE_BELOW { Rounding::Twice } else { Rounding::Once }
}

/// What the buffers of a step need.
pub(crate) fn sizes(architecture: &dyn Architecture, facts: &ModelFacts) -> Sizes {
    Sizes { rounding: rounding(facts), ..architecture.sizes() }
}

/// Builds the family that a file names.
pub(crate) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let architecture = loader.facts().architecture()?;
    let Some(row) = find(architecture) else {
        return Err(EngineError::ArchitectureUnsupported { architecture: architecture.to_owned() });
    };
    if loader.layers().is_empty() {
        return Err(loader.invalid("block_count", "1 or more", 0));
    }
    loader.count("context_length")?;
    if !loader.facts().arch_bool_or("attention.causal", true)? {
        return Err(loader.unsupported("attention to later tokens"));
    }
    (row.load)(loader)
}

fn find(architecture: &str) -> Option<&'static ArchitectureRow> {
    ARCHITECTURES.iter().find(|row| row.name == architecture)
}
