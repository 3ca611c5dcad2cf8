//! Every architecture against llama.cpp: tiny random models in f32 agree to rounding, whole, in uneven chunks and token by token,
//! on every instruction set.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests, which may")]

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

/// How near the engine comes to `logits.f32` and to `long.f32`, relative to the largest logit.
type Tolerances = [f32; 2];

/// Sums in another order.
const ROUNDING: Tolerances = [2e-5, 2e-5];
/// The gated delta rule carries rounding from token to token.
const RECURRENT: Tolerances = [5e-5, 5e-5];
/// llama.cpp takes GELU from a table in half precision; the long goldens are from a computation that does not.
const GELU: Tolerances = [5e-3, 2e-5];
/// Gates that are cut off near a quantile and streams rescaled to each other's size make more of rounding: instruction sets
/// and ways to cut the text are up to 2e-4 apart.
const SPARSE: Tolerances = [5e-3, 5e-4];

/// Files of `data/arch`, and how near the engine comes.
const FIXTURES: &[(&str, Tolerances)] = &[
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
    ("gemma3n", SPARSE),
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

/// Files with parts that real files of an architecture have and the first ones lack; what each is for stands with its maker,
/// `tests/goldens/make_arch_goldens.py`.
const VARIANTS: &[(&str, Tolerances)] = &[
    ("llama-biases", ROUNDING),
    ("llama-linear", ROUNDING),
    ("llama-old-experts", ROUNDING),
    ("mistral3-experts", ROUNDING),
    ("qwen2-fused", ROUNDING),
    ("qwen3-tied", ROUNDING),
    ("gemma3-small", GELU),
    ("gemma3n-shared", SPARSE),
    ("deepseek2-lite", ROUNDING),
    ("deepseek2-groups", ROUNDING),
    ("glm4moe-nextn", ROUNDING),
    ("phi3-short", ROUNDING),
    ("olmo2-plain", ROUNDING),
    ("qwen35-heads", RECURRENT),
    ("lfm2-window", ROUNDING),
    ("granitehybrid-rope", ROUNDING),
    ("nemotron_h_moe-latent", ROUNDING),
    ("phi3-untyped", ROUNDING),
    ("mistral3-multiplier", ROUNDING),
    ("granite-still", ROUNDING),
    ("gpt-oss-pattern", ROUNDING),
    ("qwen3moe-lists", ROUNDING),
];

/// What `FIXTURES` were fed first.
const TOKENS: [u32; 18] = [3, 17, 5, 22, 40, 9, 31, 2, 17, 17, 8, 45, 6, 30, 11, 27, 1, 19];

/// Which of a file's goldens.
#[derive(Clone, Copy, PartialEq)]
enum Golden {
    /// `logits.f32`, for `TOKENS`.
    Short,
    /// `long.f32`, for `tokens.json`.
    Long,
}

/// What llama.cpp was given; some models choose their ropes by it.
const CONTEXT_LENGTH: usize = 256;

/// The table of families is made here: `TANDEM_BLESS=1 cargo test -p tandem-engine --test architectures`.
#[test]
fn the_table_of_families_is_up_to_date() {
    const HEAD: &str = "| `general.architecture` | file in `engine/src/arch/` | lines |\n|---|---|---|\n";
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut table = HEAD.to_owned();
    for row in ARCHITECTURES {
        let source = std::fs::read_to_string(engine.join("src/arch").join(row.file)).unwrap();
        assert!(source.contains(&format!("`{}`", row.name)), "the first lines of {} name `{}`", row.file, row.name);
        table += &format!("| `{}` | `{}` | {} |\n", row.name, row.file, source.lines().count());
    }
    let path = engine.join("../ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find(HEAD).expect("the page has the table");
    let end = page[start..].find("\n\n").expect("text follows the table") + start + 1;
    if page[start..end] == table {
        return;
    }
    if std::env::var_os("TANDEM_BLESS").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &page[..start], &page[end..])).unwrap();
        return;
    }
    panic!("the table is stale; run this test with TANDEM_BLESS=1");
}

#[test]
fn every_architecture_has_a_fixture() {
    let architecture = |(name, _): &(&str, Tolerances)| {
        ModelFacts::from_file(&fixture(name, "gguf")).unwrap().architecture().unwrap().to_owned()
    };
    let covered: BTreeSet<String> = FIXTURES.iter().map(architecture).collect();
    let registered: BTreeSet<String> = ARCHITECTURES.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(covered, registered);
}

#[test]
fn fixtures_agree_with_llama_cpp() {
    let chunks = |_: &Path| vec![vec![], vec![7, 3, 11], vec![1]];
    assert_agreement(FIXTURES, Golden::Short, &TOKENS, chunks);
}

/// Sliding windows are crossed many times over.
#[test]
fn long_texts_agree_with_llama_cpp() {
    let tokens: Vec<u32> = serde_json::from_str(&std::fs::read_to_string(fixture("tokens", "json")).unwrap()).unwrap();
    let chunks = |path: &Path| {
        let facts = ModelFacts::from_file(path).unwrap();
        let window = facts.arch_u32_or("attention.sliding_window", 0).unwrap() as usize;
        assert!(window < tokens.len() / 2, "{path:?}");
        let mut chunks = vec![vec![], vec![7, 3, 11, 30], vec![1]];
        chunks.extend((window > 0).then(|| vec![window]));
        chunks
    };
    assert_agreement(FIXTURES, Golden::Long, &tokens, chunks);
    assert_agreement(VARIANTS, Golden::Long, &tokens, chunks);
}

/// Checks files against their goldens on every instruction set.
///
/// chunks   for a file, the ways in which its text is cut
fn assert_agreement(
    fixtures: &[(&str, Tolerances)],
    golden: Golden,
    tokens: &[u32],
    chunks: impl Fn(&Path) -> Vec<Vec<usize>>,
) {
    let mut failures = Vec::new();
    let ending = if golden == Golden::Short { "logits.f32" } else { "long.f32" };
    for (name, tolerances) in fixtures {
        let tolerance = tolerances[golden as usize];
        let bytes = std::fs::read(fixture(name, ending)).unwrap();
        let expected: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
        let path = fixture(name, "gguf");
        for isa in isas() {
            for chunks in chunks(&path) {
                let got = logits(&path, isa, tokens, &chunks);
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

/// Those of this CPU, or the one that `TANDEM_ISA` names: emulators have no time for all.
fn isas() -> Vec<Isa> {
    std::env::var("TANDEM_ISA").map_or_else(|_| Isa::present(), |name| vec![name.parse().unwrap()])
}

fn fixture(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(format!("{name}.{ending}"))
}

/// Logits of all positions, one after the other.
fn logits(path: &Path, isa: Isa, tokens: &[u32], chunks: &[usize]) -> Vec<f32> {
    let facts = ModelFacts::from_file(path).unwrap();
    let options = LoadOptions {
        isa: Some(isa),
        kv_types: KvTypes::both(KvType::F32),
        n_batch: tokens.len(),
        ..LoadOptions::all_cpu(&facts, 2, CONTEXT_LENGTH).unwrap()
    };
    let model =
        Model::load(path, &options, &mut |_| Flow::Continue).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    // Small vocabularies are fed what is left of the tokens.
    let tokens: Vec<u32> = tokens.iter().map(|token| token % model.n_vocab() as u32).collect();
    let mut session = Session::new(Arc::new(model)).unwrap();
    let mut all = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Flow::Continue
    };
    session.teacher_forced(&tokens, chunks, &mut keep).unwrap();
    all
}
