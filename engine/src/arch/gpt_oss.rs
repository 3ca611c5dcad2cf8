//! `gpt-oss`: attention with sinks, every second layer over a short window; experts with biases and a clamped gate.

use super::blocks::{Activation, AttentionOptions, PreNorm, RopeKind};
use super::{Architecture, Loader};
use crate::cpu::Gate;
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    loader.require(&[
        "attn_sinks.weight",
        "attn_output.bias",
        "ffn_gate_inp.bias",
        "ffn_gate_exps.bias",
        "ffn_up_exps.bias",
        "ffn_down_exps.bias",
    ])?;
    let window = loader.count("attention.sliding_window")?;
    let layers = PreNorm {
        rope: RopeKind::Neox,
        ffn_norm: "post_attention_norm.weight",
        activation: Activation::Gated(Gate::ClampedSwish),
        experts: (Gating::SoftmaxOfSelected, Weights::AsTheyAre),
        ..PreNorm::default()
    };
    let is_sliding = loader.sliding_layers(2)?;
    let stack = layers.load_with_windows(loader, |layer, attention| AttentionOptions {
        window: is_sliding[layer].then_some(window),
        ..attention
    })?;
    Ok(Box::new(stack))
}
