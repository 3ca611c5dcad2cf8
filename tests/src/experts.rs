//! A small model with experts, made up: a tokenizer of single characters, random weights, a few megabytes. It says nothing
//! that makes sense, and always the same.

use std::path::Path;

use tandem_engine::gguf::{Array, GgufError, Writer};

/// Layers, all with experts.
pub const N_LAYERS: u32 = 4;
const N_EMBD: u64 = 64;
const N_HEADS: u64 = 4;
const N_KV_HEADS: u64 = 2;
const HEAD_DIM: u64 = 32;
const N_EXPERTS: u64 = 8;
const N_FF: u64 = 48;
const CONTEXT: u32 = 2048;

/// Writes it.
pub fn write(path: &Path) -> Result<(), GgufError> {
    let characters = ('!'..='~').map(String::from).chain(["Ġ", "Ċ"].map(String::from));
    let tokens: Vec<String> = characters.collect();
    let n_vocab = tokens.len() as u64;
    let key = |name: &str| format!("qwen3moe.{name}");
    let mut writer = Writer::new("qwen3moe")
        .meta(&key("block_count"), N_LAYERS)
        .meta(&key("context_length"), CONTEXT)
        .meta(&key("embedding_length"), N_EMBD as u32)
        .meta(&key("feed_forward_length"), N_FF as u32)
        .meta(&key("attention.head_count"), N_HEADS as u32)
        .meta(&key("attention.head_count_kv"), N_KV_HEADS as u32)
        .meta(&key("attention.key_length"), HEAD_DIM as u32)
        .meta(&key("attention.value_length"), HEAD_DIM as u32)
        .meta(&key("attention.layer_norm_rms_epsilon"), 1e-5_f32)
        .meta(&key("expert_count"), N_EXPERTS as u32)
        .meta(&key("expert_used_count"), 2_u32)
        .meta(&key("expert_feed_forward_length"), N_FF as u32)
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", Array::from_strings(tokens))
        .meta("tokenizer.ggml.merges", Array::from_strings([""; 0]));
    let mut random = Random(7);
    let mut add = |name: &str, shape: &[u64]| {
        let n_elems = shape.iter().product::<u64>() as usize;
        let elems: Vec<f32> = match shape {
            [_] => vec![1.0; n_elems],
            [.., width] => (0..n_elems).map(|_| random.next() * 2.0 / (*width as f32).sqrt()).collect(),
            [] => Vec::new(),
        };
        let taken = std::mem::replace(&mut writer, Writer::new(""));
        writer = taken.tensor_f32(name, shape, &elems);
    };
    add("token_embd.weight", &[n_vocab, N_EMBD]);
    add("output_norm.weight", &[N_EMBD]);
    add("output.weight", &[n_vocab, N_EMBD]);
    for layer in 0..N_LAYERS {
        for (name, shape) in [
            ("attn_norm", &[N_EMBD][..]),
            ("attn_q", &[N_HEADS * HEAD_DIM, N_EMBD]),
            ("attn_k", &[N_KV_HEADS * HEAD_DIM, N_EMBD]),
            ("attn_v", &[N_KV_HEADS * HEAD_DIM, N_EMBD]),
            ("attn_output", &[N_EMBD, N_HEADS * HEAD_DIM]),
            ("attn_q_norm", &[HEAD_DIM]),
            ("attn_k_norm", &[HEAD_DIM]),
            ("ffn_norm", &[N_EMBD]),
            ("ffn_gate_inp", &[N_EXPERTS, N_EMBD]),
            ("ffn_gate_exps", &[N_EXPERTS, N_FF, N_EMBD]),
            ("ffn_up_exps", &[N_EXPERTS, N_FF, N_EMBD]),
            ("ffn_down_exps", &[N_EXPERTS, N_EMBD, N_FF]),
        ] {
            add(&format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    writer.write(path)
}

/// Numbers from -1 to 1, always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
