//! Damaged files of every architecture: keys and tensors that are missing, contradictory or not numbers are refused by name, or were
//! optional; nothing panics.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{Array, MappedModel, ModelFacts, TensorFacts, TensorType, Value, Writer};
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::sample::{Sampler, SamplerSettings};
use tandem_engine::session::Session;

/// What is done to a file.
#[derive(Clone, Debug)]
enum Damage {
    /// A key is not there.
    WithoutKey(String),
    /// A key has another value.
    Key(String, Value),
    /// A tensor is not there.
    WithoutTensor(String),
    /// The first dimension of a tensor is one less.
    Shorter(String),
    /// The middle element of a tensor is not a number.
    NotANumber(String),
}

/// Keys, without the architecture before them, that a file may lack.
const OPTIONAL_KEYS: &[&str] = &[
    "altup.active_idx",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.key_length_swa",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.q_lora_rank",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "attention.value_length",
    "attention.value_length_swa",
    "attn_logit_softcapping",
    "context_length",
    "embedding_length_per_layer_input",
    "embedding_scale",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_norm",
    "expert_weights_scale",
    "feed_forward_length",
    "final_logit_softcapping",
    "full_attention_interval",
    "leading_dense_block_count",
    "logit_scale",
    "moe_latent_size",
    "nextn_predict_layers",
    "residual_scale",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "vocab_size",
];

/// Tensors, without the layer before them, that a file of some architecture may lack.
const OPTIONAL_TENSORS: &[&str] = &[
    "output.weight",
    "output.bias",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_qkv.bias",
    "attn_output.bias",
    "ffn_gate.bias",
    "ffn_up.bias",
    "ffn_down.bias",
    "ffn_down_exps.scale",
    "exp_probs_b.bias",
    "ssm_conv1d.bias",
    "layer_output_scale.weight",
];

/// Further ones of one architecture: keys stand in for values, a dense network for experts.
const OPTIONAL_TENSORS_OF_GEMMA4: &[&str] = &["attn_v.weight", "ffn_gate_inp.weight"];

#[test]
fn damage_is_refused_by_name_or_was_optional() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch");
    let mut families: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "gguf") {
            let facts = ModelFacts::from_file(&path).unwrap();
            families.entry(facts.architecture().unwrap().to_owned()).or_default().push(path);
        }
    }
    assert!(families.len() > 20, "{families:?}");
    let families: Vec<Vec<PathBuf>> = families.into_values().collect();
    let walk =
        |first: usize| families.iter().skip(first).step_by(2).flat_map(|files| failures_of(files)).collect::<Vec<_>>();
    let failures = std::thread::scope(|scope| {
        let odd = scope.spawn(|| walk(1));
        [walk(0), odd.join().unwrap()].concat()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// What went wrong with damaged versions of the files of one architecture, of which small ones are damaged first and no kind of damage
/// is done twice.
fn failures_of(files: &[PathBuf]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("damaged.gguf");
    let mut files = files.to_vec();
    files.sort_by_key(|path| std::fs::metadata(path).unwrap().len());
    let mut seen = BTreeSet::new();
    let mut failures = Vec::new();
    for path in files {
        let model = MappedModel::open(&path).unwrap();
        for damage in damages(&model).into_iter().filter(|damage| seen.insert(kind(damage))) {
            damaged(&model, &damage).write(&scratch).unwrap();
            let outcome = catch_unwind(AssertUnwindSafe(|| load_and_run(&scratch)));
            let complaint = match outcome {
                Err(_) => Some("panicked".to_owned()),
                Ok(Ok(())) => (!may_pass(&model, &damage)).then(|| "was not noticed".to_owned()),
                Ok(Err(error)) => (!is_named(&error)).then(|| error.to_string()),
            };
            failures.extend(complaint.map(|complaint| format!("{path:?}: {damage:?}: {complaint}")));
            // A new file each time: on some systems one that is mapped cannot be written over.
            let _ = std::fs::remove_file(&scratch);
        }
    }
    failures
}

/// Every key in several wrong ways, every tensor in all of them.
fn damages(model: &MappedModel) -> Vec<Damage> {
    let architecture = model.facts.architecture().unwrap();
    let mut damages = Vec::new();
    for (key, value) in model.facts.metadata.iter().filter(|(key, _)| key.starts_with(architecture)) {
        damages.push(Damage::WithoutKey(key.to_owned()));
        damages.extend(wrong(value).into_iter().map(|value| Damage::Key(key.to_owned(), value)));
    }
    for TensorFacts { name, shape, .. } in &model.facts.tensors {
        damages.extend([Damage::WithoutTensor, Damage::NotANumber].map(|kind| kind(name.clone())));
        damages.extend((shape[0] > 1).then(|| Damage::Shorter(name.clone())));
    }
    damages
}

/// The same for all layers.
fn kind(damage: &Damage) -> String {
    format!("{damage:?}").split('.').filter(|part| part.parse::<u32>().is_err()).collect()
}

/// Values that a key should not have.
fn wrong(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(array) => {
            let numbers: Vec<Value> = array.scalars().unwrap().collect();
            let Some(elems) = numbers.iter().map(Value::as_integer).collect::<Option<Vec<_>>>() else {
                return vec![Array::from_scalars::<u32>(&[]).into(), "nonsense".into()];
            };
            let elems: Vec<u32> = elems.into_iter().map(|elem| elem as u32).collect();
            let replaced = |elem: u32| Array::from_scalars(&vec![elem; elems.len()]).into();
            let shorter = Array::from_scalars(&elems[1..]).into();
            vec![shorter, Array::from_scalars::<u32>(&[]).into(), replaced(0), replaced(3), replaced(u32::MAX)]
        }
        Value::F32(_) => [0.0, -1.0, f32::NAN, f32::INFINITY, 1e30].map(Value::from).to_vec(),
        Value::String(_) => vec!["".into(), "nonsense".into(), 7_u32.into()],
        Value::Bool(was) => vec![(!was).into(), 7_u32.into()],
        number => {
            let was = number.as_integer().unwrap() as u32;
            let mut wrong = [0, 1, was + 1, 1 << 20, u32::MAX].map(Value::from).to_vec();
            wrong.extend(["nonsense".into(), (1_u64 << 40).into(), (-1_i32).into()]);
            wrong
        }
    }
}

fn damaged(model: &MappedModel, damage: &Damage) -> Writer {
    let mut writer = Writer::default();
    for (key, value) in model.facts.metadata.iter() {
        writer = match damage {
            Damage::WithoutKey(name) if name == key => writer,
            Damage::Key(name, value) if name == key => writer.meta(key, value.clone()),
            _ => writer.meta(key, value.clone()),
        };
    }
    for TensorFacts { name, shape, .. } in &model.facts.tensors {
        let mut bytes = model.tensor_bytes(model.facts.tensor(name).unwrap()).to_vec();
        let mut shape = shape.clone();
        match damage {
            Damage::WithoutTensor(other) if other == name => continue,
            Damage::Shorter(other) if other == name => {
                bytes.truncate(bytes.len() / shape[0] as usize * (shape[0] as usize - 1));
                shape[0] -= 1;
            }
            Damage::NotANumber(other) if other == name => {
                let at = bytes.len() / 8 * 4;
                bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            _ => {}
        }
        writer = writer.tensor(name, &shape, TensorType::F32, bytes);
    }
    writer
}

/// Loads a file and computes a few tokens.
fn load_and_run(path: &Path) -> Result<(), EngineError> {
    let facts = ModelFacts::from_file(path)?;
    let options =
        LoadOptions { kv_types: KvTypes::both(KvType::F32), n_batch: 4, ..LoadOptions::all_cpu(&facts, 1, 16)? };
    let model = Model::load(path, &options, &mut |_| Flow::Continue)?;
    let mut session = Session::new(Arc::new(model))?;
    session.feed(&[1, 5, 9, 3, 7, 2], &mut |_| Flow::Continue)?;
    Sampler::new(SamplerSettings::default()).sample(&mut session.logits().to_vec(), &[]).map(drop)
}

/// Whether a file with this damage may load and compute.
fn may_pass(model: &MappedModel, damage: &Damage) -> bool {
    let architecture = model.facts.architecture().unwrap();
    match damage {
        // Another value may be another model; what is not a number may lie in an expert that no token goes to.
        Damage::Key(..) | Damage::NotANumber(_) => true,
        Damage::WithoutKey(key) => OPTIONAL_KEYS.contains(&&key[architecture.len() + 1..]),
        // Factors for contexts of another length are not looked at.
        Damage::Shorter(name) => name == "rope_factors_long.weight" || name.contains("nextn"),
        Damage::WithoutTensor(name) => {
            let name = ModelFacts::layer_of(name).map_or(name.as_str(), |(_, name)| name);
            let is_of_gemma4 = architecture == "gemma4" && OPTIONAL_TENSORS_OF_GEMMA4.contains(&name);
            OPTIONAL_TENSORS.contains(&name) || is_of_gemma4 || name.starts_with("nextn")
        }
    }
}

/// Whether an error says where to look.
fn is_named(error: &EngineError) -> bool {
    match error {
        EngineError::Panicked { .. } => false,
        EngineError::VocabularyMismatch { .. } | EngineError::LogitsNotFinite { .. } => true,
        named => named.to_string().contains('`'),
    }
}
