//! `gemma3n`: four residual streams by alternating updates, a low-rank path beside attention, sparse feed-forward networks in the
//! first layers, an input of each layer's own, and last layers that read the caches of earlier ones.

use super::blocks::{
    Activation, Attention, AttentionOptions, Buffers, Dense, Embedding, Ground, Head, HeadNorms, KvSource, LayerInput,
    LayerInputs, Norm, Rope, RopeKind, Sizes, Step,
};
use super::{Architecture, Loader, Part};
use crate::error::EngineError;
use crate::kv::CacheShape;
use crate::tensor::{Vector, Weight};

/// Layers that keep keys and values of their own, where the file does not say. Source: llama.cpp `gemma3n`.
const N_OWN_CACHES: usize = 20;
/// First layers whose feed-forward networks are sparse.
const N_SPARSE: usize = 10;
/// What stands out there: the upper twentieth of a normal distribution.
const N_DEVIATIONS: f32 = 1.644_853_6;
/// Where the file does not say.
const LOGIT_CAP: f32 = 30.0;

#[derive(Debug)]
struct Gemma3n {
    n_streams: usize,
    ropes: [Rope; 2],
    embedding: Embedding,
    inputs: LayerInputs,
    /// The first stream to all others [(n_streams - 1) · n_embd, n_embd].
    spread: Weight,
    layers: Vec<Layer>,
    /// Each other stream back to one.
    gather: Vec<Weight>,
    head: Head,
}

/// What chooses how streams are mixed; each half of a layer has its own copy, since halves may live apart.
#[derive(Debug)]
struct Router {
    norm: Norm,
    /// [n_streams, n_embd]
    weight: Weight,
}

#[derive(Debug)]
struct Layer {
    mix_router: Router,
    ffn_router: Router,
    /// [n_streams², n_streams]
    predict: Weight,
    /// [n_streams, n_streams]
    correct: Weight,
    correct_scale: Vector,
    attn_norm: Norm,
    attention: Attention,
    post_attention_norm: Norm,
    /// The low-rank path.
    left: Weight,
    right: Weight,
    low_rank_norm: Norm,
    ffn_norm: Norm,
    ffn: Dense,
    post_ffw_norm: Norm,
    input: LayerInput,
}

pub(super) fn load(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let ground @ Ground { n_embd, eps } = Ground::load(loader)?;
    let n_streams = loader.count("altup.num_inputs")?;
    if !(2..=crate::cpu::MAX_STREAMS).contains(&n_streams) {
        return Err(loader.invalid("altup.num_inputs", format!("2 to {}", crate::cpu::MAX_STREAMS), n_streams));
    }
    if loader.facts().arch_u32_or("altup.active_idx", 0)? != 0 {
        return Err(loader.unsupported("another active stream than the first"));
    }
    let head_dim = AttentionOptions::load(loader, 0, n_embd)?.head_dim;
    let rope = Rope::load(loader, RopeKind::Neox, loader.n_rotated(head_dim)?)?;
    let sliding = rope.plain(loader, loader.scale_or("rope.freq_base_swa", 10_000.0)?, rope.n_rotated())?;
    let is_sliding = loader.sliding_layers(5)?;
    let window = loader.count("attention.sliding_window")?;
    let n_own = loader.n_own_caches(N_OWN_CACHES)?;
    for part in (0..n_own).map(|layer| loader.mixer(layer)).filter(|part| !part.has("attn_qkv.weight")) {
        // Unlike in Gemma 4, keys do not stand in.
        part.shape("attn_v.weight")?;
    }
    let options = |layer: usize| {
        let is_sliding = is_sliding[layer];
        let source = match layer < n_own {
            true => KvSource::NormalisedValues { eps },
            false => KvSource::Layer(if is_sliding { n_own - 2 } else { n_own - 1 }),
        };
        Ok::<_, EngineError>(AttentionOptions {
            scale: 1.0,
            rope: Some(usize::from(is_sliding)),
            window: is_sliding.then_some(window),
            norms: HeadNorms::PerHead { eps },
            source,
            ..AttentionOptions::load(loader, layer, n_embd)?
        })
    };
    let part = loader.embed();
    let embedding = Embedding::load(loader, n_embd)?;
    let layers = loader
        .layers()
        .map(|layer| Layer::load(loader, layer, ground, n_streams, options(layer)?.checked_source(loader, options)?))
        .collect::<Result<Vec<_>, EngineError>>()?;
    let Some(inputs) = LayerInputs::load(loader, n_embd, embedding.n_vocab(), eps)? else {
        return Err(loader.invalid("embedding_length_per_layer_input", "1 or more", 0));
    };
    let n_others = n_streams - 1;
    let gather = |i: usize| {
        part.stacked_rows("altup_unembd_proj.weight", [n_others, n_embd, n_embd], i * n_embd..(i + 1) * n_embd)
    };
    Ok(Box::new(Gemma3n {
        n_streams,
        ropes: [rope, sliding],
        inputs,
        spread: part.stacked_rows("altup_proj.weight", [n_others, n_embd, n_embd], 0..n_others * n_embd)?,
        layers,
        gather: (0..n_others).map(gather).collect::<Result<_, _>>()?,
        head: Head::load(loader, &embedding, eps)?.capped(LOGIT_CAP),
        embedding: embedding.scaled((n_embd as f32).sqrt()),
    }))
}

impl Router {
    /// x -> coefficients of the streams, in `k`: the router's choice through one of its two matrices.
    fn run(&self, matrix: &Weight, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        self.norm.run(step);
        let Buffers { h, input, k, v, .. } = &mut *step.buffers;
        v.reshape(n_tokens, self.weight.n_rows());
        step.ops.prepare(h, input);
        step.ops.products([(&self.weight, &mut *v)], input);
        step.ops.softcap(v, 1.0);
        k.reshape(n_tokens, matrix.n_rows());
        step.ops.prepare(v, input);
        step.ops.products([(matrix, &mut *k)], input);
    }
}

impl Layer {
    fn load(
        loader: &Loader,
        layer: usize,
        Ground { n_embd, eps }: Ground,
        n_streams: usize,
        options: AttentionOptions,
    ) -> Result<Self, EngineError> {
        let (mixer, ffn) = (loader.mixer(layer), loader.ffn(layer));
        let norm = |part: &Part<'_>, name: &str| Norm::load(part, name, n_embd, eps);
        let router = |part: &Part<'_>| {
            let norm = Norm::load_scaled(part, "altup_router_norm.weight", n_embd, eps, 1.0 / n_embd as f32)?;
            Ok::<_, EngineError>(Router { norm, weight: part.weight("altup_router.weight", [n_streams, n_embd])? })
        };
        let rank = mixer.shape("laurel_l.weight")?.first().copied().unwrap_or(0) as usize;
        let dense = Dense::load(loader, layer, n_embd, Activation::GELU)?;
        let Some(input) = LayerInput::load(loader, &ffn, n_embd, eps)? else {
            return Err(loader.invalid("embedding_length_per_layer_input", "1 or more", 0));
        };
        Ok(Self {
            mix_router: router(&mixer)?,
            ffn_router: router(&ffn)?,
            predict: mixer.weight("altup_predict_coef.weight", [n_streams * n_streams, n_streams])?,
            correct: ffn.weight("altup_correct_coef.weight", [n_streams, n_streams])?,
            correct_scale: ffn.vector("altup_correct_scale.weight", n_embd)?,
            attn_norm: norm(&mixer, "attn_norm.weight")?,
            attention: Attention::load(&mixer, options)?,
            post_attention_norm: norm(&mixer, "post_attention_norm.weight")?,
            left: mixer.weight("laurel_l.weight", [rank, n_embd])?,
            right: mixer.weight("laurel_r.weight", [n_embd, rank])?,
            low_rank_norm: norm(&mixer, "laurel_post_norm.weight")?,
            ffn_norm: norm(&ffn, "ffn_norm.weight")?,
            ffn: if layer < N_SPARSE { dense.sparse(N_DEVIATIONS) } else { dense },
            post_ffw_norm: norm(&ffn, "post_ffw_norm.weight")?,
            input,
        })
    }

    /// h -> held: h and what the low-rank path makes of it.
    fn low_rank(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let Buffers { h, input, gate, held, .. } = &mut *step.buffers;
        gate.reshape(n_tokens, self.left.n_rows());
        held.reshape(n_tokens, self.right.n_rows());
        step.ops.prepare(h, input);
        step.ops.products([(&self.left, &mut *gate)], input);
        step.ops.prepare(gate, input);
        step.ops.products([(&self.right, &mut *held)], input);
        self.low_rank_norm.run_in_place(held, step.ops);
        step.ops.add(held, h);
    }
}

impl Architecture for Gemma3n {
    fn sizes(&self) -> Sizes {
        let n_embd = self.embedding.n_embd();
        let mut sizes = Sizes { n_embd, n_vocab: self.n_vocab(), n_streams: self.n_streams, ..Sizes::default() };
        for layer in &self.layers {
            layer.attention.grow(&mut sizes);
            layer.ffn.grow(&mut sizes);
            sizes.n_ff = sizes.n_ff.max(layer.left.n_rows());
        }
        sizes.kv = sizes.kv.max(self.n_streams * self.n_streams);
        self.inputs.grow(&mut sizes);
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
        self.layers[layer].attention.cache_shape()
    }

    /// tokens -> x, and the other streams
    fn embed(&self, step: &mut Step<'_>) {
        self.embedding.run(step);
        self.inputs.run(step);
        let n_tokens = step.n_tokens();
        let Buffers { x, input, streams, .. } = &mut *step.buffers;
        streams.reshape(n_tokens, self.spread.n_rows());
        step.ops.prepare(x, input);
        step.ops.products([(&self.spread, &mut *streams)], input);
        step.ops.match_length(streams, x);
    }

    /// Leaves what attention made in `x`, and the stream as predicted in `held`.
    fn mix(&self, layer: usize, step: &mut Step<'_>) {
        let weights = &self.layers[layer];
        weights.mix_router.run(&weights.predict, step);
        let Buffers { x, k, streams, .. } = &mut *step.buffers;
        step.ops.predict_streams(x, streams, k);
        weights.attn_norm.run(step);
        weights.low_rank(step);
        weights.attention.run(layer, step);
        let Buffers { x, held, out, .. } = &mut *step.buffers;
        weights.post_attention_norm.run_in_place(out, step.ops);
        step.ops.add(out, x);
        step.ops.add(out, held);
        step.ops.scale(out, std::f32::consts::FRAC_1_SQRT_2);
        std::mem::swap(x, held);
        std::mem::swap(x, out);
    }

    fn ffn(&self, layer: usize, step: &mut Step<'_>) {
        let weights = &self.layers[layer];
        weights.ffn_norm.run(step);
        weights.ffn.run(step);
        weights.post_ffw_norm.run_in_place(&mut step.buffers.out, step.ops);
        step.add_to_residual();
        weights.ffn_router.run(&weights.correct, step);
        let Buffers { x, k, held, streams, .. } = &mut *step.buffers;
        step.ops.correct_streams(x, held, streams, k);
        step.copy_residual();
        step.ops.multiply(&mut step.buffers.h, &weights.correct_scale);
        weights.input.run(layer, step);
        step.ops.add_to_each(&mut step.buffers.streams, &step.buffers.out);
        if layer + 1 == self.layers.len() {
            self.gather_streams(step);
        }
    }
}

impl Gemma3n {
    /// All streams -> x, their mean
    fn gather_streams(&self, step: &mut Step<'_>) {
        if let Some(first) = self.gather.first() {
            step.move_to(first.device());
        }
        let n_tokens = step.n_tokens();
        let Buffers { x, h, input, out, held, streams, .. } = &mut *step.buffers;
        let n_embd = x.width();
        held.reshape(n_tokens, n_embd);
        step.ops.copy(x, 0..n_tokens, held);
        h.reshape(n_tokens, n_embd);
        out.reshape(n_tokens, n_embd);
        for (i, weight) in self.gather.iter().enumerate() {
            step.ops.columns(streams, i * n_embd..(i + 1) * n_embd, h);
            step.ops.prepare(h, input);
            step.ops.products([(weight, &mut *out)], input);
            step.ops.match_length(out, held);
            step.ops.add(x, out);
        }
        step.ops.scale(x, 1.0 / self.n_streams as f32);
    }
}
