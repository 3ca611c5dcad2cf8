//! `granite`, `granitemoe`: like `llama` with factors on the embedding, on what each half adds, on scores and on logits.

use super::blocks::PreNorm;
use super::{Architecture, Loader};
use crate::error::EngineError;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let layers =
        PreNorm { residual_scale: loader.scale_or_none("residual_scale")?.unwrap_or(1.0), ..PreNorm::default() };
    let mut stack = layers.load(loader, |_, attention| attention)?;
    stack.embedding = stack.embedding.scaled(loader.scale_or_none("embedding_scale")?.unwrap_or(1.0));
    stack.head = stack.head.scaled(1.0 / loader.scale_or_none("logit_scale")?.unwrap_or(1.0));
    Ok(Box::new(stack))
}
