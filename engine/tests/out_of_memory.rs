//! Memory that is refused: whichever large piece a load asks for, without it the load ends in a clear error, everything goes
//! back, and the worker lives on. One test, since the allocator is the process's.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::mpsc::channel;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::LoadOptions;
use tandem_engine::worker::{LoadEvent, Worker};
use tiny::TINY;

/// The system's allocator, refusing large pieces when told to. Small ones are always had: a system that has none left for
/// them ends processes instead.
struct Refusing;

const LARGE_BYTES: usize = 32 << 10;
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
/// Large pieces given since the count was set back.
static N_LARGE: AtomicI64 = AtomicI64::new(0);
/// Which large piece is refused, and all after it.
static FIRST_REFUSED: AtomicI64 = AtomicI64::new(i64::MAX);
/// Large pieces are refused beyond so many bytes in all.
static MOST_BYTES: AtomicI64 = AtomicI64::new(i64::MAX);

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

impl Refusing {
    fn refuses(&self, n_bytes: usize) -> bool {
        n_bytes >= LARGE_BYTES
            && (N_LARGE.fetch_add(1, SeqCst) >= FIRST_REFUSED.load(SeqCst)
                || LIVE_BYTES.load(SeqCst) + n_bytes as i64 > MOST_BYTES.load(SeqCst))
    }
}

// SAFETY: every call is the system allocator's own, or refuses by a null pointer, as allocators may; counting touches no
// memory of the caller's.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.refuses(layout.size()) {
            return null_mut();
        }
        LIVE_BYTES.fetch_add(layout.size() as i64, SeqCst);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.refuses(layout.size()) {
            return null_mut();
        }
        LIVE_BYTES.fetch_add(layout.size() as i64, SeqCst);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, SeqCst);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How a load ended.
fn load(worker: &Worker, path: &Path, options: &LoadOptions) -> Result<(), EngineError> {
    let (sender, events) = channel();
    let sink = move |event| {
        match event {
            LoadEvent::Progress(_) => {}
            LoadEvent::Ready(_) => sender.send(Ok(())).unwrap(),
            LoadEvent::Failed(error) => sender.send(Err(error)).unwrap(),
        }
        Flow::Continue
    };
    worker.load(path, options.clone(), Box::new(sink));
    events.recv().unwrap()
}

/// Models of different make, with caches and buffers of tens of kilobytes and more.
fn models(folder: &Path) -> Vec<(PathBuf, LoadOptions)> {
    let large = |options: LoadOptions| LoadOptions {
        n_threads: 2,
        context_length: 16 << 10,
        kv_types: KvTypes::both(KvType::F32),
        n_batch: 512,
        ..options
    };
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch");
    let names = ["gemma3", "gpt-oss", "deepseek2", "lfm2", "qwen35moe", "nemotron_h_moe"];
    let fixtures = names.iter().map(|name| {
        let path = data.join(format!("{name}.gguf"));
        let options = LoadOptions::all_cpu(&ModelFacts::from_file(&path).unwrap(), 2, 16 << 10).unwrap();
        (path, large(options))
    });
    let path = folder.join("tiny.gguf");
    TINY.write(&path);
    fixtures.chain([(path, large(TINY.options()))]).collect()
}

#[test]
fn a_load_that_is_refused_memory_ends_in_an_error_and_gives_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let models = models(folder.path());
    let worker = Worker::spawn().unwrap();
    for (path, options) in &models {
        let name = path.file_stem().unwrap().to_string_lossy();
        // The first loads fill what stays for the life of the process.
        for _ in 0..2 {
            load(&worker, path, options).unwrap();
            worker.unload();
        }
        let baseline = LIVE_BYTES.load(SeqCst);
        let is_at_baseline = || (LIVE_BYTES.load(SeqCst) - baseline).abs() < 4096;
        N_LARGE.store(0, SeqCst);
        load(&worker, path, options).unwrap();
        let (n_large, loaded) = (N_LARGE.load(SeqCst), LIVE_BYTES.load(SeqCst));
        worker.unload();
        assert!(n_large > 8 && loaded - baseline > 1 << 20, "{name}: {n_large} large pieces");
        assert!(is_at_baseline(), "{name}");

        for refused in 0..n_large {
            N_LARGE.store(0, SeqCst);
            FIRST_REFUSED.store(refused, SeqCst);
            let result = load(&worker, path, options);
            FIRST_REFUSED.store(i64::MAX, SeqCst);
            assert!(
                matches!(&result, Err(EngineError::OutOfMemory { bytes, .. }) if *bytes > 0),
                "{name}, piece {refused} of {n_large}: {result:?}"
            );
            assert!(is_at_baseline(), "{name}, piece {refused}: {} bytes stay", LIVE_BYTES.load(SeqCst) - baseline);
        }
        for tenth in 1..10 {
            MOST_BYTES.store(baseline + (loaded - baseline) * tenth / 10, SeqCst);
            let result = load(&worker, path, options);
            MOST_BYTES.store(i64::MAX, SeqCst);
            assert!(matches!(result, Err(EngineError::OutOfMemory { .. })), "{name}, {tenth} tenths: {result:?}");
            assert!(is_at_baseline(), "{name}, {tenth} tenths");
        }
        load(&worker, path, options).unwrap();
        worker.unload();
    }
}
