//! `gemma4`: layers with a window and layers that see everything differ in heads, head size and rope; the last layers may read the
//! caches of earlier ones. Some models have experts beside the dense network, small ones an input of each layer's own.

use super::blocks::{
    Activation, Attention, AttentionOptions, Dense, Embedding, ExpertOptions, Experts, Ground, Half, Head, HeadNorms,
    KvSource, LayerInput, LayerInputs, Norm, Rope, RopeKind, Sizes, Step,
};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::kv::CacheShape;
use crate::moe::{Gating, Weights};

#[derive(Debug)]
struct Gemma4 {
    /// For layers that see everything, and for those with a window.
    ropes: [Rope; 2],
    embedding: Embedding,
    inputs: Option<LayerInputs>,
    layers: Vec<Layer>,
    head: Head,
}

#[derive(Debug)]
struct Layer {
    attention: Half<Attention>,
    ffn: Half<FeedForward>,
    input: Option<LayerInput>,
    /// Factor on all that leaves the layer.
    scale: f32,
}

#[derive(Debug)]
struct FeedForward {
    dense: Dense,
    experts: Option<ExpertBranch>,
}

/// Experts beside the dense network, each branch with norms of its own.
#[derive(Debug)]
struct ExpertBranch {
    dense_post: Norm,
    router_norm: Norm,
    norm: Norm,
    experts: Experts,
    post: Norm,
}

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let Ground { n_embd, eps } = Ground::load(loader)?;
    let is_sliding = loader.sliding_layers(6)?;
    let window = loader.count("attention.sliding_window")?;
    let head_dim = loader.count("attention.key_length")?;
    let head_dim_swa = loader.count_or("attention.key_length_swa", head_dim)?;
    let n_own = loader.n_own_caches(usize::MAX)?;

    let rope = Rope::load(loader, RopeKind::Neox, loader.n_rotated(head_dim)?)?;
    let base = loader.scale_or("rope.freq_base_swa", 10_000.0)?;
    let sliding =
        rope.plain(loader, base, loader.count_or("rope.dimension_count_swa", head_dim_swa)?.min(head_dim_swa))?;

    let options = |layer: usize| {
        let is_sliding = is_sliding[layer];
        let source = match layer < n_own {
            true => KvSource::NormalisedValues { eps },
            false => KvSource::Layer(if is_sliding { n_own - 2 } else { n_own - 1 }),
        };
        Ok::<_, EngineError>(AttentionOptions {
            head_dim: if is_sliding { head_dim_swa } else { head_dim },
            scale: 1.0,
            rope: Some(usize::from(is_sliding)),
            window: is_sliding.then_some(window),
            norms: HeadNorms::PerHead { eps },
            source,
            ..AttentionOptions::load(loader, layer, n_embd)?
        })
    };
    let experts = match loader.has_experts()? {
        true => Some(ExpertOptions {
            activation: Activation::GELU,
            ..ExpertOptions::load(loader, n_embd, Gating::Softmax, Weights::Normalised)?
        }),
        false => None,
    };
    let layer = |layer: usize| {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        let attention = options(layer)?.checked_source(loader, options)?;
        let norm = |part, name| Norm::load(part, name, n_embd, eps);
        let feed_forward = FeedForward {
            dense: Dense::load(loader, layer, n_embd, Activation::GELU)?,
            experts: match experts {
                Some(options) if ffn.has("ffn_gate_inp.weight") => {
                    Some(ExpertBranch::load(loader, layer, options, eps)?)
                }
                _ => None,
            },
        };
        Ok(Layer {
            attention: Half::new(norm(&mixer, "attn_norm.weight")?, Attention::load(&mixer, attention)?)
                .followed_by(norm(&mixer, "post_attention_norm.weight")?),
            ffn: Half::new(norm(&ffn, "ffn_norm.weight")?, feed_forward)
                .followed_by(norm(&ffn, "post_ffw_norm.weight")?),
            input: LayerInput::load(loader, &ffn, n_embd, eps)?,
            scale: ffn.elems_if_there("layer_output_scale.weight", 1)?.map_or(1.0, |elems| elems[0]),
        })
    };
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader.layers().map(layer).collect::<Result<Vec<_>, EngineError>>()?;
    let head = Head::load(loader, &embedding, eps)?;
    let inputs = LayerInputs::load(loader, n_embd, embedding.n_vocab(), eps)?;
    let embedding = embedding.scaled((n_embd as f32).sqrt());
    Ok(Box::new(Gemma4 { ropes: [rope, sliding], embedding, inputs, layers, head }))
}

impl ExpertBranch {
    fn load(loader: &Loader, layer: usize, options: ExpertOptions, eps: f32) -> Result<Self, EngineError> {
        let part = loader.ffn(layer);
        let n_embd = options.n_embd;
        let norm = |name| Norm::load(&part, name, n_embd, eps);
        let root = 1.0 / (n_embd as f32).sqrt();
        Ok(Self {
            dense_post: norm("post_ffw_norm_1.weight")?,
            router_norm: Norm::load_scaled(&part, "ffn_gate_inp.scale", n_embd, eps, root)?,
            norm: norm("pre_ffw_norm_2.weight")?,
            experts: Experts::load(loader, layer, options)?,
            post: norm("post_ffw_norm_2.weight")?,
        })
    }
}

impl FeedForward {
    /// h -> out; the experts look at `x` through norms of their own.
    fn run(&self, step: &mut Step<'_>) {
        self.dense.run(step);
        let Some(branch) = &self.experts else { return };
        branch.dense_post.run_in_place(&mut step.buffers.out, step.ops);
        branch.router_norm.run(step);
        branch.experts.route(step);
        branch.norm.run(step);
        branch.experts.run_routed(step);
        let routed = &mut step.buffers.experts.routed;
        branch.post.run_in_place(routed, step.ops);
        step.ops.add(&mut step.buffers.out, routed);
    }
}

impl Architecture for Gemma4 {
    fn sizes(&self) -> Sizes {
        let mut sizes = Sizes { n_embd: self.embedding.n_embd(), n_vocab: self.n_vocab(), ..Sizes::default() };
        for layer in &self.layers {
            layer.attention.block.grow(&mut sizes);
            layer.ffn.block.dense.grow(&mut sizes);
            if let Some(branch) = &layer.ffn.block.experts {
                branch.experts.grow(&mut sizes);
            }
        }
        if let Some(inputs) = &self.inputs {
            inputs.grow(&mut sizes);
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
        self.layers[layer].attention.block.cache_shape()
    }

    fn embed(&self, step: &mut Step<'_>) {
        self.embedding.run(step);
        if let Some(inputs) = &self.inputs {
            inputs.run(step);
        }
    }

    fn mix(&self, layer: usize, step: &mut Step<'_>) {
        self.layers[layer].attention.run(step, |attention, step| attention.run(layer, step));
    }

    fn ffn(&self, layer: usize, step: &mut Step<'_>) {
        let weights = &self.layers[layer];
        weights.ffn.run(step, FeedForward::run);
        if let Some(input) = &weights.input {
            step.copy_residual();
            input.run(layer, step);
            step.add_to_residual();
        }
        step.ops.scale(&mut step.buffers.x, weights.scale);
    }
}
