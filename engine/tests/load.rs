//! Loading: what is wrong with a file is said by name, before anything large is allocated; a load can be stopped.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod tiny;

use std::path::PathBuf;

use tandem_engine::Flow;
use tandem_engine::arch;
use tandem_engine::cuda::CudaError;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{ModelFacts, Prefix, Refusal, TensorType, Writer};
use tandem_engine::kv::{CacheOptions, KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model, Preload};
use tandem_engine::place::{Budget, Device};
use tandem_engine::session::Session;
use tiny::{TINY, Tiny};

/// Loads a file, which is gone afterwards: on this system a mapped file outlives its name.
fn load(writer: Writer, options: &LoadOptions) -> Result<Model, EngineError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    writer.write(&path).unwrap();
    Model::load(&path, options, &mut |_| Flow::Continue)
}

fn error_of(writer: Writer) -> EngineError {
    load(writer, &TINY.options()).err().expect("the file is bad")
}

/// The tiny model without one of its parts, with others in place.
fn spoiled(without: &[&str], with: impl FnOnce(Writer) -> Writer) -> EngineError {
    error_of(with(TINY.writer_without(without)))
}

#[test]
fn hyperparameters_that_make_no_sense_are_named() {
    let u32_keys = [
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 6),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 3),
        ("llama.attention.head_count_kv", 8),
        ("llama.attention.key_length", 0),
        ("llama.attention.value_length", 4),
        ("llama.rope.dimension_count", 3),
        ("llama.rope.dimension_count", 6),
        ("llama.embedding_length", 0),
        ("llama.feed_forward_length", 0),
    ];
    for (key, value) in u32_keys {
        let error = spoiled(&[key], |writer| writer.meta(key, value));
        assert!(matches!(error, EngineError::KeyInvalid { .. } | EngineError::Gguf(_)), "{key} = {value}: {error}");
        assert!(error.to_string().contains(&format!("`{key}`")), "{key} = {value}: {error}");
    }
    let f32_keys = [
        ("llama.attention.layer_norm_rms_epsilon", f32::NAN),
        ("llama.attention.layer_norm_rms_epsilon", -1.0),
        ("llama.rope.freq_base", 0.0),
        ("llama.rope.scaling.factor", -2.0),
        ("llama.attention.scale", f32::INFINITY),
    ];
    for (key, value) in f32_keys {
        let error = spoiled(&[key], |writer| writer.meta(key, value));
        assert!(matches!(error, EngineError::KeyInvalid { .. } | EngineError::Gguf(_)), "{key} = {value}: {error}");
        assert!(error.to_string().contains(&format!("`{key}`")), "{key} = {value}: {error}");
    }
    let error = spoiled(&[], |writer| writer.meta("llama.rope.scaling.type", "spiral"));
    assert!(error.to_string().contains("`spiral`"), "{error}");
}

#[test]
fn absurd_layer_counts_are_refused_before_anything_is_allocated() {
    for n_layers in [0u64, 3, 1 << 20, 1 << 40] {
        let error = spoiled(&["llama.block_count"], |writer| writer.meta("llama.block_count", n_layers));
        let is_good = match n_layers {
            // The placement has two layers, which is seen first.
            3 => matches!(error, EngineError::PlacementLayers { expected: 3, got: 2 }),
            _ => matches!(error, EngineError::Gguf(_) | EngineError::PlacementLayers { .. }),
        };
        assert!(is_good, "{n_layers} layers: {error}");
    }
}

#[test]
fn missing_keys_and_tensors_are_named() {
    for key in ["llama.embedding_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"] {
        let error = spoiled(&[key], |writer| writer);
        assert!(error.to_string().contains(key), "{error}");
    }
    for tensor in ["token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_down.weight"] {
        let error = spoiled(&[tensor], |writer| writer);
        assert!(matches!(&error, EngineError::TensorMissing { tensor: named } if named == tensor), "{error}");
    }
}

#[test]
fn tensors_of_another_shape_or_type_are_named() {
    let tensor = "blk.1.attn_v.weight";
    let error = spoiled(&[tensor], |writer| writer.tensor_f32(tensor, &[32, 16], &[0.0; 512]));
    let EngineError::TensorShape { tensor: named, expected, got } = error else { panic!("{error}") };
    assert_eq!((named.as_str(), expected, got), (tensor, vec![16, 32], vec![32, 16]));

    let error = spoiled(&[tensor], |writer| writer.tensor(tensor, &[16, 32], TensorType::I32, vec![0; 2048]));
    let is_named = matches!(&error, EngineError::TensorTypeUnsupported { tensor: named, tensor_type: TensorType::I32 } if named == tensor);
    assert!(is_named, "{error}");
}

#[test]
fn a_vocabulary_that_disagrees_with_the_embedding_is_refused() {
    let error = spoiled(&["llama.vocab_size"], |writer| writer.meta("llama.vocab_size", 41u32));
    assert!(matches!(error, EngineError::VocabularyMismatch { n_tokens: 41, n_rows: 40 }), "{error}");
}

#[test]
fn unknown_architectures_and_half_described_experts_are_refused_by_name() {
    let error = error_of(Writer::new("mamba9").meta("mamba9.block_count", 2u32));
    assert!(matches!(&error, EngineError::ArchitectureUnsupported { architecture } if architecture == "mamba9"));
    let error = spoiled(&[], |writer| writer.meta("llama.expert_count", 8u32));
    assert_eq!(error.to_string(), "key `llama.expert_used_count` is missing");
}

#[test]
fn a_header_that_its_family_cannot_use_is_refused_before_a_download() {
    let refusal = |writer: Writer| {
        let bytes =
            writer.meta("tokenizer.ggml.model", "gpt2").meta("tokenizer.ggml.pre", "smollm").to_bytes().unwrap();
        // only the header is looked at, as it would be over the network
        let Ok(Prefix::Complete(facts)) = ModelFacts::from_prefix(&bytes, bytes.len() as u64) else {
            panic!("a header")
        };
        facts.refusal()
    };
    assert_eq!(refusal(TINY.writer()), Ok(()));
    let Err(Refusal::Unsound(unsound)) = refusal(TINY.writer_without(&["blk.1.attn_k.weight"])) else { panic!() };
    assert!(matches!(unsound.error(), EngineError::TensorMissing { .. }), "{unsound}");
    let Err(Refusal::Unsound(unsound)) = refusal(TINY.writer_without(&["llama.attention.head_count"])) else {
        panic!()
    };
    assert!(unsound.to_string().contains("llama.attention.head_count"), "{unsound}");
}

#[test]
fn a_survey_of_the_header_knows_what_a_load_allocates() {
    let bytes = TINY.writer().to_bytes().unwrap();
    let Ok(Prefix::Complete(facts)) = ModelFacts::from_prefix(&bytes, bytes.len() as u64) else { panic!("a header") };
    let survey = arch::survey(&facts).unwrap();
    let types = KvTypes::both(KvType::F16);
    // two layers, two heads of eight elements, keys and values
    assert_eq!(
        survey.cache_bytes(&CacheOptions { n_positions: 256, n_batch: 5, types, checkpoint_bytes: 0 }),
        2 * 2 * 8 * 2 * 2 * 256
    );
    assert!(survey.buffer_bytes(5) > 0);
}

#[test]
fn a_scale_beside_a_weight_multiplies_its_products() {
    let logits = |writer: Writer| {
        let model = load(writer, &TINY.options()).ok().unwrap();
        let mut session = Session::new(model.into()).unwrap();
        session.feed(&[1, 7, 30, 7], &mut |_| Flow::Continue).unwrap();
        session.logits().to_vec()
    };
    for name in ["blk.1.attn_q", "blk.0.ffn_down", "token_embd"] {
        let weight = format!("{name}.weight");
        let (_, shape, elems) = TINY.tensors().into_iter().find(|(tensor, ..)| *tensor == weight).unwrap();
        let doubled: Vec<f32> = elems.iter().map(|elem| 2.0 * elem).collect();
        let scaled = TINY.writer_without(&[&weight]).tensor_f32(&weight, &shape, &doubled);
        let scaled = scaled.tensor_f32(&format!("{name}.scale"), &[1], &[0.5]);
        // doubling and halving lose nothing
        assert_eq!(logits(scaled), logits(TINY.writer()), "{name}");
    }
}

#[test]
fn placements_that_cannot_be_obeyed_are_refused() {
    let mut options = TINY.options();
    options.placement.head = Device::Cuda(90);
    let error = load(TINY.writer(), &options).err().unwrap();
    assert!(matches!(error, EngineError::Cuda(CudaError::Unavailable { index: 90, .. })), "{error}");

    // Two layers of 64 positions, 2 heads of 8 elements, K and V in f32 alone take 16 KiB.
    let budget = |bytes| LoadOptions { budgets: vec![Budget { device: Device::Cpu, bytes }], ..TINY.options() };
    let error = load(TINY.writer(), &budget(16 << 10)).err().unwrap();
    assert!(matches!(error, EngineError::DoesNotFit { available_bytes: 16_384, .. }), "{error}");
    assert!(load(TINY.writer(), &budget(1 << 20)).is_ok());
}

#[test]
fn a_context_beyond_all_memory_is_an_error() {
    let options = LoadOptions { context_length: usize::MAX >> 8, ..TINY.options() };
    let model = load(TINY.writer(), &options).ok().unwrap();
    let error = Session::new(model.into()).err().unwrap();
    assert!(matches!(error, EngineError::OutOfMemory { .. }), "{error}");
    let options = LoadOptions { context_length: 0, ..TINY.options() };
    assert!(matches!(load(TINY.writer(), &options), Err(EngineError::ContextLength { asked: 0 })));
}

#[test]
fn a_load_reports_progress_and_stops_at_any_report() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("tiny.gguf");
    TINY.write(&path);
    let mut seen = Vec::new();
    let mut note = |done| {
        seen.push(done);
        Flow::Continue
    };
    Model::load(&path, &TINY.options(), &mut note).ok().unwrap();
    assert!(seen.len() > 10, "{seen:?}");
    assert!(seen.is_sorted() && seen[0] == 0.0 && seen[seen.len() - 1] == 1.0, "{seen:?}");

    for stop_at in [0, 1, seen.len() / 2, seen.len() - 1] {
        let mut n_reports = 0;
        let result = Model::load(&path, &TINY.options(), &mut |_| {
            n_reports += 1;
            if n_reports > stop_at { Flow::Break } else { Flow::Continue }
        });
        assert!(matches!(result, Err(EngineError::Cancelled)));
        assert_eq!(n_reports, stop_at + 1);
    }

    let mut n_reports = 0;
    let options = LoadOptions { preload: Preload::Nothing, ..TINY.options() };
    let mut count = |_| {
        n_reports += 1;
        Flow::Continue
    };
    Model::load(&path, &options, &mut count).ok().unwrap();
    assert_eq!(n_reports, 2);
}

#[test]
fn a_copy_of_the_file_computes_the_same_and_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("tiny.gguf");
    TINY.write(&path);
    let logits = |model: Model| {
        let mut session = Session::new(model.into()).unwrap();
        session.feed(&[1, 2, 3], &mut |_| Flow::Continue).unwrap();
        session.logits().to_vec()
    };
    let mapped = logits(Model::load(&path, &TINY.options(), &mut |_| Flow::Continue).ok().unwrap());
    let options = LoadOptions { preload: Preload::Copy, ..TINY.options() };
    let mut seen = Vec::new();
    let mut note = |done| {
        seen.push(done);
        Flow::Continue
    };
    let copied = Model::load(&path, &options, &mut note).ok().unwrap();
    assert!(seen.is_sorted() && seen[0] == 0.0 && seen[seen.len() - 1] == 1.0, "{seen:?}");
    std::fs::write(&path, []).unwrap();
    assert_eq!(logits(copied), mapped);

    TINY.write(&path);
    let mut n_reports = 0;
    let stopped = Model::load(&path, &options, &mut |_| {
        n_reports += 1;
        if n_reports > 1 { Flow::Break } else { Flow::Continue }
    });
    assert!(matches!(stopped, Err(EngineError::Cancelled)));
}

#[test]
fn fused_and_biased_attention_is_the_same_attention() {
    let tiny = Tiny { n_layers: 1, ..TINY };
    let (q, k, v) = (32usize, 16usize, 16usize);
    let names = ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"];
    let is_fused = |name: &str| names.contains(&name);
    let fused: Vec<f32> =
        tiny.tensors().into_iter().filter(|(name, ..)| is_fused(name)).flat_map(|(.., elems)| elems).collect();
    let bias: Vec<f32> = (0..q + k + v).map(|i| i as f32 / 64.0 - 0.5).collect();
    let apart = tiny
        .writer()
        .tensor_f32("blk.0.attn_q.bias", &[q as u64], &bias[..q])
        .tensor_f32("blk.0.attn_k.bias", &[k as u64], &bias[q..q + k])
        .tensor_f32("blk.0.attn_v.bias", &[v as u64], &bias[q + k..]);
    let fused = tiny
        .writer_without(&names)
        .tensor_f32("blk.0.attn_qkv.weight", &[(q + k + v) as u64, 32], &fused)
        .tensor_f32("blk.0.attn_qkv.bias", &[(q + k + v) as u64], &bias);
    let logits = |writer| {
        let mut session = Session::new(load(writer, &tiny.options()).ok().unwrap().into()).unwrap();
        session.feed(&[1, 2, 3, 4, 5, 6, 7], &mut |_| Flow::Continue).unwrap();
        session.logits().to_vec()
    };
    let plain = logits(tiny.writer());
    let biased = logits(apart);
    assert_ne!(plain, biased);
    assert_eq!(logits(fused), biased);
}
