//! What each quantisation costs in quality: measured data, no code.
//!
//! The figure is the mean Kullback-Leibler divergence of the token probabilities from those of the f16 model, over
//! WikiText-2 with Llama 3 8B. Other models lose other amounts, but in this order.
//! Source: `tools/perplexity/README.md` of llama.cpp, "LLaMA 3 8b Scoreboard"; with an importance matrix where the table
//! has one, since that is how they are published. Rows marked * are placed between their neighbours by size.

/// How much is lost, as one would tell a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    /// Nobody can tell.
    None,
    /// Few notice.
    Small,
    /// It shows in hard questions.
    Noticeable,
    /// It shows in most answers.
    Strong,
}

/// Up to this divergence nobody can tell: Q6_K lies below, and its top choice differs in 4 tokens of 100, as rounding does.
const NONE: f64 = 0.006;
/// Up to here few notice: the 4-bit K-quants with and without an importance matrix.
const SMALL: f64 = 0.045;
/// Up to here the model still does its work: the 3-bit types.
const NOTICEABLE: f64 = 0.2;

/// Label and divergence, best first.
#[rustfmt::skip]
const DIVERGENCE: &[(&str, f64)] = &[
    ("F32", 0.0), ("BF16", 0.000_03), ("F16", 0.000_55), ("Q8_K_XL", 0.001_3) /* * */, ("Q8_0", 0.001_36), ("Q6_K", 0.005_45),
    ("Q5_K_M", 0.010_76), ("Q5_K_S", 0.016_60), ("Q5_1", 0.018_05), ("Q5_0", 0.022_24),
    ("Q4_K_M", 0.028_15), ("Q4_K_S", 0.031_95), ("MXFP4_MOE", 0.034) /* * */, ("IQ4_NL", 0.035_74), ("IQ4_XS", 0.036_33),
    ("Q4_1", 0.071_68), ("Q4_0", 0.071_94), ("Q3_K_L", 0.073_08), ("Q3_K_M", 0.084_36), ("IQ3_M", 0.102_53),
    ("IQ3_S", 0.111_28), ("IQ3_XS", 0.138_69), ("IQ3_XXS", 0.183_63), ("Q3_K_S", 0.199_82),
    ("IQ2_M", 0.325_99), ("Q2_K", 0.332_22), ("Q2_K_S", 0.403_36), ("IQ2_S", 0.439_20), ("IQ2_XS", 0.546_29),
    ("IQ2_XXS", 0.812_02), ("TQ2_0", 1.0) /* * */, ("IQ1_M", 1.393_08), ("TQ1_0", 1.5) /* * */, ("IQ1_S", 2.254_55),
];

/// The divergence for a label as repos write it; `None` for one that nobody measured.
pub(super) fn divergence(label: &str) -> Option<f64> {
    let label = label.strip_prefix("UD-").unwrap_or(label);
    // Larger mixes of a type are measured as its medium one: no better figure is published.
    let medium = ["_XXL", "_XL", "_L"].iter().find_map(|tail| Some(format!("{}_M", label.strip_suffix(tail)?)));
    let find = |wanted: &str| DIVERGENCE.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let family = || label.split_once("_K").and_then(|(bits, _)| find(&format!("{bits}_K")));
    find(label).or_else(|| find(&medium?)).or_else(family)
}

/// The loss of a divergence; of one unknown, the worst.
pub(super) fn loss(divergence: Option<f64>) -> Loss {
    match divergence {
        Some(d) if d <= NONE => Loss::None,
        Some(d) if d <= SMALL => Loss::Small,
        Some(d) if d <= NOTICEABLE => Loss::Noticeable,
        _ => Loss::Strong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_names_each_type_once() {
        assert!(DIVERGENCE.windows(2).all(|pair| pair[0].1 < pair[1].1));
        for (i, (name, _)) in DIVERGENCE.iter().enumerate() {
            assert!(DIVERGENCE[i + 1..].iter().all(|(other, _)| other != name), "{name}");
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
            ("Q8_0", Loss::None),
            ("Q6_K", Loss::None),
            ("Q5_K_M", Loss::Small),
            ("IQ4_XS", Loss::Small),
            ("Q4_1", Loss::Noticeable),
            ("Q3_K_S", Loss::Noticeable),
            ("Q2_K", Loss::Strong),
            ("?", Loss::Strong),
        ] {
            assert_eq!(loss(divergence(label)), expected, "{label}");
        }
    }
}
