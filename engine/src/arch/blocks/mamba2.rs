//! Mamba-2: a selective scan over a matrix per head, behind a convolution and under a gate.

use super::super::{Loader, Part};
use super::recurrent::{Convolution, RecurrentBuffers, RecurrentSizes};
use super::{Buffers, Sizes, Step};
use crate::cpu::{ConvActivation, GateOrder, Scan};
use crate::cuda;
use crate::error::EngineError;
use crate::kv::CacheShape;
use crate::ops::SelectiveScan;
use crate::tensor::{Vector, Weight};

/// The form of a Mamba-2 mixer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba2Options {
    n_embd: usize,
    scan: Scan,
    n_taps: usize,
    eps: f32,
}

/// Weights of a Mamba-2 mixer.
#[derive(Debug)]
pub(crate) struct Mamba2 {
    options: Mamba2Options,
    gate: Weight,
    xbc: Weight,
    dt: Weight,
    convolution: Convolution,
    dt_bias: Vector,
    a: Vector,
    d: Vector,
    norm: Vector,
    output: Weight,
}

impl Mamba2Options {
    /// Reads the usual keys.
    ///
    /// eps      of its norm
    /// Errors   heads or groups that do not divide, a kernel or a state that is too long
    pub(crate) fn load(loader: &Loader, n_embd: usize, eps: f32) -> Result<Self, EngineError> {
        let x_width = loader.count("ssm.inner_size")?;
        let n_heads = loader.count("ssm.time_step_rank")?;
        if !x_width.is_multiple_of(n_heads) {
            let expected = format!("a divisor of the inner size {x_width}");
            return Err(loader.invalid("ssm.time_step_rank", expected, n_heads));
        }
        let n_groups = loader.count("ssm.group_count")?;
        if !n_heads.is_multiple_of(n_groups) {
            return Err(loader.invalid("ssm.group_count", format!("a divisor of the {n_heads} heads"), n_groups));
        }
        let scan = Scan { n_heads, head_dim: x_width / n_heads, n_groups, n_state: loader.state_size()? };
        Ok(Self { n_embd, scan, n_taps: Convolution::n_taps(loader, "ssm.conv_kernel")?, eps })
    }
}

impl Mamba2 {
    /// Reads its matrices; one holds the rows for the gate, for x, B and C, and for the steps.
    pub(crate) fn load(part: &Part<'_>, options: Mamba2Options) -> Result<Self, EngineError> {
        let Mamba2Options { n_embd, scan, n_taps, .. } = options;
        part.check_shape("a state", scan.n_state, cuda::MAX_STATE)?;
        let (n_heads, x_width, xbc_width) = (scan.n_heads, scan.x_width(), scan.xbc_width());
        let shape = [x_width + xbc_width + n_heads, n_embd];
        let rows = |first, n| part.weight_rows("ssm_in.weight", shape, first..first + n);
        Ok(Self {
            gate: rows(0, x_width)?,
            xbc: rows(x_width, xbc_width)?,
            dt: rows(x_width + xbc_width, n_heads)?,
            convolution: Convolution::load(part, "ssm_conv1d", [xbc_width, n_taps], ConvActivation::Silu)?,
            dt_bias: part.vector("ssm_dt.bias", n_heads)?,
            a: part.flat_vector("ssm_a", n_heads)?,
            d: part.flat_vector("ssm_d", n_heads)?,
            norm: part.flat_vector("ssm_norm.weight", x_width)?,
            output: part.weight("ssm_out.weight", [n_embd, x_width])?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        let scan = &self.options.scan;
        let (conv, y) = (scan.xbc_width(), scan.x_width());
        sizes.recurrent.grow(RecurrentSizes { conv, y, n_heads: scan.n_heads, mixed: 0 });
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        CacheShape::Recurrent { n_elems: self.convolution.state_len() + self.options.scan.state_len() }
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        let Mamba2Options { scan, eps, .. } = &self.options;
        let n_tokens = step.n_tokens();
        let Buffers { h, input, out, recurrent, .. } = &mut *step.buffers;
        let RecurrentBuffers { conv, gate, y, per_head: [dt, _], .. } = recurrent;
        let (ops, cache) = (step.ops, step.cache.layer(layer));
        conv.reshape(n_tokens, scan.xbc_width());
        gate.reshape(n_tokens, scan.x_width());
        y.reshape(n_tokens, scan.x_width());
        dt.reshape(n_tokens, scan.n_heads);
        out.reshape(n_tokens, self.output.n_rows());

        ops.prepare(h, input);
        ops.products([(&self.gate, &mut *gate), (&self.xbc, &mut *conv), (&self.dt, &mut *dt)], input);
        self.convolution.run(ops, conv, cache);
        ops.scan_steps(dt, &self.dt_bias);
        ops.scan(&SelectiveScan { shape: scan, a: &self.a, d: &self.d }, conv, dt, cache, y);
        ops.gated_norm((&self.norm, GateOrder::GateFirst), scan.x_width() / scan.n_groups, *eps, y, gate);
        ops.prepare(y, input);
        ops.products([(&self.output, out)], input);
    }
}
