//! The dense feed-forward network: down( f(gate·h) ⊙ up·h ), or down( f(up·h) ) without a gate.

use super::super::{Loader, Part};
use super::{Buffers, Sizes, Step};
use crate::cpu::Gate;
use crate::error::EngineError;
use crate::tensor::{Rows, Vector, Weight};

/// What the inside of a feed-forward network goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// The gate's function, times the other branch.
    Gated(Gate),
    /// max(0, v)², and no gate.
    ReluSquared,
}

/// Which tensors a network is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenseNames {
    /// `ffn_gate`, `ffn_up`, `ffn_down`.
    Plain,
    /// `ffn_gate_shexp` and so on: the expert that every token goes to.
    Shared,
}

/// Its weights, with biases where the file has them.
#[derive(Debug)]
pub(crate) struct Dense {
    activation: Activation,
    /// Only what lies so many standard deviations above the mean passes the gate.
    n_deviations: Option<f32>,
    gate: Option<Weight>,
    up: Weight,
    down: Weight,
    gate_bias: Option<Vector>,
    up_bias: Option<Vector>,
    down_bias: Option<Vector>,
}

impl Activation {
    /// SwiGLU.
    pub(crate) const SILU: Self = Self::Gated(Gate::Silu);

    /// GeGLU.
    pub(crate) const GELU: Self = Self::Gated(Gate::Gelu);

    /// gate = f(gate) · up, or gate = f(up).
    pub(crate) fn run(self, ops: &crate::ops::Ops, gate: &mut Rows, up: &mut Rows) {
        match self {
            Activation::Gated(kind) => ops.gate(kind, gate, up),
            Activation::ReluSquared => {
                ops.relu_squared(up);
                std::mem::swap(gate, up);
            }
        }
    }
}

impl Dense {
    /// The layer's own network, as wide as `feed_forward_length` says for it. An `ffn_up` of twice that width without an
    /// `ffn_gate` holds both, the gate first.
    pub(crate) fn load(
        loader: &Loader,
        layer: usize,
        n_embd: usize,
        activation: Activation,
    ) -> Result<Self, EngineError> {
        let n_ff = loader.count_of_layer("feed_forward_length", layer)?;
        Self::load_named(&loader.ffn(layer), DenseNames::Plain, n_embd, n_ff, activation)
    }

    /// A network of some width under some names.
    pub(crate) fn load_named(
        part: &Part<'_>,
        names: DenseNames,
        n_embd: usize,
        n_ff: usize,
        activation: Activation,
    ) -> Result<Self, EngineError> {
        let suffix = match names {
            DenseNames::Plain => "",
            DenseNames::Shared => "_shexp",
        };
        let name = |name: &str, kind: &str| format!("ffn_{name}{suffix}.{kind}");
        let (gate_name, up_name) = (name("gate", "weight"), name("up", "weight"));
        let is_gated = matches!(activation, Activation::Gated(_));
        let is_fused = is_gated && !part.has(&gate_name) && part.shape(&up_name)?.first() == Some(&(2 * n_ff as u64));
        let (gate, up) = if is_fused {
            let half = |rows| part.weight_rows(&up_name, [2 * n_ff, n_embd], rows);
            (Some(half(0..n_ff)?), half(n_ff..2 * n_ff)?)
        } else {
            let gate = is_gated.then(|| part.weight(&gate_name, [n_ff, n_embd])).transpose()?;
            (gate, part.weight(&up_name, [n_ff, n_embd])?)
        };
        Ok(Self {
            activation,
            n_deviations: None,
            gate,
            up,
            down: part.weight(&name("down", "weight"), [n_embd, n_ff])?,
            gate_bias: part.vector_if_there(&name("gate", "bias"), n_ff)?,
            up_bias: part.vector_if_there(&name("up", "bias"), n_ff)?,
            down_bias: part.vector_if_there(&name("down", "bias"), n_embd)?,
        })
    }

    /// The same with a gate that only lets pass what lies so many standard deviations above the mean.
    pub(crate) fn sparse(self, n_deviations: f32) -> Self {
        Self { n_deviations: Some(n_deviations), ..self }
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        sizes.n_ff = sizes.n_ff.max(self.up.n_rows());
    }

    /// h -> out
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let Buffers { h, input, gate, up, out, .. } = &mut *step.buffers;
        gate.reshape(n_tokens, self.up.n_rows());
        up.reshape(n_tokens, self.up.n_rows());
        out.reshape(n_tokens, self.down.n_rows());
        step.ops.prepare(h, input);
        match &self.gate {
            Some(weight) => step.ops.products([(weight, &mut *gate), (&self.up, &mut *up)], input),
            None => step.ops.products([(&self.up, &mut *up)], input),
        }
        step.ops.add_bias(gate, self.gate_bias.as_ref());
        step.ops.add_bias(up, self.up_bias.as_ref());
        if let Some(n_deviations) = self.n_deviations {
            step.ops.keep_outstanding(gate, n_deviations);
        }
        self.activation.run(step.ops, gate, up);
        step.ops.prepare(gate, input);
        step.ops.products([(&self.down, out)], input);
        step.ops.add_bias(out, self.down_bias.as_ref());
    }
}
