//! What a layer costs beside its weights: small models of the engine's own making, a narrow one, a wide one and one with more
//! heads, run token by token, less what their products take, which are timed alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{ModelFacts, TensorType, Writer};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

use super::CalibrateError;
use super::benchmark::lower_tenth;
use crate::error::{FileAction, FileError};

/// Steps that `measure` reports.
pub(super) const N_STEPS: usize = 4;

const N_LAYERS: u32 = 4;
const HEAD_DIM: u32 = 64;
const FEW_HEADS: u32 = 1;
const HEADS: u32 = 4;
const N_FF: u32 = 64;
/// Products of a layer: queries with keys and values, the heads' output, gate with up, down.
const PRODUCTS_PER_LAYER: u32 = 4;
const N_VOCAB: u64 = 64;
const NARROW: u32 = 256;
const WIDE: u32 = 1024;
/// Tokens in the context where attention is measured, and tokens that are timed.
const DEPTH: usize = 1024;
const N_TOKENS: usize = 48;

/// What a layer costs.
pub(super) struct LayerCost {
    pub(super) layer_s: f64,
    pub(super) layer_s_per_value: f64,
    pub(super) attention_bytes_per_s: f64,
}

/// Measures with so many threads.
///
/// product_s  seconds of one product of Q8_0 weights in the cache: columns, and bytes of weights
pub(super) fn measure(
    n_threads: u32,
    product_s: &dyn Fn(usize, usize) -> Result<f64, EngineError>,
    on_step: &mut dyn FnMut() -> Result<(), CalibrateError>,
) -> Result<LayerCost, CalibrateError> {
    let mut layer_s = |n_embd: u32| -> Result<f64, CalibrateError> {
        let layer_s = token_seconds(&mut session(n_embd, FEW_HEADS, n_threads)?, 0)? / f64::from(N_LAYERS);
        let n_weights = n_embd * (4 * FEW_HEADS * HEAD_DIM + 3 * N_FF) / PRODUCTS_PER_LAYER;
        let n_bytes = TensorType::Q8_0.row_bytes(n_weights.into()).unwrap_or_default() as usize;
        let products_s = f64::from(PRODUCTS_PER_LAYER) * product_s(n_embd as usize, n_bytes)?;
        on_step()?;
        Ok((layer_s - products_s).max(1e-7))
    };
    let (narrow_s, wide_s) = (layer_s(NARROW)?, layer_s(WIDE)?);
    let mut deep = session(NARROW, HEADS, n_threads)?;
    let shallow_s = token_seconds(&mut deep, 0)?;
    on_step()?;
    let deep_s = token_seconds(&mut deep, DEPTH)?;
    on_step()?;
    let layer_s_per_value = ((wide_s - narrow_s) / f64::from(WIDE - NARROW)).max(0.0);
    // Keys and values in f16, of one token in all layers.
    let kv_bytes = f64::from(N_LAYERS * 2 * HEADS * HEAD_DIM * 2);
    Ok(LayerCost {
        layer_s: (narrow_s - layer_s_per_value * f64::from(NARROW)).max(1e-7),
        layer_s_per_value,
        // A difference that is lost in noise says that attention is as good as free.
        attention_bytes_per_s: kv_bytes * DEPTH as f64 / (deep_s - shallow_s).max(shallow_s / 50.0),
    })
}

/// Time of a token behind so many others that a tenth of them stayed below.
fn token_seconds(session: &mut Session, n_before: usize) -> Result<f64, EngineError> {
    let tokens: Vec<u32> = (0..n_before + N_TOKENS + 1).map(|i| (i % N_VOCAB as usize) as u32).collect();
    session.clear();
    session.feed(&tokens[..n_before + 1], &mut |_| Flow::Continue)?;
    let mut seconds = Vec::new();
    for n in n_before + 2..=tokens.len() {
        let started = Instant::now();
        session.feed(&tokens[..n], &mut |_| Flow::Continue)?;
        seconds.push(started.elapsed());
    }
    Ok(lower_tenth(&mut seconds).as_secs_f64())
}

fn session(n_embd: u32, n_heads: u32, n_threads: u32) -> Result<Session, CalibrateError> {
    let file = SmallFile::write(n_embd, n_heads)?;
    let facts = ModelFacts::from_file(&file.0).map_err(EngineError::from)?;
    let options = LoadOptions::all_cpu(&facts, n_threads as usize, DEPTH + N_TOKENS + 1)?;
    let model = Model::load(&file.0, &options, &mut |_| Flow::Continue)?;
    Ok(Session::new(Arc::new(model))?)
}

/// Files written by this process: each has a name of its own.
static N_WRITTEN: AtomicU32 = AtomicU32::new(0);

/// A file that goes when nobody needs it; what is mapped of it stays readable where the system allows that.
struct SmallFile(PathBuf);

impl SmallFile {
    fn write(n_embd: u32, n_heads: u32) -> Result<Self, CalibrateError> {
        let n = N_WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tandem-{}-{n}.gguf", std::process::id()));
        let file = Self(path);
        let bytes = writer(n_embd, n_heads).to_bytes().map_err(EngineError::from)?;
        std::fs::write(&file.0, bytes).map_err(FileError::at(FileAction::Write, &file.0))?;
        Ok(file)
    }
}

impl Drop for SmallFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "the small model's file stays behind");
    }
}

fn writer(n_embd: u32, n_heads: u32) -> Writer {
    let (width, n_q, n_ff) = (u64::from(n_embd), u64::from(n_heads * HEAD_DIM), u64::from(N_FF));
    let mut writer = Writer::new("llama")
        .meta("llama.block_count", N_LAYERS)
        .meta("llama.context_length", (DEPTH + N_TOKENS + 1) as u32)
        .meta("llama.embedding_length", n_embd)
        .meta("llama.feed_forward_length", N_FF)
        .meta("llama.attention.head_count", n_heads)
        .meta("llama.attention.head_count_kv", n_heads)
        .meta("llama.attention.key_length", HEAD_DIM)
        .meta("llama.attention.value_length", HEAD_DIM)
        .meta("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .meta("llama.rope.dimension_count", HEAD_DIM)
        .tensor_absent("token_embd.weight", &[N_VOCAB, width], TensorType::Q8_0)
        .tensor_absent("output_norm.weight", &[width], TensorType::F32);
    for layer in 0..N_LAYERS {
        for (name, shape) in [
            ("attn_norm", vec![width]),
            ("attn_q", vec![n_q, width]),
            ("attn_k", vec![n_q, width]),
            ("attn_v", vec![n_q, width]),
            ("attn_output", vec![width, n_q]),
            ("ffn_norm", vec![width]),
            ("ffn_gate", vec![n_ff, width]),
            ("ffn_up", vec![n_ff, width]),
            ("ffn_down", vec![width, n_ff]),
        ] {
            let tensor_type = if shape.len() == 1 { TensorType::F32 } else { TensorType::Q8_0 };
            writer = writer.tensor_absent(&format!("blk.{layer}.{name}.weight"), &shape, tensor_type);
        }
    }
    writer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_runs_the_small_model_and_its_file_goes() {
        let mut session = session(NARROW, FEW_HEADS, 1).unwrap();
        assert!(token_seconds(&mut session, 0).unwrap() > 0.0);
        let (one, other) = (SmallFile::write(NARROW, 1).unwrap(), SmallFile::write(NARROW, 1).unwrap());
        assert!(one.0 != other.0 && one.0.exists() && other.0.exists());
        let path = one.0.clone();
        drop(one);
        assert!(!path.exists() && other.0.exists());
    }
}
