//! Families with recurrent layers: what contradicts itself in a file is named, forms that mean the same give the same, and what
//! drafts tokens further ahead is not needed. The files are the fixtures of `architectures.rs`, changed in one thing.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::Path;
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{Array, MappedModel, ModelFacts, Value, Writer};
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::quant;
use tandem_engine::session::Session;

/// A fixture, taken apart.
#[derive(Clone)]
struct Parts {
    architecture: String,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    elems: Vec<f32>,
}

impl Parts {
    fn of(fixture: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/arch/{fixture}.gguf"));
        let model = MappedModel::open(&path).unwrap();
        let tensor = |tensor: &tandem_engine::gguf::TensorFacts| {
            let mut elems = vec![0.0; tensor.n_elems() as usize];
            quant::decode_row(tensor.tensor_type, model.tensor_bytes(tensor), &mut elems).unwrap();
            Tensor { name: tensor.name.clone(), shape: tensor.shape.clone(), elems }
        };
        let metadata = model.facts.metadata.iter().map(|(key, value)| (key.to_owned(), value.clone()));
        Self {
            architecture: model.facts.architecture().unwrap().to_owned(),
            metadata: metadata.collect(),
            tensors: model.facts.tensors.iter().map(tensor).collect(),
        }
    }

    /// With another value for one of the architecture's keys, or without it.
    fn with(mut self, key: &str, value: Option<Value>) -> Self {
        let key = format!("{}.{key}", self.architecture);
        self.metadata.retain(|(other, _)| *other != key);
        self.metadata.extend(value.map(|value| (key, value)));
        self
    }

    /// Takes a tensor out.
    fn take(&mut self, name: &str) -> Tensor {
        let at = self.tensors.iter().position(|tensor| tensor.name == name).unwrap();
        self.tensors.remove(at)
    }

    fn add(&mut self, name: String, shape: [usize; 2], elems: Vec<f32>) {
        self.tensors.push(Tensor { name, shape: shape.map(|n| n as u64).to_vec(), elems });
    }

    fn load(&self) -> Result<Model, EngineError> {
        let mut writer = Writer::default();
        for (key, value) in &self.metadata {
            writer = writer.meta(key, value.clone());
        }
        for Tensor { name, shape, elems } in &self.tensors {
            writer = writer.tensor_f32(name, shape, elems);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        writer.write(&path).unwrap();
        let facts = ModelFacts::from_file(&path)?;
        let options = LoadOptions { kv_types: KvTypes::both(KvType::F32), ..LoadOptions::all_cpu(&facts, 1, 32)? };
        Model::load(&path, &options, &mut |_| Flow::Continue)
    }

    fn error(&self) -> EngineError {
        self.load().err().expect("the file is bad")
    }

    fn logits(&self) -> Vec<f32> {
        let model = self.load().unwrap_or_else(|error| panic!("{error}"));
        let mut session = Session::new(Arc::new(model)).unwrap();
        session.feed(&[3, 17, 5, 22, 40, 9, 31, 2], &mut |_| Flow::Continue).unwrap();
        session.logits().to_vec()
    }
}

fn n(value: u32) -> Value {
    value.into()
}

fn list(values: &[u32]) -> Value {
    Array::from_scalars(values).into()
}

#[test]
fn keys_that_contradict_each_other_are_named() {
    // file, key, its value, the key that the error names
    let cases = [
        ("qwen35", "ssm.conv_kernel", n(0), "ssm.conv_kernel"),
        ("qwen35", "ssm.conv_kernel", n(9), "ssm.conv_kernel"),
        ("qwen35", "ssm.state_size", n(0), "ssm.state_size"),
        ("qwen35", "ssm.state_size", n(u32::MAX), "ssm.state_size"),
        ("qwen35", "ssm.state_size", n(17), "ssm.inner_size"),
        ("qwen35", "ssm.inner_size", n(0), "ssm.inner_size"),
        ("qwen35", "ssm.inner_size", n(u32::MAX), "ssm.inner_size"),
        ("qwen35", "ssm.group_count", n(0), "ssm.group_count"),
        ("qwen35", "ssm.group_count", n(3), "ssm.time_step_rank"),
        ("qwen35", "ssm.time_step_rank", n(0), "ssm.time_step_rank"),
        ("qwen35", "ssm.time_step_rank", n(8), "ssm.inner_size"),
        ("qwen35", "full_attention_interval", n(0), "full_attention_interval"),
        ("qwen35", "attention.recurrent_layers", list(&[1, 1, 0]), "attention.recurrent_layers"),
        ("qwen35", "rope.dimension_count", n(34), "rope.dimension_count"),
        ("qwen35", "rope.dimension_sections", list(&[1, 1, 0, 9]), "rope.dimension_sections"),
        ("qwen35moe", "expert_used_count", n(0), "expert_used_count"),
        ("qwen35moe-mtp", "nextn_predict_layers", n(5), "nextn_predict_layers"),
        ("granitehybrid", "ssm.inner_size", n(130), "ssm.time_step_rank"),
        ("granitehybrid", "ssm.group_count", n(3), "ssm.group_count"),
        ("granitehybrid", "ssm.state_size", n(1 << 17), "ssm.state_size"),
        ("granitehybrid", "attention.head_count_kv", list(&[0, 3, 0, 2]), "attention.head_count_kv"),
        ("granitehybrid", "attention.head_count_kv", list(&[0, 2, 0]), "attention.head_count_kv"),
        ("granitehybrid", "logit_scale", f32::NAN.into(), "logit_scale"),
        ("lfm2", "shortconv.l_cache", n(0), "shortconv.l_cache"),
        ("lfm2", "shortconv.l_cache", n(100), "shortconv.l_cache"),
        ("lfm2", "attention.head_count_kv", list(&[0, 2]), "attention.head_count_kv"),
        ("lfm2", "rope.dimension_count", n(18), "rope.dimension_count"),
        ("nemotron_h", "feed_forward_length", list(&[0, 96]), "feed_forward_length"),
        ("nemotron_h", "ssm.group_count", n(0), "ssm.group_count"),
        ("nemotron_h_moe", "expert_count", n(1), "expert_used_count"),
    ];
    for (file, key, value, named) in cases {
        let error = Parts::of(file).with(key, Some(value.clone())).error();
        assert!(matches!(error, EngineError::KeyInvalid { .. } | EngineError::Gguf(_)), "{file}, {key}: {error}");
        assert!(error.to_string().contains(&format!(".{named}`")), "{file}, {key} = {value:?}: {error}");
    }
}

#[test]
fn missing_keys_are_named() {
    let ssm = ["ssm.conv_kernel", "ssm.state_size", "ssm.inner_size", "ssm.group_count", "ssm.time_step_rank"];
    for file in ["qwen35", "qwen3next", "granitehybrid", "nemotron_h"] {
        for key in ssm {
            let error = Parts::of(file).with(key, None).error();
            assert!(error.to_string().contains(&format!(".{key}`")), "{file}, {key}: {error}");
        }
    }
    let error = Parts::of("lfm2").with("shortconv.l_cache", None).error();
    assert!(error.to_string().contains("`lfm2.shortconv.l_cache`"), "{error}");
}

#[test]
fn missing_tensors_and_those_of_another_shape_are_named() {
    for (file, name) in [
        ("qwen35", "blk.0.attn_qkv.weight"),
        ("qwen35", "blk.0.attn_gate.weight"),
        ("qwen35", "blk.1.ssm_conv1d.weight"),
        ("qwen35", "blk.1.ssm_a"),
        ("qwen35", "blk.1.ssm_dt.bias"),
        ("qwen35", "blk.2.ssm_beta.weight"),
        ("qwen35", "blk.2.ssm_norm.weight"),
        ("granitehybrid", "blk.0.ssm_in.weight"),
        ("granitehybrid", "blk.0.ssm_d"),
        ("granitehybrid", "blk.2.ssm_norm.weight"),
        ("lfm2", "blk.0.shortconv.conv.weight"),
        ("lfm2", "blk.0.shortconv.in_proj.weight"),
        ("lfm2", "token_embd_norm.weight"),
        ("nemotron_h", "blk.0.ssm_out.weight"),
        ("nemotron_h", "blk.3.ffn_up.weight"),
    ] {
        let mut parts = Parts::of(file);
        let mut tensor = parts.take(name);
        let error = parts.error();
        assert!(matches!(&error, EngineError::TensorMissing { tensor } if tensor == name), "{name}: {error}");
        let n_cols = tensor.shape.iter().skip(1).product::<u64>() as usize;
        tensor.shape[0] += 1;
        tensor.elems.extend(vec![0.0; n_cols]);
        parts.tensors.push(tensor);
        let error = parts.error();
        assert!(matches!(&error, EngineError::TensorShape { tensor, .. } if tensor == name), "{name}: {error}");
    }
}

#[test]
fn heads_are_as_large_in_all_layers() {
    let error = Parts::of("lfm2").with("attention.head_count", Some(list(&[4, 4, 4, 8]))).error();
    assert!(matches!(&error, EngineError::TensorShape { tensor, .. } if tensor == "blk.3.attn_q.weight"), "{error}");
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    for (file, name) in [("qwen35", "blk.0.ssm_conv1d.weight"), ("nemotron_h", "blk.0.ssm_a")] {
        let mut parts = Parts::of(file);
        let mut tensor = parts.take(name);
        tensor.elems[1] = f32::NAN;
        parts.tensors.push(tensor);
        let error = parts.error();
        let is_named = matches!(&error, EngineError::WeightNotFinite { tensor, elem: 1 } if tensor == name);
        assert!(is_named, "{name}: {error}");
    }
}

/// Files of before hold queries, keys, values and gates in one matrix, its rows by key heads.
#[test]
fn mixed_projections_are_the_same_projections() {
    const N_EMBD: usize = 64;
    const N_K_HEADS: usize = 2;
    const HEAD_DIM: usize = 16;
    const V_PER_K: usize = 2;
    let apart = Parts::of("qwen3next");
    let mut mixed = apart.clone();
    for layer in 0..3 {
        let qkv = mixed.take(&format!("blk.{layer}.attn_qkv.weight")).elems;
        let z = mixed.take(&format!("blk.{layer}.attn_gate.weight")).elems;
        let rows = |of: &[f32], first: usize, n: usize| of[first * N_EMBD..(first + n) * N_EMBD].to_vec();
        let v_rows = V_PER_K * HEAD_DIM;
        let by_key_head = (0..N_K_HEADS).flat_map(|head| {
            [
                rows(&qkv, head * HEAD_DIM, HEAD_DIM),
                rows(&qkv, (N_K_HEADS + head) * HEAD_DIM, HEAD_DIM),
                rows(&qkv, 2 * N_K_HEADS * HEAD_DIM + head * v_rows, v_rows),
                rows(&z, head * v_rows, v_rows),
            ]
        });
        let elems: Vec<f32> = by_key_head.flatten().collect();
        mixed.add(format!("blk.{layer}.ssm_in.weight"), [elems.len() / N_EMBD, N_EMBD], elems);
    }
    assert_eq!(mixed.logits(), apart.logits());
}

#[test]
fn layers_that_predict_further_ahead_are_not_needed() {
    let whole = Parts::of("qwen35moe-mtp");
    let mut trunk = whole.clone();
    trunk.tensors.retain(|tensor| !tensor.name.starts_with("blk.4."));
    assert!(trunk.tensors.len() < whole.tensors.len());
    assert_eq!(trunk.logits(), whole.logits());
}

#[test]
fn a_list_of_recurrent_layers_stands_for_an_interval() {
    // the last block drafts tokens, which a list may name too
    let interval = Parts::of("qwen35moe-mtp");
    let flags = [true, true, true, false, false];
    let list = interval
        .clone()
        .with("attention.recurrent_layers", Some(Array::from_scalars(&flags).into()))
        .with("full_attention_interval", Some(n(3)));
    assert_eq!(list.logits(), interval.logits());
}
