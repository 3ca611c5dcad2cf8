//! The operations of a forward pass, on whatever device their operands live: the one place that looks at it. The planner's
//! check at load makes sure that operands of one operation live together. What an operation writes lives where it ran.

mod card_routes;
mod check;
mod experts;
mod pieces;
mod recurrent;
mod streams;
#[cfg(test)]
#[cfg(unix)]
mod tests;

use std::ops::Range;

use crate::cpu::{self, AttentionArgs, AttentionOptions, Cpu, Gate, Matrix};
use crate::cuda::{self, CudaError, Gpu, Gpus};
use crate::kv::LayerCache;
use crate::place::Device;
use crate::profile::Profile;
use crate::quant;
use crate::tensor::{Angles, AttendScratch, Input, Rows, Vector, Weight};

pub(crate) use recurrent::{Convolve, SelectiveScan};

/// The devices of a loaded model, and what they can do.
pub struct Ops {
    cpu: Cpu,
    gpus: Gpus,
    profile: Profile,
}

/// What an operation runs on.
enum On<'a> {
    Cpu(&'a Cpu),
    Cuda(&'a Gpu),
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
    pub(crate) fn new(cpu: Cpu, gpus: Gpus) -> Self {
        Self { cpu, gpus, profile: Profile::default() }
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

    /// The GPUs.
    pub(crate) fn gpus(&self) -> &Gpus {
        &self.gpus
    }

    /// What went wrong on a GPU since it was opened: its operations fail later than they are asked for.
    pub(crate) fn check(&self) -> Result<(), CudaError> {
        self.gpus.check()
    }

    fn on(&self, device: Device) -> On<'_> {
        match self.gpus.get(device).expect("the placement's devices were opened at load") {
            None => On::Cpu(&self.cpu),
            Some(gpu) => On::Cuda(gpu),
        }
    }

    /// Copies the rows of a matrix that tokens name.
    ///
    /// tokens   [n_tokens], below the matrix's rows
    /// x        [n_tokens, n_cols]
    pub(crate) fn rows_of(&self, weight: &Weight, tokens: &[u32], x: &mut Rows) {
        let timer = self.profile.time("rows_of");
        match self.on(weight.device()) {
            On::Cpu(_) => {
                let Matrix { tensor_type, n_rows, bytes, .. } = weight.matrix();
                let (row_bytes, width) = (bytes.len() / n_rows, x.width());
                for (&token, x) in tokens.iter().zip(x.elems_mut().chunks_exact_mut(width)) {
                    let row = &bytes[token as usize * row_bytes..][..row_bytes];
                    quant::decode_row(tensor_type, row, x).expect("type and shape were checked at load");
                }
            }
            On::Cuda(gpu) => gpu.rows_of(&weight.on_gpu(), tokens, x.on_mut(gpu)),
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
        match self.on(x.device()) {
            On::Cpu(cpu) => {
                let width = x.width();
                let x = &x.elems()[rows.start * width..rows.end * width];
                cpu::rms_norm(cpu, x, weight.elems(), eps, y.elems_mut());
            }
            On::Cuda(gpu) => {
                gpu.rms_norm(x.on(gpu).rows(rows), weight.on(gpu), weight.len(), eps, y.on_mut(gpu).at);
            }
        }
    }

    /// The same in place; of heads, where the weight is as long as one of them.
    ///
    /// x        [n_tokens, width], changed in place
    /// weight   [width], or a divisor of it
    pub(crate) fn rms_norm_in_place(&self, x: &mut Rows, weight: &Vector, eps: f32) {
        let _timer = self.profile.time("rms_norm_in_place");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::rms_norm_in_place(cpu, x.elems_mut(), weight.elems(), eps),
            On::Cuda(gpu) => {
                let x = x.on_mut(gpu);
                gpu.rms_norm(x, weight.on(gpu), weight.len(), eps, x.at);
            }
        }
    }

    /// Normalises rows by their mean and variance.
    ///
    /// x        [n_tokens, width], changed in place
    pub(crate) fn layer_norm_in_place(&self, x: &mut Rows, eps: f32) {
        let _timer = self.profile.time("layer_norm_in_place");
        let width = x.width();
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::layer_norm_in_place(cpu, x.elems_mut(), width, eps),
            On::Cuda(gpu) => gpu.layer_norm(x.on_mut(gpu), eps),
        }
    }

    /// Copies rows as they are.
    ///
    /// x        [n_tokens, width]; only `rows` of it
    /// y        [rows.len(), width]
    pub(crate) fn copy(&self, x: &Rows, rows: Range<usize>, y: &mut Rows) {
        let _timer = self.profile.time("copy");
        let width = x.width();
        match self.on(x.device()) {
            On::Cpu(_) => y.elems_mut().copy_from_slice(&x.elems()[rows.start * width..rows.end * width]),
            On::Cuda(gpu) => gpu.copy(x.on(gpu).rows(rows), y.on_mut(gpu)),
        }
    }

    /// Brings rows into the form that products take.
    pub(crate) fn prepare(&self, x: &Rows, input: &mut Input) {
        let _timer = self.profile.time("prepare");
        match self.on(x.device()) {
            On::Cpu(cpu) => input.activations_mut().set(cpu, x.elems(), x.width()),
            On::Cuda(gpu) => gpu.prepare(x.on(gpu), &input.on_mut(gpu, [x.n_rows(), x.width()])),
        }
    }

    /// Products of several matrices with the same input.
    ///
    /// list     matrices [n_rows, n_cols] and their results [n_tokens, n_rows]
    pub(crate) fn products<const N: usize>(&self, mut list: [(&Weight, &mut Rows); N], input: &Input) {
        let _timer = self.profile.time_products("products", || list.iter().map(|(weight, _)| weight.size()));
        match self.on(input.device()) {
            On::Cpu(cpu) => {
                let scales = list.each_ref().map(|(weight, _)| weight.scale());
                let mut list = list.map(|(weight, y)| (weight.matrix(), y.elems_mut()));
                cpu::matmul_list(cpu, &mut list, input.activations());
                for ((_, y), scale) in list.iter_mut().zip(scales).filter(|(_, scale)| *scale != 1.0) {
                    cpu::scale(cpu, y, scale);
                }
            }
            On::Cuda(gpu) => {
                for (weight, y) in &mut list {
                    gpu.product(&weight.on_gpu(), &input.on(gpu), y.on_mut(gpu));
                    self.scale(y, weight.scale());
                }
            }
        }
    }

    /// Adds a bias, if there is one, to every row.
    pub(crate) fn add_bias(&self, x: &mut Rows, bias: Option<&Vector>) {
        let Some(bias) = bias else { return };
        let _timer = self.profile.time("add_bias");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::add(cpu, x.elems_mut(), bias.elems()),
            On::Cuda(gpu) => gpu.add(x.on_mut(gpu), bias.on(gpu), bias.len()),
        }
    }

    /// x += y
    pub(crate) fn add(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("add");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::add(cpu, x.elems_mut(), y.elems()),
            On::Cuda(gpu) => {
                let y = y.on(gpu);
                gpu.add(x.on_mut(gpu), y.at, y.n_elems());
            }
        }
    }

    /// x *= factor
    pub(crate) fn scale(&self, x: &mut Rows, factor: f32) {
        if factor == 1.0 {
            return;
        }
        let _timer = self.profile.time("scale");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::scale(cpu, x.elems_mut(), factor),
            On::Cuda(gpu) => gpu.scale(x.on_mut(gpu), factor),
        }
    }

    /// x *= y, every row by the same factors.
    pub(crate) fn multiply(&self, x: &mut Rows, y: &Vector) {
        let _timer = self.profile.time("multiply");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::multiply(cpu, x.elems_mut(), y.elems()),
            On::Cuda(gpu) => gpu.multiply(x.on_mut(gpu), y.on(gpu), y.len()),
        }
    }

    /// Keeps elements within -limit..limit.
    pub(crate) fn clamp(&self, x: &mut Rows, limit: f32) {
        let _timer = self.profile.time("clamp");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::clamp(cpu, x.elems_mut(), limit),
            On::Cuda(gpu) => gpu.clamp(x.on_mut(gpu), limit),
        }
    }

    /// x = cap · tanh(x / cap)
    pub(crate) fn softcap(&self, x: &mut Rows, cap: f32) {
        let _timer = self.profile.time("softcap");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::softcap(cpu, x.elems_mut(), cap),
            On::Cuda(gpu) => gpu.softcap(x.on_mut(gpu), cap),
        }
    }

    /// gate = f(gate) · up
    pub(crate) fn gate(&self, kind: Gate, gate: &mut Rows, up: &Rows) {
        let _timer = self.profile.time("gate");
        match self.on(gate.device()) {
            On::Cpu(cpu) => cpu::gate(cpu, kind, gate.elems_mut(), up.elems()),
            On::Cuda(gpu) => gpu.gate(kind, gate.on_mut(gpu), up.on(gpu)),
        }
    }

    /// x = max(0, x)²
    pub(crate) fn relu_squared(&self, x: &mut Rows) {
        let _timer = self.profile.time("relu_squared");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::relu_squared(cpu, x.elems_mut()),
            On::Cuda(gpu) => gpu.relu_squared(x.on_mut(gpu)),
        }
    }

    /// x *= sigmoid(gate), with one gate per element or per row.
    pub(crate) fn sigmoid_mul(&self, x: &mut Rows, gate: &Rows) {
        let _timer = self.profile.time("sigmoid_mul");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::sigmoid_mul(cpu, x.elems_mut(), gate.elems()),
            On::Cuda(gpu) => gpu.sigmoid_mul(x.on_mut(gpu), gate.on(gpu)),
        }
    }

    /// Multiplies each token's row by a factor of its position.
    pub(crate) fn scale_by_position(&self, x: &mut Rows, first_pos: usize, factor: impl Fn(usize) -> f32) {
        let _timer = self.profile.time("scale_by_position");
        let (n_rows, width) = (x.n_rows(), x.width());
        match self.on(x.device()) {
            On::Cpu(_) => {
                for (i, row) in x.elems_mut().chunks_exact_mut(width).enumerate() {
                    let factor = factor(first_pos + i);
                    row.iter_mut().for_each(|x| *x *= factor);
                }
            }
            On::Cuda(gpu) => gpu.scale_rows(x.on_mut(gpu), (0..n_rows).map(|i| factor(first_pos + i))),
        }
    }

    /// Works out the angles of the positions of a step.
    pub(crate) fn set_positions(&self, angles: &mut Angles, first_pos: usize, n_tokens: usize) {
        let _timer = self.profile.time("set_positions");
        angles.set_positions(first_pos, n_tokens);
    }

    /// Rotates heads by their position.
    ///
    /// x        [n_tokens, n_heads · head_dim], changed in place
    pub(crate) fn rope(&self, x: &mut Rows, head_dim: usize, angles: &Angles) {
        let _timer = self.profile.time("rope");
        match self.on(x.device()) {
            On::Cpu(cpu) => angles.table().apply(cpu, x.elems_mut(), head_dim),
            On::Cuda(gpu) => {
                let (n_pairs, is_neox) = angles.pairs();
                gpu.rope(x.on_mut(gpu), head_dim, angles.on(gpu), n_pairs, is_neox);
            }
        }
    }

    /// Writes keys and values into a layer's cache from `first_pos` on; no values if they lie inside the keys.
    pub(crate) fn store(&self, cache: &mut LayerCache, first_pos: usize, k: &Rows, v: Option<&Rows>) {
        let _timer = self.profile.time("store");
        let cache = cache.keys_values_mut();
        match self.on(k.device()) {
            On::Cpu(_) => cache.store(first_pos, k.elems(), v.map(Rows::elems)),
            On::Cuda(gpu) => cache.store_on(gpu, first_pos, k.on(gpu), v.map(|v| v.on(gpu))),
        }
    }

    /// Causal attention of queries over a layer's cache, which holds their own positions too.
    ///
    /// q        [n_tokens, n_heads · key_dim]; turned afterwards if the keys are
    /// cache    of this layer, or of another one
    /// y        [n_tokens, n_heads · value_dim]
    pub(crate) fn attend(
        &self,
        attend: &Attend<'_>,
        scratch: &mut AttendScratch,
        q: &mut Rows,
        cache: &LayerCache,
        y: &mut Rows,
    ) {
        let _timer = self.profile.time("attend");
        let (cache, n_positions) = (cache.keys_values(), attend.first_pos + q.n_rows());
        let shape = cache.shape();
        match self.on(q.device()) {
            On::Cpu(cpu) => {
                if let Some(run) = cache.key_run() {
                    cpu::turn_all(cpu, q.elems_mut(), run);
                }
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
                cpu::attention(cpu, scratch.partials(), &args, y.elems_mut());
                if let Some(run) = cache.value_run() {
                    cpu::turn_all(cpu, y.elems_mut(), run);
                }
            }
            On::Cuda(gpu) => {
                let (k, v) = (cache.keys_on(gpu), cache.values_on(gpu));
                let attend = cuda::Attend {
                    k,
                    v: v.unwrap_or(k),
                    v_stride: if v.is_some() { shape.value_dim() } else { shape.key_dim },
                    n_heads: attend.n_heads,
                    n_kv_heads: shape.n_kv_heads,
                    key_dim: shape.key_dim,
                    value_dim: shape.value_dim(),
                    first_pos: attend.first_pos,
                    window: shape.window,
                    scale: attend.scale,
                    softcap: attend.softcap,
                    sinks: attend.sinks.map(|sinks| sinks.on(gpu)),
                };
                gpu.attend(&attend, scratch.on(gpu), q.on(gpu), y.on_mut(gpu));
            }
        }
    }
}
