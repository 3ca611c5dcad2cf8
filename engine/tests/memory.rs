//! Memory: a forward pass allocates nothing, and unloading gives everything back. One test, since it counts for the process.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use tandem_engine::Flow;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::sample::SamplerSettings;
use tandem_engine::session::Session;
use tandem_engine::worker::{AtEnd, GenerateEvent, GenerateRequest, LoadEvent, Worker};
use tiny::TINY;

/// The system's allocator, counting.
struct Counting;

static N_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is the system allocator's own; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn a_pass_allocates_nothing_and_unloading_returns_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TINY.write(&path);
    let mut options = TINY.options();
    options.n_threads = 3;

    let model = Model::load(&path, &options, &mut |_| Flow::Continue).ok().unwrap();
    let mut session = Session::new(model.into()).unwrap();
    let tokens: Vec<u32> = (0..60).map(|i| i % 40).collect();
    session.feed(&tokens[..30], &mut |_| Flow::Continue).unwrap();
    let mut n_allocations = || {
        let before = N_ALLOCATIONS.load(Ordering::Relaxed);
        for n in [31, 60, 12, 45] {
            session.feed(&tokens[..n], &mut |_| Flow::Continue).unwrap();
        }
        N_ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    // The test harness's own thread may allocate meanwhile, once.
    let fewest = (0..3).map(|_| n_allocations()).min();
    assert_eq!(fewest, Some(0), "allocations in a forward pass");
    drop(session);

    for name in ["gemma3", "gpt-oss", "deepseek2", "lfm2", "qwen35moe", "nemotron_h_moe"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/arch/{name}.gguf"));
        let mut options = LoadOptions::all_cpu(&ModelFacts::from_file(&path).unwrap(), 2, 128).unwrap();
        options.n_batch = 16;
        let model = Model::load(&path, &options, &mut |_| Flow::Continue).unwrap();
        let mut session = Session::new(model.into()).unwrap();
        // The first prompt makes checkpoints, which may allocate, and behind it the rings of sliding windows begin anew.
        let mut n_tokens = 60;
        session.feed(&tokens[..n_tokens], &mut |_| Flow::Continue).unwrap();
        let tokens = [&tokens[..], &tokens[..]].concat();
        let mut n_allocations = || {
            let before = N_ALLOCATIONS.load(Ordering::Relaxed);
            for _ in 0..5 {
                n_tokens += 1;
                session.feed(&tokens[..n_tokens], &mut |_| Flow::Continue).unwrap();
            }
            N_ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        // Some rounds save a window, and in one of them a compute thread may have started late.
        let fewest = (0..12).map(|_| n_allocations()).min();
        assert_eq!(fewest, Some(0), "{name}: allocations while tokens are generated");
    }

    // A large cache, so that one leaked byte in a thousand would show.
    options.context_length = 64 * 1024;
    let worker = Worker::spawn().unwrap();
    let turn = || {
        let (sender, events) = channel();
        let load = sender.clone();
        let on_load = move |event| {
            if let LoadEvent::Failed(error) = event {
                load.send(format!("{error}")).unwrap();
            }
            Flow::Continue
        };
        worker.load(&path, options.clone(), Box::new(on_load));
        let request = GenerateRequest {
            tokens: (0..9).collect(),
            sampler: SamplerSettings::default(),
            max_new_tokens: Some(3),
            at_end: AtEnd::Stop,
        };
        let on_event = move |event| {
            if let GenerateEvent::Done { stats, .. } = event {
                sender.send(format!("{} tokens", stats.n_generated)).unwrap();
            }
            Flow::Continue
        };
        worker.generate(request, Box::new(on_event));
        assert_eq!(events.recv().unwrap(), "3 tokens");
        let loaded = LIVE_BYTES.load(Ordering::Relaxed);
        worker.unload();
        (loaded, LIVE_BYTES.load(Ordering::Relaxed), n_threads())
    };
    // The first turns fill what stays for the life of the process.
    turn();
    turn();
    let (loaded, baseline, threads) = turn();
    assert!(loaded - baseline > 16 << 20, "the cache counts: {loaded} less {baseline}");
    for _ in 0..20 {
        let (_, unloaded, n_threads) = turn();
        assert!((unloaded - baseline).abs() < 4096, "{unloaded} bytes live, {baseline} before");
        assert_eq!(n_threads, threads, "threads");
    }
    drop(worker);
}

/// Threads of this process; 0 where the system does not say.
fn n_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
