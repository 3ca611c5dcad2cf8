//! `nemotron_h` and `nemotron_h_moe` (Nemotron Nano 2 and 3): every layer is one thing, Mamba-2, attention without positions, or a
//! feed-forward network of squared ReLU, alone or as experts with a shared one.

use super::blocks::{
    Activation, Attention, AttentionOptions, Dense, Embedding, ExpertOptions, FeedForward, Half, Head, Layer, Mamba2,
    Mamba2Options, Mixer, Norm, Stack,
};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";
    let n_embd = loader.count("embedding_length")?;
    let has_rms_eps = loader.facts().metadata.contains(&loader.facts().arch_key(RMS_EPS)?);
    let eps = loader.norm_eps(if has_rms_eps { RMS_EPS } else { "attention.layer_norm_epsilon" })?;
    let mamba2 = Mamba2Options::load(loader, n_embd, eps)?;
    let has_experts = loader.has_experts()?;
    let n_ff = loader.facts().arch_u32_per_layer("feed_forward_length")?.unwrap_or_default();

    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        if n_ff.get(layer).is_some_and(|&n_ff| n_ff > 0) {
            let experts = || {
                let usual = ExpertOptions::load(loader, n_embd, Gating::Sigmoid, Weights::AsTheyAre)?;
                Ok::<_, EngineError>(ExpertOptions { activation: Activation::ReluSquared, ..usual })
            };
            let experts = has_experts.then(experts).transpose()?;
            let dense = || Dense::load(loader, layer, n_embd, Activation::ReluSquared);
            let block = FeedForward::load(loader, layer, experts, dense)?;
            let norm = Norm::load(&ffn, "attn_norm.weight", n_embd, eps)?;
            return Ok(Layer { mix: Half::bare(Mixer::None), ffn: Half::new(norm, block) });
        }
        let block = match loader.has_attention(layer)? {
            false => Mixer::Mamba2(Mamba2::load(&mixer, mamba2)?),
            true => {
                let usual = AttentionOptions::load(loader, layer, n_embd)?;
                Mixer::Attention(Attention::load(&mixer, AttentionOptions { rope: None, ..usual })?)
            }
        };
        let norm = Norm::load(&mixer, "attn_norm.weight", n_embd, eps)?;
        Ok(Layer { mix: Half::new(norm, block), ffn: Half::bare(FeedForward::None) })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let head = Head::load(loader, &embedding, eps)?;
    Ok(Box::new(Stack { ropes: Vec::new(), embedding, layers, head }))
}
