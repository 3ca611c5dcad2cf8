//! Whole tiny models of every architecture on the simulated driver, with their parts placed here and there: the logits are
//! those of the processor alone.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::arch::ARCHITECTURES;
use tandem_engine::cuda::{CudaError, DriverState, Gpu, probe};
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::place::{Device, Ffn, LayerPlace, Placement};
use tandem_engine::session::Session;
use tandem_simcuda::drive;

const CPU: Device = Device::Cpu;
const GPU: Device = Device::Cuda(0);

const TOKENS: [u32; 14] = [3, 17, 5, 22, 40, 9, 31, 2, 17, 17, 8, 45, 6, 30];

/// Sums in another order, through a few layers.
const TOLERANCE: f32 = 5e-5;
/// Gates that are cut off near a quantile make more of rounding; see `architectures.rs`.
const SPARSE: f32 = 5e-4;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch").join(format!("{name}.gguf"))
}

/// One of each kind of block, or under `cargo xtask test --long` every fixture there is.
fn fixtures() -> Vec<String> {
    const FEW: [&str; 8] = [
        "llama",
        "qwen3moe",
        "gemma3n",
        "gpt-oss",
        "deepseek2",
        "qwen35moe",
        "granitehybrid-moe",
        "nemotron_h_moe-latent",
    ];
    if !is_long() {
        return FEW.map(str::to_owned).to_vec();
    }
    let folder = fixture("").with_file_name("");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    let mut names: Vec<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some()
}

fn n_layers(name: &str) -> usize {
    ModelFacts::from_file(&fixture(name)).unwrap().n_layers().unwrap() as usize
}

fn options(name: &str, placement: Placement) -> LoadOptions {
    let facts = ModelFacts::from_file(&fixture(name)).unwrap();
    LoadOptions {
        placement,
        kv_types: KvTypes::both(KvType::F32),
        n_batch: 6,
        ..LoadOptions::all_cpu(&facts, 1, 64).unwrap()
    }
}

/// Logits of all positions, in chunks of several lengths.
fn logits(name: &str, placement: Placement) -> Result<Vec<f32>, EngineError> {
    drive();
    let model = Model::load(&fixture(name), &options(name, placement), &mut |_| Flow::Continue)?;
    // Small vocabularies are fed what is left of the tokens.
    let tokens = TOKENS.map(|token| token % model.n_vocab() as u32);
    let mut session = Session::new(Arc::new(model))?;
    let mut all = Vec::new();
    session.teacher_forced(&tokens, &[5, 1, 3], &mut |_, logits| {
        all.extend_from_slice(logits);
        Flow::Continue
    })?;
    Ok(all)
}

/// Layers of one kind.
fn layer(mixer: Device, shared: Device, routed: Device) -> LayerPlace {
    LayerPlace { mixer, kv: mixer, ffn: Ffn::Experts { shared, routed, cached: None } }
}

fn placement(n_layers: usize, ends: Device, layer: impl Fn(usize) -> LayerPlace) -> Placement {
    Placement { embed: ends, layers: (0..n_layers).map(layer).collect(), head: ends }
}

#[track_caller]
fn assert_near(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let tolerance = if what.contains("gemma3n") { SPARSE } else { TOLERANCE };
    let largest = want.iter().fold(0f32, |max, logit| max.max(logit.abs()));
    let worst = got.iter().zip(want).fold(0f32, |max, (got, want)| max.max((got - want).abs()));
    assert!(worst <= tolerance * largest, "{what}: {worst} off, the largest logit is {largest}");
    assert!(got.iter().all(|logit| logit.is_finite()), "{what}");
}

#[test]
fn the_driver_and_its_gpus_are_described() {
    drive();
    let DriverState::Ready { devices } = probe() else { panic!("{}", probe()) };
    assert!(devices[0].is_supported() && devices[0].memory_bytes > 0);
    let error = Gpu::open(7).unwrap_err();
    assert!(matches!(error, CudaError::Unavailable { index: 7, .. }), "{error}");
}

/// Fixtures whose last layers read the caches of earlier ones: these live together.
const SHARED_CACHES: [&str; 4] = ["gemma3n", "gemma3n-shared", "gemma4-dense", "gemma4-e"];

#[test]
fn every_fixture_runs_on_the_gpu_alone_and_on_both_by_turns() {
    let mut architectures = std::collections::BTreeSet::new();
    for name in fixtures() {
        let n_layers = n_layers(&name);
        let want = logits(&name, Placement::all_cpu(n_layers)).unwrap();
        let got = logits(&name, placement(n_layers, GPU, |_| layer(GPU, GPU, GPU)));
        assert_near(&name, &got.unwrap_or_else(|error| panic!("{name}: {error}")), &want);
        let by_turns = |i: usize| if i.is_multiple_of(2) { layer(GPU, CPU, GPU) } else { layer(CPU, GPU, CPU) };
        match logits(&name, placement(n_layers, CPU, by_turns)) {
            Ok(got) => assert_near(&format!("{name}, by turns"), &got, &want),
            Err(EngineError::CacheApart { .. }) if SHARED_CACHES.contains(&&*name) => {}
            Err(error) => panic!("{name}, by turns: {error}"),
        }
        let facts = ModelFacts::from_file(&fixture(&name)).unwrap();
        architectures.insert(facts.architecture().unwrap().to_owned());
    }
    assert!(!is_long() || architectures.len() == ARCHITECTURES.len(), "all of them: {architectures:?}");
}

#[test]
fn experts_stay_with_the_processor_while_the_gpu_does_the_rest() {
    let mut n_models = 0;
    for name in fixtures() {
        let facts = ModelFacts::from_file(&fixture(&name)).unwrap();
        if facts.arch_u32_or("expert_count", 0).unwrap() == 0 {
            continue;
        }
        n_models += 1;
        let n_layers = n_layers(&name);
        let want = logits(&name, Placement::all_cpu(n_layers)).unwrap();
        for (mixer, shared, routed) in [(GPU, GPU, CPU), (CPU, CPU, GPU), (CPU, GPU, CPU)] {
            // A layer that reads the cache of another one lives with it.
            let got = logits(&name, placement(n_layers, CPU, |_| layer(mixer, shared, routed))).unwrap();
            assert_near(&format!("{name}: {mixer} {shared} {routed}"), &got, &want);
        }
    }
    assert!(n_models >= if is_long() { 20 } else { 5 }, "{n_models}");
}

#[test]
fn devices_may_change_at_every_half_of_a_layer() {
    let names: &[&str] =
        if is_long() { &["llama", "qwen3moe", "qwen35moe", "gemma4-moe", "gemma3n"] } else { &["llama", "qwen3moe"] };
    for name in names {
        let n_layers = n_layers(name);
        let want = logits(name, Placement::all_cpu(n_layers)).unwrap();
        for boundary in 1..2 * n_layers {
            let side = |half: usize| if half < boundary { GPU } else { CPU };
            let there = placement(n_layers, CPU, |i| layer(side(2 * i), side(2 * i + 1), side(2 * i + 1)));
            match logits(name, there) {
                Ok(got) => assert_near(&format!("{name}, the first {boundary} halves"), &got, &want),
                Err(EngineError::CacheApart { .. }) if SHARED_CACHES.contains(name) => {}
                Err(error) => panic!("{name}, the first {boundary} halves: {error}"),
            }
        }
    }
}

#[test]
fn placements_that_cannot_be_are_refused_by_name() {
    let n_layers = n_layers("llama");
    let mut apart = placement(n_layers, CPU, |_| layer(GPU, GPU, GPU));
    apart.layers[1].kv = CPU;
    let error = logits("llama", apart).unwrap_err();
    assert!(matches!(error, EngineError::CacheApart { layer: 1, mixer: GPU, kv: CPU }), "{error}");
    let error = logits("llama", placement(n_layers, Device::Cuda(5), |_| layer(CPU, CPU, CPU))).unwrap_err();
    assert!(matches!(error, EngineError::Cuda(CudaError::Unavailable { index: 5, .. })), "{error}");
}

#[test]
fn states_on_a_gpu_go_back_to_checkpoints() {
    drive();
    for name in ["qwen35", "gemma3", "granitehybrid"] {
        let n_layers = n_layers(name);
        let fed = |placement: Placement| {
            let model = Model::load(&fixture(name), &options(name, placement), &mut |_| Flow::Continue).unwrap();
            let mut session = Session::new(Arc::new(model)).unwrap();
            let mut all = Vec::new();
            // A conversation, an edit near its end, and another one near its beginning.
            let mut edited = TOKENS;
            edited[12] = 1;
            let mut early = TOKENS;
            early[3] = 2;
            for tokens in [&TOKENS[..], &edited, &early, &TOKENS] {
                session.feed(tokens, &mut |_| Flow::Continue).unwrap();
                all.extend_from_slice(session.logits());
            }
            all
        };
        let want = fed(Placement::all_cpu(n_layers));
        assert_near(name, &fed(placement(n_layers, GPU, |_| layer(GPU, GPU, GPU))), &want);
    }
}
