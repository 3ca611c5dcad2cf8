//! Real models fed a given text, token after token whatever they would have said: their logits at every position.

use std::path::Path;
use std::sync::Arc;

use tandem_engine::Flow;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::{MappedModel, ModelFacts, TensorFacts, TensorType, Writer};
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::quant;
use tandem_engine::session::Session;

/// Computes all tokens with an f32 cache.
///
/// chunks   lengths of the chunks, cycled; empty for all at once
/// on_row   called with each position and its logits
pub fn for_each_row(path: &Path, tokens: &[u32], isa: Isa, chunks: &[usize], on_row: impl FnMut(usize, &[f32])) {
    teach(&mut session(path, tokens.len(), isa, KvTypes::both(KvType::F32)), tokens, chunks, on_row);
}

/// A session of a model for texts of at most so many tokens.
pub fn session(path: &Path, n_tokens: usize, isa: Isa, kv_types: KvTypes) -> Session {
    let facts = ModelFacts::from_file(path).expect("the model is whole");
    let options = LoadOptions {
        isa: Some(isa),
        kv_types,
        n_batch: n_tokens,
        ..LoadOptions::all_cpu(&facts, 2, n_tokens).expect("the model has layers")
    };
    let model = Model::load(path, &options, &mut |_| Flow::Continue).expect("the model loads");
    Session::new(Arc::new(model)).expect("there is memory for a session")
}

/// Computes all tokens anew; the rest as `for_each_row`.
pub fn teach(session: &mut Session, tokens: &[u32], chunks: &[usize], mut on_row: impl FnMut(usize, &[f32])) {
    let mut sink = |pos: usize, logits: &[f32]| {
        on_row(pos, logits);
        Flow::Continue
    };
    session.teacher_forced(tokens, chunks, &mut sink).expect("the text fits");
}

/// The same, all rows kept.
pub fn rows(path: &Path, tokens: &[u32], isa: Isa, chunks: &[usize]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    for_each_row(path, tokens, isa, chunks, |_, logits| rows.push(logits.to_vec()));
    rows
}

/// Writes the same model with every weight as f32.
pub fn write_decoded(from: &Path, to: &Path) {
    rewrite(from, to, |_| TensorType::F32);
}

/// Writes the same model with its matrices in another format, as far as their rows are whole blocks of it.
pub fn write_quantised(from: &Path, to: &Path, tensor_type: TensorType) {
    rewrite(from, to, |tensor| match tensor.shape[..] {
        [_, n_cols] if tensor_type.row_bytes(n_cols).is_some() => tensor_type,
        [_, _] => TensorType::Q8_0,
        _ => TensorType::F32,
    });
}

fn rewrite(from: &Path, to: &Path, type_of: impl Fn(&TensorFacts) -> TensorType) {
    let model = MappedModel::open(from).expect("the model is whole");
    let mut writer = Writer::default();
    for (key, value) in model.facts.metadata.iter() {
        writer = writer.meta(key, value.clone());
    }
    for tensor in &model.facts.tensors {
        let mut elems = vec![0.0; tensor.n_elems() as usize];
        quant::decode_row(tensor.tensor_type, model.tensor_bytes(tensor), &mut elems).expect("the type is known");
        let tensor_type = type_of(tensor);
        let n_bytes = tensor_type.row_bytes(elems.len() as u64).expect("a row is whole blocks");
        let mut bytes = vec![0; n_bytes as usize];
        quant::encode_row(tensor_type, &elems, &mut bytes).expect("the type has an encoder");
        writer = writer.tensor(&tensor.name, &tensor.shape, tensor_type, bytes);
    }
    writer.write(to).expect("there is space for the model");
}

/// Log-probability of a token.
pub fn log_softmax(logits: &[f32], token: u32) -> f64 {
    f64::from(logits[token as usize]) - log_sum(logits)
}

/// Kullback-Leibler divergence of the distribution of `got` from that of `exact`.
pub fn divergence(exact: &[f32], got: &[f32]) -> f64 {
    let (exact_sum, got_sum) = (log_sum(exact), log_sum(got));
    let term = |(&exact, &got): (&f32, &f32)| {
        let log_p = f64::from(exact) - exact_sum;
        log_p.exp() * (log_p - (f64::from(got) - got_sum))
    };
    exact.iter().zip(got).map(term).sum()
}

fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum::<f64>().ln()
}
