//! `llama`: Llama 1 to 3, Mistral, Mixtral, Yi, SmolLM2, TinyLlama and many more; `mistral3`: Ministral 3 and kin, whose queries may
//! grow with their position; `smollm3`: SmolLM3, in which every fourth layer knows no positions.

use super::blocks::{AttentionOptions, Ground, PreNorm, Temperature};
use super::{Architecture, Loader};
use crate::error::EngineError;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    check_rotated(loader)?;
    Ok(Box::new(PreNorm::default().load(loader, |_, attention| attention)?))
}

pub(super) fn load_mistral3(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    check_rotated(loader)?;
    let temperature = match loader.scale_or_none("attention.temperature_scale")? {
        Some(scale) => Some(Temperature { scale, length: loader.count("rope.scaling.original_context_length")? }),
        None => None,
    };
    Ok(Box::new(PreNorm::default().load(loader, |_, attention| AttentionOptions { temperature, ..attention })?))
}

pub(super) fn load_smollm3(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    check_rotated(loader)?;
    let stack = PreNorm::default().load(loader, |layer, attention| {
        let rope = attention.rope.filter(|_| (layer + 1) % 4 != 0);
        AttentionOptions { rope, ..attention }
    })?;
    Ok(Box::new(stack))
}

/// All of a head is turned.
fn check_rotated(loader: &Loader) -> Result<(), EngineError> {
    let head_dim = AttentionOptions::load(loader, 0, Ground::load(loader)?.n_embd)?.head_dim;
    match loader.n_rotated(head_dim)? {
        n_rotated if n_rotated == head_dim => Ok(()),
        n_rotated => Err(loader.invalid("rope.dimension_count", head_dim, n_rotated)),
    }
}
