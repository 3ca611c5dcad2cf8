//! Multi-head latent attention: keys and values of all heads are made from one short latent vector per token, and only that and
//! one turned key are cached. The products with the latent are moved to the query and to the result ("absorbed"), so attention runs
//! over a single KV head whose values are the first part of its keys.

use super::super::{Loader, Part};
use super::{Buffers, Norm, Sizes, Step};
use crate::cuda;
use crate::error::EngineError;
use crate::kv::{CacheShape, KvShape, Values};
use crate::ops::Attend;
use crate::tensor::{Weight, WeightStack};

/// The form of a latent attention block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatentAttentionOptions {
    /// Width of the residual stream.
    n_embd: usize,
    /// Query heads.
    n_heads: usize,
    /// Width of the latent queries are made from; none if they are made from the residual stream.
    q_rank: Option<usize>,
    /// Width of the latent that keys and values are made from.
    kv_rank: usize,
    /// Elements of a head that know no position.
    n_plain: usize,
    /// Elements of a head that are turned.
    n_rotated: usize,
    /// Elements of a head's value.
    value_dim: usize,
    /// Factor on the scores.
    scale: f32,
    /// Put into the square roots of the latents' norms.
    eps: f32,
}

/// Weights of a latent attention block.
#[derive(Debug)]
pub(crate) struct LatentAttention {
    options: LatentAttentionOptions,
    q_a: Option<(Weight, Norm)>,
    q: Weight,
    kv_a: Weight,
    kv_a_norm: Norm,
    /// [n_heads, kv_rank, n_plain]
    k_b: WeightStack,
    /// [n_heads, value_dim, kv_rank]
    v_b: WeightStack,
    output: Weight,
}

impl LatentAttentionOptions {
    /// Reads the usual keys.
    ///
    /// Errors   sizes that contradict each other
    pub(crate) fn load(loader: &Loader, n_embd: usize, eps: f32) -> Result<Self, EngineError> {
        let n_rotated = loader.count("rope.dimension_count")?;
        let key_dim = loader.count("attention.key_length_mla")?;
        if key_dim <= n_rotated {
            return Err(loader.invalid("attention.key_length_mla", format!("more than {n_rotated}"), key_dim));
        }
        let q_rank = loader.facts().arch_u32_or("attention.q_lora_rank", 0)? as usize;
        Ok(Self {
            n_embd,
            n_heads: loader.count("attention.head_count")?,
            q_rank: (q_rank > 0).then_some(q_rank),
            kv_rank: loader.count("attention.kv_lora_rank")?,
            n_plain: key_dim - n_rotated,
            n_rotated,
            value_dim: loader.count("attention.value_length_mla")?,
            scale: 1.0 / (key_dim as f32).sqrt(),
            eps,
        })
    }

    /// The same with a factor on the scores' usual factor.
    pub(crate) fn scaled(self, factor: f32) -> Self {
        Self { scale: self.scale * factor, ..self }
    }

    /// Width of what is cached of a position.
    fn cached(&self) -> usize {
        self.kv_rank + self.n_rotated
    }
}

impl LatentAttention {
    pub(crate) fn load(loader: &Loader, part: &Part<'_>, options: LatentAttentionOptions) -> Result<Self, EngineError> {
        let LatentAttentionOptions { n_embd, n_heads, kv_rank, n_plain, n_rotated, value_dim, eps, .. } = options;
        part.check_shape("a latent key", options.cached(), cuda::MAX_KEY_DIM)?;
        part.check_shape("a latent", kv_rank, cuda::MAX_VALUE_DIM)?;
        if part.has("attn_kv_b.weight") && !part.has("attn_k_b.weight") {
            return Err(loader.unsupported("keys and values in one tensor (an old file)"));
        }
        let q_width = n_heads * (n_plain + n_rotated);
        let (q_a, q) = match options.q_rank {
            Some(rank) => {
                let norm = Norm::load(part, "attn_q_a_norm.weight", rank, eps)?;
                let q_a = (part.weight("attn_q_a.weight", [rank, n_embd])?, norm);
                (Some(q_a), part.weight("attn_q_b.weight", [q_width, rank])?)
            }
            None => (None, part.weight("attn_q.weight", [q_width, n_embd])?),
        };
        Ok(Self {
            q_a,
            q,
            kv_a: part.weight("attn_kv_a_mqa.weight", [options.cached(), n_embd])?,
            kv_a_norm: Norm::load(part, "attn_kv_a_norm.weight", kv_rank, eps)?,
            k_b: part.stack("attn_k_b", [n_heads, kv_rank, n_plain])?,
            v_b: part.stack("attn_v_b", [n_heads, value_dim, kv_rank])?,
            output: part.weight("attn_output.weight", [n_embd, n_heads * value_dim])?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        let LatentAttentionOptions { n_heads, q_rank, kv_rank, n_plain, n_rotated, value_dim, .. } = self.options;
        let cached = self.options.cached();
        // The widest of what passes through each buffer; see `run`.
        sizes.q = sizes.q.max(n_heads * cached.max(n_plain + n_rotated)).max(n_heads * value_dim);
        sizes.kv = sizes.kv.max(cached).max(q_rank.unwrap_or(0));
        sizes.q_gate = sizes.q_gate.max(n_heads * cached.max(n_plain).max(value_dim));
        sizes.n_heads = sizes.n_heads.max(n_heads);
        sizes.head_dim = sizes.head_dim.max(cached);
        sizes.n_groups = sizes.n_groups.max(n_heads);
        sizes.group_width = sizes.group_width.max(kv_rank).max(n_plain);
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        let values = Values::InKeys { dim: self.options.kv_rank };
        CacheShape::Attention(KvShape { n_kv_heads: 1, key_dim: self.options.cached(), values, window: None })
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        let LatentAttentionOptions { n_heads, kv_rank, n_plain, n_rotated, value_dim, scale, .. } = self.options;
        let (n_tokens, first_pos) = (step.n_tokens(), step.first_pos);
        step.set_groups(n_heads);
        let Buffers { h, input, angles, attend, q, k, v, heads, q_gate, q_and_gate, out, groups, group_input, .. } =
            &mut *step.buffers;
        let ops = step.ops;

        // What is cached: the latent, normalised, and one key, turned.
        ops.prepare(h, input);
        heads.reshape(n_tokens, self.options.cached());
        ops.products([(&self.kv_a, &mut *heads)], input);
        k.reshape(n_tokens, kv_rank);
        v.reshape(n_tokens, n_rotated);
        ops.split(heads, [kv_rank, n_rotated], k, v);
        self.kv_a_norm.run_in_place(k, ops);
        ops.rope(v, n_rotated, &angles[0]);
        ops.join(k, v, [kv_rank, n_rotated], heads);
        ops.store(step.cache.layer(layer), first_pos, heads, None);

        // Queries; `h` is in `input` still.
        if let Some((q_a, norm)) = &self.q_a {
            k.reshape(n_tokens, q_a.n_rows());
            ops.products([(q_a, &mut *k)], input);
            norm.run_in_place(k, ops);
            ops.prepare(k, input);
        }
        q.reshape(n_tokens, n_heads * (n_plain + n_rotated));
        ops.products([(&self.q, &mut *q)], input);
        q_gate.reshape(n_tokens, n_heads * n_plain);
        q_and_gate.reshape(n_tokens, n_heads * n_rotated);
        ops.split(q, [n_plain, n_rotated], q_gate, q_and_gate);
        ops.rope(q_and_gate, n_rotated, &angles[0]);

        // Each head's plain part, taken to the latent.
        heads.reshape(n_heads * n_tokens, n_plain);
        ops.transpose(q_gate, [n_tokens, n_heads, n_plain], heads);
        ops.prepare(heads, group_input);
        heads.reshape(n_heads * n_tokens, kv_rank);
        ops.group_products(groups, [(&self.k_b, &mut *heads)], group_input);
        q_gate.reshape(n_tokens, n_heads * kv_rank);
        ops.transpose(heads, [n_heads, n_tokens, kv_rank], q_gate);
        q.reshape(n_tokens, n_heads * self.options.cached());
        ops.join(q_gate, q_and_gate, [kv_rank, n_rotated], q);

        // Attention over the latents, whose sum each head takes to its values.
        heads.reshape(n_tokens, n_heads * kv_rank);
        let shape = Attend { n_heads, scale, first_pos, softcap: None, sinks: None };
        ops.attend(&shape, attend, q, step.cache.layer(layer), heads);
        q_gate.reshape(n_heads * n_tokens, kv_rank);
        ops.transpose(heads, [n_tokens, n_heads, kv_rank], q_gate);
        ops.prepare(q_gate, group_input);
        q_gate.reshape(n_heads * n_tokens, value_dim);
        ops.group_products(groups, [(&self.v_b, &mut *q_gate)], group_input);
        heads.reshape(n_tokens, n_heads * value_dim);
        ops.transpose(q_gate, [n_heads, n_tokens, value_dim], heads);
        ops.prepare(heads, input);
        out.reshape(n_tokens, self.output.n_rows());
        ops.products([(&self.output, out)], input);
    }
}
