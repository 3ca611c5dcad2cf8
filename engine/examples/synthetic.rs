//! Writes a file with the shape of Qwen3-30B-A3B, or of its first layers: real sizes, random routers and embeddings, all other
//! weights zero. It says nothing; a step over it moves as many bytes as one over the real model. The file has holes where weights
//! are zero, so it takes little of the disk.
//!
//!     cargo run --example synthetic -- FILE [LAYERS]

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use tandem_engine::gguf::{GgufError, ModelFacts, TensorType, Writer};

const N_EMBD: u64 = 2048;
const N_HEADS: u64 = 32;
const N_KV_HEADS: u64 = 4;
const HEAD_DIM: u64 = 128;
const N_EXPERTS: u64 = 128;
const N_FF: u64 = 768;
const N_VOCAB: u64 = 32_000;
const N_LAYERS: u32 = 48;

fn main() -> Result<(), GgufError> {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("synthetic FILE [LAYERS]");
    let n_layers = args.next().map_or(N_LAYERS, |n| n.parse().expect("a number of layers"));
    let path = Path::new(&path);
    write(path, n_layers).map_err(|source| GgufError::Io { path: path.to_owned(), source })?;
    fill(path)
}

/// The header, and a hole for the weights.
fn write(path: &Path, n_layers: u32) -> std::io::Result<()> {
    let (header, file_bytes) = model(n_layers).header().map_err(std::io::Error::other)?;
    let mut file = File::create(path)?;
    file.write_all(&header)?;
    file.set_len(file_bytes)
}

/// Norms are one, routers and embeddings random.
fn fill(path: &Path) -> Result<(), GgufError> {
    let io = |source| GgufError::Io { path: path.to_owned(), source };
    let mut file = File::options().write(true).open(path).map_err(io)?;
    let mut random = Random(5);
    for tensor in ModelFacts::from_file(path)?.tensors {
        let n_elems = tensor.n_elems();
        let bytes: Vec<u8> = match (tensor.tensor_type, tensor.shape.len()) {
            (TensorType::F32, 1) => (0..n_elems).flat_map(|_| 1f32.to_le_bytes()).collect(),
            (TensorType::F32, _) => (0..n_elems).flat_map(|_| random.next().to_le_bytes()).collect(),
            (TensorType::F16, _) => {
                (0..n_elems).flat_map(|_| half::f16::from_f32(random.next()).to_le_bytes()).collect()
            }
            _ => continue,
        };
        file.seek(SeekFrom::Start(tensor.offset_bytes)).map_err(io)?;
        file.write_all(&bytes).map_err(io)?;
    }
    Ok(())
}

fn model(n_layers: u32) -> Writer {
    let key = |name: &str| format!("qwen3moe.{name}");
    let mut writer = Writer::new("qwen3moe")
        .meta(&key("block_count"), n_layers)
        .meta(&key("context_length"), 32_768_u32)
        .meta(&key("embedding_length"), N_EMBD as u32)
        .meta(&key("feed_forward_length"), N_FF as u32)
        .meta(&key("attention.head_count"), N_HEADS as u32)
        .meta(&key("attention.head_count_kv"), N_KV_HEADS as u32)
        .meta(&key("attention.key_length"), HEAD_DIM as u32)
        .meta(&key("attention.value_length"), HEAD_DIM as u32)
        .meta(&key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
        .meta(&key("rope.freq_base"), 1e6_f32)
        .meta(&key("expert_count"), N_EXPERTS as u32)
        .meta(&key("expert_used_count"), 8_u32)
        .meta(&key("expert_feed_forward_length"), N_FF as u32)
        .meta("tokenizer.ggml.model", "none")
        .tensor_absent("token_embd.weight", &[N_VOCAB, N_EMBD], TensorType::F16)
        .tensor_absent("output_norm.weight", &[N_EMBD], TensorType::F32)
        .tensor_absent("output.weight", &[N_VOCAB, N_EMBD], TensorType::Q6_K);
    for layer in 0..n_layers {
        for (name, shape, tensor_type) in [
            ("attn_norm", &[N_EMBD][..], TensorType::F32),
            ("attn_q", &[N_HEADS * HEAD_DIM, N_EMBD], TensorType::Q4_K),
            ("attn_k", &[N_KV_HEADS * HEAD_DIM, N_EMBD], TensorType::Q4_K),
            ("attn_v", &[N_KV_HEADS * HEAD_DIM, N_EMBD], TensorType::Q6_K),
            ("attn_output", &[N_EMBD, N_HEADS * HEAD_DIM], TensorType::Q4_K),
            ("attn_q_norm", &[HEAD_DIM], TensorType::F32),
            ("attn_k_norm", &[HEAD_DIM], TensorType::F32),
            ("ffn_norm", &[N_EMBD], TensorType::F32),
            ("ffn_gate_inp", &[N_EXPERTS, N_EMBD], TensorType::F32),
            ("ffn_gate_exps", &[N_EXPERTS, N_FF, N_EMBD], TensorType::Q4_K),
            ("ffn_up_exps", &[N_EXPERTS, N_FF, N_EMBD], TensorType::Q4_K),
            ("ffn_down_exps", &[N_EXPERTS, N_EMBD, N_FF], TensorType::Q6_K),
        ] {
            writer = writer.tensor_absent(&format!("blk.{layer}.{name}.weight"), shape, tensor_type);
        }
    }
    writer
}

/// Numbers from -1 to 1, always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
