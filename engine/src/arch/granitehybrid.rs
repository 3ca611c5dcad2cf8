//! `granitehybrid` (Granite 4 H): like `granite`, but Mamba-2 takes the place of attention in most layers, and what attention is
//! left knows no positions as a rule.

use super::blocks::{Attention, AttentionOptions, Ground, Mamba2, Mamba2Options, Mixer, Rope, RopeKind};
use super::{Architecture, Loader, granite};
use crate::error::EngineError;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    let mamba2 = Mamba2Options::load(loader, n_embd, eps)?;
    let is_turned = granite::is_turned(loader)?;
    let attention = |layer| {
        let usual = AttentionOptions::load(loader, layer, n_embd)?;
        Ok::<_, EngineError>(AttentionOptions { rope: usual.rope.filter(|_| is_turned), ..usual })
    };
    let ropes = match loader.first_attention_layer()? {
        Some(layer) if is_turned => {
            vec![Rope::load(loader, RopeKind::Norm, loader.n_rotated(attention(layer)?.head_dim)?)?]
        }
        _ => Vec::new(),
    };
    let stack = granite::layers(loader)?.load_with(loader, ropes, |layer| {
        let mixer = loader.mixer(layer);
        match loader.has_attention(layer)? {
            true => Attention::load(&mixer, attention(layer)?).map(Mixer::Attention),
            false => Mamba2::load(&mixer, mamba2).map(Mixer::Mamba2),
        }
    })?;
    Ok(Box::new(granite::scaled(loader, stack)?))
}
