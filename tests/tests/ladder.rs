//! Memory that is short: a load steps down rung by rung to a plan that runs, and says what it gave up; or it is refused, with
//! everything given back. One test, since the allocator is the process's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::wire::{ChatEvent, ErrorCode, LoadEvent, LoadRequest, Plan, Role, Sampling, Text, Wishes};
use tandem_engine::Flow;
use tandem_engine::gguf::{Array, TensorType, Writer};

/// The system's allocator, refusing large pieces beyond a limit.
struct Refusing;

const LARGE_BYTES: usize = 64 << 10;
const MIB: i64 = 1 << 20;
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static MOST_BYTES: AtomicI64 = AtomicI64::new(i64::MAX);

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

impl Refusing {
    fn refuses(&self, n_bytes: usize) -> bool {
        n_bytes >= LARGE_BYTES && LIVE_BYTES.load(SeqCst) + n_bytes as i64 > MOST_BYTES.load(SeqCst)
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

/// A model whose cache is what weighs: 8 KiB per token in f16, 64 MiB for 8k tokens.
fn write_model(path: &Path) {
    let (n_layers, n_embd, n_ff, n_heads, head_dim) = (4_u64, 512_u64, 64_u64, 8_u64, 64_u64);
    let width = n_heads * head_dim;
    // Byte-level: printable characters, the space, the end of a line, and some more.
    let characters = ('!'..='~').map(String::from).chain(["Ġ", "Ċ"].map(String::from));
    let tokens: Vec<String> = characters.chain((0..200).map(|i| format!("more{i}"))).collect();
    let n_vocab = tokens.len() as u64;
    let mut writer = Writer::new("llama")
        .meta("llama.block_count", n_layers as u32)
        .meta("llama.context_length", 8192_u32)
        .meta("llama.embedding_length", n_embd as u32)
        .meta("llama.feed_forward_length", n_ff as u32)
        .meta("llama.attention.head_count", n_heads as u32)
        .meta("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", Array::from_strings(tokens))
        .meta("tokenizer.ggml.merges", Array::from_strings([""; 0]))
        .tensor_absent("token_embd.weight", &[n_vocab, n_embd], TensorType::F16)
        .tensor_absent("output_norm.weight", &[n_embd], TensorType::F32);
    for layer in 0..n_layers {
        for (name, shape) in [
            ("attn_norm", vec![n_embd]),
            ("attn_q", vec![width, n_embd]),
            ("attn_k", vec![width, n_embd]),
            ("attn_v", vec![width, n_embd]),
            ("attn_output", vec![n_embd, width]),
            ("ffn_norm", vec![n_embd]),
            ("ffn_gate", vec![n_ff, n_embd]),
            ("ffn_up", vec![n_ff, n_embd]),
            ("ffn_down", vec![n_embd, n_ff]),
        ] {
            let tensor_type = if shape.len() == 1 { TensorType::F32 } else { TensorType::F16 };
            writer = writer.tensor_absent(&format!("blk.{layer}.{name}.weight"), &shape, tensor_type);
        }
    }
    writer.write(path).expect("the model is written");
}

/// How a load ended: the plan and what was given up, or the code of its failure.
async fn load(app: &App, model_id: &str) -> Result<(Plan, Option<Text>), ErrorCode> {
    let last = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&last);
    let sink = Box::new(move |event| {
        *kept.lock().expect("no panic") = Some(event);
        Flow::Continue
    });
    let request = LoadRequest { model_id: model_id.to_owned(), wishes: Wishes::default() };
    api::load_model(app, request, sink).await.expect("a load tells its failures by events");
    match last.lock().expect("no panic").take() {
        Some(LoadEvent::Ready { plan, given_up, .. }) => Ok((*plan, given_up)),
        Some(LoadEvent::Failed { failure }) => Err(failure.code),
        other => panic!("{other:?}"),
    }
}

fn answers(app: &App) -> bool {
    let sampling = Sampling { temperature: Some(0.0), max_tokens: Some(3), ..Sampling::default() };
    let mut n_deltas = 0;
    let answer = app.ask(&[(Role::User, "t1")], &sampling, &mut |event| {
        n_deltas += usize::from(matches!(event, ChatEvent::Delta { .. }));
        Flow::Continue
    });
    answer.is_ok_and(|answer| answer.failure.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_steps_down_until_it_fits_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("model.gguf");
    write_model(&path);
    let options = AppOptions {
        paths: Some(Paths::under(&folder.path().join("data"))),
        nvml_path: Some(folder.path().join("no-nvml")),
        ..AppOptions::default()
    };
    let app = App::open(options).expect("the app opens");
    let model = api::add_model(&app, path.display().to_string()).await.expect("it is a model");

    let (ample, given_up) = load(&app, &model.id).await.expect("it loads");
    assert_eq!((ample.context_length, ample.kv_type.as_str(), given_up), (8192, "f16", None));
    assert!(answers(&app));
    api::unload_model(&app).await.expect("it unloads");
    let baseline = LIVE_BYTES.load(SeqCst);

    let within = |limit: i64| MOST_BYTES.store(baseline + limit, SeqCst);
    for (limit, kv_type, context_length) in
        [(50 * MIB, "q8_0", 8192), (24 * MIB, "q8_0", 4096), (15 * MIB, "q8_0", 2048)]
    {
        within(limit);
        let (plan, given_up) = load(&app, &model.id).await.expect("a smaller plan runs");
        assert_eq!((plan.kv_type.as_str(), plan.context_length), (kv_type, context_length), "{limit}");
        let said = given_up.expect("what was given up is said");
        assert!(said.en.contains(kv_type) && said.zh.contains(kv_type), "{said:?}");
        assert!(answers(&app), "{limit}");
        MOST_BYTES.store(i64::MAX, SeqCst);
        api::unload_model(&app).await.expect("it unloads");
    }
    within(2 * MIB);
    let refused = load(&app, &model.id).await;
    MOST_BYTES.store(i64::MAX, SeqCst);
    assert_eq!(refused.err(), Some(ErrorCode::OutOfMemory));
    let left = LIVE_BYTES.load(SeqCst) - baseline;
    assert!(left < MIB / 4, "{left} bytes stay");
    sweep(&app, &model.id, baseline).await;
    assert!(load(&app, &model.id).await.is_ok(), "with memory it loads again");
}

/// Memory that ends after every megabyte of what a load takes, from what the app itself needs for it on: a plan that runs, smaller if need be and then said, or a
/// refusal; and everything comes back.
async fn sweep(app: &App, model_id: &str, baseline: i64) {
    let (mut before, mut n_refused, mut n_smaller, mut n_ample) = (0, 0, 0, 0);
    for limit in (2..=80).map(|n| n * MIB + MIB / 2) {
        MOST_BYTES.store(baseline + limit, SeqCst);
        let loaded = load(app, model_id).await;
        MOST_BYTES.store(i64::MAX, SeqCst);
        match loaded {
            Ok((plan, given_up)) => {
                let is_ample = plan.context_length == 8192 && plan.kv_type == "f16";
                assert!(given_up.is_some() || is_ample, "{limit}: what was given up is said");
                let held = u64::from(plan.context_length) * if plan.kv_type == "f16" { 2 } else { 1 };
                assert!(held >= before, "{limit}: with more memory no smaller plan");
                (before, n_smaller, n_ample) = (held, n_smaller + u32::from(!is_ample), n_ample + u32::from(is_ample));
                api::unload_model(app).await.expect("it unloads");
            }
            Err(code) => {
                assert_eq!((code, before), (ErrorCode::OutOfMemory, 0), "{limit}: with more memory it ran before");
                n_refused += 1;
            }
        }
        let left = LIVE_BYTES.load(SeqCst) - baseline;
        assert!(left < MIB / 4, "{limit}: {left} bytes stay");
    }
    assert!(n_refused > 0 && n_smaller > 0 && n_ample > 0, "{n_refused} refused, {n_smaller} smaller, {n_ample} ample");
}
