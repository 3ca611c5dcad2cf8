//! What each quantisation costs in quality. The figures are data, with their source in `quality.tsv`; here they are looked up and
//! put into words.
use crate::wire::{Quality, QualityLoss};

/// Up to this divergence nobody can tell: Q6_K lies below, and its top choice differs in 4 tokens of 100, as rounding does.
const NONE: f64 = 0.006;
/// Up to here few notice: the 4-bit K-quants with and without an importance matrix.
const SMALL: f64 = 0.045;
/// Up to here the model still does its work: the 3-bit types.
const NOTICEABLE: f64 = 0.2;

/// Label, divergence and how it is known, a line each, best first.
const DIVERGENCE: &str = include_str!("quality.tsv");

fn rows() -> impl Iterator<Item = (&'static str, f64)> {
    DIVERGENCE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?.parse().ok()?))
    })
}

/// The divergence for a label as repos write it; `None` for one that nobody measured.
pub(super) fn divergence(label: &str) -> Option<f64> {
    let label = label.strip_prefix("UD-").unwrap_or(label);
    // Larger mixes of a type are measured as its medium one: no better figure is published.
    let medium = ["_XXL", "_XL", "_L"].iter().find_map(|tail| Some(format!("{}_M", label.strip_suffix(tail)?)));
    let find = |wanted: &str| rows().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let family = || label.split_once("_K").and_then(|(bits, _)| find(&format!("{bits}_K")));
    find(label).or_else(|| find(&medium?)).or_else(family)
}

/// The quality of a label.
pub(super) fn quality(label: &str) -> Quality {
    let divergence = divergence(label);
    let loss = match divergence {
        Some(d) if d <= NONE => QualityLoss::None,
        Some(d) if d <= SMALL => QualityLoss::Small,
        Some(d) if d <= NOTICEABLE => QualityLoss::Noticeable,
        Some(_) => QualityLoss::Strong,
        None => QualityLoss::Unknown,
    };
    Quality { loss, divergence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_names_each_type_once() {
        let all: Vec<_> = rows().collect();
        assert_eq!(all.len(), DIVERGENCE.lines().filter(|line| !line.starts_with('#')).count(), "a line is not read");
        assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].1));
        for (i, (name, _)) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|(other, _)| other != name), "{name}");
        }
    }

    #[test]
    fn labels_find_their_measurement() {
        for (label, expected) in [
            ("Q4_K_M", Some(0.028_15)),
            ("UD-Q4_K_XL", Some(0.028_15)),
            ("Q4_K_L", Some(0.028_15)),
            ("Q3_K_L", Some(0.073_08)),
            ("Q6_K_L", Some(0.005_45)),
            ("UD-Q2_K_XL", Some(0.332_22)),
            ("UD-IQ3_XXS", Some(0.183_63)),
            ("UD-Q8_K_XL", Some(0.001_3)),
            ("Q9_K_M", None),
            ("IQ4_KS_R4", None),
            ("?", None),
            ("", None),
        ] {
            assert_eq!(divergence(label), expected, "{label}");
        }
    }

    #[test]
    fn losses_follow_the_words_people_use() {
        for (label, expected) in [
            ("Q8_0", QualityLoss::None),
            ("Q6_K", QualityLoss::None),
            ("Q5_K_M", QualityLoss::Small),
            ("IQ4_XS", QualityLoss::Small),
            ("Q4_1", QualityLoss::Noticeable),
            ("Q3_K_S", QualityLoss::Noticeable),
            ("Q2_K", QualityLoss::Strong),
            ("?", QualityLoss::Unknown),
        ] {
            assert_eq!(quality(label).loss, expected, "{label}");
        }
    }
}
