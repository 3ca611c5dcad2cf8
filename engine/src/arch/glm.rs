//! `glm4moe`: GLM-4.5 and 4.6 with their Air models, Solar-Open. Grouped-query attention that turns half of each head, perhaps with norms
//! of heads; dense layers first, then experts beside a shared one.

use super::blocks::{AttentionOptions, Ground, HeadNorms, PreNorm, RopeKind};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let eps = Ground::load(loader)?.eps;
    let norms = match ["attn_q_norm.weight", "attn_k_norm.weight"].iter().any(|name| loader.mixer(0).has(name)) {
        true => HeadNorms::PerHead { eps },
        false => HeadNorms::None,
    };
    let layers = PreNorm {
        rope: RopeKind::Neox,
        ffn_norm: "post_attention_norm.weight",
        experts: (Gating::Sigmoid, Weights::AsTheyAre),
        ..PreNorm::default()
    };
    Ok(Box::new(layers.load(loader, |_, attention| AttentionOptions { norms, ..attention })?))
}
