//! What graphics cards can read from their own memory: published figures by name, an assumption by size for others.
use super::speed::Range;
use crate::wire::Gpu;

/// Part of the name and GB/s, one card a line.
const CARDS: &str = include_str!("cards.tsv");
/// Share of the published rate that one token after another reaches. Source: 0.65 to 0.9 reported, less for small layers.
const EFFICIENCY: Range = Range { low: 0.55, likely: 0.7, high: 0.85 };
/// A card that is not in the table, per GiB of its memory: cards of 6 to 24 GB give 30 to 45.
const BYTES_PER_S_PER_GIB: f64 = 36e9;
/// And how far off that may be.
const UNKNOWN: Range = Range { low: 0.5, likely: 1.0, high: 1.5 };

/// Weights that a card reads for one token after another, bytes per second.
pub(super) fn read_rate(gpu: &Gpu) -> Range {
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
