//! Inputs that layers have of their own: besides the residual stream, each layer of a small Gemma gets a short vector that is made
//! from the token alone, once per step, and mixed in behind the layer's other halves.

use super::super::{Loader, Part};
use super::{Buffers, Norm, Sizes, Step};
use crate::cpu::Gate;
use crate::error::EngineError;
use crate::tensor::{Rows, Weight};

/// What makes all layers' inputs.
#[derive(Debug)]
pub(crate) struct LayerInputs {
    /// Width of one layer's input.
    width: usize,
    /// [n_vocab, n_layers · width], of which only the tokens' rows are read.
    embedding: Weight,
    /// [n_layers · width, n_embd]
    projection: Weight,
    norm: Norm,
}

/// What mixes one layer's input in.
#[derive(Debug)]
pub(crate) struct LayerInput {
    /// [width, n_embd]
    gate: Weight,
    /// [n_embd, width]
    projection: Weight,
    norm: Norm,
}

impl LayerInputs {
    /// None if the model has no such inputs.
    pub(crate) fn load(loader: &Loader, n_embd: usize, n_vocab: usize, eps: f32) -> Result<Option<Self>, EngineError> {
        let part = loader.embed();
        let Some(width) = loader.count_or_none("embedding_length_per_layer_input")? else {
            return match part.has("per_layer_token_embd.weight") {
                true => Err(loader.invalid("embedding_length_per_layer_input", "a width, since the file has them", 0)),
                false => Ok(None),
            };
        };
        let n_all = width * loader.layers().len();
        Ok(Some(Self {
            width,
            embedding: part.weight("per_layer_token_embd.weight", [n_vocab, n_all])?,
            projection: part.weight("per_layer_model_proj.weight", [n_all, n_embd])?,
            norm: Norm::load(&part, "per_layer_proj_norm.weight", width, eps)?,
        }))
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        sizes.layer_inputs = sizes.layer_inputs.max(self.embedding.n_cols());
        // The tokens' rows pass through a buffer of the feed-forward network.
        sizes.n_ff = sizes.n_ff.max(self.embedding.n_cols());
    }

    /// tokens, x -> inputs of all layers
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let Buffers { x, input, up, layer_inputs, .. } = &mut *step.buffers;
        let (n_embd, n_all) = (self.projection.n_cols(), self.projection.n_rows());
        layer_inputs.reshape(n_tokens, n_all);
        step.ops.prepare(x, input);
        step.ops.products([(&self.projection, &mut *layer_inputs)], input);
        step.ops.scale(layer_inputs, 1.0 / (n_embd as f32).sqrt());
        self.norm.run_in_place(layer_inputs, step.ops);
        up.reshape(n_tokens, n_all);
        step.ops.rows_of(&self.embedding, step.tokens, up);
        step.ops.scale(up, (self.width as f32).sqrt());
        step.ops.add(layer_inputs, up);
        step.ops.scale(layer_inputs, std::f32::consts::FRAC_1_SQRT_2);
    }
}

impl LayerInput {
    /// None if the model has no such inputs.
    pub(crate) fn load(loader: &Loader, part: &Part<'_>, n_embd: usize, eps: f32) -> Result<Option<Self>, EngineError> {
        let Some(width) = loader.count_or_none("embedding_length_per_layer_input")? else { return Ok(None) };
        Ok(Some(Self {
            gate: part.weight("inp_gate.weight", [width, n_embd])?,
            projection: part.weight("proj.weight", [n_embd, width])?,
            norm: Norm::load(part, "post_norm.weight", n_embd, eps)?,
        }))
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let width = self.gate.n_rows();
        let Buffers { h, input, gate, up, layer_inputs, out, .. } = &mut *step.buffers;
        let rows = |rows: &mut Rows, width| rows.reshape(n_tokens, width);
        rows(gate, width);
        rows(up, width);
        rows(out, self.projection.n_rows());
        step.ops.prepare(h, input);
        step.ops.products([(&self.gate, &mut *gate)], input);
        step.ops.columns(layer_inputs, layer * width..(layer + 1) * width, up);
        step.ops.gate(Gate::Gelu, gate, up);
        step.ops.prepare(gate, input);
        step.ops.products([(&self.projection, &mut *out)], input);
        self.norm.run_in_place(out, step.ops);
    }
}
