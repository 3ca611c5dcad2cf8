//! Every architecture against llama.cpp: tiny random models in f32 agree to rounding, whole, in uneven chunks and token by token,
//! on every instruction set.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::arch::ARCHITECTURES;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

/// Sums in another order.
const ROUNDING: f32 = 2e-5;
/// The gated delta rule carries rounding from token to token.
const RECURRENT: f32 = 5e-5;
/// llama.cpp takes GELU from a table in half precision.
const GELU: f32 = 5e-3;

/// Files of `data/arch`, and how near the engine comes.
const FIXTURES: &[(&str, f32)] = &[
    ("llama", ROUNDING),
    ("llama-mixtral", ROUNDING),
    ("llama-rope3", ROUNDING),
    ("llama-yarn", ROUNDING),
    ("mistral3", ROUNDING),
    ("smollm3", ROUNDING),
    ("qwen2", ROUNDING),
    ("qwen2moe", ROUNDING),
    ("qwen3", ROUNDING),
    ("qwen3moe", ROUNDING),
    ("gemma2", GELU),
    ("gemma3", GELU),
    ("gemma3n", GELU),
    ("gemma4-dense", GELU),
    ("gemma4-e", GELU),
    ("gemma4-moe", GELU),
    ("gpt-oss", ROUNDING),
    ("deepseek2", ROUNDING),
    ("deepseek2-yarn", ROUNDING),
    ("glm4moe", ROUNDING),
    ("phi3", ROUNDING),
    ("granite", ROUNDING),
    ("granitemoe", ROUNDING),
    ("olmo", ROUNDING),
    ("olmo2", ROUNDING),
    ("olmoe", ROUNDING),
    ("qwen35", RECURRENT),
    ("qwen35moe", RECURRENT),
    ("qwen35moe-mtp", RECURRENT),
    ("qwen3next", RECURRENT),
    ("granitehybrid", ROUNDING),
    ("granitehybrid-moe", ROUNDING),
    ("lfm2", ROUNDING),
    ("lfm2moe", ROUNDING),
    ("nemotron_h", ROUNDING),
    ("nemotron_h_moe", ROUNDING),
];

/// What all of them were fed.
const TOKENS: [u32; 18] = [3, 17, 5, 22, 40, 9, 31, 2, 17, 17, 8, 45, 6, 30, 11, 27, 1, 19];

/// What llama.cpp was given; some models choose their ropes by it.
const CONTEXT_LENGTH: usize = 256;

#[test]
fn every_architecture_has_a_fixture() {
    let architecture = |(name, _): &(&str, f32)| {
        ModelFacts::from_file(&fixture(name, "gguf")).unwrap().architecture().unwrap().to_owned()
    };
    let covered: BTreeSet<String> = FIXTURES.iter().map(architecture).collect();
    let registered: BTreeSet<String> = ARCHITECTURES.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(covered, registered);
}

#[test]
fn fixtures_agree_with_llama_cpp() {
    let mut failures = Vec::new();
    for &(name, tolerance) in FIXTURES {
        let bytes = std::fs::read(fixture(name, "logits.f32")).unwrap();
        let expected: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
        for isa in Isa::present() {
            for chunks in [&[][..], &[7, 3, 11], &[1]] {
                let got = logits(&fixture(name, "gguf"), isa, chunks);
                assert_eq!(got.len(), expected.len(), "{name}");
                // `max` would pass over what is no number
                let difference = |(a, b): (&f32, &f32)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() };
                let worst = got.iter().zip(&expected).map(difference).fold(0f32, f32::max) / largest;
                println!("{name}, {isa}, chunks {chunks:?}: relative difference {worst:.1e}");
                if worst > tolerance {
                    failures.push(format!("{name}, {isa}, chunks {chunks:?}: relative difference {worst:.1e}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn fixture(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(format!("{name}.{ending}"))
}

/// Logits of all positions, one after the other.
fn logits(path: &Path, isa: Isa, chunks: &[usize]) -> Vec<f32> {
    let facts = ModelFacts::from_file(path).unwrap();
    let options = LoadOptions {
        isa: Some(isa),
        kv_types: KvTypes::both(KvType::F32),
        n_batch: TOKENS.len(),
        ..LoadOptions::all_cpu(&facts, 2, CONTEXT_LENGTH).unwrap()
    };
    let model =
        Model::load(path, &options, &mut |_| Flow::Continue).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut session = Session::new(Arc::new(model)).unwrap();
    let mut all = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Flow::Continue
    };
    session.teacher_forced(&TOKENS, chunks, &mut keep).unwrap();
    all
}
