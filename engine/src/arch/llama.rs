//! `llama`: Llama 1 to 3, Mistral, Yi, SmolLM2, TinyLlama and many more. Pre-norm blocks, grouped-query attention with rope in
//! adjacent pairs, SwiGLU.

use std::ops::Range;

use super::blocks::{Attention, AttentionOptions, Dense, Embedding, Head, Norm, Rope, RopeKind, Sizes, Step};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::kv::CacheShape;

#[derive(Debug)]
struct Llama {
    ropes: [Rope; 1],
    embedding: Embedding,
    layers: Vec<Layer>,
    head: Head,
}

#[derive(Debug)]
struct Layer {
    attn_norm: Norm,
    attention: Attention,
    ffn_norm: Norm,
    ffn: Dense,
}

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    if loader.facts().arch_u32_or("expert_count", 0)? > 0 {
        return Err(loader.unsupported("experts"));
    }
    let n_layers = loader.count("block_count")?;
    let n_embd = loader.count("embedding_length")?;
    let n_ff = loader.count("feed_forward_length")?;
    let eps = loader.norm_eps("attention.layer_norm_rms_epsilon")?;
    let options = AttentionOptions::load(loader, n_embd)?;
    let n_rotated = loader.count_or("rope.dimension_count", options.head_dim)?;
    if n_rotated != options.head_dim {
        return Err(loader.invalid("rope.dimension_count", options.head_dim, n_rotated));
    }
    let rope = Rope::load(loader, RopeKind::Norm, n_rotated)?;

    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        Ok(Layer {
            attn_norm: Norm::load(&mixer, "attn_norm.weight", n_embd, eps)?,
            attention: Attention::load(&mixer, options)?,
            ffn_norm: Norm::load(&ffn, "ffn_norm.weight", n_embd, eps)?,
            ffn: Dense::load(&ffn, n_embd, n_ff)?,
        })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = (0..n_layers).map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let head = Head::load(loader, &embedding, eps)?;
    Ok(Box::new(Llama { ropes: [rope], embedding, layers, head }))
}

impl Architecture for Llama {
    fn sizes(&self) -> Sizes {
        let mut sizes = Sizes { n_embd: self.embedding.n_embd(), n_vocab: self.n_vocab(), ..Sizes::default() };
        for layer in &self.layers {
            layer.attention.grow(&mut sizes);
            layer.ffn.grow(&mut sizes);
        }
        sizes
    }

    fn n_vocab(&self) -> usize {
        self.embedding.n_vocab()
    }

    fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    fn cache_shape(&self, layer: usize) -> CacheShape {
        self.layers[layer].attention.cache_shape()
    }

    fn embed(&self, step: &mut Step<'_>) {
        self.embedding.run(step);
    }

    fn mix(&self, layer: usize, step: &mut Step<'_>) {
        let weights = &self.layers[layer];
        weights.attn_norm.run(step);
        weights.attention.run(layer, step);
        step.add_to_residual();
    }

    fn ffn(&self, layer: usize, step: &mut Step<'_>) {
        let weights = &self.layers[layer];
        weights.ffn_norm.run(step);
        weights.ffn.run(step);
        step.add_to_residual();
    }

    fn head(&self, rows: Range<usize>, step: &mut Step<'_>) {
        self.head.run(rows, step);
    }
}
