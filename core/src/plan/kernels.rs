//! How fast one core multiplies weights of each type, where nobody has measured it: by the instructions that the engine's
//! kernels take, which were counted.
use tandem_engine::cpu::Rounding;
use tandem_engine::gguf::TensorType;

/// Type of weights, instructions per weight for one token, and for each of many. Source: `engine/NOTES.md`, counted with
/// valgrind for AVX2.
const INSTRUCTIONS: &[(&str, f64, f64)] = &[
    ("F32", 0.588, 0.347),
    ("F16", 0.557, 0.344),
    ("BF16", 0.682, 0.407),
    ("Q8_0", 0.715, 0.260),
    ("Q4_0", 0.639, 0.200),
    ("Q4_1", 0.739, 0.221),
    ("Q5_0", 0.885, 0.208),
    ("Q5_1", 0.993, 0.229),
    ("Q2_K", 0.428, 0.248),
    ("Q3_K", 0.643, 0.235),
    ("Q4_K", 0.488, 0.199),
    ("Q5_K", 0.665, 0.206),
    ("Q6_K", 0.517, 0.324),
    ("IQ4_NL", 0.725, 0.277),
    ("IQ4_XS", 0.637, 0.259),
    ("IQ3_S", 2.270, 0.257),
    ("IQ3_XXS", 1.696, 0.264),
    ("IQ2_S", 1.463, 0.304),
    ("IQ2_XS", 2.076, 0.282),
    ("IQ2_XXS", 1.543, 0.232),
    ("IQ1_M", 2.061, 0.303),
    ("IQ1_S", 1.431, 0.242),
    ("TQ1_0", 1.984, 0.206),
    ("TQ2_0", 0.290, 0.175),
    ("MXFP4", 0.714, 0.209),
    ("NVFP4", 0.717, 0.249),
];
/// A type that was not counted.
const OTHER: (f64, f64) = (0.75, 0.25);
/// Instructions of one token's products that a core retires per second: about 3.3 per cycle at 3.6 GHz. Source: generation
/// from twelve files in eleven formats (`docs/speed.md`).
const TOKEN_INSTRUCTIONS_PER_S: f64 = 12e9;
/// The same of many tokens' products, which are bound by the vector units. Source: their prompts, as above, less what those take beside.
const PROMPT_INSTRUCTIONS_PER_S: f64 = 15e9;
/// Speed of an instruction set beside AVX2's, for one token and for many. Source: the kernels' prototypes.
const SETS: &[(&str, f64, f64)] =
    &[("scalar", 0.033, 0.012), ("avx2", 1.0, 1.0), ("avxvnni", 1.0, 1.2), ("avx512vnni", 1.2, 1.2)];
/// How much longer a token takes whose activations are rounded twice: weights are unpacked once for both parts.
const TWICE: f64 = 1.4;
/// From so many tokens on, weights are unpacked once for all of them.
pub(super) const PANEL_TOKENS: f64 = 5.0;

/// Bytes of weights that one core multiplies with one token, per second.
pub(super) fn read_per_core(isa: &str, tensor_type: TensorType, rounding: Rounding) -> f64 {
    let per_s = TOKEN_INSTRUCTIONS_PER_S * set(isa).0 / instructions(tensor_type).0 * bytes_per_weight(tensor_type);
    if rounding == Rounding::Twice { per_s / TWICE } else { per_s }
}

/// Operations of one core on weights and so many tokens, per second.
pub(super) fn ops_per_core(isa: &str, tensor_type: TensorType, n_tokens: f64) -> f64 {
    let ((one, many), (set_one, set_many)) = (instructions(tensor_type), set(isa));
    if n_tokens < PANEL_TOKENS {
        2.0 * TOKEN_INSTRUCTIONS_PER_S * set_one / one
    } else {
        2.0 * PROMPT_INSTRUCTIONS_PER_S * set_many / many
    }
}

pub(super) fn bytes_per_weight(tensor_type: TensorType) -> f64 {
    let row = tensor_type.row();
    row.block_bytes as f64 / row.block_elems as f64
}

fn instructions(tensor_type: TensorType) -> (f64, f64) {
    let name = tensor_type.row().name;
    INSTRUCTIONS.iter().find(|row| row.0 == name).map_or(OTHER, |row| (row.1, row.2))
}

/// An unknown set counts as the slowest.
fn set(isa: &str) -> (f64, f64) {
    let row = SETS.iter().find(|row| row.0 == isa).unwrap_or(&SETS[0]);
    (row.1, row.2)
}

#[cfg(test)]
mod tests {
    use tandem_engine::quant::FORMATS;

    use super::*;

    #[test]
    fn every_format_of_the_engine_was_counted() {
        for format in FORMATS {
            let name = format.tensor_type.row().name;
            assert!(INSTRUCTIONS.iter().any(|row| row.0 == name), "{name}");
        }
    }

    #[test]
    fn every_instruction_set_of_the_engine_has_a_row() {
        for isa in tandem_engine::cpu::Isa::present() {
            assert!(SETS.iter().any(|row| row.0 == isa.to_string()), "{isa}");
        }
    }

    #[test]
    fn small_weights_take_more_work_per_byte_and_twice_is_slower() {
        let read = |tensor_type, rounding| read_per_core("avx2", tensor_type, rounding);
        assert!(read(TensorType::IQ3_XXS, Rounding::Once) < read(TensorType::Q4_K, Rounding::Once));
        assert!(read(TensorType::Q4_K, Rounding::Once) < read(TensorType::Q8_0, Rounding::Once));
        assert!(read(TensorType::Q4_K, Rounding::Twice) < read(TensorType::Q4_K, Rounding::Once));
        assert!(read_per_core("scalar", TensorType::Q4_K, Rounding::Once) < 0.5e9);
        assert!(ops_per_core("avx2", TensorType::Q4_K, 4.0) < ops_per_core("avx2", TensorType::Q4_K, 5.0));
    }
}
