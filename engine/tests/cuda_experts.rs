//! Experts of one layer on both sides: copies of some on a simulated card, the rest with the processor; copies that follow what
//! is routed, and experts copied for a prompt.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tandem_engine::Flow;
use tandem_engine::cuda::CudaError;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::place::{Device, Ffn, LayerPlace, Placement};
use tandem_engine::session::{ExpertPolicy, ExpertRates, ExpertStats, Session};
use tandem_simcuda::Simulator;

const CPU: Device = Device::Cpu;
const GPU: Device = Device::Cuda(0);
const OTHER: Device = Device::Cuda(1);

const TOKENS: [u32; 14] = [3, 17, 5, 22, 40, 9, 31, 2, 17, 17, 8, 45, 6, 30];
/// Sums in another order, through a few layers.
const TOLERANCE: f32 = 5e-5;

/// The simulated machine is one for the whole process: tests take turns.
fn machine() -> (MutexGuard<'static, ()>, &'static Simulator) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let simulator = Simulator::load();
    simulator.configure("card 6 GiB compute 8.0\ncard 6 GiB compute 7.5");
    (turn, simulator)
}

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(format!("{name}.gguf"))
}

fn facts(name: &str) -> ModelFacts {
    ModelFacts::from_file(&fixture(name)).unwrap()
}

/// With biases, in a narrower space, beside another network, in groups, in one tensor each; or every fixture that has experts.
fn fixtures() -> Vec<String> {
    if !is_long() {
        return ["gpt-oss", "qwen35moe", "nemotron_h_moe-latent", "gemma4-moe"].map(str::to_owned).to_vec();
    }
    let entries = std::fs::read_dir(fixture("").with_file_name("")).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    let mut names: Vec<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|name| facts(name).arch_u32_or("expert_count", 0).unwrap() > 0);
    names.sort();
    assert!(names.len() >= 20, "{names:?}");
    names
}

/// The first two, or all of them.
fn fewer_fixtures() -> Vec<String> {
    fixtures().into_iter().take(if is_long() { usize::MAX } else { 2 }).collect()
}

/// All layers alike: the experts with the processor, copies of `n` on `card`.
fn placement(name: &str, home: Device, card: Device, n: usize) -> Placement {
    let ffn = Ffn::Experts { shared: home, routed: CPU, cached: Some((card, n)) };
    let layer = LayerPlace { mixer: home, kv: home, ffn };
    Placement { embed: CPU, layers: vec![layer; facts(name).n_layers().unwrap() as usize], head: home }
}

fn session(name: &str, placement: Placement, n_batch: usize) -> Result<Session, EngineError> {
    let options = LoadOptions {
        placement,
        kv_types: KvTypes::both(KvType::F32),
        n_batch,
        ..LoadOptions::all_cpu(&facts(name), 1, 64).unwrap()
    };
    Session::new(Arc::new(Model::load(&fixture(name), &options, &mut |_| Flow::Continue)?))
}

/// Logits of all positions.
fn logits(session: &mut Session, chunks: &[usize]) -> Vec<f32> {
    let tokens = TOKENS.map(|token| token % session.model().n_vocab() as u32);
    let mut all = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Flow::Continue
    };
    session.teacher_forced(&tokens, chunks, &mut keep).unwrap();
    all
}

fn on_cpu(name: &str) -> Vec<f32> {
    let n_layers = facts(name).n_layers().unwrap() as usize;
    logits(&mut session(name, Placement::all_cpu(n_layers), 6).unwrap(), &[5, 1, 3])
}

#[track_caller]
fn assert_near(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0f32, |max, logit| max.max(logit.abs()));
    let worst = got.iter().zip(want).fold(0f32, |max, (got, want)| max.max((got - want).abs()));
    assert!(worst <= TOLERANCE * largest, "{what}: {worst} off, the largest logit is {largest}");
}

/// A card for which any copy pays.
const ALWAYS: ExpertRates =
    ExpertRates { copy_bytes_per_s: 1e18, card_products_per_s: 1e18, cpu_bytes_per_s: 1.0, cpu_products_per_s: 1.0 };

#[test]
fn split_experts_yield_what_the_processor_alone_does() {
    let (_turn, simulator) = machine();
    for name in fixtures() {
        let n_experts = facts(&name).arch_u32("expert_count").unwrap() as usize;
        let want = on_cpu(&name);
        for (home, card, n) in [(GPU, GPU, 1), (CPU, GPU, n_experts / 2), (GPU, OTHER, n_experts / 2), (GPU, GPU, 99)] {
            let what = format!("{name}, {n} of {n_experts} on {card}, the rest of the layer on {home}");
            let mut session = session(&name, placement(&name, home, card, n), 6).unwrap();
            let got = logits(&mut session, &[5, 1, 3]);
            assert_near(&what, &got, &want);
            let stats = session.expert_stats();
            assert_eq!((stats.n_hits == stats.n_pairs, stats.n_pairs > 0), (n >= n_experts, true), "{what}: {stats:?}");
            assert_eq!((stats.n_streamed, stats.uploaded_bytes), (0, 0), "copies stay by default");
            if n == 1 {
                assert_eq!(logits(&mut session, &[5, 1, 3]), got, "{what}: the order of sums is fixed");
            }
            drop(session);
            assert_eq!(simulator.counters().allocated_bytes, 0, "{what}");
        }
    }
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn copies_that_follow_what_is_routed_change_no_logits_and_keep_within_their_bytes() {
    let (_turn, simulator) = machine();
    for name in fewer_fixtures() {
        let want = on_cpu(&name);
        let mut session = session(&name, placement(&name, GPU, GPU, 2), 6).unwrap();
        let still = logits(&mut session, &[1]);
        assert_near(&name, &still, &want);
        let still = session.expert_stats();
        let upload_bytes_per_step = 1 << 20;
        session.set_expert_policy(ExpertPolicy { upload_bytes_per_step, ..ExpertPolicy::default() });
        let before = simulator.counters().to_device_bytes;
        assert_near(&name, &logits(&mut session, &[1]), &want);
        assert_near(&name, &logits(&mut session, &[5, 1, 3]), &want);
        let followed = session.expert_stats().since(&still);
        assert!(followed.uploaded_bytes > 0, "{name}: {followed:?}");
        assert!(simulator.counters().to_device_bytes - before >= followed.uploaded_bytes);
        // One expert's bytes are the least; with less nothing is copied.
        session.set_expert_policy(ExpertPolicy { upload_bytes_per_step: 1, ..ExpertPolicy::default() });
        let before = session.expert_stats();
        assert_near(&name, &logits(&mut session, &[5, 1, 3]), &want);
        assert_eq!(session.expert_stats().since(&before).uploaded_bytes, 0);
    }
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn a_token_that_comes_again_finds_its_experts_on_the_card() {
    let (_turn, _simulator) = machine();
    let name = "qwen3moe";
    let n_used = facts(name).arch_u32("expert_used_count").unwrap() as usize;
    let hits = |upload_bytes_per_step| {
        let mut session = session(name, placement(name, GPU, GPU, n_used), 1).unwrap();
        session.set_expert_policy(ExpertPolicy { upload_bytes_per_step, ..ExpertPolicy::default() });
        let mut stats = ExpertStats::default();
        for _ in 0..2 {
            session.clear();
            let before = session.expert_stats();
            session.feed(&TOKENS[..1], &mut |_| Flow::Continue).unwrap();
            stats = session.expert_stats().since(&before);
        }
        stats
    };
    assert_eq!(hits(u64::MAX).hit_rate(), Some(1.0));
    assert!(hits(0).hit_rate() < Some(1.0));
}

#[test]
fn experts_copied_for_a_prompt_are_counted_and_yield_the_same() {
    let (_turn, simulator) = machine();
    for name in fewer_fixtures() {
        let want = on_cpu(&name);
        // Fewer slots than experts with tokens: several rounds.
        for (home, n) in [(GPU, 1), (CPU, 3)] {
            let mut session = session(&name, placement(&name, home, GPU, n), 6).unwrap();
            session.set_expert_policy(ExpertPolicy { rates: Some(ALWAYS), ..ExpertPolicy::default() });
            let before = simulator.counters().to_device_bytes;
            assert_near(&name, &logits(&mut session, &[5, 1, 3]), &want);
            let stats = session.expert_stats();
            assert_eq!(stats.n_hits + stats.n_streamed, stats.n_pairs, "{name}: nothing is left for the processor");
            assert!(stats.n_streamed > 0 && stats.streamed_bytes > 0, "{name}: {stats:?}");
            assert!(simulator.counters().to_device_bytes - before >= stats.streamed_bytes);
        }
    }
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn copies_make_the_host_wait_no_more_than_experts_of_the_processor_do() {
    let (_turn, simulator) = machine();
    let with_copies = placement("qwen3moe", GPU, GPU, 2);
    let mut without = with_copies.clone();
    without.layers.iter_mut().for_each(|layer| layer.ffn = Ffn::Experts { shared: GPU, routed: CPU, cached: None });
    let waits = [without, with_copies].map(|placement| {
        let mut session = session("qwen3moe", placement, 6).unwrap();
        session.feed(&TOKENS[..4], &mut |_| Flow::Continue).unwrap();
        let before = simulator.counters().n_waits;
        session.feed(&TOKENS[..5], &mut |_| Flow::Continue).unwrap();
        simulator.counters().n_waits - before
    });
    assert_eq!(waits[0], waits[1], "the card's part is asked for before the processor's begins, and added on the card");
}

#[test]
fn a_token_whose_experts_the_card_chooses_is_waited_for_once() {
    let (_turn, simulator) = machine();
    for name in ["qwen3moe", "gpt-oss", "deepseek2"] {
        let n_layers = facts(name).n_layers().unwrap() as usize;
        let on_card = Placement { embed: GPU, ..Placement::last_layers_on(GPU, n_layers, n_layers + 1, GPU) };
        let mut session = session(name, on_card, 6).unwrap();
        assert_near(name, &logits(&mut session, &[1, 4, 2]), &on_cpu(name));
        session.feed(&TOKENS[..4], &mut |_| Flow::Continue).unwrap();
        let before = simulator.counters();
        session.feed(&TOKENS[..5], &mut |_| Flow::Continue).unwrap();
        let after = simulator.counters();
        assert_eq!((after.n_waits - before.n_waits, after.n_to_host - before.n_to_host), (1, 1), "{name}: the logits");
    }
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn two_sessions_of_a_model_share_its_copies() {
    let (_turn, simulator) = machine();
    let name = "qwen3moe";
    let want = on_cpu(name);
    let mut first = session(name, placement(name, GPU, GPU, 2), 6).unwrap();
    let mut second = Session::new(Arc::clone(first.model())).unwrap();
    let policy = ExpertPolicy { upload_bytes_per_step: u64::MAX, rates: Some(ALWAYS) };
    let run = |session: &mut Session| {
        session.set_expert_policy(policy);
        logits(session, &[5, 1, 3])
    };
    let got = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&mut second));
        [run(&mut first), other.join().unwrap()]
    });
    got.iter().for_each(|got| assert_near(name, got, &want));
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn memory_that_cannot_be_pinned_is_done_without_on_every_card() {
    let (_turn, simulator) = machine();
    let want = on_cpu("qwen3moe");
    simulator.configure("card 6 GiB\ncard 6 GiB\nfail cuMemHostAlloc 2");
    let mut session = session("qwen3moe", placement("qwen3moe", GPU, OTHER, 2), 6).unwrap();
    let policy = ExpertPolicy { upload_bytes_per_step: u64::MAX, rates: None };
    session.set_expert_policy(policy);
    assert_near("pageable", &logits(&mut session, &[5, 1, 3]), &want);
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn the_card_with_the_copies_may_go_at_any_time() {
    let (_turn, simulator) = machine();
    simulator.configure("card 6 GiB\ncard 6 GiB lost-after 150");
    let mut session = session("qwen3moe", placement("qwen3moe", GPU, OTHER, 2), 6).unwrap();
    session.set_expert_policy(ExpertPolicy { upload_bytes_per_step: u64::MAX, rates: Some(ALWAYS) });
    let error = (1..=TOKENS.len()).find_map(|n| session.feed(&TOKENS[..n], &mut |_| Flow::Continue).err());
    let error = error.expect("it is lost at some time");
    assert!(matches!(error, EngineError::Cuda(CudaError::Lost { index: 1, .. })), "{error}");
    drop(session);
    // The processor goes on by itself.
    simulator.configure("card 6 GiB");
    assert!(!on_cpu("qwen3moe").is_empty());
}

#[test]
fn copies_of_experts_that_are_on_a_card_already_are_refused_by_name() {
    let (_turn, _simulator) = machine();
    let mut there = placement("qwen3moe", GPU, OTHER, 2);
    there.layers[1].ffn = Ffn::Experts { shared: GPU, routed: GPU, cached: Some((OTHER, 2)) };
    let error = session("qwen3moe", there, 6).err().unwrap();
    assert!(matches!(error, EngineError::ExpertCopies { layer: 1, routed: GPU, device: OTHER }), "{error}");
}
