//! The dense feed-forward network: down( silu(gate·h) ⊙ up·h ).

use super::super::Part;
use super::{Buffers, Sizes, Step};
use crate::error::EngineError;
use crate::tensor::{Vector, Weight};

/// SwiGLU, with biases where the file has them.
#[derive(Debug)]
pub(crate) struct Dense {
    gate: Weight,
    up: Weight,
    down: Weight,
    gate_bias: Option<Vector>,
    up_bias: Option<Vector>,
    down_bias: Option<Vector>,
}

impl Dense {
    pub(crate) fn load(part: &Part<'_>, n_embd: usize, n_ff: usize) -> Result<Self, EngineError> {
        Ok(Self {
            gate: part.weight("ffn_gate.weight", [n_ff, n_embd])?,
            up: part.weight("ffn_up.weight", [n_ff, n_embd])?,
            down: part.weight("ffn_down.weight", [n_embd, n_ff])?,
            gate_bias: part.vector_if_there("ffn_gate.bias", n_ff)?,
            up_bias: part.vector_if_there("ffn_up.bias", n_ff)?,
            down_bias: part.vector_if_there("ffn_down.bias", n_embd)?,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        sizes.n_ff = sizes.n_ff.max(self.gate.n_rows());
    }

    /// h -> out
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let Buffers { h, input, gate, up, out, .. } = &mut *step.buffers;
        gate.reshape(n_tokens, self.gate.n_rows());
        up.reshape(n_tokens, self.up.n_rows());
        out.reshape(n_tokens, self.down.n_rows());
        step.ops.prepare(h, input);
        step.ops.products([(&self.gate, gate), (&self.up, up)], input);
        step.ops.add_bias(gate, self.gate_bias.as_ref());
        step.ops.add_bias(up, self.up_bias.as_ref());
        step.ops.silu_mul(gate, up);
        step.ops.prepare(gate, input);
        step.ops.products([(&self.down, out)], input);
        step.ops.add_bias(out, self.down_bias.as_ref());
    }
}
