//! What a model weighs, part by part, added up from its tensor table.
use std::collections::BTreeSet;

use tandem_engine::arch::{self, Survey};
use tandem_engine::cuda;
use tandem_engine::gguf::{GgufError, ModelFacts, TensorFacts};
use tandem_engine::token;

use super::kv::LayerKv;
use super::refusal::PlanRefusal;
use crate::wire::Keeps;

/// A model's parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sizes {
    pub(super) layers: Vec<Layer>,
    /// What the engine says it will allocate.
    pub(super) survey: Survey,
    /// Token embeddings: one row is read per token.
    pub(super) embeddings_bytes: u64,
    /// Output head and what else lies outside the layers; without a head of its own, the embeddings serve.
    pub(super) head_bytes: u64,
    pub(super) head_is_tied: bool,
    /// Types of weights that cards do not multiply, and whether the head is of one.
    pub(super) foreign_types: BTreeSet<String>,
    pub(super) is_head_foreign: bool,
    /// Experts per layer, and how many of them a token uses.
    pub(super) n_experts: u32,
    pub(super) n_experts_used: u32,
    /// Layers behind the others that predict tokens further ahead: llama.cpp counts them, nobody reads them.
    pub(super) n_layers_ahead: u32,
    pub(super) n_vocab: u64,
    /// The header, which is kept as it was read, and the vocabulary that is made of it.
    pub(super) header_bytes: u64,
    pub(super) max_context: u32,
    /// Query heads of a layer, and their values together, the most of any.
    pub(super) n_heads: u32,
    pub(super) n_query_values: u64,
    /// f32 values that one token needs between two layers' weights, at the widest place.
    pub(super) values_per_token: u64,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layer {
    /// Attention, norms, router, shared experts, dense feed-forward: what every token needs.
    pub(super) dense_bytes: u64,
    pub(super) dense_elems: u64,
    /// Routed experts.
    pub(super) experts_bytes: u64,
    pub(super) experts_elems: u64,
    pub(super) kv: LayerKv,
    /// Whether a card cannot multiply what every token needs, or the experts.
    pub(super) is_dense_foreign: bool,
    pub(super) is_experts_foreign: bool,
}

impl Sizes {
    pub(super) fn of(facts: &ModelFacts) -> Result<Self, PlanRefusal> {
        let n_layers = facts.n_layers()? as usize;
        let mut sizes = Self {
            layers: vec![Layer::default(); n_layers],
            n_layers_ahead: facts.arch_u32_or("block_count", 0)?.saturating_sub(n_layers as u32),
            head_is_tied: facts.tensor("output.weight").is_none(),
            n_experts: facts.arch_u32_or("expert_count", 0)?,
            n_experts_used: most_of_layers(facts, "expert_used_count")?,
            max_context: facts.context_length()?,
            n_heads: most_of_layers(facts, "attention.head_count")?,
            header_bytes: sum(facts.files.iter().map(|file| file.data_offset_bytes).chain([token::n_bytes(facts)])),
            ..Self::default()
        };
        for tensor in &facts.tensors {
            sizes.add(tensor);
        }
        if sizes.weights_bytes() == 0 {
            return Err(PlanRefusal::NoWeights);
        }
        let embeddings = facts.tensor("token_embd.weight").map_or(&[][..], |tensor| &tensor.shape);
        sizes.n_vocab = embeddings.first().copied().unwrap_or(0);
        let n_embd = embeddings.last().copied().unwrap_or(0);
        sizes.values_per_token = n_embd.saturating_mul(8).saturating_add(widest(facts, sizes.n_experts_used, n_embd));
        let queries = facts
            .tensors
            .iter()
            .filter(|tensor| ModelFacts::layer_of(&tensor.name).is_some_and(|(_, rest)| rest == "attn_q.weight"));
        sizes.n_query_values = queries.filter_map(|tensor| tensor.shape.first().copied()).max().unwrap_or(n_embd);
        sizes.survey = arch::survey(facts)?;
        for (layer, shape) in sizes.layers.iter_mut().zip(&sizes.survey.caches) {
            layer.kv = LayerKv(*shape);
        }
        Ok(sizes)
    }

    fn add(&mut self, tensor: &TensorFacts) {
        // Vectors are decoded at load.
        let is_foreign = tensor.shape.len() > 1 && !cuda::supports(tensor.tensor_type);
        let layer = ModelFacts::layer_of(&tensor.name).map(|(i, rest)| (self.layers.get_mut(i), rest));
        let could_move = match layer {
            // Layers that predict tokens further ahead are not read.
            Some((None, _)) => false,
            Some((Some(layer), rest)) if is_routed(rest) => {
                layer.experts_bytes = layer.experts_bytes.saturating_add(tensor.n_bytes);
                layer.experts_elems = layer.experts_elems.saturating_add(elems(tensor));
                layer.is_experts_foreign |= is_foreign;
                true
            }
            Some((Some(layer), _)) => {
                layer.dense_bytes = layer.dense_bytes.saturating_add(tensor.n_bytes);
                layer.dense_elems = layer.dense_elems.saturating_add(elems(tensor));
                layer.is_dense_foreign |= is_foreign;
                true
            }
            None if matches!(tensor.name.as_str(), "token_embd.weight" | "per_layer_token_embd.weight") => {
                self.embeddings_bytes = self.embeddings_bytes.saturating_add(tensor.n_bytes);
                self.head_is_tied && tensor.name == "token_embd.weight"
            }
            None => {
                self.head_bytes = self.head_bytes.saturating_add(tensor.n_bytes);
                tensor.name == "output.weight"
            }
        };
        if is_foreign && could_move {
            self.is_head_foreign |= ModelFacts::layer_of(&tensor.name).is_none();
            self.foreign_types.insert(tensor.tensor_type.row().name.to_owned());
        }
    }

    /// Layers at the end that go on a card together or not at all: those that keep nothing may read the caches of the two before.
    pub(super) fn n_joined_layers(&self) -> u32 {
        let keeps_nothing = |layer: &&Layer| layer.kv.keeps() == Keeps::Nothing;
        match self.layers.iter().rev().take_while(keeps_nothing).count() as u32 {
            0 => 0,
            n => (n + 2).min(self.n_layers()),
        }
    }

    pub(super) fn n_layers(&self) -> u32 {
        self.layers.len() as u32
    }

    pub(super) fn has_experts(&self) -> bool {
        self.experts_bytes() > 0
    }

    pub(super) fn dense_bytes(&self) -> u64 {
        sum(self.layers.iter().map(|layer| layer.dense_bytes))
    }

    pub(super) fn experts_bytes(&self) -> u64 {
        sum(self.layers.iter().map(|layer| layer.experts_bytes))
    }

    /// Everything that is read from the file.
    pub(super) fn weights_bytes(&self) -> u64 {
        sum([self.dense_bytes(), self.experts_bytes(), self.embeddings_bytes, self.head_bytes])
    }

    /// What a head on another device than the embeddings takes there: a tied one needs a copy of its own.
    pub(super) fn moved_head_bytes(&self) -> u64 {
        self.head_bytes.saturating_add(if self.head_is_tied { self.embeddings_bytes } else { 0 })
    }

    /// Share of a tensor outside the layers that one token reads: embeddings count where they serve as the head.
    pub(super) fn head_share(&self, name: &str) -> f64 {
        match name {
            "token_embd.weight" if !self.head_is_tied => 0.0,
            "per_layer_token_embd.weight" => 0.0,
            _ => 1.0,
        }
    }

    /// Share of the routed experts that one token uses.
    pub(super) fn expert_share(&self) -> f64 {
        match (self.n_experts_used, self.n_experts) {
            (used, all) if used > 0 && used < all => f64::from(used) / f64::from(all),
            _ => 1.0,
        }
    }

    pub(super) fn n_layers_with_cache(&self) -> usize {
        self.layers.iter().filter(|layer| layer.kv.is_cached()).count()
    }
}

/// A count that files write once, or as a list with one for each layer.
fn most_of_layers(facts: &ModelFacts, key: &str) -> Result<u32, GgufError> {
    Ok(facts.arch_u32_per_layer(key)?.and_then(|counts| counts.into_iter().max()).unwrap_or(0))
}

/// Adds without wrapping: sizes come from a file and may be absurd.
pub(super) fn sum(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

pub(super) fn elems(tensor: &TensorFacts) -> u64 {
    tensor.shape.iter().fold(1, |n, dim| n.saturating_mul(*dim))
}

/// Routed experts: stacked (`ffn_up_exps`, `ffn_up_chexps`), or one tensor each in old files (`ffn_up.3.weight`).
pub(super) fn is_routed(rest: &str) -> bool {
    let mut parts = rest.split('.');
    let kind = parts.next().unwrap_or_default();
    let is_numbered = parts.next().is_some_and(|part| part.parse::<u32>().is_ok());
    kind.starts_with("ffn_") && (kind.ends_with("exps") || is_numbered)
}

/// The widest feed-forward half of any layer, in f32 values per token: gate and up, for experts also each one's output.
fn widest(facts: &ModelFacts, n_experts_used: u32, n_embd: u64) -> u64 {
    let used = u64::from(n_experts_used.max(1));
    let width = |tensor: &TensorFacts| {
        let (_, rest) = ModelFacts::layer_of(&tensor.name)?;
        Some(match (rest, tensor.shape.as_slice()) {
            ("ffn_up.weight", [rows, _]) => rows.saturating_mul(2),
            ("ffn_up_exps.weight", [_, rows, _]) => rows.saturating_mul(2).saturating_add(n_embd).saturating_mul(used),
            ("ffn_gate_up_exps.weight", [_, rows, _]) => rows.saturating_add(n_embd).saturating_mul(used),
            ("attn_q.weight" | "attn_qkv.weight", [rows, _]) => rows.saturating_mul(2),
            _ => return None,
        })
    };
    facts.tensors.iter().filter_map(width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routed_experts_are_told_from_shared_ones() {
        for (name, expected) in [
            ("ffn_up_exps.weight", true),
            ("ffn_gate_up_exps.weight", true),
            ("ffn_down_chexps.weight", true),
            ("ffn_gate_exps.bias", true),
            ("ffn_gate.3.weight", true),
            ("ffn_up_shexp.weight", false),
            ("ffn_gate_inp.weight", false),
            ("ffn_up.weight", false),
            ("attn_q.weight", false),
            ("", false),
        ] {
            assert_eq!(is_routed(name), expected, "{name}");
        }
    }
}
