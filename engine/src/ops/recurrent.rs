//! The operations of recurrent mixers. A layer's state holds the last inputs of its convolution, and behind them what the
//! recurrence keeps.

use super::Ops;
use crate::cpu::{self, CausalConv, ConvActivation, DeltaNet, GatedNorm, Scan, ScanArgs};
use crate::kv::LayerCache;
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
        let n_channels = x.width();
        let taps = convolve.taps.elems();
        let history = &mut cache.state()[..taps.len() - n_channels];
        let conv = CausalConv { taps, bias: convolve.bias.map(Vector::elems), activation: convolve.activation };
        cpu::causal_conv(&self.cpu, &conv, n_channels, x.elems_mut(), history);
    }

    /// Products to gates: how much of a new value each head takes, and how much of its state it keeps.
    ///
    /// beta     [n_tokens, n_heads], changed in place
    /// alpha    [n_tokens, n_heads], changed in place
    pub(crate) fn delta_net_gates(&self, beta: &mut Rows, alpha: &mut Rows, dt_bias: &Vector, a: &Vector) {
        let _timer = self.profile.time("delta_net_gates");
        cpu::delta_net_gates(&self.cpu, beta.elems_mut(), alpha.elems_mut(), dt_bias.elems(), a.elems());
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
        let state = matrices(cache, net.state_len());
        cpu::delta_net(&self.cpu, net, qkv.elems_mut(), [beta.elems(), decay.elems()], eps, state, y.elems_mut());
    }

    /// Takes apart what old files make in one product, key head by key head: q, k, then v and z of its value heads.
    ///
    /// x        [n_tokens, n_k_heads, q | k | v | z]
    /// qkv      [n_tokens, qkv_width]
    /// z        [n_tokens, v_width]
    pub(crate) fn split_qkvz(&self, net: &DeltaNet, x: &Rows, qkv: &mut Rows, z: &mut Rows) {
        let _timer = self.profile.time("split_qkvz");
        let dim = net.head_dim;
        let v_dim = net.v_width() / net.n_k_heads;
        let (qkv_width, z_width) = (qkv.width(), z.width());
        let rows = qkv.elems_mut().chunks_exact_mut(qkv_width).zip(z.elems_mut().chunks_exact_mut(z_width));
        for (x, (qkv, z)) in x.elems().chunks_exact(x.width()).zip(rows) {
            let (q, kv) = qkv.split_at_mut(net.n_k_heads * dim);
            let (k, v) = kv.split_at_mut(net.n_k_heads * dim);
            for (head, x) in x.chunks_exact(2 * dim + 2 * v_dim).enumerate() {
                q[head * dim..][..dim].copy_from_slice(&x[..dim]);
                k[head * dim..][..dim].copy_from_slice(&x[dim..2 * dim]);
                v[head * v_dim..][..v_dim].copy_from_slice(&x[2 * dim..2 * dim + v_dim]);
                z[head * v_dim..][..v_dim].copy_from_slice(&x[2 * dim + v_dim..]);
            }
        }
    }

    /// Products to lengths of steps.
    ///
    /// dt       [n_tokens, n_heads], changed in place
    pub(crate) fn scan_steps(&self, dt: &mut Rows, bias: &Vector) {
        let _timer = self.profile.time("scan_steps");
        cpu::scan_steps(&self.cpu, dt.elems_mut(), bias.elems());
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
        let state = matrices(cache, scan.shape.state_len());
        let args = ScanArgs { xbc: xbc.elems(), steps: steps.elems(), a: scan.a.elems(), d: scan.d.elems() };
        cpu::scan(&self.cpu, scan.shape, &args, state, y.elems_mut());
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
        let norm = GatedNorm { group, weight: weight.elems(), eps, order };
        cpu::gated_norm(&self.cpu, &norm, x.elems_mut(), gate.elems());
    }

    /// x *= y
    pub(crate) fn multiply_rows(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("multiply_rows");
        cpu::multiply(&self.cpu, x.elems_mut(), y.elems());
    }
}

/// The end of a layer's state.
fn matrices(cache: &mut LayerCache, n_elems: usize) -> &mut [f32] {
    let state = cache.state();
    let first = state.len() - n_elems;
    &mut state[first..]
}
