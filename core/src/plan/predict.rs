//! How fast a laid-out model will generate and read: what the processor takes for its share, from the rates of this machine;
//! what the card takes for its own; and the hand-overs between them.
use tandem_engine::kv::KvTypes;

use super::cards::CardSpeed;
use super::place::Split;
use super::sizes::{Sizes, sum};
use super::speed::{Forecast, Range, Rates, TYPICAL_PROMPT, Work};

/// A page that was dropped is often one that is needed soon: what does not fit is read about twice.
const DISK_READS_PER_MISSING_BYTE: f64 = 2.0;
/// What a card takes per layer and token beside reading weights: about twenty small kernels. Source: fit to 165 tokens/s
/// reported for Qwen3.6-35B-A3B on an RTX 4090 and 155 on an RTX 3090.
const CARD_SECONDS_PER_LAYER: f64 = 80e-6;
/// Rate of whole matrices on a card, operations per byte that it reads per second. Source: about 15 TFLOPS reached of an
/// RTX 3060 with 360 GB/s.
const CARD_OPS_PER_BYTE: f64 = 40.0;
/// Prompts on a processor are predicted less well than generation.
const PROMPT_SPREAD: Range = Range { low: 0.6, likely: 1.0, high: 1.4 };

/// Expected speed, tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) generation: Range,
    pub(super) prompt: Range,
    /// What the likely time of a token goes to.
    pub(super) seconds: TokenSeconds,
}

/// What the time of a token goes to, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TokenSeconds {
    /// The card: weights, cache, and its small kernels.
    pub(super) card: f64,
    /// Weights from memory.
    pub(super) weights: f64,
    /// Keys, values and states from memory.
    pub(super) cache: f64,
    /// What layers take beside, on the processor.
    pub(super) layers: f64,
    /// Between the devices, so often.
    pub(super) hand_overs: f64,
    pub(super) n_hand_overs: u32,
    /// Weights from the disk.
    pub(super) disk: f64,
}

impl TokenSeconds {
    fn all(&self) -> f64 {
        self.card + self.weights + self.cache + self.layers + self.hand_overs + self.disk
    }
}

/// A model on a machine, before it is laid out.
#[derive(Clone, Debug)]
pub(super) struct Predictor<'a> {
    forecast: Forecast,
    rates: Rates<'a>,
    work: &'a Work,
}

/// A layout, as far as speed depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// What a card holds and computes.
    pub(super) split: Option<&'a Split>,
    pub(super) kv_types: KvTypes,
    /// Tokens in the context.
    pub(super) n_tokens: u32,
    /// Weights that find no room in memory.
    pub(super) missing_bytes: u64,
    pub(super) n_batch: u32,
}

/// What one token asks of the processor and of the card.
struct Shares {
    /// Weights read on the processor, as a share of all that are read.
    cpu_weights: f64,
    /// The same without the head.
    cpu_layers: f64,
    /// Halves of layers that the processor computes, as a share.
    cpu_halves: f64,
    cpu_cache_bytes: f64,
    card_bytes: f64,
    n_card_layers: f64,
    n_hand_overs: f64,
}

impl<'a> Predictor<'a> {
    /// n_batch  tokens of a prompt that the processor computes at once
    pub(super) fn new(work: &'a Work, rates: Rates<'a>, n_batch: u32) -> Self {
        Self { forecast: Forecast::new(work, &rates, n_batch), rates, work }
    }

    /// Expected speed.
    pub(super) fn predict(&self, sizes: &Sizes, load: &Load<'_>) -> Prediction {
        let shares = Shares::of(sizes, load);
        let card = load.split.map(|split| self.rates.card(&split.gpu));
        let at =
            |of: fn(&Range) -> f64| 1.0 / self.seconds(sizes, load, &shares, card.as_ref(), of).all().max(SHORTEST_S);
        Prediction {
            generation: Range { low: at(|r| r.low), likely: at(|r| r.likely), high: at(|r| r.high) },
            prompt: self.prompt(load, &shares, card.as_ref()),
            seconds: self.seconds(sizes, load, &shares, card.as_ref(), |r| r.likely),
        }
    }

    /// One token, at one end of all ranges.
    fn seconds(
        &self,
        sizes: &Sizes,
        load: &Load<'_>,
        shares: &Shares,
        card: Option<&CardSpeed>,
        of: fn(&Range) -> f64,
    ) -> TokenSeconds {
        let spread = of(&self.rates.spread(self.forecast.is_corrected()));
        let from_disk = self.work.read_bytes() * shares.cpu_weights * missing_share(sizes, load);
        let on_card = |card: &CardSpeed| {
            let read_s = shares.card_bytes / of(&card.read);
            (read_s + shares.n_card_layers * CARD_SECONDS_PER_LAYER, shares.n_hand_overs * self.hand_over_s(card, 1.0))
        };
        let (card_s, hand_overs_s) = card.map_or((0.0, 0.0), on_card);
        TokenSeconds {
            card: card_s,
            weights: self.forecast.weights_s() * shares.cpu_weights / spread,
            cache: self.forecast.cache_s(shares.cpu_cache_bytes) / spread,
            layers: self.forecast.layers_s() * shares.cpu_halves,
            hand_overs: hand_overs_s,
            n_hand_overs: shares.n_hand_overs as u32,
            disk: from_disk / of(&self.rates.disk()),
        }
    }

    fn hand_over_s(&self, card: &CardSpeed, n_tokens: f64) -> f64 {
        card.hand_over_s(self.work.n_values as f64, n_tokens)
    }

    fn prompt(&self, load: &Load<'_>, shares: &Shares, card: Option<&CardSpeed>) -> Range {
        let processor_s = self.forecast.prompt_token_s(TYPICAL_PROMPT) * shares.cpu_layers;
        let card_ops = self.work.prompt_ops() * (1.0 - shares.cpu_layers);
        let (n_batch, disk) = (f64::from(load.n_batch.max(1)), self.rates.disk());
        let at = |of: fn(&Range) -> f64| {
            // A chunk of a prompt reads every weight once.
            let from_disk_s = load.missing_bytes as f64 / of(&disk) / n_batch;
            let card_s = card.map_or(0.0, |card| {
                let compute_s = card_ops / (of(&card.read) * CARD_OPS_PER_BYTE);
                compute_s + shares.n_hand_overs * self.hand_over_s(card, n_batch)
            });
            1.0 / (processor_s / of(&PROMPT_SPREAD) + card_s + from_disk_s).max(SHORTEST_S)
        };
        Range { low: at(|r| r.low), likely: at(|r| r.likely), high: at(|r| r.high) }
    }
}

/// Below this nothing is a prediction; it keeps rates finite.
const SHORTEST_S: f64 = 1e-9;

impl Shares {
    fn of(sizes: &Sizes, load: &Load<'_>) -> Self {
        let share = sizes.expert_share();
        let layers = sizes.dense_bytes() as f64 + sizes.experts_bytes() as f64 * share;
        let head = sizes.moved_head_bytes() as f64;
        let n_layers = sizes.layers.len();
        let cache = |layers: &[super::sizes::Layer]| {
            sum(layers.iter().map(|layer| layer.kv.read_bytes_as(load.n_tokens, load.kv_types))) as f64
        };
        let Some(split) = load.split else {
            return Self {
                cpu_weights: 1.0,
                cpu_layers: 1.0,
                cpu_halves: 1.0,
                cpu_cache_bytes: cache(&sizes.layers),
                card_bytes: 0.0,
                n_card_layers: 0.0,
                n_hand_overs: 0.0,
            };
        };
        let card_layers = split.dense_bytes as f64 + split.experts_bytes as f64 * share;
        let n_card = split.n_layers as usize;
        let (below, above) = sizes.layers.split_at(n_layers - n_card);
        let n_expert_halves = f64::from(split.n_cpu_moe_layers(sizes));
        let cpu_halves = 2.0 * below.len() as f64 + n_expert_halves;
        Self {
            cpu_weights: ratio(layers - card_layers, layers + head),
            cpu_layers: ratio(layers - card_layers, layers),
            cpu_halves: ratio(cpu_halves, 2.0 * n_layers as f64).min(1.0),
            cpu_cache_bytes: cache(below),
            card_bytes: card_layers + head + cache(above),
            n_card_layers: n_card as f64,
            n_hand_overs: n_expert_halves + if below.is_empty() { 0.0 } else { 1.0 },
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// Share of the weights in main memory that is read from disk again and again.
fn missing_share(sizes: &Sizes, load: &Load<'_>) -> f64 {
    let on_card = load.split.map_or(0, Split::weights_bytes);
    let in_ram = sizes.weights_bytes().saturating_sub(on_card).max(1) as f64;
    (load.missing_bytes as f64 / in_ram * DISK_READS_PER_MISSING_BYTE).min(1.0)
}
