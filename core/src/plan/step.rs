//! What one generated token costs in bytes where it runs: what each device reads, and what crosses between them. Counted from the
//! plan's layers and the tensor table; a test holds it against the simulated driver's counters.
//!
//! Launches are not counted: each family has its own.
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::KvTypes;

use super::load::is_card_used;
use super::refusal::PlanRefusal;
use super::sizes::{Sizes, sum};
use super::words::size;
use crate::wire::{Part, Place, Plan, Text};

const F32_BYTES: u64 = 4;

/// Bytes of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCost {
    /// Weights that the processor reads from memory.
    pub cpu_weight_bytes: u64,
    /// Keys, values and states that it reads.
    pub cpu_cache_bytes: u64,
    /// Weights that the card reads.
    pub card_weight_bytes: u64,
    /// Keys, values and states that it reads.
    pub card_cache_bytes: u64,
    /// How often activations go to the card, and their bytes.
    pub n_to_card: u32,
    /// Bytes of these.
    pub to_card_bytes: u64,
    /// How often something comes back: activations, the router's logits, the head's.
    pub n_to_host: u32,
    /// Bytes of these.
    pub to_host_bytes: u64,
}

impl StepCost {
    /// Of a token that follows `n_tokens` others.
    ///
    /// Errors   `KvType` if the plan names a cache that the engine does not have; a header that cannot be planned
    pub fn of(facts: &ModelFacts, plan: &Plan, n_tokens: u32) -> Result<Self, PlanRefusal> {
        let sizes = Sizes::of(facts)?;
        let unknown = |_| PlanRefusal::KvType { kv_type: plan.kv_type.clone() };
        let types: KvTypes = plan.kv_type.parse().map_err(unknown)?;
        let is_card = |place: Place| is_card_used(plan) && matches!(place, Place::Gpu { .. });
        let row_bytes = u64::from(facts.arch_u32_or("embedding_length", 0)?) * F32_BYTES;
        let router_bytes = u64::from(sizes.n_experts) * F32_BYTES;
        let mut cost = Self::default();
        let mut is_there = false;
        for (layer, place) in sizes.layers.iter().zip(&plan.layers) {
            let is_mixer_there = is_card(place.mixer);
            cost.go(is_there, is_mixer_there, row_bytes);
            is_there = is_mixer_there;
            cost.read(is_there, layer.dense_bytes, layer.kv.read_bytes_as(n_tokens, types));
            let Some(experts) = place.experts else { continue };
            let are_experts_there = is_card(experts);
            if is_there && !are_experts_there {
                // The host picks the experts; where they are on the card too, the card does.
                cost.come_back(router_bytes);
            }
            cost.read(are_experts_there, (layer.experts_bytes as f64 * sizes.expert_share()) as u64, 0);
            cost.go(is_there, are_experts_there, row_bytes);
            cost.go(are_experts_there, is_there, row_bytes);
        }
        let is_head_there = plan.lines.iter().any(|line| line.part == Part::Head && is_card(line.place));
        cost.go(is_there, is_head_there, row_bytes);
        cost.read(is_head_there, sizes.moved_head_bytes(), 0);
        if is_head_there {
            cost.come_back(sizes.n_vocab.saturating_mul(F32_BYTES));
        }
        Ok(cost)
    }

    fn read(&mut self, is_there: bool, weight_bytes: u64, cache_bytes: u64) {
        let (weights, cache) = match is_there {
            true => (&mut self.card_weight_bytes, &mut self.card_cache_bytes),
            false => (&mut self.cpu_weight_bytes, &mut self.cpu_cache_bytes),
        };
        *weights = weights.saturating_add(weight_bytes);
        *cache = cache.saturating_add(cache_bytes);
    }

    /// From one device to the other, if they are two.
    fn go(&mut self, is_there: bool, is_wanted_there: bool, n_bytes: u64) {
        match (is_there, is_wanted_there) {
            (false, true) => {
                self.n_to_card += 1;
                self.to_card_bytes = self.to_card_bytes.saturating_add(n_bytes);
            }
            (true, false) => self.come_back(n_bytes),
            _ => {}
        }
    }

    fn come_back(&mut self, n_bytes: u64) {
        self.n_to_host += 1;
        self.to_host_bytes = self.to_host_bytes.saturating_add(n_bytes);
    }

    /// In one sentence.
    pub fn words(&self) -> Text {
        let read = |weights, cache| size(sum([weights, cache]));
        let card = read(self.card_weight_bytes, self.card_cache_bytes);
        let cpu = read(self.cpu_weight_bytes, self.cpu_cache_bytes);
        let (to_card, to_host) = (size(self.to_card_bytes), size(self.to_host_bytes));
        let (n_to_card, n_to_host) = (self.n_to_card, self.n_to_host);
        Text::new(
            format!(
                "A token reads {card} on the card and {cpu} in memory; {n_to_card} times something goes to the card \
                 ({to_card}), {n_to_host} times back ({to_host})."
            ),
            format!(
                "每个词元在显卡上读取 {card}，在内存中读取 {cpu}；传到显卡 {n_to_card} 次（{to_card}），传回 {n_to_host} 次（{to_host}）。"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{example, with_card};
    use crate::wire::Wishes;

    #[test]
    fn the_processor_alone_hands_nothing_over() {
        let facts = crate::plan::tests::example_facts();
        let cost = StepCost::of(&facts, &example(), 100).unwrap();
        assert_eq!((cost.n_to_card, cost.n_to_host, cost.card_weight_bytes, cost.card_cache_bytes), (0, 0, 0, 0));
        let reads = crate::plan::TokenReads::of(&facts, 100, "f16".parse().unwrap()).unwrap();
        assert_eq!(cost.cpu_cache_bytes, reads.cache_bytes);
        let ratio = cost.cpu_weight_bytes as f64 / reads.weights_bytes as f64;
        assert!((0.99..1.01).contains(&ratio), "{cost:?} {reads:?}");
    }

    #[test]
    fn experts_in_memory_cost_one_way_there_and_one_back() {
        let facts = crate::plan::tests::with_card_facts();
        let plan = with_card()(&Wishes { n_expert_layers: Some(3), ..Wishes::default() });
        let n_layers = plan.layers.len() as u32;
        let n_apart = n_layers - plan.layers.iter().filter(|layer| layer.experts != Some(Place::Ram)).count() as u32;
        let cost = StepCost::of(&facts, &plan, 100).unwrap();
        // The embedding's row first; inputs and choice of layers whose experts are apart, and the logits.
        assert_eq!((cost.n_to_card, cost.n_to_host), (1 + n_apart, 2 * n_apart + 1));
        assert!(cost.card_weight_bytes > 0 && cost.cpu_weight_bytes > 0 && cost.cpu_cache_bytes == 0);
        assert!(!cost.words().zh.is_empty());
    }
}
