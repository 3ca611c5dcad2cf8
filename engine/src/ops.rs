//! The operations of a forward pass, on whatever device their operands live: the one place that looks at it. The planner's
//! check at load makes sure that operands of one operation live together.

mod recurrent;

use std::ops::Range;

use crate::cpu::{self, AttentionArgs, AttentionOptions, Cpu, Gate, Matrix, MatrixOf};
use crate::kv::LayerCache;
use crate::moe::{Group, Routes, Routing};
use crate::profile::Profile;
use crate::quant;
use crate::tensor::{Angles, AttendScratch, Input, Rows, Vector, Weight, WeightStack};

pub(crate) use recurrent::{Convolve, SelectiveScan};

/// The devices of a loaded model, and what they can do.
pub struct Ops {
    cpu: Cpu,
    profile: Profile,
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
        Self { cpu, profile: Profile::default() }
    }

    /// The same with a profile that collects.
    pub(crate) fn profiled(self) -> Self {
        Self { profile: Profile::on(), ..self }
    }

    /// Where the time goes.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The processor.
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Copies the rows of a matrix that tokens name.
    ///
    /// tokens   [n_tokens], below the matrix's rows
    /// x        [n_tokens, n_cols]
    pub(crate) fn rows_of(&self, weight: &Weight, tokens: &[u32], x: &mut Rows) {
        let Matrix { tensor_type, n_rows, bytes, .. } = weight.matrix();
        let (row_bytes, width) = (bytes.len() / n_rows, x.width());
        let timer = self.profile.time("rows_of");
        for (&token, x) in tokens.iter().zip(x.elems_mut().chunks_exact_mut(width)) {
            let row = &bytes[token as usize * row_bytes..][..row_bytes];
            quant::decode_row(tensor_type, row, x).expect("type and shape were checked at load");
        }
        drop(timer);
        self.scale(x, weight.scale());
    }

    /// Normalises rows by their root mean square and scales their columns.
    ///
    /// x        [n_tokens, width]; only `rows` of it
    /// weight   [width]
    /// y        [rows.len(), width]
    pub(crate) fn rms_norm(&self, x: &Rows, rows: Range<usize>, weight: &Vector, eps: f32, y: &mut Rows) {
        let _timer = self.profile.time("rms_norm");
        let width = x.width();
        let x = &x.elems()[rows.start * width..rows.end * width];
        cpu::rms_norm(&self.cpu, x, weight.elems(), eps, y.elems_mut());
    }

    /// The same in place; of heads, where the weight is as long as one of them.
    ///
    /// x        [n_tokens, width], changed in place
    /// weight   [width], or a divisor of it
    pub(crate) fn rms_norm_in_place(&self, x: &mut Rows, weight: &Vector, eps: f32) {
        let _timer = self.profile.time("rms_norm_in_place");
        cpu::rms_norm_in_place(&self.cpu, x.elems_mut(), weight.elems(), eps);
    }

    /// Normalises rows by their mean and variance.
    ///
    /// x        [n_tokens, width], changed in place
    pub(crate) fn layer_norm_in_place(&self, x: &mut Rows, eps: f32) {
        let _timer = self.profile.time("layer_norm_in_place");
        let width = x.width();
        cpu::layer_norm_in_place(&self.cpu, x.elems_mut(), width, eps);
    }

    /// Copies rows as they are.
    ///
    /// x        [n_tokens, width]; only `rows` of it
    /// y        [rows.len(), width]
    pub(crate) fn copy(&self, x: &Rows, rows: Range<usize>, y: &mut Rows) {
        let _timer = self.profile.time("copy");
        let width = x.width();
        y.elems_mut().copy_from_slice(&x.elems()[rows.start * width..rows.end * width]);
    }

    /// Brings rows into the form that products take.
    pub(crate) fn prepare(&self, x: &Rows, input: &mut Input) {
        let _timer = self.profile.time("prepare");
        input.activations_mut().set(&self.cpu, x.elems(), x.width());
    }

    /// Products of several matrices with the same input.
    ///
    /// list     matrices [n_rows, n_cols] and their results [n_tokens, n_rows]
    pub(crate) fn products<const N: usize>(&self, list: [(&Weight, &mut Rows); N], input: &Input) {
        let _timer = self.profile.time_products("products", || list.iter().map(|(weight, _)| weight.matrix()));
        let scales = list.each_ref().map(|(weight, _)| weight.scale());
        let mut list = list.map(|(weight, y)| (weight.matrix(), y.elems_mut()));
        cpu::matmul_list(&self.cpu, &mut list, input.activations());
        for ((_, y), scale) in list.iter_mut().zip(scales).filter(|(_, scale)| *scale != 1.0) {
            cpu::scale(&self.cpu, y, scale);
        }
    }

    /// Takes some tokens of an input, as often as they are named.
    ///
    /// tokens   [n], tokens of `from`
    pub(crate) fn gather(&self, from: &Input, tokens: &[u32], input: &mut Input) {
        let _timer = self.profile.time("gather");
        input.activations_mut().gather(from.activations(), tokens);
    }

    /// Products of the matrices of stacks, each with tokens of its own.
    ///
    /// groups   (index of a matrix, its tokens), which follow each other
    /// list     stacks [n, n_rows, n_cols] and their results [n_tokens, n_rows]
    pub(crate) fn group_products<'a, const N: usize>(
        &self,
        groups: &[Group],
        list: [(&'a WeightStack, &'a mut Rows); N],
        input: &Input,
    ) {
        let _timer = self.profile.time_products("group_products", || {
            groups.iter().flat_map(|(i, _)| list.iter().map(|(stack, _)| stack.matrix(*i as usize)))
        });
        let mut list = list;
        let matrices = list.each_ref().map(|(stack, _)| {
            let stack: &'a WeightStack = stack;
            move |i| stack.matrix(i)
        });
        let mut matrices_left = matrices.iter();
        let products = list.each_mut().map(|(_, y)| {
            let matrix: MatrixOf<'_, 'a> = matrices_left.next().expect("one per item of the list");
            (matrix, y.elems_mut())
        });
        cpu::matmul_groups(&self.cpu, groups, products, input.activations());
        for (stack, y) in &mut list {
            for (i, tokens) in groups.iter().filter(|(i, _)| stack.scale(*i as usize) != 1.0) {
                let width = y.width();
                let rows = &mut y.elems_mut()[tokens.start as usize * width..tokens.end as usize * width];
                cpu::scale(&self.cpu, rows, stack.scale(*i as usize));
            }
        }
    }

    /// Adds a bias, if there is one, to every row.
    pub(crate) fn add_bias(&self, x: &mut Rows, bias: Option<&Vector>) {
        let Some(bias) = bias else { return };
        let _timer = self.profile.time("add_bias");
        cpu::add(&self.cpu, x.elems_mut(), bias.elems());
    }

    /// Adds to each group's rows the bias of its matrix, if there are biases.
    ///
    /// x        [n_tokens, width], changed in place
    /// biases   [n_matrices, width]
    pub(crate) fn add_group_bias(&self, groups: &[Group], x: &mut Rows, biases: Option<&Vector>) {
        let Some(biases) = biases else { return };
        let _timer = self.profile.time("add_group_bias");
        let width = x.width();
        for (i, tokens) in groups {
            let rows = &mut x.elems_mut()[tokens.start as usize * width..tokens.end as usize * width];
            cpu::add(&self.cpu, rows, &biases.elems()[*i as usize * width..][..width]);
        }
    }

    /// x += y
    pub(crate) fn add(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("add");
        cpu::add(&self.cpu, x.elems_mut(), y.elems());
    }

    /// x *= factor
    pub(crate) fn scale(&self, x: &mut Rows, factor: f32) {
        if factor != 1.0 {
            let _timer = self.profile.time("scale");
            cpu::scale(&self.cpu, x.elems_mut(), factor);
        }
    }

    /// x *= y, every row by the same factors.
    pub(crate) fn multiply(&self, x: &mut Rows, y: &Vector) {
        let _timer = self.profile.time("multiply");
        cpu::multiply(&self.cpu, x.elems_mut(), y.elems());
    }

    /// Keeps elements within -limit..limit.
    pub(crate) fn clamp(&self, x: &mut Rows, limit: f32) {
        let _timer = self.profile.time("clamp");
        cpu::clamp(&self.cpu, x.elems_mut(), limit);
    }

    /// x = cap · tanh(x / cap)
    pub(crate) fn softcap(&self, x: &mut Rows, cap: f32) {
        let _timer = self.profile.time("softcap");
        cpu::softcap(&self.cpu, x.elems_mut(), cap);
    }

    /// gate = f(gate) · up
    pub(crate) fn gate(&self, kind: Gate, gate: &mut Rows, up: &Rows) {
        let _timer = self.profile.time("gate");
        cpu::gate(&self.cpu, kind, gate.elems_mut(), up.elems());
    }

    /// x = max(0, x)²
    pub(crate) fn relu_squared(&self, x: &mut Rows) {
        let _timer = self.profile.time("relu_squared");
        cpu::relu_squared(&self.cpu, x.elems_mut());
    }

    /// x *= sigmoid(gate), with one gate per element or per row.
    pub(crate) fn sigmoid_mul(&self, x: &mut Rows, gate: &Rows) {
        let _timer = self.profile.time("sigmoid_mul");
        cpu::sigmoid_mul(&self.cpu, x.elems_mut(), gate.elems());
    }

    /// Replaces every stream by its prediction.
    ///
    /// x        [n_tokens, width], the stream that passes through layers
    /// others   [n_tokens, (n - 1) · width]
    /// coefs    [n_tokens, n²]
    pub(crate) fn predict_streams(&self, x: &mut Rows, others: &mut Rows, coefs: &Rows) {
        let _timer = self.profile.time("predict_streams");
        let (width, n) = (x.width(), others.width() / x.width() + 1);
        cpu::predict_streams(x.elems_mut(), others.elems_mut(), coefs.elems(), n, width);
    }

    /// Corrects every predicted stream by what a layer made of the first.
    ///
    /// x        [n_tokens, width], what the layer made; the corrected stream afterwards
    /// held     [n_tokens, width], the first stream as predicted
    /// others   [n_tokens, (n - 1) · width]
    /// coefs    [n_tokens, n]
    pub(crate) fn correct_streams(&self, x: &mut Rows, held: &Rows, others: &mut Rows, coefs: &Rows) {
        let _timer = self.profile.time("correct_streams");
        let (width, n) = (x.width(), coefs.width());
        cpu::correct_streams(x.elems_mut(), held.elems(), others.elems_mut(), coefs.elems(), n, width);
    }

    /// Gives rows the length of others.
    ///
    /// x        [n_tokens, n · width], changed in place
    /// to       [n_tokens, width]
    pub(crate) fn match_length(&self, x: &mut Rows, to: &Rows) {
        let _timer = self.profile.time("match_length");
        cpu::match_length(x.elems_mut(), to.elems(), to.width());
    }

    /// Leaves of each row what lies above its mean by so many standard deviations.
    pub(crate) fn keep_outstanding(&self, x: &mut Rows, n_deviations: f32) {
        let _timer = self.profile.time("keep_outstanding");
        let width = x.width();
        cpu::keep_outstanding(x.elems_mut(), width, n_deviations);
    }

    /// Adds one row of a token to each of its pieces.
    ///
    /// x        [n_tokens, n · width], changed in place
    /// y        [n_tokens, width]
    pub(crate) fn add_to_each(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("add_to_each");
        let (x_width, width) = (x.width(), y.width());
        for (x, y) in x.elems_mut().chunks_exact_mut(x_width).zip(y.elems().chunks_exact(width)) {
            for x in x.chunks_exact_mut(width) {
                x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            }
        }
    }

    /// Cuts every piece of `x` in two.
    ///
    /// x        [.., a_dim + b_dim]
    /// a        [.., a_dim]
    /// b        [.., b_dim]
    pub(crate) fn split(&self, x: &Rows, [a_dim, b_dim]: [usize; 2], a: &mut Rows, b: &mut Rows) {
        let _timer = self.profile.time("split");
        let halves = a.elems_mut().chunks_exact_mut(a_dim).zip(b.elems_mut().chunks_exact_mut(b_dim));
        for (x, (a, b)) in x.elems().chunks_exact(a_dim + b_dim).zip(halves) {
            a.copy_from_slice(&x[..a_dim]);
            b.copy_from_slice(&x[a_dim..]);
        }
    }

    /// Puts pieces together again.
    ///
    /// a        [.., a_dim]
    /// b        [.., b_dim]
    /// x        [.., a_dim + b_dim]
    pub(crate) fn join(&self, a: &Rows, b: &Rows, [a_dim, b_dim]: [usize; 2], x: &mut Rows) {
        let _timer = self.profile.time("join");
        let halves = a.elems().chunks_exact(a_dim).zip(b.elems().chunks_exact(b_dim));
        for (x, (a, b)) in x.elems_mut().chunks_exact_mut(a_dim + b_dim).zip(halves) {
            x[..a_dim].copy_from_slice(a);
            x[a_dim..].copy_from_slice(b);
        }
    }

    /// Copies some columns.
    ///
    /// x        [n_tokens, width]
    /// y        [n_tokens, columns.len()]
    pub(crate) fn columns(&self, x: &Rows, columns: Range<usize>, y: &mut Rows) {
        let _timer = self.profile.time("columns");
        let rows = x.elems().chunks_exact(x.width()).zip(y.elems_mut().chunks_exact_mut(columns.len()));
        for (x, y) in rows {
            y.copy_from_slice(&x[columns.clone()]);
        }
    }

    /// Swaps the first two dimensions: tokens of heads to heads of tokens, or back.
    ///
    /// x        [n, m, dim]
    /// y        [m, n, dim]
    pub(crate) fn transpose(&self, x: &Rows, [n, m, dim]: [usize; 3], y: &mut Rows) {
        let _timer = self.profile.time("transpose");
        let (x, y) = (x.elems(), y.elems_mut());
        for i in 0..n {
            for j in 0..m {
                y[(j * n + i) * dim..][..dim].copy_from_slice(&x[(i * m + j) * dim..][..dim]);
            }
        }
    }

    /// Decides which experts the tokens go to.
    ///
    /// logits   [n_tokens, n_experts] of the router; probabilities afterwards
    /// bias     [n_experts] added for selecting only
    pub(crate) fn route(&self, routing: &Routing, logits: &mut Rows, bias: Option<&Vector>, routes: &mut Routes) {
        let _timer = self.profile.time("route");
        routes.set(&self.cpu, routing, logits.elems_mut(), bias.map(Vector::elems));
    }

    /// Adds up what a token's experts yield, by their weights.
    ///
    /// x        [n_slots, width]
    /// y        [n_tokens, width]
    pub(crate) fn combine(&self, x: &Rows, routes: &Routes, y: &mut Rows) {
        let _timer = self.profile.time("combine");
        let width = x.width();
        for (token, y) in y.elems_mut().chunks_exact_mut(width).enumerate() {
            y.fill(0.0);
            for (slot, weight) in routes.of_token(token) {
                for (y, x) in y.iter_mut().zip(&x.elems()[slot * width..][..width]) {
                    *y += weight * x;
                }
            }
        }
    }

    /// Multiplies each token's row by a factor of its position.
    pub(crate) fn scale_by_position(&self, x: &mut Rows, first_pos: usize, factor: impl Fn(usize) -> f32) {
        let _timer = self.profile.time("scale_by_position");
        let width = x.width();
        for (i, row) in x.elems_mut().chunks_exact_mut(width).enumerate() {
            let factor = factor(first_pos + i);
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }

    /// Works out the angles of the positions of a step.
    pub(crate) fn set_positions(&self, angles: &mut Angles, first_pos: usize, n_tokens: usize) {
        let _timer = self.profile.time("set_positions");
        angles.table_mut().set_positions(first_pos, n_tokens);
    }

    /// Rotates heads by their position.
    ///
    /// x        [n_tokens, n_heads · head_dim], changed in place
    pub(crate) fn rope(&self, x: &mut Rows, head_dim: usize, angles: &Angles) {
        let _timer = self.profile.time("rope");
        angles.table().apply(&self.cpu, x.elems_mut(), head_dim);
    }

    /// Writes keys and values into a layer's cache from `first_pos` on; no values if they lie inside the keys.
    pub(crate) fn store(&self, cache: &mut LayerCache, first_pos: usize, k: &Rows, v: Option<&Rows>) {
        let _timer = self.profile.time("store");
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
        let _timer = self.profile.time("attend");
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
