//! `phi3`: Phi-3, Phi-3.5 and Phi-4. Fused projections, a rope over part of each head with factors for long contexts.

use super::blocks::{PreNorm, RopeKind};
use super::{Architecture, Loader};
use crate::error::EngineError;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let layers = PreNorm { rope: RopeKind::Neox, ..PreNorm::default() };
    Ok(Box::new(layers.load(loader, |_, attention| attention)?))
}
