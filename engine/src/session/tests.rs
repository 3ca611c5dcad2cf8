//! Sessions over models of every kind of memory: what goes back how far, and that the logits are always those of a cold
//! run. The models are of this file's own making: small, without weights, and the same whatever the chunks, so that logits
//! are compared bit for bit.

use proptest::prelude::*;

use super::*;
use crate::arch::Architecture;
use crate::arch::blocks::{Embedding, Head, Rope, Sizes, Step};
use crate::cpu::KvSlice;
use crate::gguf::{Array, MappedModel, Writer};
use crate::kv::{CacheShape, KvCache, KvShape, KvType, KvTypes, Values};
use crate::model::{LoadOptions, Preload};
use crate::place::Placement;

/// Width of the residual stream, of keys and of values.
const WIDTH: usize = 4;
const N_VOCAB: usize = 40;
/// The token that ends a turn.
const END: u32 = 39;

/// A file with nothing but a vocabulary.
fn vocabulary() -> MappedModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocabulary.gguf");
    let tokens = (0..N_VOCAB).map(|id| format!("token {id}"));
    let writer = Writer::new("toy").meta("tokenizer.ggml.model", "gpt2").meta("tokenizer.ggml.pre", "gpt-2");
    let writer = writer.meta("tokenizer.ggml.tokens", Array::from_strings(tokens));
    let writer = writer.meta("tokenizer.ggml.merges", Array::from_strings([""; 0]));
    writer.meta("tokenizer.ggml.eos_token_id", END).write(&path).unwrap();
    MappedModel::open(&path).unwrap()
}

/// Layers by what they keep, and the sliding window in tokens.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Full,
    Window(usize),
    Recurrent,
    /// Reads the keys and values of another layer.
    Shares(usize),
}

#[derive(Debug)]
struct Toy(Vec<Kind>);

/// Looks random, and is between -1 and 1.
fn noise(a: usize, b: usize) -> f32 {
    ((a * 31 + b * 17 + 5) as f32 * 12.9898).sin()
}

impl Architecture for Toy {
    fn sizes(&self) -> Sizes {
        Sizes { n_embd: WIDTH, n_vocab: N_VOCAB, ..Sizes::default() }
    }

    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn embedding(&self) -> &Embedding {
        unreachable!("it embeds by itself")
    }

    fn output(&self) -> &Head {
        unreachable!("it has a head of its own")
    }

    fn ropes(&self) -> &[Rope] {
        &[]
    }

    fn cache_shape(&self, layer: usize) -> CacheShape {
        let attention = |window| {
            let values = Values::Own { dim: WIDTH };
            CacheShape::Attention(KvShape { n_kv_heads: 1, key_dim: WIDTH, values, window })
        };
        match self.0[layer] {
            Kind::Full => attention(None),
            Kind::Window(window) => attention(Some(window)),
            Kind::Recurrent => CacheShape::Recurrent { n_elems: WIDTH },
            Kind::Shares(_) => CacheShape::Nothing,
        }
    }

    fn embed(&self, step: &mut Step<'_>) {
        step.buffers.x.reshape(step.tokens.len(), WIDTH);
        for (x, &token) in step.buffers.x.elems_mut().chunks_exact_mut(WIDTH).zip(step.tokens) {
            (0..WIDTH).for_each(|i| x[i] = noise(token as usize, i));
        }
    }

    fn mix(&self, layer: usize, step: &mut Step<'_>) {
        let first_pos = step.first_pos;
        let x = step.buffers.x.elems_mut();
        if let Kind::Recurrent = self.0[layer] {
            let state = step.cache.layer(layer).state().elems_mut();
            for x in x.chunks_exact_mut(WIDTH) {
                for i in 0..WIDTH {
                    state[i] = 0.9 * state[i] + x[(i + 1) % WIDTH];
                    x[i] += state[i].tanh();
                }
            }
            return;
        }
        let owner = if let Kind::Shares(owner) = self.0[layer] { owner } else { layer };
        if owner == layer {
            step.cache.layer(layer).keys_values_mut().store(first_pos, x, Some(x));
        }
        let kv = step.cache.layer(owner).keys_values();
        let n_positions = first_pos + x.len() / WIDTH;
        for (i, x) in x.chunks_exact_mut(WIDTH).enumerate() {
            mean_of_seen(kv, n_positions, first_pos + i).into_iter().zip(x).for_each(|(mean, x)| *x += mean);
        }
    }

    fn ffn(&self, _layer: usize, step: &mut Step<'_>) {
        step.buffers.x.elems_mut().iter_mut().for_each(|x| *x = (1.3 * *x).sin());
    }

    fn head(&self, rows: Range<usize>, step: &mut Step<'_>) {
        let Buffers { x, logits, .. } = &mut *step.buffers;
        logits.reshape(rows.len(), N_VOCAB);
        let x = x.elems()[rows.start * WIDTH..rows.end * WIDTH].chunks_exact(WIDTH);
        for (x, logits) in x.zip(logits.elems_mut().chunks_exact_mut(N_VOCAB)) {
            let dot = |token| x.iter().enumerate().map(|(i, x)| x * noise(token, i)).sum();
            logits.iter_mut().enumerate().for_each(|(token, logit)| *logit = dot(token));
        }
    }
}

/// Mean of the values that a position sees, those nearer weighing more.
fn mean_of_seen(kv: &KvCache, n_positions: usize, pos: usize) -> [f32; WIDTH] {
    let (KvSlice::F32(keys), Some(KvSlice::F32(values))) = (kv.keys(n_positions), kv.values(n_positions)) else {
        panic!("stored as f32");
    };
    assert_eq!(keys, values);
    let first = kv.shape().window.map_or(0, |window| (pos + 1).saturating_sub(window));
    let mut mean = [0.0; WIDTH];
    for p in first..=pos {
        let value = &values[p % (values.len() / WIDTH) * WIDTH..][..WIDTH];
        mean.iter_mut().zip(value).for_each(|(mean, value)| *mean = 0.8 * *mean + value);
    }
    mean
}

fn options(n_layers: usize) -> LoadOptions {
    LoadOptions {
        placement: Placement::all_cpu(n_layers),
        budgets: Vec::new(),
        n_threads: 1,
        isa: None,
        context_length: 2000,
        kv_types: KvTypes::both(KvType::F32),
        n_batch: 5,
        checkpoint_bytes: 1 << 20,
        preload: Preload::Nothing,
    }
}

fn session_with(kinds: &[Kind], change: impl FnOnce(&mut LoadOptions)) -> Session {
    let mut options = options(kinds.len());
    change(&mut options);
    Session::new(Arc::new(Model::of(Box::new(Toy(kinds.to_vec())), options, vocabulary()).unwrap())).unwrap()
}

fn session(kinds: &[Kind]) -> Session {
    session_with(kinds, |_| ())
}

fn go(_: PromptProgress) -> Flow {
    Flow::Continue
}

/// `n` tokens that end no turn.
fn some(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7 + seed * 13 + i * i) % END as usize) as u32).collect()
}

/// Whether keys and values of all positions are all that is kept.
fn goes_anywhere(kinds: &[Kind]) -> bool {
    kinds.iter().all(|kind| matches!(kind, Kind::Full | Kind::Shares(_)))
}

/// Feeds and compares with a session that has seen nothing before; says how many tokens were computed.
fn fed(session: &mut Session, kinds: &[Kind], tokens: &[u32]) -> usize {
    let Fed { n_reused, n_new } = session.feed(tokens, &mut go).unwrap();
    assert_eq!(n_reused + n_new, tokens.len());
    let mut cold = self::session(kinds);
    cold.feed(tokens, &mut go).unwrap();
    assert_eq!(session.logits(), cold.logits(), "{kinds:?}, {} tokens, {n_reused} reused", tokens.len());
    n_new
}

/// Generates `n` tokens and says the whole sequence.
fn answered(session: &mut Session, tokens: &[u32], n: usize) -> Vec<u32> {
    let mut tokens = tokens.to_vec();
    for i in 0..n {
        tokens.push(i as u32 % END);
        assert_eq!(session.feed(&tokens, &mut go).unwrap().n_new, 1, "a generated token is one step");
    }
    tokens
}

const WINDOW: Kind = Kind::Window(20);

/// One model of each kind of memory; all of them together last.
const MODELS: [&[Kind]; 5] = [
    &[Kind::Full, Kind::Shares(0)],
    &[WINDOW, WINDOW],
    &[Kind::Recurrent],
    &[Kind::Window(3), Kind::Full, Kind::Window(40)],
    &[Kind::Recurrent, Kind::Full, WINDOW, Kind::Recurrent, Kind::Shares(2)],
];

#[test]
fn turns_edits_regenerations_and_branches_compute_only_what_is_new() {
    for kinds in MODELS {
        let mut session = session_with(kinds, |options| options.n_batch = 64);
        let first = some(100, 1);
        assert_eq!(fed(&mut session, kinds, &first), 100);
        let first_answered = answered(&mut session, &first, 60);

        // The next turn: nothing but its own tokens.
        let second = [&first_answered[..], &some(30, 2)].concat();
        assert_eq!(fed(&mut session, kinds, &second), 30);
        answered(&mut session, &second, 80);

        // The answer once more: the last token of the prompt.
        assert_eq!(fed(&mut session, kinds, &second), 1);
        let second_answered = answered(&mut session, &second, 80);

        // The last message again, from its tenth token on: states and rings go back to the turn's beginning.
        let edited = [&second[..170], &some(25, 3)].concat();
        assert_eq!(fed(&mut session, kinds, &edited), if goes_anywhere(kinds) { 25 } else { 35 });
        answered(&mut session, &edited, 10);

        // The first answer again: everything after the prompt's last token is forgotten.
        assert_eq!(fed(&mut session, kinds, &first), 1);

        // Another second message behind the same first prompt: from the last token of the prompt on.
        let branched = [&first[..], &some(40, 4)].concat();
        assert_eq!(fed(&mut session, kinds, &branched), 40);

        // The branch before is not held any more, but what it has in common with this one is.
        assert_eq!(fed(&mut session, kinds, &second_answered), second_answered.len() - 100);
    }
}

#[test]
fn a_chat_that_is_read_back_can_be_edited_at_any_turn() {
    for kinds in MODELS {
        let mut session = session_with(kinds, |options| options.n_batch = 64);
        // Six turns of 150 tokens, each with an end.
        let chat: Vec<u32> = (0..6).flat_map(|turn| [some(149, turn), vec![END]].concat()).collect();
        assert_eq!(fed(&mut session, kinds, &chat), 900);
        for turn in (1..6).rev() {
            let (n, header) = (150 * turn, 4);
            let edited = [&chat[..n + header], &some(50, turn + 20)].concat();
            let n_new = if goes_anywhere(kinds) { 50 } else { header + 50 };
            assert_eq!(fed(&mut session, kinds, &edited), n_new, "{kinds:?}, turn {turn}");
        }
    }
}

#[test]
fn an_answer_that_comes_back_a_little_different_is_not_computed_from_its_beginning() {
    for kinds in MODELS.into_iter().filter(|kinds| kinds.iter().any(|kind| matches!(kind, Kind::Recurrent))) {
        let mut session = session_with(kinds, |options| options.n_batch = 64);
        let prompt = some(100, 1);
        fed(&mut session, kinds, &prompt);
        let answered = answered(&mut session, &prompt, 700);
        // Checkpoints are at 99, and from there on every 256 tokens.
        let next = [&answered[..750], &some(60, 2)].concat();
        assert_eq!(fed(&mut session, kinds, &next), 810 - (99 + 2 * 256));
    }
}

#[test]
fn a_window_goes_back_within_its_ring_without_a_checkpoint() {
    let kinds = &[WINDOW];
    let mut session = session_with(kinds, |options| options.checkpoint_bytes = 0);
    let tokens = some(200, 1);
    fed(&mut session, kinds, &tokens);
    // The ring has 32 rows, of which a position sees 20: it goes back 13.
    assert_eq!(fed(&mut session, kinds, &[&tokens[..187], &[9]].concat()), 1);
    let tokens = [&tokens[..187], &some(13, 2)].concat();
    fed(&mut session, kinds, &tokens);
    assert_eq!(fed(&mut session, kinds, &[&tokens[..186], &[9]].concat()), 187);
}

#[test]
fn without_room_for_checkpoints_states_start_anew() {
    let kinds = &[Kind::Recurrent, Kind::Full];
    let mut session = session_with(kinds, |options| options.checkpoint_bytes = 0);
    let tokens = answered(&mut session, &[], 50);
    assert_eq!(fed(&mut session, kinds, &[&tokens[..], &some(10, 1)].concat()), 10);
    assert_eq!(fed(&mut session, kinds, &tokens[..49]), 49);
}

#[test]
fn a_stopped_prompt_keeps_its_whole_chunks_in_every_kind_of_memory() {
    for kinds in MODELS {
        let n_halves = 2 * kinds.len();
        for stop_at in 0..4 * n_halves {
            let mut session = session(kinds);
            let before = some(60, 1);
            session.feed(&before, &mut go).unwrap();
            let tokens = [&before[..], &some(18, 2)].concat();
            let mut n_checks = 0;
            let result = session.feed(&tokens, &mut |_| {
                n_checks += 1;
                if n_checks > stop_at { Flow::Break } else { Flow::Continue }
            });
            assert!(matches!(result, Err(EngineError::Cancelled)));
            assert_eq!(n_checks, stop_at + 1, "no check follows the one that stopped");
            // Chunks of 5, 5, 5 and 3, or of 5, 5, 5, 2 and 1.
            let n_held = 60 + stop_at / n_halves * 5;
            assert_eq!(session.tokens(), &tokens[..n_held], "{kinds:?}, stopped at {stop_at}");
            assert_eq!(fed(&mut session, kinds, &tokens), tokens.len() - n_held);
        }
    }
}

#[test]
fn a_generated_token_is_finished_before_a_stop_where_half_of_it_could_not_be_undone() {
    for kinds in MODELS {
        let has_states = kinds.iter().any(|kind| matches!(kind, Kind::Recurrent));
        for stop_at in 0..2 * kinds.len() {
            let mut session = session(kinds);
            fed(&mut session, kinds, &some(30, 1));
            let tokens = answered(&mut session, &some(30, 1), 50);
            let longer = [&tokens[..], &[7]].concat();
            let mut n_checks = 0;
            let result = session.feed(&longer, &mut |_| {
                n_checks += 1;
                if n_checks > stop_at { Flow::Break } else { Flow::Continue }
            });
            assert!(matches!(result, Err(EngineError::Cancelled)) && session.logits().is_empty());
            assert_eq!(n_checks, stop_at + 1);
            let is_finished = has_states && stop_at > 0;
            assert_eq!(session.tokens(), if is_finished { &longer } else { &tokens });
            assert_eq!(fed(&mut session, kinds, &[&longer[..], &[8]].concat()), 2 - usize::from(is_finished));
        }
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
        (1usize..60, 0usize..9).prop_map(|(n, seed)| Edit::Append(n, seed)),
        (1usize..40).prop_map(Edit::Generate),
        (0usize..400).prop_map(Edit::Truncate),
        (0usize..400, 0..N_VOCAB as u32).prop_map(|(at, token)| Edit::Replace(at, token)),
        (0usize..64, 0usize..20).prop_map(|(at, n)| Edit::Branch(at, n)),
        (0usize..60, 1usize..30).prop_map(|(at, n)| Edit::Cancel(at, n)),
    ];
    proptest::collection::vec(edit, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_edits_gives_the_logits_of_a_cold_run(
        edits in edits(),
        model in 0..MODELS.len(),
        n_batch in 1usize..40,
        checkpoint_bytes in prop_oneof![Just(0u64), 0u64..4000, Just(1 << 20)],
    ) {
        let kinds = MODELS[model];
        let mut session = session_with(kinds, |options| {
            (options.n_batch, options.checkpoint_bytes) = (n_batch, checkpoint_bytes);
        });
        let mut tokens: Vec<u32> = vec![1, 2, 3];
        let mut past: Vec<Vec<u32>> = vec![tokens.clone()];
        for edit in edits {
            match edit {
                Edit::Append(n, seed) => {
                    tokens.extend(some(n, seed));
                    tokens.push(END);
                }
                Edit::Generate(n) => {
                    session.feed(&tokens, &mut go).unwrap();
                    tokens = answered(&mut session, &tokens, n);
                }
                Edit::Truncate(n) => tokens.truncate(n.clamp(1, tokens.len())),
                Edit::Replace(at, token) => {
                    let at = at % tokens.len();
                    tokens[at] = token;
                }
                Edit::Branch(at, n) => tokens = [&past[at % past.len()][..], &some(n, at)].concat(),
                Edit::Cancel(at, n) => {
                    let longer = [&tokens[..], &some(n, at)].concat();
                    let mut n_checks = 0;
                    let result = session.feed(&longer, &mut |_| {
                        n_checks += 1;
                        if n_checks > at { Flow::Break } else { Flow::Continue }
                    });
                    prop_assert!(matches!(result, Ok(_) | Err(EngineError::Cancelled)));
                    prop_assert!(longer.starts_with(session.tokens()));
                }
            }
            fed(&mut session, kinds, &tokens);
            past.push(tokens.clone());
        }
    }
}
