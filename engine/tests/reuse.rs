//! What a session computes again, on real architectures of every kind of memory: keys and values of all positions, of a
//! sliding window, latent ones, recurrent states, and mixtures. Whatever was fed before, the logits are those of a cold run.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::{PromptProgress, Session};

/// How a model goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// To any position.
    Anywhere,
    /// To checkpoints only, from far away.
    Checkpoints,
}

/// Files of `data/arch`; windows are of 5 or 6 tokens.
const MODELS: [(&str, Back); 11] = [
    ("llama", Back::Anywhere),
    ("deepseek2", Back::Anywhere),
    ("gemma2", Back::Checkpoints),
    ("gemma3", Back::Checkpoints),
    ("gemma4-e", Back::Checkpoints),
    ("gpt-oss", Back::Checkpoints),
    ("lfm2", Back::Checkpoints),
    ("qwen35", Back::Checkpoints),
    ("qwen3next", Back::Checkpoints),
    ("granitehybrid", Back::Checkpoints),
    ("nemotron_h", Back::Checkpoints),
];

/// Other chunks and kernels for one or for many columns add up in another order, and states carry it on.
const TOLERANCE: f32 = 5e-5;
const CONTEXT_LENGTH: usize = 256;
const N_BATCH: usize = 16;
const N_VOCAB: usize = 48;

static LOADED: LazyLock<BTreeMap<&str, Arc<Model>>> =
    LazyLock::new(|| MODELS.iter().map(|&(name, _)| (name, Arc::new(load(name)))).collect());

fn load(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/arch/{name}.gguf"));
    let facts = ModelFacts::from_file(&path).unwrap();
    let options = LoadOptions {
        kv_types: KvTypes::both(KvType::F32),
        n_batch: N_BATCH,
        ..LoadOptions::all_cpu(&facts, 1, CONTEXT_LENGTH).unwrap()
    };
    Model::load(&path, &options, &mut |_| Flow::Continue).unwrap()
}

fn session(name: &str) -> Session {
    Session::new(Arc::clone(&LOADED[name])).unwrap()
}

fn go(_: PromptProgress) -> Flow {
    Flow::Continue
}

fn some(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7 + seed * 13 + i * i) % N_VOCAB) as u32).collect()
}

/// Feeds and compares with a session that has seen nothing before; says how many tokens were computed.
fn fed(session: &mut Session, name: &str, tokens: &[u32]) -> usize {
    let fed = session.feed(tokens, &mut go).unwrap();
    assert_eq!(fed.n_reused + fed.n_new, tokens.len());
    let mut cold = self::session(name);
    cold.feed(tokens, &mut go).unwrap();
    let largest = cold.logits().iter().fold(0f32, |max, x| max.max(x.abs()));
    for (i, (got, expected)) in session.logits().iter().zip(cold.logits()).enumerate() {
        let is_close = (got - expected).abs() <= TOLERANCE * largest;
        assert!(is_close, "{name}, {} tokens, {fed:?}: logit {i} is {got}, expected {expected}", tokens.len());
    }
    fed.n_new
}

/// Generates `n` tokens and says the whole sequence.
fn answered(session: &mut Session, tokens: &[u32], n: usize) -> Vec<u32> {
    let mut tokens = tokens.to_vec();
    for i in 0..n {
        tokens.push((i * 5 % N_VOCAB) as u32);
        assert_eq!(session.feed(&tokens, &mut go).unwrap().n_new, 1, "a generated token is one step");
    }
    tokens
}

#[test]
fn turns_edits_regenerations_and_branches_compute_only_what_is_new() {
    for (name, back) in MODELS {
        let mut session = session(name);
        let first = some(60, 1);
        assert_eq!(fed(&mut session, name, &first), 60, "{name}: the first turn");
        let first_answered = answered(&mut session, &first, 40);

        let second = [&first_answered[..], &some(12, 2)].concat();
        assert_eq!(fed(&mut session, name, &second), 12, "{name}: the second turn");
        answered(&mut session, &second, 50);

        assert_eq!(fed(&mut session, name, &second), 1, "{name}: the answer once more");
        answered(&mut session, &second, 50);

        // The first five tokens of the message stay; states and windows begin with the turn.
        let edited = [&second[..105], &some(10, 3)].concat();
        let n_new = if back == Back::Anywhere { 10 } else { 15 };
        assert_eq!(fed(&mut session, name, &edited), n_new, "{name}: an edit of the last message");
        let edited_answered = answered(&mut session, &edited, 50);

        let third = [&edited_answered[..], &some(9, 4)].concat();
        assert_eq!(fed(&mut session, name, &third), 9, "{name}: the third turn");

        let branched = [&first_answered[..], &some(14, 5)].concat();
        assert_eq!(fed(&mut session, name, &branched), 14, "{name}: another second message");

        assert_eq!(fed(&mut session, name, &first), 1, "{name}: the first answer once more");
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Append(usize, usize),
    Generate(usize),
    Truncate(usize),
    Replace(usize, u32),
    /// Goes on from a prompt fed earlier, or asks for its answer again.
    Branch(usize, usize),
    /// Feeds, but stops at a check.
    Cancel(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (1usize..40, 0usize..9).prop_map(|(n, seed)| Edit::Append(n, seed)),
        (1usize..40).prop_map(Edit::Generate),
        (0usize..200).prop_map(Edit::Truncate),
        (0usize..200, 0..N_VOCAB as u32).prop_map(|(at, token)| Edit::Replace(at, token)),
        (0usize..64, 0usize..20).prop_map(|(at, n)| Edit::Branch(at, n)),
        (0usize..60, 1usize..30).prop_map(|(at, n)| Edit::Cancel(at, n)),
    ];
    proptest::collection::vec(edit, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 66, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_edits_gives_the_logits_of_a_cold_run(edits in edits(), model in 0..MODELS.len()) {
        let (name, _) = MODELS[model];
        let mut session = session(name);
        let mut tokens: Vec<u32> = vec![1, 2, 3];
        let mut past: Vec<Vec<u32>> = vec![tokens.clone()];
        for edit in edits {
            match edit {
                Edit::Append(n, seed) => tokens.extend(some(n, seed)),
                Edit::Generate(n) => {
                    session.feed(&tokens, &mut go).unwrap();
                    tokens = answered(&mut session, &tokens, n.min(CONTEXT_LENGTH - tokens.len()));
                }
                Edit::Truncate(n) => tokens.truncate(n.clamp(1, tokens.len())),
                Edit::Replace(at, token) => {
                    let at = at % tokens.len();
                    tokens[at] = token;
                }
                Edit::Branch(at, n) => tokens = [&past[at % past.len()][..], &some(n, at)].concat(),
                Edit::Cancel(at, n) => {
                    let mut longer = [&tokens[..], &some(n, at)].concat();
                    longer.truncate(CONTEXT_LENGTH);
                    let mut n_checks = 0;
                    let result = session.feed(&longer, &mut |_| {
                        n_checks += 1;
                        if n_checks > at { Flow::Break } else { Flow::Continue }
                    });
                    prop_assert!(matches!(result, Ok(_) | Err(EngineError::Cancelled)));
                    prop_assert!(longer.starts_with(session.tokens()));
                }
            }
            tokens.truncate(CONTEXT_LENGTH);
            fed(&mut session, name, &tokens);
            past.push(tokens.clone());
        }
    }
}
