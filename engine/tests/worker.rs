//! The worker: events in order, stopped from anywhere, alive after a panic, and everything given back.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{Array, ModelFacts, Writer};
use tandem_engine::model::LoadOptions;
use tandem_engine::sample::SamplerSettings;
use tandem_engine::worker::{AtEnd, EndReason, GenerateEvent, GenerateRequest, GenerateStats, LoadEvent, Worker};
use tiny::TINY;

struct Bench {
    worker: Worker,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TINY.write(&path);
    Bench { worker: Worker::spawn().unwrap(), path, _folder: folder }
}

fn request(n_prompt: u32, max_new_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        tokens: (0..n_prompt).map(|i| i % TINY.n_vocab).collect(),
        sampler: SamplerSettings::default(),
        max_new_tokens: Some(max_new_tokens),
        at_end: AtEnd::Stop,
    }
}

impl Bench {
    fn load(&self) -> Result<(), EngineError> {
        self.load_with(TINY.options())
    }

    fn load_with(&self, options: LoadOptions) -> Result<(), EngineError> {
        let (sender, events) = channel();
        let sink = move |event| sent(sender.send(event));
        self.worker.load(&self.path, options, Box::new(sink));
        for event in events {
            match event {
                LoadEvent::Progress(_) => {}
                LoadEvent::Ready(ready) => {
                    assert_eq!((ready.n_vocab, ready.context_length), (40, 64));
                    assert!(ready.tokenizer.is_none());
                    return Ok(());
                }
                LoadEvent::Failed(error) => return Err(error),
            }
        }
        panic!("the load ended without a word");
    }

    fn generate(&self, request: GenerateRequest) -> Receiver<GenerateEvent> {
        let (sender, events) = channel();
        self.worker.generate(request, Box::new(move |event| sent(sender.send(event))));
        events
    }
}

/// A closed receiver stops what feeds it.
fn sent<E>(result: Result<(), E>) -> Flow {
    if result.is_ok() { Flow::Continue } else { Flow::Break }
}

/// Tokens, and how it ended.
fn collect(
    events: impl IntoIterator<Item = GenerateEvent>,
) -> (Vec<u32>, Result<(EndReason, GenerateStats), EngineError>) {
    let mut tokens = Vec::new();
    for event in events {
        match event {
            GenerateEvent::Prompt(progress) => assert!(tokens.is_empty() && progress.n_done <= progress.n_total),
            GenerateEvent::Token { id, .. } => tokens.push(id),
            GenerateEvent::Done { reason, stats } => return (tokens, Ok((reason, stats))),
            GenerateEvent::Failed(error) => return (tokens, Err(error)),
        }
    }
    panic!("the generation ended without a word");
}

#[test]
fn what_a_model_spelled_in_its_own_way_is_not_read_again() {
    let bench = bench();
    let mut texts: Vec<String> = (0..TINY.n_vocab).map(|i| format!("<{i}>")).collect();
    for (id, text) in ["a", "b", "c", "ab", "bc", "abc"].into_iter().enumerate() {
        texts[id] = text.to_owned();
    }
    let writer = TINY
        .writer()
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", Array::from_strings(texts.iter().map(String::as_str)))
        .meta("tokenizer.ggml.merges", Array::from_strings(["a b", "b c", "ab c"]));
    writer.write(&bench.path).unwrap();
    let (sender, events) = channel();
    bench.worker.load(&bench.path, TINY.options(), Box::new(move |event| sent(sender.send(event))));
    assert!(matches!(events.iter().last(), Some(LoadEvent::Ready(_))));
    let ask = |tokens: &[u32]| {
        let request = GenerateRequest { tokens: tokens.to_vec(), ..request(1, 0) };
        collect(bench.generate(request)).1.unwrap().1
    };
    // "abcabc" in four tokens, and then as texts become, in two and one more
    ask(&[0, 4, 3, 2]);
    let stats = ask(&[5, 5, 1]);
    assert_eq!((stats.n_prompt, stats.n_reused), (5, 4));
}

#[test]
fn a_damaged_matrix_is_named_when_an_answer_has_no_numbers() {
    const NAME: &str = "blk.1.ffn_down.weight";
    const ELEM: usize = 70;
    let bench = bench();
    let facts = ModelFacts::from_file(&bench.path).unwrap();
    let at = facts.tensor(NAME).unwrap().offset_bytes as usize + ELEM * 4;
    let mut bytes = std::fs::read(&bench.path).unwrap();
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&bench.path, bytes).unwrap();
    bench.load().unwrap();
    let (tokens, end) = collect(bench.generate(request(3, 2)));
    assert!(tokens.is_empty());
    let error = end.unwrap_err();
    assert!(matches!(&error, EngineError::WeightNotFinite { tensor, elem: ELEM } if tensor == NAME), "{error}");
}

#[test]
fn a_second_turn_reuses_the_first() {
    let bench = bench();
    bench.load().unwrap();
    let (tokens, end) = collect(bench.generate(request(12, 6)));
    let (reason, stats) = end.unwrap();
    assert_eq!((tokens.len(), reason), (6, EndReason::MaxTokens));
    assert_eq!((stats.n_prompt, stats.n_reused, stats.n_generated), (12, 0, 6));
    assert!(stats.first_token_ms >= stats.prompt_ms && stats.prompt_ms > 0.0);

    let mut next = request(12, 6);
    next.tokens.extend(&tokens);
    next.tokens.extend([7, 8]);
    let (_, end) = collect(bench.generate(next));
    // The last token was handed out but not yet computed.
    assert_eq!(end.unwrap().1.n_reused, 17);
}

#[test]
fn the_same_request_gives_the_same_tokens() {
    let bench = bench();
    bench.load().unwrap();
    let sampler = SamplerSettings { temperature: 1.0, seed: 5, ..SamplerSettings::default() };
    let ask = || collect(bench.generate(GenerateRequest { sampler, ..request(5, 20) })).0;
    assert_eq!(ask(), ask());
}

#[test]
fn a_full_context_ends_the_answer_and_an_overfull_prompt_is_an_error() {
    let bench = bench();
    bench.load().unwrap();
    let (tokens, end) = collect(bench.generate(GenerateRequest { max_new_tokens: None, ..request(40, 0) }));
    assert_eq!(end.unwrap().0, EndReason::ContextFull);
    assert_eq!(tokens.len(), 25, "24 that fit, and the one that they predict");

    let (tokens, end) = collect(bench.generate(GenerateRequest { tokens: vec![1; 80], ..request(0, 5) }));
    assert!(tokens.is_empty());
    assert!(matches!(end, Err(EngineError::ContextOverflow { n_tokens: 80, context_length: 64, n_over: 16 })));
}

#[test]
fn a_sink_that_breaks_stops_the_generation_at_once() {
    let bench = bench();
    bench.load().unwrap();
    for stop_after in 1..4 {
        let (sender, events) = channel();
        let mut n_tokens = 0;
        let sink = move |event| {
            n_tokens += usize::from(matches!(event, GenerateEvent::Token { .. }));
            sender.send(event).unwrap();
            if n_tokens == stop_after { Flow::Break } else { Flow::Continue }
        };
        bench.worker.generate(request(9, 50), Box::new(sink));
        let (tokens, end) = collect(events);
        assert_eq!((tokens.len(), end.unwrap().0), (stop_after, EndReason::Stopped));
    }
}

#[test]
fn a_closed_receiver_stops_the_generation() {
    let bench = bench();
    bench.load().unwrap();
    drop(bench.generate(GenerateRequest { max_new_tokens: None, ..request(9, 0) }));
    // The next request is answered only after that one has ended, and finds nothing of its tokens but the prompt.
    let (_, end) = collect(bench.generate(request(60, 1)));
    assert!(end.unwrap().1.n_reused <= 9);
}

#[test]
fn a_token_stops_prompt_processing_in_the_middle_of_a_chunk() {
    let bench = bench();
    bench.load().unwrap();
    let (sender, events) = channel();
    let (give_token, take_token) = channel::<tandem_engine::worker::CancelToken>();
    let mut n_prompt_events = 0;
    let sink = move |event| {
        if matches!(event, GenerateEvent::Prompt(_)) {
            n_prompt_events += 1;
            if n_prompt_events == 2 {
                take_token.recv().unwrap().cancel();
            }
        }
        sent(sender.send(event))
    };
    give_token.send(bench.worker.generate(request(30, 5), Box::new(sink))).unwrap();
    let events: Vec<_> = events.iter().collect();
    let n_prompt_events = events.iter().filter(|event| matches!(event, GenerateEvent::Prompt(_))).count();
    assert_eq!(n_prompt_events, 2);
    let (tokens, end) = collect(events);
    let (reason, stats) = end.unwrap();
    assert_eq!((tokens.len(), reason, stats.n_generated), (0, EndReason::Stopped, 0));
}

#[test]
fn a_panic_becomes_an_event_and_the_worker_lives_on() {
    let bench = bench();
    bench.load().unwrap();
    let expected = collect(bench.generate(request(9, 4))).0;
    let (sender, events) = channel();
    let sink = move |event| match event {
        GenerateEvent::Token { .. } => panic!("planted"),
        event => sent(sender.send(event)),
    };
    bench.worker.generate(request(11, 4), Box::new(sink));
    let (_, end) = collect(events);
    assert!(matches!(end, Err(EngineError::Panicked { message }) if message == "planted"));
    assert_eq!(collect(bench.generate(request(9, 4))).0, expected);

    // A sink that panics at everything can be told nothing, and harms nobody.
    bench.worker.generate(request(11, 4), Box::new(|_| panic!("planted")));
    bench.worker.load(&bench.path, TINY.options(), Box::new(|_| panic!("planted")));
    let (_, end) = collect(bench.generate(request(9, 4)));
    assert!(matches!(end, Err(EngineError::NotLoaded)));
    bench.load().unwrap();
    assert_eq!(collect(bench.generate(request(9, 4))).0, expected);
}

#[test]
fn loads_can_be_stopped_and_their_errors_arrive() {
    let bench = bench();
    bench.load().unwrap();
    let (sender, events) = channel();
    let sink = move |event| {
        let flow = if matches!(event, LoadEvent::Progress(done) if done > 0.3) { Flow::Break } else { Flow::Continue };
        sender.send(event).unwrap();
        flow
    };
    bench.worker.load(&bench.path, TINY.options(), Box::new(sink));
    assert!(matches!(events.iter().last(), Some(LoadEvent::Failed(EngineError::Cancelled))));
    assert!(matches!(collect(bench.generate(request(3, 1))).1, Err(EngineError::NotLoaded)));

    let cancelled = bench.worker.load(&bench.path, TINY.options(), Box::new(|_| Flow::Continue));
    cancelled.cancel();
    Writer::new("martian").meta("martian.block_count", 1u32).write(&bench.path.with_extension("bad")).unwrap();
    let bad = Bench { path: bench.path.with_extension("bad"), ..bench };
    assert!(matches!(
        bad.load(),
        Err(EngineError::ArchitectureUnsupported { .. } | EngineError::PlacementLayers { .. })
    ));
}

#[test]
fn unloading_stops_what_runs_and_dropping_joins() {
    let bench = bench();
    bench.load().unwrap();
    let events = bench.generate(GenerateRequest { max_new_tokens: None, ..request(9, 0) });
    let waiting = bench.generate(request(9, 4));
    bench.worker.unload();
    // Both have ended by now: stopped, or ended before that.
    assert!(collect(events).1.is_ok());
    assert!(collect(waiting).1.is_ok());
    assert!(matches!(collect(bench.generate(request(9, 4))).1, Err(EngineError::NotLoaded)));
    let late = bench.generate(request(9, 4));
    drop(bench.worker);
    assert!(collect(late).1.is_err());
}
