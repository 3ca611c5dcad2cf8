//! The blocks that families are made of. Each loads its own weights, says what buffers it needs, and runs on the step's buffers:
//! a norm takes `x` to `h`, a mixer or feed-forward takes `h` to `out`, and `out` is added to `x`.

mod attention;
mod dense;
mod ends;
mod rope;

use crate::error::EngineError;
use crate::kv::Cache;
use crate::ops::Ops;
use crate::place::Device;
use crate::tensor::{Angles, AttendScratch, Input, Rows, Vector};

use super::Part;
pub(crate) use attention::{Attention, AttentionOptions};
pub(crate) use dense::Dense;
pub(crate) use ends::{Embedding, Head};
pub(crate) use rope::{Rope, RopeKind};

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
    /// What attention yields [n_tokens, n_heads · head_dim].
    pub(crate) heads: Rows,
    /// The gate of a feed-forward network [n_tokens, n_ff].
    pub(crate) gate: Rows,
    /// Its other branch [n_tokens, n_ff].
    pub(crate) up: Rows,
    /// Logits [at most `MAX_LOGIT_ROWS`, n_vocab].
    pub(crate) logits: Rows,
}

/// Most rows of logits that one call of a head computes: enough to read the head's weights well, small beside 200 000 tokens.
pub(crate) const MAX_LOGIT_ROWS: usize = 8;

impl Sizes {
    /// Bytes of the buffers of a step of `n_batch` tokens.
    pub(crate) fn n_bytes(&self, n_batch: usize) -> u64 {
        let per_token = 4 * self.n_embd + 2 * self.q + 2 * self.kv + 3 * self.n_ff;
        let elems = (per_token as u64).saturating_mul(n_batch as u64);
        elems.saturating_add((self.n_vocab * MAX_LOGIT_ROWS) as u64).saturating_mul(4)
    }

    fn widest_input(&self) -> usize {
        self.n_embd.max(self.q).max(self.n_ff)
    }
}

impl Buffers {
    /// Allocates on one device for steps of at most `n_batch` tokens.
    pub(crate) fn new(device: Device, sizes: &Sizes, ropes: &[Rope], n_batch: usize) -> Result<Self, EngineError> {
        let rows = |width| Rows::new(device, n_batch, width);
        Ok(Self {
            x: rows(sizes.n_embd)?,
            h: rows(sizes.n_embd)?,
            input: Input::new(device, n_batch, sizes.widest_input())?,
            out: rows(sizes.n_embd)?,
            angles: ropes.iter().map(|rope| Angles::new(device, rope, n_batch)).collect::<Result<_, _>>()?,
            attend: AttendScratch::new(device, sizes.n_heads, sizes.head_dim)?,
            q: rows(sizes.q)?,
            k: rows(sizes.kv)?,
            v: rows(sizes.kv)?,
            heads: rows(sizes.q)?,
            gate: rows(sizes.n_ff)?,
            up: rows(sizes.n_ff)?,
            logits: Rows::new(device, MAX_LOGIT_ROWS, sizes.n_vocab)?,
        })
    }
}

impl Step<'_> {
    /// Tokens of the step.
    pub(crate) fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// x += out
    pub(crate) fn add_to_residual(&mut self) {
        self.ops.add(&mut self.buffers.x, &self.buffers.out);
    }
}

/// A norm over the residual stream, by its root mean square.
#[derive(Debug)]
pub(crate) struct Norm {
    weight: Vector,
    eps: f32,
}

impl Norm {
    pub(crate) fn load(part: &Part<'_>, name: &str, n_embd: usize, eps: f32) -> Result<Self, EngineError> {
        Ok(Self { weight: part.vector(name, n_embd)?, eps })
    }

    /// x -> h, all rows.
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        self.run_rows(0..step.n_tokens(), step);
    }

    /// x -> h, some rows.
    pub(crate) fn run_rows(&self, rows: std::ops::Range<usize>, step: &mut Step<'_>) {
        let Buffers { x, h, .. } = &mut *step.buffers;
        h.reshape(rows.len(), x.width());
        step.ops.rms_norm(x, rows, &self.weight, self.eps, h);
    }
}
