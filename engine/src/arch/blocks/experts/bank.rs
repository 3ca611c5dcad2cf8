//! Experts of a layer on one device: all of them, or copies of some.

use std::sync::Arc;

use super::{ExpertOptions, PartBuffers};
use crate::arch::blocks::Activation;
use crate::arch::loader::Part;
use crate::cuda::Gpu;
use crate::error::EngineError;
use crate::moe::Routes;
use crate::ops::Ops;
use crate::place::Device;
use crate::tensor::{CardRoutes, Input, Rows, Vector, WeightStack};

/// Their weights, with biases where the file has them.
#[derive(Debug)]
pub(super) struct Bank {
    activation: Activation,
    gate: Option<WeightStack>,
    up: WeightStack,
    down: WeightStack,
    gate_bias: Option<Vector>,
    up_bias: Option<Vector>,
    down_bias: Option<Vector>,
}

impl Bank {
    /// Reads all experts of a layer.
    ///
    /// width    what an expert takes and yields per token
    pub(super) fn load(routed: &Part<'_>, options: &ExpertOptions, width: usize) -> Result<Self, EngineError> {
        let (n_experts, n_ff) = (options.routing.n_experts, options.n_ff);
        let stack = |name: &str, rows, cols| routed.stack(name, [n_experts, rows, cols]);
        let biases = |name: &str, n: usize| routed.matrix_elems_if_there(name, [n_experts, n]);
        let (gate, up) = match options.activation {
            Activation::ReluSquared => (None, stack("ffn_up_exps", n_ff, width)?),
            Activation::Gated(_) if routed.has("ffn_gate_up_exps.weight") => {
                let half = |rows| routed.stack_rows("ffn_gate_up_exps", [n_experts, 2 * n_ff, width], rows);
                (Some(half(0..n_ff)?), half(n_ff..2 * n_ff)?)
            }
            Activation::Gated(_) => (Some(stack("ffn_gate_exps", n_ff, width)?), stack("ffn_up_exps", n_ff, width)?),
        };
        Ok(Self {
            activation: options.activation,
            gate,
            up,
            down: stack("ffn_down_exps", width, n_ff)?,
            gate_bias: biases("ffn_gate_exps.bias", n_ff)?,
            up_bias: biases("ffn_up_exps.bias", n_ff)?,
            down_bias: biases("ffn_down_exps.bias", width)?,
        })
    }

    /// Copies of the first `n` experts on a GPU.
    pub(super) fn copies(&self, gpu: &Arc<Gpu>, n: usize) -> Result<Self, EngineError> {
        let n_experts = self.up.n_matrices();
        let stack = |stack: &WeightStack| stack.room_on(gpu, n);
        let biases = |biases: &Option<Vector>| {
            biases.as_ref().map(|biases| biases.room_on(gpu, biases.len() / n_experts * n)).transpose()
        };
        let mut copies = Self {
            activation: self.activation,
            gate: self.gate.as_ref().map(stack).transpose()?,
            up: stack(&self.up)?,
            down: stack(&self.down)?,
            gate_bias: biases(&self.gate_bias)?,
            up_bias: biases(&self.up_bias)?,
            down_bias: biases(&self.down_bias)?,
        };
        (0..n).for_each(|expert| copies.copy(self, expert, expert));
        gpu.wait_for_all();
        gpu.check()?;
        Ok(copies)
    }

    /// Starts to copy an expert of `all` over one of these copies; what was asked for before still sees the old one.
    pub(super) fn copy(&mut self, all: &Self, expert: usize, slot: usize) {
        let n_experts = all.up.n_matrices();
        let stacks = [(&mut self.up, &all.up), (&mut self.down, &all.down)];
        for (to, from) in stacks.into_iter().chain(self.gate.as_mut().zip(all.gate.as_ref())) {
            to.copy_matrix(from, expert, slot);
        }
        let biases = [
            (&mut self.gate_bias, &all.gate_bias),
            (&mut self.up_bias, &all.up_bias),
            (&mut self.down_bias, &all.down_bias),
        ];
        for (to, from) in biases {
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_row(from, from.len() / n_experts, expert, slot);
            }
        }
    }

    /// Where they live.
    pub(super) fn device(&self) -> Device {
        self.up.device()
    }

    /// Bytes and weights of one expert.
    pub(super) fn expert_size(&self) -> (u64, u64) {
        let stacks = [&self.up, &self.down].into_iter().chain(&self.gate);
        stacks.fold((0, 0), |(bytes, weights), stack| {
            (bytes + stack.matrix_size().1, weights + (stack.n_rows() * stack.n_cols()) as u64)
        })
    }

    /// What the experts of some routes yield together for each token.
    ///
    /// routes   of matrices of this bank
    /// input    the tokens
    /// y        [n_tokens, width]
    pub(super) fn run(
        &self,
        ops: &Ops,
        routes: &Routes,
        input: &Input,
        part: &mut PartBuffers,
        n_tokens: usize,
        y: &mut Rows,
    ) {
        let PartBuffers { input: slot_input, gate, up: slot_up, slots, .. } = part;
        let (n_slots, width) = (routes.n_slots(), self.down.n_rows());
        gate.reshape(n_slots, self.up.n_rows());
        slot_up.reshape(n_slots, self.up.n_rows());
        slots.reshape(n_slots, width);
        y.reshape(n_tokens, width);
        ops.gather(input, routes.tokens(), slot_input);
        match &self.gate {
            Some(stack) => {
                ops.group_products(routes.groups(), [(stack, &mut *gate), (&self.up, &mut *slot_up)], slot_input);
            }
            None => ops.group_products(routes.groups(), [(&self.up, &mut *slot_up)], slot_input),
        }
        ops.add_group_bias(routes.groups(), gate, self.gate_bias.as_ref());
        ops.add_group_bias(routes.groups(), slot_up, self.up_bias.as_ref());
        self.activation.run(ops, gate, slot_up);
        ops.prepare(gate, slot_input);
        ops.group_products(routes.groups(), [(&self.down, &mut *slots)], slot_input);
        ops.add_group_bias(routes.groups(), slots, self.down_bias.as_ref());
        ops.combine(slots, routes, y);
    }

    /// The same by routes that the host does not know.
    pub(super) fn run_on_card(
        &self,
        ops: &Ops,
        routes: &CardRoutes,
        input: &Input,
        part: &mut PartBuffers,
        n_tokens: usize,
        y: &mut Rows,
    ) {
        let PartBuffers { input: pair_input, gate, up, slots, .. } = part;
        let (n_pairs, width) = (routes.n_pairs(), self.down.n_rows());
        gate.reshape(n_pairs, self.up.n_rows());
        up.reshape(n_pairs, self.up.n_rows());
        slots.reshape(n_pairs, width);
        y.reshape(n_tokens, width);
        ops.gather_pairs(input, routes, pair_input);
        match &self.gate {
            Some(stack) => ops.pair_products(routes, [(stack, &mut *gate), (&self.up, &mut *up)], pair_input),
            None => ops.pair_products(routes, [(&self.up, &mut *up)], pair_input),
        }
        ops.add_pair_bias(routes, gate, self.gate_bias.as_ref());
        ops.add_pair_bias(routes, up, self.up_bias.as_ref());
        self.activation.run(ops, gate, up);
        ops.prepare(gate, pair_input);
        ops.pair_products(routes, [(&self.down, &mut *slots)], pair_input);
        ops.add_pair_bias(routes, slots, self.down_bias.as_ref());
        ops.combine_pairs(slots, routes, y);
    }
}
