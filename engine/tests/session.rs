//! Sessions: whatever was fed before, the logits are those of a cold run; what can be reused is; work can be stopped.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::sync::Arc;

use proptest::prelude::*;
use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::{Fed, PromptProgress, Session};
use tiny::TINY;

/// Different chunks add up the same numbers in the same order, so only kernels for one and for many columns may differ.
const TOLERANCE: f32 = 2e-5;

fn session_with(options: &LoadOptions) -> Session {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TINY.write(&path);
    let model = Model::load(&path, options, &mut |_| Flow::Continue).unwrap();
    Session::new(Arc::new(model)).unwrap()
}

fn session() -> Session {
    session_with(&TINY.options())
}

fn go(_: PromptProgress) -> Flow {
    Flow::Continue
}

/// Logits after `tokens` in a session that has seen nothing before.
fn cold(tokens: &[u32]) -> Vec<f32> {
    let mut session = session();
    session.feed(tokens, &mut go).unwrap();
    session.logits().to_vec()
}

fn assert_close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= TOLERANCE * largest, "logit {i} is {a}, expected {b}");
    }
}

#[test]
fn a_longer_prompt_computes_only_what_is_new() {
    let mut session = session();
    let tokens: Vec<u32> = (0..20).collect();
    assert_eq!(session.feed(&tokens[..12], &mut go).unwrap(), Fed { n_reused: 0, n_new: 12 });
    assert_eq!(session.feed(&tokens, &mut go).unwrap(), Fed { n_reused: 12, n_new: 8 });
    assert_close(session.logits(), &cold(&tokens));
    assert_eq!(session.tokens(), tokens);
}

#[test]
fn the_same_prompt_computes_nothing_and_a_shorter_one_its_last_token() {
    let mut session = session();
    let tokens: Vec<u32> = (0..20).collect();
    session.feed(&tokens, &mut go).unwrap();
    let logits = session.logits().to_vec();
    assert_eq!(session.feed(&tokens, &mut go).unwrap(), Fed { n_reused: 20, n_new: 0 });
    assert_eq!(session.logits(), logits);
    assert_eq!(session.feed(&tokens[..7], &mut go).unwrap(), Fed { n_reused: 6, n_new: 1 });
    assert_close(session.logits(), &cold(&tokens[..7]));
}

#[derive(Clone, Debug)]
enum Edit {
    Append(Vec<u32>),
    Truncate(usize),
    Replace(usize, u32),
    /// Goes on from a prompt fed earlier.
    Branch(usize, Vec<u32>),
    /// Feeds, but stops at a check.
    Cancel(usize, Vec<u32>),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let token = 0..TINY.n_vocab;
    let some = proptest::collection::vec(token.clone(), 1..14);
    let edit = prop_oneof![
        some.clone().prop_map(Edit::Append),
        (0usize..64).prop_map(Edit::Truncate),
        (0usize..64, token).prop_map(|(at, token)| Edit::Replace(at, token)),
        (0usize..64, some.clone()).prop_map(|(at, tokens)| Edit::Branch(at, tokens)),
        (0usize..12, some).prop_map(|(at, tokens)| Edit::Cancel(at, tokens)),
    ];
    proptest::collection::vec(edit, 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_edits_gives_the_logits_of_a_cold_run(edits in edits()) {
        let mut session = session();
        let mut tokens: Vec<u32> = vec![1, 2, 3];
        let mut past: Vec<Vec<u32>> = vec![tokens.clone()];
        for edit in edits {
            match edit {
                Edit::Append(more) => tokens.extend(more),
                Edit::Truncate(n) => tokens.truncate(n.clamp(1, tokens.len())),
                Edit::Replace(at, token) => {
                    let at = at % tokens.len();
                    tokens[at] = token;
                }
                Edit::Branch(at, more) => {
                    tokens = past[at % past.len()].clone();
                    tokens.extend(more);
                }
                Edit::Cancel(at, more) => {
                    let mut longer = tokens.clone();
                    longer.extend(more);
                    longer.truncate(64);
                    let mut n_checks = 0;
                    let result = session.feed(&longer, &mut |_| {
                        n_checks += 1;
                        if n_checks > at { Flow::Break } else { Flow::Continue }
                    });
                    prop_assert!(matches!(result, Ok(_) | Err(EngineError::Cancelled)));
                    prop_assert!(longer.starts_with(session.tokens()));
                }
            }
            tokens.truncate(64);
            session.feed(&tokens, &mut go).unwrap();
            assert_close(session.logits(), &cold(&tokens));
            past.push(tokens.clone());
        }
    }
}

#[test]
fn chunks_of_any_length_give_the_same_rows() {
    let tokens: Vec<u32> = (0..33).map(|i| i * 7 % 40).collect();
    let rows = |chunks: &[usize]| {
        let mut rows = Vec::new();
        let mut session = session_with(&LoadOptions { n_batch: 64, ..TINY.options() });
        let mut sink = |pos: usize, logits: &[f32]| {
            assert_eq!(pos, rows.len());
            rows.push(logits.to_vec());
            Flow::Continue
        };
        session.teacher_forced(&tokens, chunks, &mut sink).unwrap();
        rows
    };
    let whole = rows(&[]);
    assert_eq!(whole.len(), tokens.len());
    assert_close(&whole[9], &cold(&tokens[..10]));
    for chunks in [&[1][..], &[7, 3, 11], &[0, 2], &[1000]] {
        for (got, expected) in rows(chunks).iter().zip(&whole) {
            assert_close(got, expected);
        }
    }
}

#[test]
fn a_stop_is_asked_for_before_every_half_of_a_layer() {
    let mut session = session();
    let mut seen = Vec::new();
    let tokens: Vec<u32> = (0..12).collect();
    let mut note = |progress: PromptProgress| {
        seen.push(progress.n_done);
        Flow::Continue
    };
    session.feed(&tokens, &mut note).unwrap();
    // Chunks of 5, 5 and 2 tokens through 2 layers of 2 halves.
    assert_eq!(seen, [0, 1, 2, 3, 5, 6, 7, 8, 10, 10, 11, 11]);
}

#[test]
fn no_check_follows_the_one_that_stopped_and_whole_chunks_are_kept() {
    for stop_at in 0..12 {
        let mut session = session();
        let tokens: Vec<u32> = (0..12).collect();
        let mut n_checks = 0;
        let result = session.feed(&tokens, &mut |_| {
            n_checks += 1;
            if n_checks > stop_at { Flow::Break } else { Flow::Continue }
        });
        assert!(matches!(result, Err(EngineError::Cancelled)));
        assert_eq!(n_checks, stop_at + 1);
        assert_eq!(session.tokens(), &tokens[..stop_at / 4 * 5]);
        assert!(session.logits().is_empty());
        assert_eq!(session.feed(&tokens, &mut go).unwrap().n_reused, stop_at / 4 * 5);
        assert_close(session.logits(), &cold(&tokens));
    }
}

#[test]
fn what_does_not_fit_is_said_and_nothing_is_lost() {
    let mut session = session();
    let tokens = [1; 64];
    session.feed(&tokens, &mut go).unwrap();
    let error = session.feed(&[1; 70], &mut go).unwrap_err();
    assert!(matches!(error, EngineError::ContextOverflow { n_tokens: 70, context_length: 64, n_over: 6 }));
    assert_eq!(error.to_string(), "70 tokens do not fit into a context of 64: 6 too many");
    assert_eq!(session.feed(&tokens, &mut go).unwrap().n_new, 0);
}

#[test]
fn tokens_outside_the_vocabulary_and_none_at_all_are_refused() {
    let mut session = session();
    let error = session.feed(&[3, 40], &mut go).unwrap_err();
    assert!(matches!(error, EngineError::TokenUnknown { token: 40, n_vocab: 40 }));
    assert!(matches!(session.feed(&[], &mut go), Err(EngineError::NoTokens)));
}
