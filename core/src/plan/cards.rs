//! What graphics cards can do: as a device layer has measured them; else what they read from their own memory by published
//! figures, by name, an assumption by size for others.
use super::speed::Range;
use crate::wire::{CardRates, Gpu, MachineRates};

/// Part of the name and GB/s, one card a line.
const CARDS: &str = include_str!("cards.tsv");
/// Share of the published rate that one token after another reaches. Source: 0.65 to 0.9 reported, less for small layers.
const EFFICIENCY: Range = Range { low: 0.55, likely: 0.7, high: 0.85 };
/// A card that is not in the table, per GiB of its memory: cards of 6 to 24 GB give 30 to 45.
const BYTES_PER_S_PER_GIB: f64 = 36e9;
/// And how far off that may be.
const UNKNOWN: Range = Range { low: 0.5, likely: 1.0, high: 1.5 };

/// From one device to the other and back. Source: 10 to 30 microseconds each way.
const HAND_OVER_S: f64 = 40e-6;
/// From main memory to a card, bytes per second. Source: PCIe 3.0 x8, as many laptops have it, at 85 %.
const UPLOAD_BYTES_PER_S: f64 = 6.7e9;
/// How far off a measured card may be.
const MEASURED_SPREAD: f64 = 0.1;

/// What a card does per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CardSpeed {
    /// Weights that it reads for one token after another, bytes per second.
    pub(super) read: Range,
    /// From main memory to the card, bytes per second.
    pub(super) upload_bytes_per_s: f64,
    /// From one device to the other and back, seconds, beside the bytes.
    pub(super) hand_over_s: f64,
}

impl CardSpeed {
    /// As it was measured, if it was; else as published.
    pub(super) fn of(gpu: &Gpu, measured: Option<&MachineRates>) -> Self {
        let is_it = |card: &&CardRates| card.name == gpu.name && card.read_bytes_per_s > 0.0;
        match measured.and_then(|rates| rates.cards.iter().find(is_it)) {
            Some(card) => Self {
                read: Range::around(card.read_bytes_per_s, MEASURED_SPREAD),
                upload_bytes_per_s: card.upload_bytes_per_s.max(1.0),
                hand_over_s: card.hand_over_s.max(0.0),
            },
            None => Self { read: assumed(gpu), upload_bytes_per_s: UPLOAD_BYTES_PER_S, hand_over_s: HAND_OVER_S },
        }
    }

    /// Seconds for one token's activations to the card and back, of a chunk of so many tokens.
    pub(super) fn hand_over_s(&self, n_values: f64, n_tokens: f64) -> f64 {
        self.hand_over_s / n_tokens.max(1.0) + 2.0 * n_values * size_of::<f32>() as f64 / self.upload_bytes_per_s
    }
}

fn assumed(gpu: &Gpu) -> Range {
    let (rate, spread) = match published(&gpu.name) {
        Some(gb_per_s) => (gb_per_s * 1e9, Range { low: 1.0, likely: 1.0, high: 1.0 }),
        None => {
            let gib = gpu.vram_total_bytes as f64 / f64::from(1 << 30);
            ((gib * BYTES_PER_S_PER_GIB).clamp(100e9, 1000e9), UNKNOWN)
        }
    };
    Range {
        low: rate * spread.low * EFFICIENCY.low,
        likely: rate * spread.likely * EFFICIENCY.likely,
        high: rate * spread.high * EFFICIENCY.high,
    }
}

fn published(name: &str) -> Option<f64> {
    rows().filter(|(part, _)| contains_words(name, part)).max_by_key(|(part, _)| part.len()).map(|(_, rate)| rate)
}

fn rows() -> impl Iterator<Item = (&'static str, f64)> {
    let lines = CARDS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('\t').and_then(|(part, rate)| Some((part, rate.parse().ok()?))))
}

/// Whether a name contains these words as whole words: an L4 is no L40S.
fn contains_words(name: &str, part: &str) -> bool {
    let name: Vec<&str> = name.split_whitespace().collect();
    let part: Vec<&str> = part.split_whitespace().collect();
    let is_same = |(a, b): (&&str, &&str)| a.eq_ignore_ascii_case(b);
    name.windows(part.len().max(1)).any(|window| window.iter().zip(&part).all(is_same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_outranks_what_is_published_and_another_cards_figures_mean_nothing() {
        let gpu = |name: &str| Gpu {
            index: 0,
            name: name.to_owned(),
            vram_total_bytes: 12 << 30,
            vram_free_bytes: 11 << 30,
            driver: String::new(),
            load_percent: None,
            temperature_c: None,
            unusable: None,
        };
        let card = CardRates {
            name: "NVIDIA GeForce RTX 3060".into(),
            read_bytes_per_s: 300e9,
            upload_bytes_per_s: 12e9,
            hand_over_s: 10e-6,
        };
        let rates = MachineRates { cards: vec![card], ..MachineRates::default() };
        let measured = CardSpeed::of(&gpu("NVIDIA GeForce RTX 3060"), Some(&rates));
        assert_eq!((measured.read.likely, measured.upload_bytes_per_s, measured.hand_over_s), (300e9, 12e9, 10e-6));
        let published = CardSpeed::of(&gpu("NVIDIA GeForce RTX 3060"), None);
        assert_eq!(published.read.likely, 360e9 * EFFICIENCY.likely);
        assert!(measured.read.high - measured.read.low < published.read.high - published.read.low);
        let other = CardSpeed::of(&gpu("NVIDIA GeForce RTX 4090"), Some(&rates));
        assert_eq!(other.read.likely, 1008e9 * EFFICIENCY.likely);
        // 2048 values of four bytes to the card and back, at 12 GB/s.
        assert!((measured.hand_over_s(2048.0, 1.0) - (10e-6 + 16384.0 / 12e9)).abs() < 1e-12);
        assert!(measured.hand_over_s(2048.0, 512.0) < measured.hand_over_s(2048.0, 1.0));
    }

    #[test]
    fn the_table_names_each_card_once_with_a_rate() {
        let n_lines = CARDS.lines().filter(|line| !line.starts_with('#')).count();
        let all: Vec<_> = rows().collect();
        assert_eq!(all.len(), n_lines, "a line that cannot be read");
        for (i, (name, rate)) in all.iter().enumerate() {
            assert!(*rate > 50.0 && all[i + 1..].iter().all(|(other, _)| other != name), "{name}");
        }
    }

    #[test]
    fn names_as_drivers_give_them_find_their_card() {
        for (name, expected) in [
            ("NVIDIA GeForce RTX 3060", Some(360.0)),
            ("NVIDIA GeForce RTX 3060 Ti", Some(448.0)),
            ("NVIDIA GeForce RTX 4060 Laptop GPU", Some(272.0)),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some(672.0)),
            ("NVIDIA L4", Some(300.0)),
            ("NVIDIA L40S", Some(864.0)),
            ("NVIDIA H200", Some(4800.0)),
            ("Card of 6 GB", None),
            ("", None),
        ] {
            assert_eq!(published(name), expected, "{name}");
        }
    }
}
