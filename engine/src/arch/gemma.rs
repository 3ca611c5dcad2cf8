//! `gemma2` and `gemma3`: a scaled embedding, norms before and behind each half, GeGLU, layers with a sliding window among those that
//! see everything. The second generation caps scores and logits softly, the third has norms of heads and a rope of its own for windows.

use super::blocks::{
    Activation, Attention, AttentionOptions, Dense, Embedding, FeedForward, Ground, Half, Head, HeadNorms, Layer,
    Mixer, Norm, Rope, RopeKind, Stack,
};
use super::{Architecture, Loader};
use crate::error::EngineError;

/// Where files of the second generation do not say.
const SCORE_CAP: f32 = 50.0;
const LOGIT_CAP: f32 = 30.0;

pub(super) fn load_gemma2(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let window = loader.count_or("attention.sliding_window", 4096)?;
    let softcap = Some(loader.scale_or_none("attn_logit_softcapping")?.unwrap_or(SCORE_CAP));
    let is_sliding = loader.sliding_layers(2)?;
    // The model with 46 layers is the one of 27 billion weights.
    let wide = WideScores { n_layers: 46 };
    let rope = rope(loader)?;
    let sliding = rope.with_window_base(loader)?;
    let mut stack = load(loader, vec![rope, sliding], |layer, attention| {
        let window = is_sliding[layer].then_some(window);
        let rope = Some(usize::from(window.is_some()));
        AttentionOptions { window, rope, softcap, scale: wide.scale(loader, &attention), ..attention }
    })?;
    stack.head = stack.head.capped(LOGIT_CAP);
    Ok(Box::new(stack))
}

pub(super) fn load_gemma3(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let eps = Ground::load(loader)?.eps;
    let window = loader.count_or_none("attention.sliding_window")?;
    let is_sliding = loader.sliding_layers(6)?;
    let wide = WideScores { n_layers: 62 };
    let rope = rope(loader)?;
    let sliding = rope.plain(loader, loader.scale_or("rope.freq_base_swa", 10_000.0)?, rope.n_rotated())?;
    let stack = load(loader, vec![rope, sliding], |layer, attention| {
        let window = window.filter(|_| is_sliding[layer]);
        let rope = Some(usize::from(window.is_some()));
        let norms = HeadNorms::PerHead { eps };
        AttentionOptions { window, rope, norms, scale: wide.scale(loader, &attention), ..attention }
    })?;
    Ok(Box::new(stack))
}

/// The models of 27 billion weights, known by their layers, scale scores by the width of the stream over the heads.
struct WideScores {
    n_layers: usize,
}

impl WideScores {
    fn scale(&self, loader: &Loader, attention: &AttentionOptions) -> f32 {
        let is_wide = loader.layers().len() == self.n_layers;
        let head_dim = if is_wide { attention.n_embd / attention.n_heads } else { attention.head_dim };
        1.0 / (head_dim as f32).sqrt()
    }
}

fn rope(loader: &Loader) -> Result<Rope, EngineError> {
    let head_dim = AttentionOptions::load(loader, 0, Ground::load(loader)?.n_embd)?.head_dim;
    Rope::load(loader, RopeKind::Neox, loader.n_rotated(head_dim)?)
}

fn load(
    loader: &Loader,
    ropes: Vec<Rope>,
    attention: impl Fn(usize, AttentionOptions) -> AttentionOptions,
) -> Result<Stack, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        let options = attention(layer, AttentionOptions::load(loader, layer, n_embd)?);
        let block = Mixer::Attention(Attention::load(&mixer, options)?);
        let dense = FeedForward::Dense(Dense::load(loader, layer, n_embd, Activation::GELU)?);
        Ok(Layer {
            mix: Half::new(Norm::load(&mixer, "attn_norm.weight", n_embd, eps)?, block).followed_by(Norm::load(
                &mixer,
                "post_attention_norm.weight",
                n_embd,
                eps,
            )?),
            ffn: Half::new(Norm::load(&ffn, "ffn_norm.weight", n_embd, eps)?, dense).followed_by(Norm::load(
                &ffn,
                "post_ffw_norm.weight",
                n_embd,
                eps,
            )?),
        })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let head = Head::load(loader, &embedding, eps)?;
    let embedding = embedding.scaled((n_embd as f32).sqrt());
    Ok(Stack { ropes, embedding, layers, head })
}
