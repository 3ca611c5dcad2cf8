//! Every architecture with quantised weights: as near to the same weights in f32 as llama.cpp is on the same file.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::{MappedModel, ModelFacts, TensorType, Writer};
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::quant;
use tandem_engine::session::Session;

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
enum Large {
    Blocks,
    Decoded,
}

/// A divergence as small as this is a matter of chance.
const CHANCE: f64 = 1e-5;

/// A router that picks another expert for one token changes everything behind it, by chance here or there: in random models with experts
/// single files mean little, and all of them together are held to the bound. The others are held to it one by one.
#[test]
fn quantised_files_are_as_near_to_exact_as_llama_cpp() {
    let tokens: Vec<u32> = serde_json::from_str(&std::fs::read_to_string(data("tokens.json")).unwrap()).unwrap();
    let golden = std::fs::read_to_string(data("quantised.json")).unwrap();
    let golden: BTreeMap<String, BTreeMap<String, f64>> = serde_json::from_str(&golden).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("quantised.gguf");
    let mut failures = Vec::new();
    for isa in Isa::present() {
        let mut with_experts = [0.0, 0.0];
        for (name, divergences) in &golden {
            let model = MappedModel::open(&data(&format!("{name}.gguf"))).unwrap();
            let mut sums = [0.0, 0.0];
            for (tensor_type, own) in divergences {
                let tensor_type = if tensor_type == "Q8_0" { TensorType::Q8_0 } else { TensorType::Q4_0 };
                let [exact, got] = [Large::Decoded, Large::Blocks].map(|large| {
                    let _ = std::fs::remove_file(&scratch);
                    quantised(&model, tensor_type, large).write(&scratch).unwrap();
                    logits(&scratch, isa, &tokens)
                });
                let all: f64 = exact.iter().zip(&got).map(|(exact, got)| divergence(exact, got)).sum();
                sums[0] += all / exact.len() as f64;
                sums[1] += own;
            }
            println!("{name}, {isa}: {:.2e} from exact, llama.cpp {:.2e}", sums[0], sums[1]);
            if model.facts.arch_u32_or("expert_count", 0).unwrap() > 0 {
                with_experts = [with_experts[0] + sums[0], with_experts[1] + sums[1]];
            } else if !is_as_near(sums) {
                failures.push(format!("{name}, {isa}: {:.2e} from exact, llama.cpp {:.2e}", sums[0], sums[1]));
            }
        }
        println!("experts, {isa}: {:.2e} from exact, llama.cpp {:.2e}", with_experts[0], with_experts[1]);
        if !is_as_near(with_experts) {
            failures.push(format!("experts, {isa}: {with_experts:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether the first divergence is no worse than 1.5 times the second; one that is no number is not.
fn is_as_near([got, of_llama_cpp]: [f64; 2]) -> bool {
    got <= 1.5 * of_llama_cpp + CHANCE
}

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(file)
}

fn quantised(model: &MappedModel, tensor_type: TensorType, large: Large) -> Writer {
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

/// Logits of all positions.
fn logits(path: &Path, isa: Isa, tokens: &[u32]) -> Vec<Vec<f32>> {
    let facts = ModelFacts::from_file(path).unwrap();
    let options = LoadOptions {
        isa: Some(isa),
        kv_types: KvTypes::both(KvType::F32),
        n_batch: tokens.len(),
        ..LoadOptions::all_cpu(&facts, 2, 256).unwrap()
    };
    let model =
        Model::load(path, &options, &mut |_| Flow::Continue).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    // Small vocabularies are fed what is left of the tokens.
    let tokens: Vec<u32> = tokens.iter().map(|token| token % model.n_vocab() as u32).collect();
    let mut session = Session::new(Arc::new(model)).unwrap();
    let mut rows = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        rows.push(logits.to_vec());
        Flow::Continue
    };
    session.teacher_forced(&tokens, &[], &mut keep).unwrap();
    rows
}

/// Kullback-Leibler divergence of the distribution of `got` from that of `exact`.
fn divergence(exact: &[f32], got: &[f32]) -> f64 {
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
