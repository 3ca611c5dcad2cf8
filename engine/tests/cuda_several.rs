//! Two simulated cards: layers split over them, activations crossing only where the placement says.
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
use tandem_engine::session::Session;
use tandem_simcuda::{Counters, Simulator};

const CPU: Device = Device::Cpu;
const FIRST: Device = Device::Cuda(0);
const SECOND: Device = Device::Cuda(1);

const TOKENS: [u32; 12] = [3, 17, 5, 22, 40, 9, 31, 2, 17, 17, 8, 45];
/// Sums in another order, through a few layers.
const TOLERANCE: f32 = 5e-5;

/// The simulated machine is one for the whole process: tests take turns.
fn machine(settings: &str) -> (MutexGuard<'static, ()>, &'static Simulator) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let simulator = Simulator::load();
    simulator.configure(settings);
    (turn, simulator)
}

/// One old and small, one new: their kernels differ.
const CARDS: &str = "card 6 GiB compute 7.5\ncard 8 GiB compute 8.6";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(format!("{name}.gguf"))
}

fn load(name: &str, placement: Placement) -> Result<Session, EngineError> {
    let facts = ModelFacts::from_file(&fixture(name)).unwrap();
    let options = LoadOptions {
        placement,
        kv_types: KvTypes::both(KvType::F32),
        n_batch: 6,
        ..LoadOptions::all_cpu(&facts, 1, 64).unwrap()
    };
    Session::new(Arc::new(Model::load(&fixture(name), &options, &mut |_| Flow::Continue)?))
}

fn logits(session: &mut Session) -> Result<Vec<f32>, EngineError> {
    let tokens = TOKENS.map(|token| token % session.model().n_vocab() as u32);
    let mut all = Vec::new();
    session.teacher_forced(&tokens, &[5, 1, 3], &mut |_, logits| {
        all.extend_from_slice(logits);
        Flow::Continue
    })?;
    Ok(all)
}

fn n_layers(name: &str) -> usize {
    ModelFacts::from_file(&fixture(name)).unwrap().n_layers().unwrap() as usize
}

#[track_caller]
fn assert_near(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0f32, |max, logit| max.max(logit.abs()));
    let worst = got.iter().zip(want).fold(0f32, |max, (got, want)| max.max((got - want).abs()));
    assert!(worst <= TOLERANCE * largest, "{what}: {worst} off, the largest logit is {largest}");
}

#[test]
fn layers_split_over_two_cards_compute_what_one_processor_does() {
    let (_turn, simulator) = machine(CARDS);
    let names: &[&str] = match std::env::var_os("TANDEM_LONG") {
        Some(_) => &[
            "llama",
            "qwen3moe",
            "gpt-oss",
            "deepseek2",
            "qwen35moe",
            "granitehybrid",
            "nemotron_h_moe-latent",
            "lfm2moe",
        ],
        None => &["llama", "qwen3moe", "qwen35moe"],
    };
    for name in names {
        let n = n_layers(name);
        let want = logits(&mut load(name, Placement::all_cpu(n)).unwrap()).unwrap();
        let split = Placement::layers_over(&[(FIRST, n / 2), (SECOND, n - n / 2)], n, |device| device);
        let experts_away = Placement::layers_over(&[(FIRST, n / 2), (SECOND, n - n / 2)], n, |device| {
            if device == FIRST { SECOND } else { CPU }
        });
        // Every half of a layer elsewhere, three devices by turns.
        let device = |half: usize| [FIRST, SECOND, CPU][half % 3];
        let by_turns = Placement {
            layers: (0..n)
                .map(|i| LayerPlace {
                    mixer: device(2 * i),
                    kv: device(2 * i),
                    ffn: Ffn::Experts { shared: device(2 * i + 1), routed: device(2 * i + 2), cached: None },
                })
                .collect(),
            embed: SECOND,
            head: FIRST,
        };
        for (what, placement) in [("split", split), ("experts away", experts_away), ("by turns", by_turns)] {
            let mut session = load(name, placement).unwrap();
            assert_near(&format!("{name}, {what}"), &logits(&mut session).unwrap(), &want);
            drop(session);
            assert_eq!(simulator.counters().allocated_bytes, 0, "{name}, {what}");
        }
    }
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

/// What one token more takes.
fn step(simulator: &Simulator, placement: Placement) -> (Counters, Counters) {
    let mut session = load("llama", placement).unwrap();
    session.feed(&TOKENS[..4], &mut |_| Flow::Continue).unwrap();
    let before = simulator.counters();
    session.feed(&TOKENS[..5], &mut |_| Flow::Continue).unwrap();
    (before, simulator.counters())
}

#[test]
fn a_token_crosses_once_from_card_to_card() {
    let (_turn, simulator) = machine(CARDS);
    let (n, facts) = (n_layers("llama"), ModelFacts::from_file(&fixture("llama")).unwrap());
    let n_embd = u64::from(facts.arch_u32("embedding_length").unwrap());
    let (before, after) = step(simulator, Placement::layers_over(&[(FIRST, n)], n, |device| device));
    let on_one = [
        after.n_waits - before.n_waits,
        after.n_to_host - before.n_to_host,
        after.to_host_bytes - before.to_host_bytes,
    ];
    let (before, after) =
        step(simulator, Placement::layers_over(&[(FIRST, n / 2), (SECOND, n - n / 2)], n, |device| device));
    let on_two = [
        after.n_waits - before.n_waits,
        after.n_to_host - before.n_to_host,
        after.to_host_bytes - before.to_host_bytes,
    ];
    // The residual stream goes from one to the other by way of the host, once.
    assert_eq!(on_two, [on_one[0] + 1, on_one[1] + 1, on_one[2] + 4 * n_embd]);
}

#[test]
fn the_second_card_that_goes_is_the_one_that_is_named() {
    let (_turn, simulator) = machine("card 6 GiB compute 8.0\ncard 6 GiB compute 8.0 lost-after 90");
    let n = n_layers("llama");
    let split = Placement::layers_over(&[(FIRST, n / 2), (SECOND, n - n / 2)], n, |device| device);
    let mut session = load("llama", split).unwrap();
    let error = (0..50).find_map(|_| logits(&mut session).err()).expect("it is lost at some time");
    assert!(matches!(error, EngineError::Cuda(CudaError::Lost { index: 1, .. })), "{error}");
    drop(session);
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}
