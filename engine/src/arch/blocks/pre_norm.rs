//! The most common layer: a norm, attention, a norm, a feed-forward network or experts, each half added to the residual stream.
//! A family that has such layers says only what is particular to it.

use super::super::Loader;
use super::{
    Activation, Attention, AttentionOptions, Dense, Embedding, ExpertOptions, FeedForward, Half, Head, Layer, Mixer,
    Norm, Rope, RopeKind, Stack,
};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

/// What is particular to a family of such layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreNorm {
    /// Pairing of the rope.
    pub(crate) rope: RopeKind,
    /// The norm before the feed-forward half.
    pub(crate) ffn_norm: &'static str,
    /// The norm before the head.
    pub(crate) output_norm: &'static str,
    /// What the inside of feed-forward networks and experts goes through.
    pub(crate) activation: Activation,
    /// How experts are routed, where the file does not say.
    pub(crate) experts: (Gating, Weights),
    /// Factor on what each half adds.
    pub(crate) residual_scale: f32,
}

/// What its builder knows of the model when it asks for a layer's attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground {
    /// Width of the residual stream.
    pub(crate) n_embd: usize,
    /// Put into the square root of norms.
    pub(crate) eps: f32,
}

impl Default for PreNorm {
    /// As in `llama`.
    fn default() -> Self {
        Self {
            rope: RopeKind::Norm,
            ffn_norm: "ffn_norm.weight",
            output_norm: "output_norm.weight",
            activation: Activation::SILU,
            experts: (Gating::Softmax, Weights::Normalised),
            residual_scale: 1.0,
        }
    }
}

impl Ground {
    /// Reads the keys that every family has.
    pub(crate) fn load(loader: &Loader) -> Result<Self, EngineError> {
        let eps = loader.norm_eps("attention.layer_norm_rms_epsilon")?;
        Ok(Self { n_embd: loader.count("embedding_length")?, eps })
    }
}

impl PreNorm {
    /// Layers of attention.
    ///
    /// attention  changes what the usual keys say for a layer
    pub(crate) fn load(
        self,
        loader: &Loader,
        attention: impl Fn(usize, AttentionOptions) -> AttentionOptions,
    ) -> Result<Stack, EngineError> {
        let ground = Ground::load(loader)?;
        let head_dim = AttentionOptions::load(loader, 0, ground.n_embd)?.head_dim;
        let rope = Rope::load(loader, self.rope, loader.n_rotated(head_dim)?)?;
        self.load_with(loader, vec![rope], |layer| {
            let options = attention(layer, AttentionOptions::load(loader, layer, ground.n_embd)?);
            Attention::load(&loader.mixer(layer), options).map(Mixer::Attention)
        })
    }

    /// Layers of attention, of which those with a window may have a frequency base of their own.
    ///
    /// attention  changes what the usual keys say for a layer
    pub(crate) fn load_with_windows(
        self,
        loader: &Loader,
        attention: impl Fn(usize, AttentionOptions) -> AttentionOptions,
    ) -> Result<Stack, EngineError> {
        let mut stack = self.load(loader, |layer, usual| {
            let options = attention(layer, usual);
            AttentionOptions { rope: options.rope.map(|rope| rope + usize::from(options.window.is_some())), ..options }
        })?;
        let sliding = stack.ropes[0].with_window_base(loader)?;
        stack.ropes.push(sliding);
        Ok(stack)
    }

    /// Layers of any mixers.
    pub(crate) fn load_with(
        self,
        loader: &Loader,
        ropes: Vec<Rope>,
        mixer: impl Fn(usize) -> Result<Mixer, EngineError>,
    ) -> Result<Stack, EngineError> {
        let Ground { n_embd, eps } = Ground::load(loader)?;
        let (gating, weights) = self.experts;
        let experts = match loader.has_experts()? {
            true => Some(ExpertOptions {
                activation: self.activation,
                ..ExpertOptions::load(loader, n_embd, gating, weights)?
            }),
            false => None,
        };
        let layer = |layer: usize| {
            let dense = || Dense::load(loader, layer, n_embd, self.activation);
            let feed_forward = FeedForward::load(loader, layer, experts, dense)?;
            let attn_norm = Norm::load(&loader.mixer(layer), "attn_norm.weight", n_embd, eps)?;
            let ffn_norm = Norm::load(&loader.ffn(layer), self.ffn_norm, n_embd, eps)?;
            Ok(Layer {
                mix: Half::new(attn_norm, mixer(layer)?).scaled(self.residual_scale),
                ffn: Half::new(ffn_norm, feed_forward).scaled(self.residual_scale),
            })
        };
        let embedding = Embedding::load(loader, n_embd)?;
        let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
        let output_norm = Norm::load(&loader.head(), self.output_norm, n_embd, eps)?;
        let head = Head::with_norm(loader, &embedding, output_norm)?;
        Ok(Stack { ropes, embedding, layers, head })
    }
}
