//! The files of `architectures.rs` with quantised weights, and how far logits are from those of the same weights in f32.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tandem_engine::gguf::{MappedModel, TensorType, Writer};
use tandem_engine::quant;

/// What is quantised, if its rows are whole blocks. The same list stands in `tests/goldens/make_arch_goldens.py`.
const QUANTISED: &[&str] = &[
    "token_embd",
    "output",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "attn_gate",
    "attn_q_a",
    "attn_q_b",
    "attn_kv_a_mqa",
    "attn_k_b",
    "attn_v_b",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_gate_up_exps",
    "ffn_down_exps",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
    "ssm_in",
    "ssm_out",
    "in_proj",
    "out_proj",
];

/// What the large matrices of a file become.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Large {
    Blocks,
    Decoded,
}

/// A divergence as small as this is a matter of chance.
const CHANCE: f64 = 1e-5;

/// The tokens that all files are fed.
pub(crate) fn tokens() -> Vec<u32> {
    serde_json::from_str(&std::fs::read_to_string(data("tokens.json")).unwrap()).unwrap()
}

/// How far llama.cpp is from exact, by file and type.
pub(crate) fn golden() -> BTreeMap<String, BTreeMap<String, f64>> {
    serde_json::from_str(&std::fs::read_to_string(data("quantised.json")).unwrap()).unwrap()
}

/// Whether the first divergence is no worse than 1.5 times the second; one that is no number is not.
pub(crate) fn is_as_near([got, of_llama_cpp]: [f64; 2]) -> bool {
    got <= 1.5 * of_llama_cpp + CHANCE
}

/// A file of the fixtures.
pub(crate) fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(file)
}

/// A file with its large matrices in blocks, or decoded from such.
pub(crate) fn quantised(model: &MappedModel, tensor_type: TensorType, large: Large) -> Writer {
    let mut writer = Writer::default();
    for (key, value) in model.facts.metadata.iter() {
        writer = writer.meta(key, value.clone());
    }
    for tensor in &model.facts.tensors {
        let bytes = model.tensor_bytes(tensor);
        let is_listed = |name: &str| name.rsplit('.').next().is_some_and(|last| QUANTISED.contains(&last));
        let is_large = tensor.name.strip_suffix(".weight").is_some_and(is_listed);
        let n_cols = *tensor.shape.last().unwrap() as usize;
        if !is_large || tensor.shape.len() < 2 || !n_cols.is_multiple_of(32) {
            writer = writer.tensor(&tensor.name, &tensor.shape, TensorType::F32, bytes.to_vec());
            continue;
        }
        let elems: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let block_bytes = tensor_type.row().block_bytes as usize;
        let mut blocks = vec![0; elems.len() / 32 * block_bytes];
        quant::encode_row(tensor_type, &elems, &mut blocks).unwrap();
        writer = match large {
            Large::Blocks => writer.tensor(&tensor.name, &tensor.shape, tensor_type, blocks),
            Large::Decoded => {
                let mut decoded = vec![0.0; elems.len()];
                quant::decode_row(tensor_type, &blocks, &mut decoded).unwrap();
                writer.tensor_f32(&tensor.name, &tensor.shape, &decoded)
            }
        };
    }
    writer
}

/// Kullback-Leibler divergence of the distribution of `got` from that of `exact`.
pub(crate) fn divergence(exact: &[f32], got: &[f32]) -> f64 {
    let (exact_sum, got_sum) = (log_sum(exact), log_sum(got));
    let term = |(&exact, &got): (&f32, &f32)| {
        let log_p = f64::from(exact) - exact_sum;
        log_p.exp() * (log_p - (f64::from(got) - got_sum))
    };
    exact.iter().zip(got).map(term).sum()
}

fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum::<f64>().ln()
}
