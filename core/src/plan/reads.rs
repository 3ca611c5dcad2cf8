//! What one generated token reads from memory: the figure that a measured speed is compared with.
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{CacheOptions, CacheShape, KvShape, KvTypes};

use super::refusal::PlanRefusal;
use super::sizes::{Sizes, sum};
use super::speed::Work;

/// Bytes that one token reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenReads {
    /// Weights: all that every token needs, the head, and as many experts as a token uses.
    pub weights_bytes: u64,
    /// Keys, values and states of all layers.
    pub cache_bytes: u64,
}

impl TokenReads {
    /// Of a model's token that follows `n_positions` others.
    pub fn of(facts: &ModelFacts, n_positions: usize, types: KvTypes) -> Result<Self, PlanRefusal> {
        let sizes = Sizes::of(facts)?;
        let cache = |shape: &CacheShape| match shape {
            CacheShape::Nothing => 0,
            CacheShape::Attention(kv) => {
                let n_seen = kv.window.map_or(n_positions, |window| n_positions.min(window));
                let whole = CacheShape::Attention(KvShape { window: None, ..*kv });
                whole.n_bytes(&CacheOptions { n_positions: n_seen, n_batch: 1, types, checkpoint_bytes: 0 })
            }
            // Read and written.
            CacheShape::Recurrent { n_elems } => 2 * 4 * *n_elems as u64,
        };
        let cache_bytes = sum(sizes.survey.caches.iter().map(cache));
        Ok(Self { weights_bytes: Work::of(facts, &sizes).weights_bytes() as u64, cache_bytes })
    }
}
