//! The usual model: an embedding, layers of two halves each, a head. A half is a norm, a block, perhaps a norm behind it, and what
//! comes out is added to the residual stream. Most families are nothing but a way to build one.

use super::super::{Architecture, Loader};
use super::{
    Attention, Dense, Embedding, ExpertOptions, Experts, GatedDeltaNet, Head, LatentAttention, Mamba2, Norm, Rope,
    ShortConv, Sizes, Step,
};
use crate::error::EngineError;
use crate::kv::CacheShape;

/// A model of the usual form.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The rotary embeddings that attention chooses from, by index.
    pub(crate) ropes: Vec<Rope>,
    /// Tokens to activations.
    pub(crate) embedding: Embedding,
    /// The layers, in order.
    pub(crate) layers: Vec<Layer>,
    /// Activations to logits.
    pub(crate) head: Head,
}

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The half that mixes tokens.
    pub(crate) mix: Half<Mixer>,
    /// The half that looks at each token alone.
    pub(crate) ffn: Half<FeedForward>,
}

/// x += scale · post(block(pre(x)))
#[derive(Debug)]
pub(crate) struct Half<B> {
    /// The norm before it; without one the block takes `x` itself.
    pub(crate) pre: Option<Norm>,
    /// What it does.
    pub(crate) block: B,
    /// The norm behind it.
    pub(crate) post: Option<Norm>,
    /// Factor on what is added.
    pub(crate) scale: f32,
}

/// What mixes tokens.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, allocated once")]
pub(crate) enum Mixer {
    /// Nothing: the layer is a feed-forward network alone.
    None,
    /// Attention.
    Attention(Attention),
    /// Attention over latents.
    Latent(LatentAttention),
    /// A gated delta net.
    DeltaNet(GatedDeltaNet),
    /// A selective scan.
    Mamba2(Mamba2),
    /// A convolution over a few tokens.
    ShortConv(ShortConv),
}

/// What looks at each token alone.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, allocated once")]
pub(crate) enum FeedForward {
    /// Nothing: the layer is a mixer alone.
    None,
    /// One network.
    Dense(Dense),
    /// Many, of which a router picks.
    Experts(Experts),
}

impl<B> Half<B> {
    /// A norm before the block, and nothing else.
    pub(crate) fn new(pre: Norm, block: B) -> Self {
        Self { pre: Some(pre), block, post: None, scale: 1.0 }
    }

    /// The same with a factor on what is added.
    pub(crate) fn scaled(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Nothing around the block.
    pub(crate) fn bare(block: B) -> Self {
        Self { pre: None, block, post: None, scale: 1.0 }
    }

    /// The same with a norm behind the block.
    pub(crate) fn followed_by(self, norm: Norm) -> Self {
        Self { post: Some(norm), ..self }
    }

    pub(crate) fn run(&self, step: &mut Step<'_>, block: impl FnOnce(&B, &mut Step<'_>)) {
        match &self.pre {
            Some(norm) => norm.run(step),
            None => step.copy_residual(),
        }
        block(&self.block, step);
        if let Some(norm) = &self.post {
            norm.run_in_place(&mut step.buffers.out, step.ops);
        }
        step.ops.scale(&mut step.buffers.out, self.scale);
        step.add_to_residual();
    }
}

impl Mixer {
    fn grow(&self, sizes: &mut Sizes) {
        match self {
            Mixer::None => {}
            Mixer::Attention(attention) => attention.grow(sizes),
            Mixer::Latent(attention) => attention.grow(sizes),
            Mixer::DeltaNet(net) => net.grow(sizes),
            Mixer::Mamba2(mamba) => mamba.grow(sizes),
            Mixer::ShortConv(conv) => conv.grow(sizes),
        }
    }

    fn cache_shape(&self) -> CacheShape {
        match self {
            Mixer::None => CacheShape::Nothing,
            Mixer::Attention(attention) => attention.cache_shape(),
            Mixer::Latent(attention) => attention.cache_shape(),
            Mixer::DeltaNet(net) => net.cache_shape(),
            Mixer::Mamba2(mamba) => mamba.cache_shape(),
            Mixer::ShortConv(conv) => conv.cache_shape(),
        }
    }

    fn run(&self, layer: usize, step: &mut Step<'_>) {
        match self {
            Mixer::None => {}
            Mixer::Attention(attention) => attention.run(layer, step),
            Mixer::Latent(attention) => attention.run(layer, step),
            Mixer::DeltaNet(net) => net.run(layer, step),
            Mixer::Mamba2(mamba) => mamba.run(layer, step),
            Mixer::ShortConv(conv) => conv.run(layer, step),
        }
    }
}

impl FeedForward {
    /// Experts where the file has a router for this layer, one network where not.
    ///
    /// experts  how they are routed, if the model has some
    /// dense    builds the one network
    pub(crate) fn load(
        loader: &Loader,
        layer: usize,
        experts: Option<ExpertOptions>,
        dense: impl FnOnce() -> Result<Dense, EngineError>,
    ) -> Result<Self, EngineError> {
        match experts {
            Some(options) if loader.ffn(layer).has("ffn_gate_inp.weight") => {
                Experts::load(loader, layer, options).map(Self::Experts)
            }
            _ => dense().map(Self::Dense),
        }
    }

    fn grow(&self, sizes: &mut Sizes) {
        match self {
            FeedForward::None => {}
            FeedForward::Dense(dense) => dense.grow(sizes),
            FeedForward::Experts(experts) => experts.grow(sizes),
        }
    }

    fn run(&self, step: &mut Step<'_>) {
        match self {
            FeedForward::None => {}
            FeedForward::Dense(dense) => dense.run(step),
            FeedForward::Experts(experts) => experts.run(step),
        }
    }
}

impl Architecture for Stack {
    fn sizes(&self) -> Sizes {
        let mut sizes = Sizes { n_embd: self.embedding.n_embd(), n_vocab: self.n_vocab(), ..Sizes::default() };
        for layer in &self.layers {
            layer.mix.block.grow(&mut sizes);
            layer.ffn.block.grow(&mut sizes);
        }
        sizes
    }

    fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    fn output(&self) -> &Head {
        &self.head
    }

    fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    fn cache_shape(&self, layer: usize) -> CacheShape {
        self.layers[layer].mix.block.cache_shape()
    }

    fn mix(&self, layer: usize, step: &mut Step<'_>) {
        let half = &self.layers[layer].mix;
        if !matches!(half.block, Mixer::None) {
            half.run(step, |mixer, step| mixer.run(layer, step));
        }
    }

    fn ffn(&self, layer: usize, step: &mut Step<'_>) {
        let half = &self.layers[layer].ffn;
        if !matches!(half.block, FeedForward::None) {
            half.run(step, FeedForward::run);
        }
    }
}
