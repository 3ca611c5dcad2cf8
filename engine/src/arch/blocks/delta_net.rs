//! The gated delta net: linear attention over a matrix per head that decays and is corrected.

use super::super::{Loader, Part};
use super::recurrent::{Convolution, RecurrentBuffers, RecurrentSizes};
use super::{Buffers, Sizes, Step};
use crate::cpu::{ConvActivation, DeltaNet, GateOrder};
use crate::cuda;
use crate::error::EngineError;
use crate::kv::CacheShape;
use crate::tensor::{Vector, Weight};

pub(crate) use crate::cpu::KeyHeads;

/// The form of a gated delta net.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaNetOptions {
    n_embd: usize,
    net: DeltaNet,
    n_taps: usize,
    eps: f32,
}

/// Weights of a gated delta net.
#[derive(Debug)]
pub(crate) struct GatedDeltaNet {
    options: DeltaNetOptions,
    inputs: Inputs,
    gates: Gates,
    convolution: Convolution,
    dt_bias: Vector,
    a: Vector,
    norm: Vector,
    output: Weight,
}

/// What makes queries, keys, values and the gate of the output.
#[derive(Debug)]
enum Inputs {
    Apart {
        qkv: Weight,
        z: Weight,
    },
    /// One matrix, its rows by key heads.
    Mixed(Weight),
}

/// What makes the gates of the state.
#[derive(Debug)]
enum Gates {
    Apart {
        beta: Weight,
        alpha: Weight,
    },
    /// One matrix, its rows by key heads.
    Mixed(Weight),
}

impl DeltaNetOptions {
    /// Reads the usual keys.
    ///
    /// key_heads  which keys a head of values goes with
    /// eps        of all its norms
    /// Errors     heads that do not divide or do not add up, a kernel or a head that is too long
    pub(crate) fn load(loader: &Loader, n_embd: usize, key_heads: KeyHeads, eps: f32) -> Result<Self, EngineError> {
        let n_k_heads = loader.count("ssm.group_count")?;
        let n_v_heads = loader.count("ssm.time_step_rank")?;
        if !n_v_heads.is_multiple_of(n_k_heads) {
            let expected = format!("a multiple of the {n_k_heads} key heads");
            return Err(loader.invalid("ssm.time_step_rank", expected, n_v_heads));
        }
        let head_dim = loader.state_size()?;
        let v_width = loader.count("ssm.inner_size")?;
        if n_v_heads.checked_mul(head_dim) != Some(v_width) {
            let expected = format!("{n_v_heads} heads of {head_dim}");
            return Err(loader.invalid("ssm.inner_size", expected, v_width));
        }
        let net = DeltaNet { n_k_heads, n_v_heads, head_dim, key_heads };
        Ok(Self { n_embd, net, n_taps: Convolution::n_taps(loader, "ssm.conv_kernel")?, eps })
    }
}

impl GatedDeltaNet {
    /// Reads its matrices in either of the two forms that files have.
    pub(crate) fn load(part: &Part<'_>, options: DeltaNetOptions) -> Result<Self, EngineError> {
        let DeltaNetOptions { n_embd, net, n_taps, .. } = options;
        part.check_shape("a head", net.head_dim, cuda::MAX_STATE)?;
        let (n_heads, v_width, qkv_width) = (net.n_v_heads, net.v_width(), net.qkv_width());
        let inputs = match part.has("ssm_in.weight") {
            true => Inputs::Mixed(part.weight("ssm_in.weight", [qkv_width + v_width, n_embd])?),
            false => Inputs::Apart {
                qkv: part.weight("attn_qkv.weight", [qkv_width, n_embd])?,
                z: part.weight("attn_gate.weight", [v_width, n_embd])?,
            },
        };
        let gates = match part.has("ssm_ba.weight") {
            true => Gates::Mixed(part.weight("ssm_ba.weight", [2 * n_heads, n_embd])?),
            false => Gates::Apart {
                beta: part.weight("ssm_beta.weight", [n_heads, n_embd])?,
                alpha: part.weight("ssm_alpha.weight", [n_heads, n_embd])?,
            },
        };
        Ok(Self {
            inputs,
            gates,
            convolution: Convolution::load(part, "ssm_conv1d", [qkv_width, n_taps], ConvActivation::Silu)?,
            dt_bias: part.vector("ssm_dt.bias", n_heads)?,
            a: part.flat_vector("ssm_a", n_heads)?,
            norm: part.vector("ssm_norm.weight", net.head_dim)?,
            output: part.weight("ssm_out.weight", [n_embd, v_width])?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        let net = &self.options.net;
        let mixed_inputs = if let Inputs::Mixed(weight) = &self.inputs { weight.n_rows() } else { 0 };
        let mixed_gates = if let Gates::Mixed(weight) = &self.gates { weight.n_rows() } else { 0 };
        sizes.recurrent.grow(RecurrentSizes {
            conv: net.qkv_width(),
            y: net.v_width(),
            n_heads: net.n_v_heads,
            mixed: mixed_inputs.max(mixed_gates),
        });
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        CacheShape::Recurrent { n_elems: self.convolution.state_len() + self.options.net.state_len() }
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        self.project(step);
        let DeltaNetOptions { net, eps, .. } = &self.options;
        let n_tokens = step.n_tokens();
        let Buffers { input, out, recurrent, .. } = &mut *step.buffers;
        let RecurrentBuffers { conv, gate, y, per_head: [beta, alpha], .. } = recurrent;
        let (ops, cache) = (step.ops, step.cache.layer(layer));
        self.convolution.run(ops, conv, cache);
        ops.delta_net_gates(beta, alpha, &self.dt_bias, &self.a);
        y.reshape(n_tokens, net.v_width());
        ops.delta_net(net, conv, [beta, alpha], *eps, cache, y);
        ops.gated_norm((&self.norm, GateOrder::NormFirst), net.head_dim, *eps, y, gate);
        ops.prepare(y, input);
        out.reshape(n_tokens, self.output.n_rows());
        ops.products([(&self.output, out)], input);
    }

    /// h -> queries, keys and values in `conv`, and the gates
    fn project(&self, step: &mut Step<'_>) {
        let net = &self.options.net;
        let n_tokens = step.n_tokens();
        let Buffers { h, input, recurrent, .. } = &mut *step.buffers;
        let RecurrentBuffers { conv, gate, per_head: [beta, alpha], mixed, .. } = recurrent;
        let ops = step.ops;
        ops.prepare(h, input);
        conv.reshape(n_tokens, net.qkv_width());
        gate.reshape(n_tokens, net.v_width());
        match &self.inputs {
            Inputs::Apart { qkv, z } => ops.products([(qkv, &mut *conv), (z, &mut *gate)], input),
            Inputs::Mixed(weight) => {
                mixed.reshape(n_tokens, weight.n_rows());
                ops.products([(weight, &mut *mixed)], input);
                ops.split_qkvz(net, mixed, conv, gate);
            }
        }
        beta.reshape(n_tokens, net.n_v_heads);
        alpha.reshape(n_tokens, net.n_v_heads);
        match &self.gates {
            Gates::Apart { beta: b, alpha: a } => ops.products([(b, &mut *beta), (a, &mut *alpha)], input),
            Gates::Mixed(weight) => {
                let per_key_head = net.n_v_heads / net.n_k_heads;
                mixed.reshape(n_tokens, weight.n_rows());
                ops.products([(weight, &mut *mixed)], input);
                ops.split(mixed, [per_key_head; 2], beta, alpha);
            }
        }
    }
}
