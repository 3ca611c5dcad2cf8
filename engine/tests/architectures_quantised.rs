//! Every architecture with quantised weights: as near to the same weights in f32 as llama.cpp is on the same file.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod quantised;

use std::path::Path;
use std::sync::Arc;

use quantised::{Large, data, divergence, golden, is_as_near, quantised, tokens};
use tandem_engine::Flow;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::{MappedModel, ModelFacts, TensorType};
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

/// A router that picks another expert for one token changes everything behind it, by chance here or there: in random models with experts
/// single files mean little, and all of them together are held to the bound. The others are held to it one by one.
#[test]
fn quantised_files_are_as_near_to_exact_as_llama_cpp() {
    let (tokens, golden) = (tokens(), golden());
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
