//! The operations of a forward pass, on whatever device their operands live: the one place that looks at it. The planner's
//! check at load makes sure that operands of one operation live together.

use std::ops::Range;

use crate::cpu::{self, AttentionArgs, AttentionOptions, Cpu, Matrix};
use crate::kv::LayerCache;
use crate::quant;
use crate::tensor::{Angles, AttendScratch, Input, Rows, Vector, Weight};

/// The devices of a loaded model, and what they can do.
pub struct Ops {
    cpu: Cpu,
}

/// The shape of an attention over a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend<'a> {
    /// Query heads; what else there is to say of shapes, and the window, the cache knows.
    pub(crate) n_heads: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// Position of the first token.
    pub(crate) first_pos: usize,
    /// Scores become `cap * tanh(score / cap)`.
    pub(crate) softcap: Option<f32>,
    /// [n_heads] logits that only join the softmax's denominator.
    pub(crate) sinks: Option<&'a Vector>,
}

impl Ops {
    pub(crate) fn new(cpu: Cpu) -> Self {
        Self { cpu }
    }

    /// Copies the rows of a matrix that tokens name.
    ///
    /// tokens   [n_tokens], below the matrix's rows
    /// x        [n_tokens, n_cols]
    pub(crate) fn rows_of(&self, weight: &Weight, tokens: &[u32], x: &mut Rows) {
        let Matrix { tensor_type, n_rows, bytes, .. } = weight.matrix();
        let (row_bytes, width) = (bytes.len() / n_rows, x.width());
        for (&token, x) in tokens.iter().zip(x.elems_mut().chunks_exact_mut(width)) {
            let row = &bytes[token as usize * row_bytes..][..row_bytes];
            quant::decode_row(tensor_type, row, x).expect("type and shape were checked at load");
        }
    }

    /// Normalises rows by their root mean square and scales their columns.
    ///
    /// x        [n_tokens, width]; only `rows` of it
    /// weight   [width]
    /// y        [rows.len(), width]
    pub(crate) fn rms_norm(&self, x: &Rows, rows: Range<usize>, weight: &Vector, eps: f32, y: &mut Rows) {
        let width = x.width();
        let x = &x.elems()[rows.start * width..rows.end * width];
        cpu::rms_norm(&self.cpu, x, weight.elems(), eps, y.elems_mut());
    }

    /// Brings rows into the form that products take.
    pub(crate) fn prepare(&self, x: &Rows, input: &mut Input) {
        input.activations_mut().set(&self.cpu, x.elems(), x.width());
    }

    /// Products of several matrices with the same input.
    ///
    /// list     matrices [n_rows, n_cols] and their results [n_tokens, n_rows]
    pub(crate) fn products<const N: usize>(&self, list: [(&Weight, &mut Rows); N], input: &Input) {
        let mut list = list.map(|(weight, y)| (weight.matrix(), y.elems_mut()));
        cpu::matmul_list(&self.cpu, &mut list, input.activations());
    }

    /// Adds a bias, if there is one, to every row.
    pub(crate) fn add_bias(&self, x: &mut Rows, bias: Option<&Vector>) {
        let Some(bias) = bias else { return };
        cpu::add(&self.cpu, x.elems_mut(), bias.elems());
    }

    /// x += y
    pub(crate) fn add(&self, x: &mut Rows, y: &Rows) {
        cpu::add(&self.cpu, x.elems_mut(), y.elems());
    }

    /// gate = silu(gate) · up
    pub(crate) fn silu_mul(&self, gate: &mut Rows, up: &Rows) {
        cpu::silu_mul(&self.cpu, gate.elems_mut(), up.elems());
    }

    /// Works out the angles of the positions of a step.
    pub(crate) fn set_positions(&self, angles: &mut Angles, first_pos: usize, n_tokens: usize) {
        angles.table_mut().set_positions(first_pos, n_tokens);
    }

    /// Rotates heads by their position.
    ///
    /// x        [n_tokens, n_heads · head_dim], changed in place
    pub(crate) fn rope(&self, x: &mut Rows, head_dim: usize, angles: &Angles) {
        angles.table().apply(&self.cpu, x.elems_mut(), head_dim);
    }

    /// Writes keys and values into a layer's cache from `first_pos` on; no values if they lie inside the keys.
    pub(crate) fn store(&self, cache: &mut LayerCache, first_pos: usize, k: &Rows, v: Option<&Rows>) {
        cache.keys_values_mut().store(first_pos, k.elems(), v.map(Rows::elems));
    }

    /// Causal attention of queries over a layer's cache, which holds their own positions too.
    ///
    /// q        [n_tokens, n_heads · key_dim]
    /// cache    of this layer, or of another one
    /// y        [n_tokens, n_heads · value_dim]
    pub(crate) fn attend(
        &self,
        attend: &Attend<'_>,
        scratch: &mut AttendScratch,
        q: &Rows,
        cache: &LayerCache,
        y: &mut Rows,
    ) {
        let (cache, n_positions) = (cache.keys_values(), attend.first_pos + q.n_rows());
        let shape = cache.shape();
        let args = AttentionArgs {
            q: q.elems(),
            k: cache.keys(n_positions),
            v: cache.values(n_positions),
            n_heads: attend.n_heads,
            n_kv_heads: shape.n_kv_heads,
            key_dim: shape.key_dim,
            value_dim: shape.value_dim(),
            first_pos: attend.first_pos,
            scale: attend.scale,
            options: AttentionOptions {
                window: shape.window,
                softcap: attend.softcap,
                sinks: attend.sinks.map(Vector::elems),
            },
        };
        cpu::attention(&self.cpu, scratch.partials(), &args, y.elems_mut());
    }
}
