//! What a session does with the copies of experts that a placement has on cards, and what came of it.

/// How copies of experts on a card are used. By default they stay what they were at load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpertPolicy {
    /// Most bytes of experts copied to cards in a step of one token or of many, so that copies follow what is routed. None unless
    /// a measurement on this machine says that it pays: on weak cards and slow buses it does not.
    pub upload_bytes_per_step: u64,
    /// Rates of this machine; with them, experts with so many tokens that the card is faster even with the copying of their
    /// weights are computed there ([`ExpertRates::is_streamed`]).
    pub rates: Option<ExpertRates>,
}

/// Rates of experts, measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertRates {
    /// Bytes of weights copied from main memory to the card per second.
    pub copy_bytes_per_s: f64,
    /// Weights times tokens that the card multiplies per second.
    pub card_products_per_s: f64,
    /// Bytes of weights that the processor reads per second.
    pub cpu_bytes_per_s: f64,
    /// Weights times tokens that the processor multiplies per second.
    pub cpu_products_per_s: f64,
}

/// What a session's routed experts cost, since it began. A pair is a token and one of its experts, in layers that have copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertStats {
    /// Pairs.
    pub n_pairs: u64,
    /// Pairs whose expert had a copy on a card.
    pub n_hits: u64,
    /// Pairs whose expert was copied to the card for this step.
    pub n_streamed: u64,
    /// Bytes of experts copied for their step.
    pub streamed_bytes: u64,
    /// Bytes of experts copied for later steps.
    pub uploaded_bytes: u64,
}

impl ExpertRates {
    /// Whether the card computes an expert sooner than the processor although its weights must be copied there first. The copy
    /// keeps the host from anything else, so both times count from the same moment: copy and products one after the other on
    /// the card; on the processor, whichever takes longer, reading the weights once or the products.
    ///
    /// n_bytes    of the expert's weights
    /// n_weights  of them
    /// n_tokens   that go to the expert
    pub fn is_streamed(&self, n_bytes: u64, n_weights: u64, n_tokens: u64) -> bool {
        let n_products = n_weights as f64 * n_tokens as f64;
        let card = n_bytes as f64 / self.copy_bytes_per_s + n_products / self.card_products_per_s;
        let cpu = (n_bytes as f64 / self.cpu_bytes_per_s).max(n_products / self.cpu_products_per_s);
        card < cpu
    }
}

impl ExpertStats {
    /// What came to it since it was like that.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            n_pairs: self.n_pairs - before.n_pairs,
            n_hits: self.n_hits - before.n_hits,
            n_streamed: self.n_streamed - before.n_streamed,
            streamed_bytes: self.streamed_bytes - before.streamed_bytes,
            uploaded_bytes: self.uploaded_bytes - before.uploaded_bytes,
        }
    }

    /// Part of the pairs that found their expert on a card; none if there were no pairs.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.n_pairs > 0).then(|| self.n_hits as f64 / self.n_pairs as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_streamed_from_the_number_of_tokens_on_where_the_card_is_faster() {
        // 3.4 million weights in 4.5 bits over 12 GB/s: 0.16 ms, as long as the processor takes for 14 tokens.
        let rates = ExpertRates {
            copy_bytes_per_s: 12e9,
            card_products_per_s: 5e12,
            cpu_bytes_per_s: 40e9,
            cpu_products_per_s: 300e9,
        };
        let is_streamed = |n_tokens| rates.is_streamed(1_900_000, 3_400_000, n_tokens);
        let first = (0..1000).find(|n_tokens| is_streamed(*n_tokens)).unwrap();
        assert_eq!(first, 15);
        assert!((first..5000).all(is_streamed), "and from there on always");
        let slow_card = ExpertRates { card_products_per_s: 200e9, ..rates };
        assert!(!(0..5000).any(|n_tokens| slow_card.is_streamed(1_900_000, 3_400_000, n_tokens)));
        let no_bus = ExpertRates { copy_bytes_per_s: 0.0, ..rates };
        assert!(!no_bus.is_streamed(1_900_000, 3_400_000, 5000));
    }

    #[test]
    fn no_pairs_have_no_hit_rate() {
        assert_eq!(ExpertStats::default().hit_rate(), None);
        let stats = ExpertStats { n_pairs: 8, n_hits: 2, ..ExpertStats::default() };
        assert_eq!(stats.hit_rate(), Some(0.25));
    }
}
