//! Causal attention with grouped heads, over the layer's cache.

use std::ops::Range;

use super::super::{Loader, Part};
use super::{Buffers, Norm, Sizes, Step};
use crate::cuda;
use crate::error::EngineError;
use crate::kv::{CacheShape, KvShape, Values};
use crate::ops::Attend;
use crate::tensor::{Vector, Weight};

/// The form of an attention block. `load` reads what all families share; a family sets the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionOptions {
    /// Width of the residual stream.
    pub(crate) n_embd: usize,
    /// Query heads.
    pub(crate) n_heads: usize,
    /// Key and value heads; each serves `n_heads / n_kv_heads` query heads.
    pub(crate) n_kv_heads: usize,
    /// Elements per head.
    pub(crate) head_dim: usize,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Which of the model's ropes turns queries and keys; none if the layer knows no positions.
    pub(crate) rope: Option<usize>,
    /// Only so many positions are seen, the own one among them.
    pub(crate) window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`.
    pub(crate) softcap: Option<f32>,
    /// Norms of queries and keys before they are turned.
    pub(crate) norms: HeadNorms,
    /// What becomes of what attention yields.
    pub(crate) gate: AttentionGate,
    /// Queries, keys and values are kept within this limit.
    pub(crate) clamp: Option<f32>,
    /// Queries grow with their position.
    pub(crate) temperature: Option<Temperature>,
    /// Where keys and values come from.
    pub(crate) source: KvSource,
}

/// Norms by root mean square of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HeadNorms {
    /// None.
    None,
    /// Of each head.
    PerHead {
        /// Put into the square root.
        eps: f32,
    },
    /// Of all heads together.
    AllHeads {
        /// Put into the square root.
        eps: f32,
    },
}

/// What becomes of what attention yields, before the output projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionGate {
    /// It stays.
    None,
    /// It is multiplied by the sigmoid of a gate that the query projection yields too, head by head behind the query.
    WithQuery,
}

/// Queries at position p are multiplied by 1 + scale · ln(1 + ⌊p / length⌋).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Temperature {
    /// How strongly.
    pub(crate) scale: f32,
    /// Positions per step.
    pub(crate) length: usize,
}

/// Where an attention block's keys and values come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KvSource {
    /// Its own projections.
    Own,
    /// Its own projections, values normalised without a weight; where there is no projection to values, the key's stands in.
    NormalisedValues {
        /// Put into the square root.
        eps: f32,
    },
    /// The cache of an earlier layer.
    Layer(usize),
}

/// Weights of an attention block.
#[derive(Debug)]
pub(crate) struct Attention {
    options: AttentionOptions,
    q: Weight,
    q_bias: Option<Vector>,
    q_norm: Option<Norm>,
    /// None if another layer's cache is read.
    kv: Option<KeysValues>,
    output: Weight,
    output_bias: Option<Vector>,
    sinks: Option<Vector>,
}

/// What makes keys and values.
#[derive(Debug)]
struct KeysValues {
    k: Weight,
    k_bias: Option<Vector>,
    k_norm: Option<Norm>,
    /// None if the key's projection stands in.
    v: Option<Weight>,
    v_bias: Option<Vector>,
    v_norm: Option<Norm>,
}

impl AttentionOptions {
    /// Reads the usual keys for a layer: heads, their size, the factor on the scores; turned by the model's first rope.
    ///
    /// Errors   heads that do not divide, or values of another size than keys
    pub(crate) fn load(loader: &Loader, layer: usize, n_embd: usize) -> Result<Self, EngineError> {
        let n_heads = loader.count_of_layer("attention.head_count", layer)?;
        let n_kv_heads = loader.count_of_layer_or("attention.head_count_kv", layer, n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            let expected = format!("a divisor of the {n_heads} query heads");
            return Err(loader.invalid("attention.head_count_kv", expected, n_kv_heads));
        }
        // Heads are as large in all layers, since the model's ropes turn them all.
        let counts = loader.facts().arch_u32_per_layer("attention.head_count")?.unwrap_or_default();
        let n_first_heads = counts.into_iter().find(|&n| n > 0).map_or(n_heads, |n| n as usize);
        let has_head_dim = loader.facts().metadata.contains(&loader.facts().arch_key("attention.key_length")?);
        if !has_head_dim && !n_embd.is_multiple_of(n_first_heads) {
            let expected = format!("a divisor of the embedding length {n_embd}");
            return Err(loader.invalid("attention.head_count", expected, n_first_heads));
        }
        let head_dim = loader.count_or("attention.key_length", n_embd / n_first_heads)?;
        let value_dim = loader.count_or("attention.value_length", n_embd / n_first_heads)?;
        if value_dim != head_dim {
            return Err(loader.invalid("attention.value_length", head_dim, value_dim));
        }
        // Zero stands for the usual factor.
        let usual_scale = 1.0 / (head_dim as f32).sqrt();
        let scale = loader.scale_or_none("attention.scale")?.unwrap_or(usual_scale);
        Ok(Self {
            n_embd,
            n_heads,
            n_kv_heads,
            head_dim,
            scale,
            rope: Some(0),
            window: None,
            softcap: None,
            norms: HeadNorms::None,
            gate: AttentionGate::None,
            clamp: None,
            temperature: None,
            source: KvSource::Own,
        })
    }

    /// The same, if the cache of an earlier layer that it reads is of the form that it would have itself.
    ///
    /// options  of every layer
    /// Errors   a cache of another form
    pub(crate) fn checked_source(
        self,
        loader: &Loader,
        options: impl Fn(usize) -> Result<Self, EngineError>,
    ) -> Result<Self, EngineError> {
        let KvSource::Layer(other) = self.source else { return Ok(self) };
        let form = |of: &Self| [of.n_kv_heads, of.head_dim, of.window.unwrap_or(0)];
        let (own, read) = (form(&self), form(&options(other)?));
        if own == read {
            return Ok(self);
        }
        let expected = format!("a count that leaves caches of {own:?} (heads, their size, window) to read");
        Err(loader.invalid("attention.shared_kv_layers", expected, format!("one that leaves {read:?}")))
    }

    fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Rows of the query projection.
    fn q_rows(&self) -> usize {
        match self.gate {
            AttentionGate::None => self.q_width(),
            AttentionGate::WithQuery => 2 * self.q_width(),
        }
    }

    fn norm(&self, part: &Part<'_>, name: &str, n_heads: usize) -> Result<Option<Norm>, EngineError> {
        match self.norms {
            HeadNorms::None => Ok(None),
            HeadNorms::PerHead { eps } => Norm::load(part, name, self.head_dim, eps).map(Some),
            HeadNorms::AllHeads { eps } => Norm::load(part, name, n_heads * self.head_dim, eps).map(Some),
        }
    }
}

impl Attention {
    /// Reads three matrices, or one that holds them in the order q, k, v; the same for the biases.
    pub(crate) fn load(part: &Part<'_>, options: AttentionOptions) -> Result<Self, EngineError> {
        let AttentionOptions { n_embd, n_heads, n_kv_heads, head_dim, .. } = options;
        part.check_shape("a head", head_dim, cuda::MAX_VALUE_DIM)?;
        if let KvSource::Layer(other) = options.source {
            part.check_cache_of(other)?;
        }
        let (q, kv) = (options.q_rows(), options.kv_width());
        let n_fused = q + 2 * kv;
        let weight = |name: &str, rows: Range<usize>| match part.has("attn_qkv.weight") {
            true => part.weight_rows("attn_qkv.weight", [n_fused, n_embd], rows),
            false => part.weight(name, [rows.len(), n_embd]),
        };
        let bias = |name: &str, rows: Range<usize>| match part.has("attn_qkv.bias") {
            true => part.vector_elems("attn_qkv.bias", n_fused, rows).map(Some),
            false => part.vector_if_there(name, rows.len()),
        };
        let [q_rows, k_rows, v_rows] = [0..q, q..q + kv, q + kv..n_fused];
        let kv = || {
            // First, since its shape vouches for the sizes of what is made here.
            let k = weight("attn_k.weight", k_rows.clone())?;
            let (has_values, v_norm) = match options.source {
                KvSource::NormalisedValues { eps } => {
                    let has_values = part.has("attn_v.weight") || part.has("attn_qkv.weight");
                    (has_values, Some(Norm::plain(part, head_dim, eps, 1.0)?))
                }
                _ => (true, None),
            };
            Ok::<_, EngineError>(KeysValues {
                k,
                k_bias: bias("attn_k.bias", k_rows)?,
                k_norm: options.norm(part, "attn_k_norm.weight", n_kv_heads)?,
                v: has_values.then(|| weight("attn_v.weight", v_rows.clone())).transpose()?,
                v_bias: bias("attn_v.bias", v_rows)?,
                v_norm,
            })
        };
        Ok(Self {
            kv: if let KvSource::Layer(_) = options.source { None } else { Some(kv()?) },
            q: weight("attn_q.weight", q_rows.clone())?,
            q_bias: bias("attn_q.bias", q_rows)?,
            q_norm: options.norm(part, "attn_q_norm.weight", n_heads)?,
            output: part.weight("attn_output.weight", [n_embd, options.q_width()])?,
            output_bias: part.vector_if_there("attn_output.bias", n_embd)?,
            sinks: part.vector_if_there("attn_sinks.weight", n_heads)?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        sizes.q = sizes.q.max(self.options.q_width());
        sizes.kv = sizes.kv.max(self.options.kv_width());
        sizes.n_heads = sizes.n_heads.max(self.options.n_heads);
        sizes.head_dim = sizes.head_dim.max(self.options.head_dim);
        if self.options.gate == AttentionGate::WithQuery {
            sizes.q_gate = sizes.q_gate.max(self.options.q_width());
        }
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        let AttentionOptions { n_kv_heads, head_dim, window, source, .. } = self.options;
        match source {
            KvSource::Layer(_) => CacheShape::Nothing,
            KvSource::Own | KvSource::NormalisedValues { .. } => {
                let values = Values::Own { dim: head_dim };
                CacheShape::Attention(KvShape { n_kv_heads, key_dim: head_dim, values, window })
            }
        }
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        self.project(layer, step);
        let AttentionOptions { n_heads, scale, softcap, source, .. } = self.options;
        let (n_tokens, first_pos) = (step.n_tokens(), step.first_pos);
        let Buffers { input, attend, q, heads, out, q_gate, .. } = &mut *step.buffers;
        let ops = step.ops;
        heads.reshape(n_tokens, self.options.q_width());
        out.reshape(n_tokens, self.output.n_rows());
        let cache = step.cache.layer(if let KvSource::Layer(other) = source { other } else { layer });
        let shape = Attend { n_heads, scale, first_pos, softcap, sinks: self.sinks.as_ref() };
        ops.attend(&shape, attend, q, cache, heads);
        if self.options.gate == AttentionGate::WithQuery {
            ops.sigmoid_mul(heads, q_gate);
        }
        ops.prepare(heads, input);
        ops.products([(&self.output, &mut *out)], input);
        ops.add_bias(out, self.output_bias.as_ref());
    }

    /// h -> q, and keys and values into the cache
    fn project(&self, layer: usize, step: &mut Step<'_>) {
        let AttentionOptions { head_dim, rope, clamp, temperature, .. } = self.options;
        let (n_tokens, first_pos) = (step.n_tokens(), step.first_pos);
        let Buffers { h, input, angles, q, k, v, q_and_gate, q_gate, .. } = &mut *step.buffers;
        let ops = step.ops;
        ops.prepare(h, input);
        q.reshape(n_tokens, self.options.q_width());
        let product = match self.options.gate {
            AttentionGate::None => &mut *q,
            AttentionGate::WithQuery => {
                q_and_gate.reshape(n_tokens, self.options.q_rows());
                &mut *q_and_gate
            }
        };
        k.reshape(n_tokens, self.options.kv_width());
        v.reshape(n_tokens, self.options.kv_width());
        match &self.kv {
            Some(KeysValues { k: k_weight, v: Some(v_weight), .. }) => {
                ops.products([(&self.q, &mut *product), (k_weight, &mut *k), (v_weight, &mut *v)], input);
            }
            Some(KeysValues { k: k_weight, v: None, .. }) => {
                ops.products([(&self.q, &mut *product), (k_weight, &mut *k)], input);
                ops.copy(k, 0..n_tokens, v);
            }
            None => ops.products([(&self.q, &mut *product)], input),
        }
        ops.add_bias(product, self.q_bias.as_ref());
        if self.options.gate == AttentionGate::WithQuery {
            q_gate.reshape(n_tokens, self.options.q_width());
            ops.split(q_and_gate, [head_dim, head_dim], q, q_gate);
        }
        if let Some(limit) = clamp {
            ops.clamp(q, limit);
        }
        if let Some(norm) = &self.q_norm {
            norm.run_in_place(q, ops);
        }
        if let Some(rope) = rope {
            ops.rope(q, head_dim, &angles[rope]);
        }
        if let Some(Temperature { scale, length }) = temperature {
            ops.scale_by_position(q, first_pos, |pos| 1.0 + scale * (1.0 + (pos / length) as f32).ln());
        }
        let Some(kv) = &self.kv else { return };
        ops.add_bias(k, kv.k_bias.as_ref());
        ops.add_bias(v, kv.v_bias.as_ref());
        if let Some(limit) = clamp {
            ops.clamp(k, limit);
            ops.clamp(v, limit);
        }
        if let Some(norm) = &kv.k_norm {
            norm.run_in_place(k, ops);
        }
        if let Some(norm) = &kv.v_norm {
            norm.run_in_place(v, ops);
        }
        if let Some(rope) = rope {
            ops.rope(k, head_dim, &angles[rope]);
        }
        ops.store(step.cache.layer(layer), first_pos, k, Some(v));
    }
}
