//! `olmo`: norms without weights, clamped queries, keys and values. `olmoe`: experts, norms over all heads together. `olmo2`, OLMo 3
//! among it: norms behind each half instead of before it, and over all heads; OLMo 3 sees a window in three layers of four.

use super::blocks::{
    Activation, Attention, AttentionOptions, Dense, Embedding, FeedForward, Ground, Half, Head, HeadNorms, Layer,
    Mixer, Norm, PreNorm, Rope, RopeKind, Stack,
};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load_olmo(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let n_embd = loader.count("embedding_length")?;
    let eps = loader.norm_eps("attention.layer_norm_epsilon")?;
    let clamp = loader.scale_or_none("attention.clamp_kqv")?;
    let options =
        |layer| Ok::<_, EngineError>(AttentionOptions { clamp, ..AttentionOptions::load(loader, layer, n_embd)? });
    let rope = Rope::load(loader, RopeKind::Norm, loader.n_rotated(options(0)?.head_dim)?)?;
    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        let attention = Attention::load(&mixer, options(layer)?)?;
        let dense = Dense::load(loader, layer, n_embd, Activation::SILU)?;
        Ok(Layer {
            mix: Half::new(Norm::load_layer_norm(&mixer, "attn_norm", n_embd, eps)?, Mixer::Attention(attention)),
            ffn: Half::new(Norm::load_layer_norm(&ffn, "ffn_norm", n_embd, eps)?, FeedForward::Dense(dense)),
        })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let norm = Norm::load_layer_norm(&loader.head(), "output_norm", n_embd, eps)?;
    let head = Head::with_norm(loader, &embedding, norm)?;
    Ok(Box::new(Stack { ropes: vec![rope], embedding, layers, head }))
}

pub(super) fn load_olmoe(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let norms = HeadNorms::AllHeads { eps: Ground::load(loader)?.eps };
    let experts = (Gating::Softmax, Weights::AsTheyAre);
    let layers = PreNorm { rope: RopeKind::Neox, experts, ..PreNorm::default() };
    Ok(Box::new(layers.load(loader, |_, attention| AttentionOptions { norms, ..attention })?))
}

pub(super) fn load_olmo2(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    let window = loader.count_or_none("attention.sliding_window")?;
    let is_sliding = loader.sliding_layers(4)?;
    let norms = HeadNorms::AllHeads { eps };
    let rope =
        Rope::load(loader, RopeKind::Neox, loader.n_rotated(AttentionOptions::load(loader, 0, n_embd)?.head_dim)?)?;
    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        let window = window.filter(|_| is_sliding[layer]);
        let rope = Some(usize::from(window.is_some()));
        let options = AttentionOptions { norms, window, rope, ..AttentionOptions::load(loader, layer, n_embd)? };
        let dense = Dense::load(loader, layer, n_embd, Activation::SILU)?;
        let post_attention = Norm::load(&mixer, "post_attention_norm.weight", n_embd, eps)?;
        let post_ffw = Norm::load(&ffn, "post_ffw_norm.weight", n_embd, eps)?;
        Ok(Layer {
            mix: Half::bare(Mixer::Attention(Attention::load(&mixer, options)?)).followed_by(post_attention),
            ffn: Half::bare(FeedForward::Dense(dense)).followed_by(post_ffw),
        })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let head = Head::load(loader, &embedding, eps)?;
    // Layers with a window are never stretched.
    let ropes = vec![rope.clone(), rope.unscaled()];
    Ok(Box::new(Stack { ropes, embedding, layers, head }))
}
