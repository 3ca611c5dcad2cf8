//! What can be wrong with a driver and a card, on the simulated one: each is named, nothing is left allocated, and the
//! processor goes on.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tandem_engine::Flow;
use tandem_engine::cuda::{CudaError, DriverState, Gpu, probe};
use tandem_engine::error::EngineError;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::place::{Budget, Device, Ffn, LayerPlace, Placement};
use tandem_engine::session::Session;
use tandem_simcuda::Simulator;
use tiny::TINY;

const GPU: Device = Device::Cuda(0);
const TOKENS: [u32; 7] = [3, 17, 5, 22, 39, 9, 31];

/// The simulated machine is one for the whole process: tests take turns.
fn machine(settings: &str) -> (MutexGuard<'static, ()>, &'static Simulator) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let simulator = Simulator::load();
    simulator.configure(settings);
    (turn, simulator)
}

fn on_gpu() -> LoadOptions {
    let layer = LayerPlace { mixer: GPU, kv: GPU, ffn: Ffn::Dense(GPU) };
    let placement = Placement { embed: Device::Cpu, layers: vec![layer; TINY.n_layers as usize], head: GPU };
    LoadOptions { placement, ..TINY.options() }
}

fn load(options: &LoadOptions) -> Result<Session, EngineError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TINY.write(&path);
    Session::new(Arc::new(Model::load(&path, options, &mut |_| Flow::Continue)?))
}

fn logits(session: &mut Session) -> Result<Vec<f32>, EngineError> {
    session.feed(&TOKENS, &mut |_| Flow::Continue)?;
    Ok(session.logits().to_vec())
}

#[track_caller]
fn assert_near(got: &[f32], want: &[f32]) {
    let largest = want.iter().fold(0f32, |max, logit| max.max(logit.abs()));
    assert!(got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-5 * largest), "{got:?}");
}

#[test]
fn every_state_of_a_driver_has_a_name() {
    let (_turn, simulator) = machine("card 6 GiB compute 7.5 name NVIDIA GeForce GTX 1660");
    let DriverState::Ready { devices } = probe() else { panic!("{}", probe()) };
    let card = &devices[0];
    assert_eq!((card.capability, card.memory_bytes), ((7, 5), 6 << 30));
    assert!(card.is_supported() && !card.has_tensor_cores(), "{card:?}");
    simulator.configure("cuda version 11080\ncard 6 GiB");
    assert_eq!(probe(), DriverState::DriverTooOld { version: 11_080 });
    assert!(matches!(Gpu::open(0), Err(CudaError::Unavailable { state: DriverState::DriverTooOld { .. }, .. })));
    simulator.configure("cuda init 100\ncard 6 GiB");
    assert_eq!(probe(), DriverState::NoDevice);
    simulator.configure("cuda init 999\ncard 6 GiB");
    assert!(matches!(probe(), DriverState::Failed { .. }), "{}", probe());
    simulator.configure("card 6 GiB compute 6.1 name NVIDIA GeForce GTX 1060");
    assert!(matches!(Gpu::open(0), Err(CudaError::CardTooOld { .. })));
}

#[test]
fn a_card_that_is_full_or_refuses_the_kernels_gives_everything_back() {
    let (_turn, simulator) = machine("card 0.00784 GiB");
    let error = load(&on_gpu()).err().unwrap();
    assert!(matches!(error, EngineError::Cuda(CudaError::OutOfMemory { needed_bytes: 1.., .. })), "{error}");
    assert_eq!(simulator.counters().allocated_bytes, 0);
    for (fault, expected) in [("cuModuleLoadData 218", "refuses"), ("cuDevicePrimaryCtxRetain 46", "in use")] {
        simulator.configure(&format!("card 6 GiB\nfail {fault}"));
        let error = load(&on_gpu()).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(simulator.counters().allocated_bytes, 0);
    }
    // A plan may allow less than the card has.
    simulator.configure("card 6 GiB");
    let budgets = vec![Budget { device: GPU, bytes: 1000 }];
    let error = load(&LoadOptions { budgets, ..on_gpu() }).err().unwrap();
    assert!(matches!(error, EngineError::DoesNotFit { device: GPU, available_bytes: 1000, .. }), "{error}");
    assert_eq!(simulator.counters().allocated_bytes, 0);
}

#[test]
fn a_model_gives_back_all_it_took_and_a_step_takes_nothing() {
    let (_turn, simulator) = machine("card 6 GiB");
    let want = logits(&mut load(&TINY.options()).unwrap()).unwrap();
    let mut session = load(&on_gpu()).unwrap();
    let held = simulator.counters();
    let footprint = session.model().footprint();
    let [weights, caches, ..] = session.model().options().placement.parts(footprint, GPU);
    assert!(held.allocated_bytes >= weights + caches && weights > 0 && caches > 0, "{footprint:?} {held:?}");
    assert_near(&logits(&mut session).unwrap(), &want);
    let after = simulator.counters();
    assert_eq!((after.allocated_bytes, after.most_allocated_bytes), (held.allocated_bytes, held.most_allocated_bytes));
    assert_eq!(after.n_findings, 0, "{:?}", simulator.findings());
    drop(session);
    assert_eq!(simulator.counters().allocated_bytes, 0);
}

#[test]
fn a_token_is_waited_for_once() {
    let (_turn, simulator) = machine("card 6 GiB");
    let mut session = load(&on_gpu()).unwrap();
    session.feed(&TOKENS[..4], &mut |_| Flow::Continue).unwrap();
    let before = simulator.counters();
    session.feed(&TOKENS[..5], &mut |_| Flow::Continue).unwrap();
    let after = simulator.counters();
    assert_eq!(after.n_waits - before.n_waits, 1);
    // Two halves of the angles' table and the embedding's row; the logits.
    assert_eq!((after.n_to_device - before.n_to_device, after.n_to_host - before.n_to_host), (3, 1));
}

#[test]
fn memory_that_cannot_be_pinned_is_done_without() {
    let (_turn, simulator) = machine("card 6 GiB\nfail cuMemHostAlloc 2");
    let want = logits(&mut load(&TINY.options()).unwrap()).unwrap();
    let mut options = on_gpu();
    options.placement.layers[0].ffn = Ffn::Dense(Device::Cpu);
    assert_near(&logits(&mut load(&options).unwrap()).unwrap(), &want);
    assert_eq!(simulator.counters().n_findings, 0, "{:?}", simulator.findings());
}

#[test]
fn a_card_that_goes_ends_the_step_by_name_and_the_processor_goes_on() {
    let (_turn, simulator) = machine("card 6 GiB");
    drop(load(&on_gpu()).unwrap());
    let n_launches = simulator.counters().n_launches;
    simulator.configure(&format!("card 6 GiB lost-after {}", n_launches + 60));
    let mut session = load(&on_gpu()).unwrap();
    let mut n_done = 0;
    let error = loop {
        match session.feed(&TOKENS[..=n_done], &mut |_| Flow::Continue) {
            Ok(_) => n_done += 1,
            Err(error) => break error,
        }
        assert!(n_done < TOKENS.len(), "the card is lost before");
    };
    assert!(matches!(error, EngineError::Cuda(CudaError::Lost { index: 0, .. })), "{error}");
    assert!(n_done > 0 && session.logits().is_empty());
    // Nothing of it hangs or is tried again.
    assert!(matches!(session.feed(&TOKENS, &mut |_| Flow::Continue), Err(EngineError::Cuda(_))));
    drop(session);
    assert!(!logits(&mut load(&TINY.options()).unwrap()).unwrap().is_empty());
}

#[test]
fn a_card_that_computes_something_else_is_found_at_load() {
    let (_turn, simulator) = machine("card 6 GiB");
    assert!(load(&on_gpu()).is_ok());
    for (wrong, expected) in
        [("matvec_", "products of 1 "), ("matmul_", "products of 9 "), ("attend", "attention of 1")]
    {
        simulator.configure(&format!("card 6 GiB\ncuda wrong {wrong}"));
        let error = load(&on_gpu()).err().unwrap_or_else(|| panic!("{wrong} goes unseen"));
        let EngineError::Cuda(CudaError::WrongResult { index: 0, what }) = &error else { panic!("{error}") };
        assert!(what.starts_with(expected), "{wrong}: {what}");
        assert_eq!(simulator.counters().allocated_bytes, 0);
    }
}

#[test]
fn a_load_tells_how_much_is_on_the_card_and_can_be_cancelled_there() {
    let (_turn, simulator) = machine("card 6 GiB");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TINY.write(&path);
    let mut told = Vec::new();
    let model = Model::load(&path, &on_gpu(), &mut |done| {
        told.push(done);
        Flow::Continue
    });
    drop(model.unwrap());
    assert!(told.len() > 10 && told.windows(2).all(|pair| pair[0] <= pair[1]), "{told:?}");
    assert_eq!(told.last(), Some(&1.0));
    let mut most_done = 0.0;
    let cancelled = Model::load(&path, &on_gpu(), &mut |done| {
        most_done = done;
        if simulator.counters().to_device_bytes > 0 && done > 0.3 { Flow::Break } else { Flow::Continue }
    });
    assert!(matches!(cancelled.err(), Some(EngineError::Cancelled)));
    assert!((0.3..0.7).contains(&most_done), "{most_done}");
    assert_eq!(simulator.counters().allocated_bytes, 0);
}

#[test]
fn what_a_session_holds_on_the_card_is_told_part_by_part() {
    let (_turn, simulator) = machine("card 6 GiB");
    let session = load(&on_gpu()).unwrap();
    let [memory] = session.gpu_memory() else { panic!("{:?}", session.gpu_memory()) };
    let parts = [memory.weight_bytes, memory.kv_bytes, memory.buffer_bytes];
    assert!(parts.iter().all(|part| *part > 0), "{memory:?}");
    let allocated = simulator.counters().allocated_bytes;
    assert_eq!(parts.iter().sum::<u64>(), allocated);
    assert_eq!(memory.free_bytes, (6 << 30) - allocated);
    let counted = session.model().options().placement.parts(session.model().footprint(), GPU);
    assert_eq!(counted[..2], parts[..2], "as counted before");
}
