//! `deepseek2`: DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash. Latent attention; dense layers first, then experts beside a shared
//! one.

use super::blocks::{Ground, LatentAttention, LatentAttentionOptions, Mixer, PreNorm, Rope, RopeKind};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    if loader.scale_or_none("attention.temperature_scale")?.is_some() {
        return Err(loader.unsupported("queries that grow with their position"));
    }
    let rope = Rope::load(loader, RopeKind::Norm, loader.count("rope.dimension_count")?)?;
    // YaRN's sharpening is in the scores' factor too, and in it alone if the file says by how much.
    let log_multiplier = loader.facts().arch_f32_or("rope.scaling.yarn_log_multiplier", 0.0)?;
    let sharpening = rope.yarn_factor().map_or(1.0, |factor| rope.magnitude() * (1.0 + log_multiplier * factor.ln()));
    let options = LatentAttentionOptions::load(loader, n_embd, eps)?.scaled(sharpening * sharpening);
    let layers = PreNorm { experts: (gating(loader)?, Weights::AsTheyAre), ..PreNorm::default() };
    let stack = layers.load_with(loader, vec![rope], |layer| {
        LatentAttention::load(loader, &loader.mixer(layer), options).map(Mixer::Latent)
    })?;
    Ok(Box::new(stack))
}

/// Where the file does not say: early files of GLM-4.7-Flash, known by their shape, mean the sigmoid, all others the softmax.
fn gating(loader: &Loader) -> Result<Gating, EngineError> {
    let n_vocab = loader.embed().shape("token_embd.weight")?.first().copied();
    let is_flash = matches!(loader.facts().arch_u32("block_count")?, 47 | 48) && n_vocab == Some(154_880);
    Ok(if is_flash { Gating::Sigmoid } else { Gating::Softmax })
}
