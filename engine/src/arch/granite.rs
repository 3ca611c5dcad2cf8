//! `granite`, `granitemoe`: like `llama` with factors on the embedding, on what each half adds, on scores and on logits.

use super::blocks::{AttentionOptions, PreNorm, Stack};
use super::{Architecture, Loader};
use crate::error::EngineError;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    // The models with experts turn them always.
    let is_turned = loader.has_experts()? || is_turned(loader)?;
    let stack = layers(loader)?
        .load(loader, |_, attention| AttentionOptions { rope: attention.rope.filter(|_| is_turned), ..attention })?;
    Ok(Box::new(scaled(loader, stack)?))
}

/// Whether queries and keys are turned at all: that is what this key says here.
pub(super) fn is_turned(loader: &Loader) -> Result<bool, EngineError> {
    Ok(loader.facts().arch_bool_or("rope.scaling.finetuned", true)?)
}

/// Layers with a factor on what each half adds.
pub(super) fn layers(loader: &Loader) -> Result<PreNorm, EngineError> {
    Ok(PreNorm { residual_scale: factor(loader, "residual_scale")?, ..PreNorm::default() })
}

/// The same model with factors on its ends.
pub(super) fn scaled(loader: &Loader, mut stack: Stack) -> Result<Stack, EngineError> {
    stack.embedding = stack.embedding.scaled(factor(loader, "embedding_scale")?);
    stack.head = stack.head.scaled(1.0 / factor(loader, "logit_scale")?);
    Ok(stack)
}

fn factor(loader: &Loader, key: &str) -> Result<f32, EngineError> {
    Ok(loader.scale_or_none(key)?.unwrap_or(1.0))
}
