//! `lfm2`, `lfm2moe`: short convolutions in most layers, attention with norms of query and key heads in some; behind each SwiGLU,
//! or, from some layer on, experts.

use super::blocks::{Attention, AttentionOptions, Ground, HeadNorms, Mixer, PreNorm, Rope, RopeKind, ShortConv};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    let window = loader.count_or_none("attention.sliding_window")?;
    let attention = |layer| {
        let usual = AttentionOptions::load(loader, layer, n_embd)?;
        Ok::<_, EngineError>(AttentionOptions { norms: HeadNorms::PerHead { eps }, window, ..usual })
    };
    let ropes = match loader.first_attention_layer()? {
        Some(layer) => vec![Rope::load(loader, RopeKind::Neox, loader.n_rotated(attention(layer)?.head_dim)?)?],
        None => Vec::new(),
    };
    let layers = PreNorm {
        experts: (Gating::Sigmoid, Weights::Normalised),
        output_norm: "token_embd_norm.weight",
        ..PreNorm::default()
    };
    let stack = layers.load_with(loader, ropes, |layer| {
        let mixer = loader.mixer(layer);
        match loader.has_attention(layer)? {
            true => Attention::load(&mixer, attention(layer)?).map(Mixer::Attention),
            false => ShortConv::load(loader, &mixer, n_embd).map(Mixer::ShortConv),
        }
    })?;
    Ok(Box::new(stack))
}
