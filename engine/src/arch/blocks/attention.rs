//! Causal attention with grouped heads, over the layer's cache.

use std::ops::Range;

use super::super::{Loader, Part};
use super::{Buffers, Sizes, Step};
use crate::error::EngineError;
use crate::kv::{CacheShape, KvShape, Values};
use crate::ops::Attend;
use crate::tensor::{Vector, Weight};

/// The shape of an attention block.
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
    /// Which of the model's ropes turns queries and keys.
    pub(crate) rope: usize,
}

/// Weights of an attention block.
#[derive(Debug)]
pub(crate) struct Attention {
    options: AttentionOptions,
    q: Weight,
    k: Weight,
    v: Weight,
    output: Weight,
    q_bias: Option<Vector>,
    k_bias: Option<Vector>,
    v_bias: Option<Vector>,
    output_bias: Option<Vector>,
}

impl AttentionOptions {
    /// Reads the usual keys.
    ///
    /// Errors   heads that do not divide, or values of another size than keys
    pub(crate) fn load(loader: &Loader, n_embd: usize) -> Result<Self, EngineError> {
        let n_heads = loader.count("attention.head_count")?;
        let n_kv_heads = loader.count_or("attention.head_count_kv", n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            let expected = format!("a divisor of the {n_heads} query heads");
            return Err(loader.invalid("attention.head_count_kv", expected, n_kv_heads));
        }
        let has_head_dim = loader.facts().metadata.contains(&loader.facts().arch_key("attention.key_length")?);
        if !has_head_dim && !n_embd.is_multiple_of(n_heads) {
            let expected = format!("a divisor of the embedding length {n_embd}");
            return Err(loader.invalid("attention.head_count", expected, n_heads));
        }
        let head_dim = loader.count_or("attention.key_length", n_embd / n_heads)?;
        let value_dim = loader.count_or("attention.value_length", n_embd / n_heads)?;
        if value_dim != head_dim {
            return Err(loader.invalid("attention.value_length", head_dim, value_dim));
        }
        let scale = loader.scale_or("attention.scale", 1.0 / (head_dim as f32).sqrt())?;
        Ok(Self { n_embd, n_heads, n_kv_heads, head_dim, scale, rope: 0 })
    }

    fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }
}

impl Attention {
    /// Reads three matrices, or one that holds them in the order q, k, v; the same for the biases.
    pub(crate) fn load(part: &Part<'_>, options: AttentionOptions) -> Result<Self, EngineError> {
        let AttentionOptions { n_embd, .. } = options;
        let (q, kv) = (options.q_width(), options.kv_width());
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
        Ok(Self {
            q: weight("attn_q.weight", q_rows.clone())?,
            k: weight("attn_k.weight", k_rows.clone())?,
            v: weight("attn_v.weight", v_rows.clone())?,
            output: part.weight("attn_output.weight", [n_embd, q])?,
            q_bias: bias("attn_q.bias", q_rows)?,
            k_bias: bias("attn_k.bias", k_rows)?,
            v_bias: bias("attn_v.bias", v_rows)?,
            output_bias: part.vector_if_there("attn_output.bias", n_embd)?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        sizes.q = sizes.q.max(self.options.q_width());
        sizes.kv = sizes.kv.max(self.options.kv_width());
        sizes.n_heads = sizes.n_heads.max(self.options.n_heads);
        sizes.head_dim = sizes.head_dim.max(self.options.head_dim);
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        let AttentionOptions { n_kv_heads, head_dim, .. } = self.options;
        CacheShape::Attention(KvShape {
            n_kv_heads,
            key_dim: head_dim,
            values: Values::Own { dim: head_dim },
            window: None,
        })
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        let AttentionOptions { n_heads, head_dim, scale, rope, .. } = self.options;
        let (n_tokens, first_pos) = (step.n_tokens(), step.first_pos);
        let Buffers { h, input, angles, attend, q, k, v, heads, out, .. } = &mut *step.buffers;
        let ops = step.ops;
        q.reshape(n_tokens, self.options.q_width());
        k.reshape(n_tokens, self.options.kv_width());
        v.reshape(n_tokens, self.options.kv_width());
        heads.reshape(n_tokens, self.options.q_width());
        out.reshape(n_tokens, self.output.n_rows());

        ops.prepare(h, input);
        ops.products([(&self.q, q), (&self.k, k), (&self.v, v)], input);
        ops.add_bias(q, self.q_bias.as_ref());
        ops.add_bias(k, self.k_bias.as_ref());
        ops.add_bias(v, self.v_bias.as_ref());
        ops.rope(q, head_dim, &angles[rope]);
        ops.rope(k, head_dim, &angles[rope]);
        let cache = step.cache.layer(layer);
        ops.store(cache, first_pos, k, Some(v));
        ops.attend(&Attend { n_heads, scale, first_pos, softcap: None, sinks: None }, attend, q, cache, heads);
        ops.prepare(heads, input);
        ops.products([(&self.output, out)], input);
        ops.add_bias(out, self.output_bias.as_ref());
    }
}
