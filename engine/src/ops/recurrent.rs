//! The operations of recurrent mixers. A layer's state holds the last inputs of its convolution, and behind them what the
//! recurrence keeps.

use super::{On, Ops};
use crate::cpu::{self, CausalConv, ConvActivation, DeltaNet, GatedNorm, Scan, ScanArgs};
use crate::kv::{LayerCache, State};
use crate::tensor::{Rows, Vector};

/// The weights of a convolution over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolve<'a> {
    /// [n_taps, n_channels], the last tap for the token itself
    pub(crate) taps: &'a Vector,
    /// [n_channels]
    pub(crate) bias: Option<&'a Vector>,
    /// What follows.
    pub(crate) activation: ConvActivation,
}

/// What a selective scan is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectiveScan<'a> {
    /// Its shape.
    pub(crate) shape: &'a Scan,
    /// [n_heads] rate of the decay
    pub(crate) a: &'a Vector,
    /// [n_heads] part of the input that goes past the state
    pub(crate) d: &'a Vector,
}

/// A norm with a gate, by its weights [group] or [n_groups · group].
pub(crate) type VectorNorm<'a> = (&'a Vector, cpu::GateOrder);

impl Ops {
    /// Convolves every channel over time, behind the inputs that the layer's state begins with.
    ///
    /// x        [n_tokens, n_channels], changed in place
    pub(crate) fn convolve(&self, convolve: &Convolve<'_>, x: &mut Rows, cache: &mut LayerCache) {
        let _timer = self.profile.time("convolve");
        let &Convolve { taps, bias, activation } = convolve;
        let n_channels = x.width();
        match self.on(x.device()) {
            On::Cpu(cpu) => {
                let history = &mut cache.state().elems_mut()[..taps.len() - n_channels];
                let conv = CausalConv { taps: taps.elems(), bias: bias.map(Vector::elems), activation };
                cpu::causal_conv(cpu, &conv, n_channels, x.elems_mut(), history);
            }
            On::Cuda(gpu) => {
                let (n_taps, weights) = (taps.len() / n_channels, (taps.on(gpu), bias.map(|bias| bias.on(gpu))));
                let is_silu = activation == ConvActivation::Silu;
                gpu.convolve(x.on_mut(gpu), weights, n_taps, cache.state().on(gpu, 0), is_silu);
            }
        }
    }

    /// Products to gates: how much of a new value each head takes, and how much of its state it keeps.
    ///
    /// beta     [n_tokens, n_heads], changed in place
    /// alpha    [n_tokens, n_heads], changed in place
    pub(crate) fn delta_net_gates(&self, beta: &mut Rows, alpha: &mut Rows, dt_bias: &Vector, a: &Vector) {
        let _timer = self.profile.time("delta_net_gates");
        match self.on(beta.device()) {
            On::Cpu(cpu) => {
                cpu::delta_net_gates(cpu, beta.elems_mut(), alpha.elems_mut(), dt_bias.elems(), a.elems());
            }
            On::Cuda(gpu) => {
                gpu.delta_net_gates(beta.on_mut(gpu), alpha.on_mut(gpu), dt_bias.on(gpu), a.on(gpu));
            }
        }
    }

    /// The gated delta rule over the matrices that the layer's state ends with.
    ///
    /// qkv      [n_tokens, qkv_width]; queries and keys are changed in place
    /// gates    beta and decay, [n_tokens, n_v_heads] each
    /// y        [n_tokens, v_width]
    pub(crate) fn delta_net(
        &self,
        net: &DeltaNet,
        qkv: &mut Rows,
        [beta, decay]: [&Rows; 2],
        eps: f32,
        cache: &mut LayerCache,
        y: &mut Rows,
    ) {
        let _timer = self.profile.time("delta_net");
        let (state, first) = matrices(cache, net.state_len());
        match self.on(qkv.device()) {
            On::Cpu(cpu) => {
                let (gates, state) = ([beta.elems(), decay.elems()], &mut state.elems_mut()[first..]);
                cpu::delta_net(cpu, net, qkv.elems_mut(), gates, eps, state, y.elems_mut());
            }
            On::Cuda(gpu) => {
                let gates = [beta.on(gpu).at, decay.on(gpu).at];
                gpu.delta_net(net, qkv.on_mut(gpu), gates, eps, state.on(gpu, first), y.on_mut(gpu));
            }
        }
    }

    /// Products to lengths of steps.
    ///
    /// dt       [n_tokens, n_heads], changed in place
    pub(crate) fn scan_steps(&self, dt: &mut Rows, bias: &Vector) {
        let _timer = self.profile.time("scan_steps");
        match self.on(dt.device()) {
            On::Cpu(cpu) => cpu::scan_steps(cpu, dt.elems_mut(), bias.elems()),
            On::Cuda(gpu) => gpu.scan_steps(dt.on_mut(gpu), bias.on(gpu)),
        }
    }

    /// The selective scan over the matrices that the layer's state ends with.
    ///
    /// xbc      [n_tokens, xbc_width]
    /// steps    [n_tokens, n_heads]
    /// y        [n_tokens, x_width]
    pub(crate) fn scan(
        &self,
        scan: &SelectiveScan<'_>,
        xbc: &Rows,
        steps: &Rows,
        cache: &mut LayerCache,
        y: &mut Rows,
    ) {
        let _timer = self.profile.time("scan");
        let (state, first) = matrices(cache, scan.shape.state_len());
        match self.on(xbc.device()) {
            On::Cpu(cpu) => {
                let args = ScanArgs { xbc: xbc.elems(), steps: steps.elems(), a: scan.a.elems(), d: scan.d.elems() };
                cpu::scan(cpu, scan.shape, &args, &mut state.elems_mut()[first..], y.elems_mut());
            }
            On::Cuda(gpu) => {
                let (rates, steps) = ([scan.a.on(gpu), scan.d.on(gpu)], steps.on(gpu).at);
                gpu.scan(scan.shape, xbc.on(gpu), steps, rates, state.on(gpu, first), y.on_mut(gpu));
            }
        }
    }

    /// Normalises groups of columns by their root mean square and multiplies with silu(gate), in the order given.
    ///
    /// x        [n_tokens, n_groups · group], changed in place
    /// gate     as `x`
    pub(crate) fn gated_norm(
        &self,
        (weight, order): VectorNorm<'_>,
        group: usize,
        eps: f32,
        x: &mut Rows,
        gate: &Rows,
    ) {
        let _timer = self.profile.time("gated_norm");
        match self.on(x.device()) {
            On::Cpu(cpu) => {
                let norm = GatedNorm { group, weight: weight.elems(), eps, order };
                cpu::gated_norm(cpu, &norm, x.elems_mut(), gate.elems());
            }
            On::Cuda(gpu) => {
                let norm = (weight.on(gpu), weight.len(), order);
                gpu.gated_norm(norm, group, eps, x.on_mut(gpu), gate.on(gpu));
            }
        }
    }

    /// x *= y
    pub(crate) fn multiply_rows(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("multiply_rows");
        match self.on(x.device()) {
            On::Cpu(cpu) => cpu::multiply(cpu, x.elems_mut(), y.elems()),
            On::Cuda(gpu) => {
                let y = y.on(gpu);
                gpu.multiply(x.on_mut(gpu), y.at, y.n_elems());
            }
        }
    }
}

/// A layer's state, and where its last `n_elems` begin.
fn matrices(cache: &mut LayerCache, n_elems: usize) -> (&mut State, usize) {
    let state = cache.state();
    let first = state.len() - n_elems;
    (state, first)
}
