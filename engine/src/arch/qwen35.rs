//! `qwen35`, `qwen35moe` (Qwen 3.5 and 3.6), `qwen3next`: three layers of gated delta net, then one of gated attention, and so on;
//! behind each SwiGLU, or experts with a gated shared one.

use super::blocks::{
    Attention, AttentionGate, AttentionOptions, DeltaNetOptions, GatedDeltaNet, Ground, HeadNorms, KeyHeads, Mixer,
    PreNorm, Rope, RopeKind,
};
use super::{Architecture, Loader};
use crate::error::EngineError;

/// Every so many layers one has attention, if the file does not say.
const FULL_ATTENTION_INTERVAL: usize = 4;

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    check_sections(loader)?;
    load_with(loader, KeyHeads::Tiled)
}

pub(super) fn load_qwen3next(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    load_with(loader, KeyHeads::Grouped)
}

fn load_with(loader: &Loader, key_heads: KeyHeads) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    if loader.has_experts()? {
        loader.require(&["ffn_gate_inp_shexp.weight"])?;
    }
    let delta_net = DeltaNetOptions::load(loader, n_embd, key_heads, eps)?;
    let attention = |layer| {
        let usual = AttentionOptions::load(loader, layer, n_embd)?;
        let norms = HeadNorms::PerHead { eps };
        Ok::<_, EngineError>(AttentionOptions { norms, gate: AttentionGate::WithQuery, ..usual })
    };
    let interval = loader.count_or("full_attention_interval", FULL_ATTENTION_INTERVAL)?;
    let is_recurrent = match loader.flags_per_layer("attention.recurrent_layers")? {
        Some(flags) => flags,
        None => loader.layers().map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
    };
    let ropes = match is_recurrent.iter().position(|is_recurrent| !is_recurrent) {
        Some(layer) => vec![Rope::load(loader, RopeKind::Neox, loader.n_rotated(attention(layer)?.head_dim)?)?],
        None => Vec::new(),
    };
    let layers = PreNorm { ffn_norm: "post_attention_norm.weight", ..PreNorm::default() };
    let stack = layers.load_with(loader, ropes, |layer| {
        let mixer = loader.mixer(layer);
        match is_recurrent[layer] {
            true => GatedDeltaNet::load(&mixer, delta_net).map(Mixer::DeltaNet),
            false => Attention::load(&mixer, attention(layer)?).map(Mixer::Attention),
        }
    })?;
    Ok(Box::new(stack))
}

/// Pairs of channels turn by time, by height or by width, interleaved. For text all three are the position, which makes it the
/// plain rotation, as long as every pair belongs to one of them.
///
/// Errors   pairs that would not turn
fn check_sections(loader: &Loader) -> Result<(), EngineError> {
    const KEY: &str = "rope.dimension_sections";
    let facts = loader.facts();
    let Some(sections) = facts.metadata.get_u32s(&facts.arch_key(KEY)?)? else { return Ok(()) };
    let n_pairs = loader.count("rope.dimension_count")? / 2;
    let n_all: usize = sections.iter().map(|&n| n as usize).sum();
    let turns = |pair: usize| {
        let i = pair % n_all.max(1);
        sections.get(i % 3).is_some_and(|&n| i < 3 * n as usize)
    };
    if (0..n_pairs).all(turns) {
        return Ok(());
    }
    Err(loader.invalid(KEY, format!("three sections that cover {n_pairs} pairs"), format!("{sections:?}")))
}
