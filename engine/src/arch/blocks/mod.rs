//! The blocks that families are made of. Each loads its own weights, says what buffers it needs, and runs on the step's buffers:
//! a norm takes `x` to `h`, a mixer or feed-forward takes `h` to `out`, and `out` is added to `x`.

mod attention;
mod delta_net;
mod dense;
mod ends;
mod experts;
mod mamba2;
mod mla;
mod norm;
mod per_layer;
mod pre_norm;
mod recurrent;
mod rope;
mod short_conv;
mod stack;

use crate::cpu::Rounding;
use crate::cuda::Gpus;
use crate::error::EngineError;
use crate::kv::Cache;
use crate::moe::Group;
use crate::ops::Ops;
use crate::place::Device;
use crate::tensor::{Angles, AttendScratch, Input, Rows, room};

pub(crate) use attention::{Attention, AttentionGate, AttentionOptions, HeadNorms, KvSource, Temperature};
pub(crate) use delta_net::{DeltaNetOptions, GatedDeltaNet, KeyHeads};
pub(crate) use dense::{Activation, Dense, DenseNames};
pub(crate) use ends::{Embedding, Head};
pub(crate) use experts::{ExpertBuffers, ExpertOptions, ExpertSizes, Experts};
pub(crate) use mamba2::{Mamba2, Mamba2Options};
pub(crate) use mla::{LatentAttention, LatentAttentionOptions};
pub(crate) use norm::Norm;
pub(crate) use per_layer::{LayerInput, LayerInputs};
pub(crate) use pre_norm::{Ground, PreNorm};
use recurrent::{RecurrentBuffers, RecurrentSizes};
pub(crate) use rope::{Rope, RopeKind};
pub(crate) use short_conv::ShortConv;
pub(crate) use stack::{FeedForward, Half, Layer, Mixer, Stack};

/// One pass of some tokens through the model.
pub(crate) struct Step<'a> {
    /// The devices' operations.
    pub(crate) ops: &'a Ops,
    /// The tokens.
    pub(crate) tokens: &'a [u32],
    /// Position of the first token.
    pub(crate) first_pos: usize,
    /// Keys and values of all layers.
    pub(crate) cache: &'a mut Cache,
    /// Where everything in between goes.
    pub(crate) buffers: &'a mut Buffers,
}

/// Width of each buffer: the largest that any layer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The residual stream.
    pub(crate) n_embd: usize,
    /// Logits.
    pub(crate) n_vocab: usize,
    /// All query heads, and what attention yields for them.
    pub(crate) q: usize,
    /// All key or value heads.
    pub(crate) kv: usize,
    /// Query heads.
    pub(crate) n_heads: usize,
    /// Elements of a head.
    pub(crate) head_dim: usize,
    /// The inside of a feed-forward network.
    pub(crate) n_ff: usize,
    /// Queries without their gates or turned parts, where a block makes both at once.
    pub(crate) q_gate: usize,
    /// Matrices of a stack that all tokens go to (the heads of latent attention).
    pub(crate) n_groups: usize,
    /// What each of them takes of a token.
    pub(crate) group_width: usize,
    /// Residual streams, where there are several.
    pub(crate) n_streams: usize,
    /// Inputs that layers have of their own, all layers together.
    pub(crate) layer_inputs: usize,
    /// A mixture of experts.
    pub(crate) experts: ExpertSizes,
    /// Recurrent mixers.
    pub(crate) recurrent: RecurrentSizes,
    /// How finely products see activations.
    pub(crate) rounding: Rounding,
}

/// Activations of a step, allocated once for the largest step.
pub(crate) struct Buffers {
    /// The residual stream [n_tokens, n_embd].
    pub(crate) x: Rows,
    /// What a norm yields [n_tokens, n_embd].
    pub(crate) h: Rows,
    /// What the next products take, as the kernels want it.
    pub(crate) input: Input,
    /// What a half of a layer yields [n_tokens, n_embd].
    pub(crate) out: Rows,
    /// Angles of the step's positions, one table per rope of the model.
    pub(crate) angles: Vec<Angles>,
    /// What attention needs in between.
    pub(crate) attend: AttendScratch,
    /// Queries [n_tokens, n_heads · head_dim].
    pub(crate) q: Rows,
    /// Keys [n_tokens, n_kv_heads · head_dim].
    pub(crate) k: Rows,
    /// Values [n_tokens, n_kv_heads · head_dim].
    pub(crate) v: Rows,
    /// Queries and their gates, as a projection yields them [n_tokens, 2 · q_gate].
    pub(crate) q_and_gate: Rows,
    /// Gates of what attention yields [n_tokens, q_gate].
    pub(crate) q_gate: Rows,
    /// What attention yields [n_tokens, n_heads · head_dim].
    pub(crate) heads: Rows,
    /// All tokens for each matrix of a stack.
    pub(crate) groups: Vec<Group>,
    /// What the matrices of a stack take [n_groups · n_tokens, group_width].
    pub(crate) group_input: Input,
    /// The gate of a feed-forward network [n_tokens, n_ff].
    pub(crate) gate: Rows,
    /// Its other branch [n_tokens, n_ff].
    pub(crate) up: Rows,
    /// Residual streams beside the first [n_tokens, (n_streams - 1) · n_embd].
    pub(crate) streams: Rows,
    /// The first stream while a layer works on it [n_tokens, n_embd].
    pub(crate) held: Rows,
    /// Inputs that layers have of their own [n_tokens, layer_inputs].
    pub(crate) layer_inputs: Rows,
    /// The experts' own.
    pub(crate) experts: ExpertBuffers,
    /// The recurrent mixers' own.
    pub(crate) recurrent: RecurrentBuffers,
    /// Logits [at most `MAX_LOGIT_ROWS`, n_vocab].
    pub(crate) logits: Rows,
}

/// Most rows of logits that one call of a head computes: enough to read the head's weights well, small beside 200 000 tokens.
pub(crate) const MAX_LOGIT_ROWS: usize = 8;

impl Sizes {
    /// Bytes of the buffers of a step of `n_batch` tokens.
    pub(crate) fn n_bytes(&self, n_batch: usize) -> u64 {
        let grouped = 2 * self.n_groups * self.group_width;
        let per_token = 4 * self.n_embd + 2 * self.q + 2 * self.kv + 3 * self.n_ff + 3 * self.q_gate;
        let blocks = self.layer_inputs + self.experts.per_token() + self.recurrent.per_token();
        let per_token = per_token + grouped + self.n_streams * self.n_embd + blocks + self.second_parts();
        let elems = (per_token as u64).saturating_mul(n_batch as u64);
        elems.saturating_add((self.n_vocab * MAX_LOGIT_ROWS) as u64).saturating_mul(4)
    }

    /// What inputs take besides where they are rounded twice, as elements of one token: two bytes each.
    fn second_parts(&self) -> usize {
        match self.rounding {
            Rounding::Once => 0,
            Rounding::Twice => {
                (self.widest_input() + self.n_groups * self.group_width + self.experts.inputs()).div_ceil(2)
            }
        }
    }

    fn widest_input(&self) -> usize {
        self.n_embd.max(self.q).max(self.n_ff).max(self.recurrent.y)
    }
}

impl Buffers {
    /// Allocates for steps of at most `n_batch` tokens, with the processor and on all GPUs.
    pub(crate) fn new(gpus: &Gpus, sizes: &Sizes, ropes: &[Rope], n_batch: usize) -> Result<Self, EngineError> {
        let rows = |width| Rows::new(gpus, n_batch, width);
        let crossing = |width| Rows::crossing(gpus, n_batch, width);
        Ok(Self {
            x: crossing(sizes.n_embd)?,
            h: crossing(sizes.n_embd)?,
            input: Input::new(gpus, n_batch, sizes.widest_input(), sizes.rounding)?,
            out: rows(sizes.n_embd)?,
            angles: ropes.iter().map(|rope| Angles::new(gpus, rope, n_batch)).collect::<Result<_, _>>()?,
            attend: AttendScratch::new(gpus, sizes.n_heads, sizes.head_dim)?,
            q: rows(sizes.q)?,
            k: rows(sizes.kv)?,
            v: rows(sizes.kv)?,
            q_and_gate: rows(2 * sizes.q_gate)?,
            q_gate: rows(sizes.q_gate)?,
            heads: rows(sizes.q)?,
            groups: room("groups of a step", sizes.n_groups)?,
            group_input: Input::new(gpus, n_batch * sizes.n_groups, sizes.group_width, sizes.rounding)?,
            gate: rows(sizes.n_ff)?,
            up: rows(sizes.n_ff)?,
            streams: crossing(sizes.n_streams.saturating_sub(1) * sizes.n_embd)?,
            held: crossing(if sizes.n_streams > 1 { sizes.n_embd } else { 0 })?,
            layer_inputs: crossing(sizes.layer_inputs)?,
            experts: ExpertBuffers::new(gpus, sizes, n_batch)?,
            recurrent: RecurrentBuffers::new(gpus, &sizes.recurrent, n_batch)?,
            logits: Rows::crossing(gpus, MAX_LOGIT_ROWS, sizes.n_vocab)?,
        })
    }
}

impl Step<'_> {
    /// Tokens of the step.
    pub(crate) fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Takes what passes from half to half to a device.
    pub(crate) fn move_to(&mut self, device: Device) {
        let Buffers { x, held, streams, layer_inputs, .. } = &mut *self.buffers;
        for rows in [x, held, streams, layer_inputs] {
            rows.move_to(device);
        }
    }

    /// x -> h, as it is.
    pub(crate) fn copy_residual(&mut self) {
        let n_tokens = self.n_tokens();
        let Buffers { x, h, .. } = &mut *self.buffers;
        h.reshape(n_tokens, x.width());
        self.ops.copy(x, 0..n_tokens, h);
    }

    /// Sends all tokens to each of the matrices of a stack.
    pub(crate) fn set_groups(&mut self, n_matrices: usize) {
        let n_tokens = self.tokens.len() as u32;
        let groups = &mut self.buffers.groups;
        groups.clear();
        groups.extend((0..n_matrices as u32).map(|i| (i, i * n_tokens..(i + 1) * n_tokens)));
    }

    /// x += out
    pub(crate) fn add_to_residual(&mut self) {
        self.ops.add(&mut self.buffers.x, &self.buffers.out);
    }
}
