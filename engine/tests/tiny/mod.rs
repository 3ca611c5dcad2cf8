//! A `llama` small enough to compute in a blink, with random f32 weights: what the tests of sessions and the worker load.

use std::path::Path;

use tandem_engine::gguf::Writer;
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Preload};
use tandem_engine::place::Placement;

/// Shape of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiny {
    /// Layers.
    pub(crate) n_layers: u32,
    /// Width of the residual stream.
    pub(crate) n_embd: u32,
    /// Query heads.
    pub(crate) n_heads: u32,
    /// Key and value heads.
    pub(crate) n_kv_heads: u32,
    /// Inside of the feed-forward network.
    pub(crate) n_ff: u32,
    /// Vocabulary.
    pub(crate) n_vocab: u32,
    /// Start of the random weights.
    pub(crate) seed: u64,
}

pub(crate) const TINY: Tiny =
    Tiny { n_layers: 2, n_embd: 32, n_heads: 4, n_kv_heads: 2, n_ff: 48, n_vocab: 40, seed: 1 };

impl Tiny {
    /// The file, before it is written, so that a test can spoil it.
    pub(crate) fn writer(&self) -> Writer {
        self.writer_without(&[])
    }

    /// The file without some keys and tensors.
    pub(crate) fn writer_without(&self, without: &[&str]) -> Writer {
        let is_wanted = |name: &str| !without.contains(&name);
        let keys = [
            ("llama.context_length", 64),
            ("llama.embedding_length", self.n_embd),
            ("llama.block_count", self.n_layers),
            ("llama.feed_forward_length", self.n_ff),
            ("llama.attention.head_count", self.n_heads),
            ("llama.attention.head_count_kv", self.n_kv_heads),
            ("llama.vocab_size", self.n_vocab),
        ];
        let mut writer = Writer::new("llama");
        for (key, value) in keys.into_iter().filter(|(key, _)| is_wanted(key)) {
            writer = writer.meta(key, value);
        }
        if is_wanted("llama.attention.layer_norm_rms_epsilon") {
            writer = writer.meta("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
        }
        for (name, shape, elems) in self.tensors().into_iter().filter(|(name, ..)| is_wanted(name)) {
            writer = writer.tensor_f32(&name, &shape, &elems);
        }
        writer
    }

    /// Names, row-major shapes and elements.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<u64>, Vec<f32>)> {
        let &Tiny { n_layers, n_embd, n_heads, n_kv_heads, n_ff, n_vocab, seed } = self;
        let kv = n_kv_heads * (n_embd / n_heads);
        let mut shapes =
            vec![("token_embd".to_owned(), vec![n_vocab, n_embd]), ("output_norm".to_owned(), vec![n_embd])];
        for layer in 0..n_layers {
            let parts = [
                ("attn_norm", vec![n_embd]),
                ("attn_q", vec![n_embd, n_embd]),
                ("attn_k", vec![kv, n_embd]),
                ("attn_v", vec![kv, n_embd]),
                ("attn_output", vec![n_embd, n_embd]),
                ("ffn_norm", vec![n_embd]),
                ("ffn_gate", vec![n_ff, n_embd]),
                ("ffn_up", vec![n_ff, n_embd]),
                ("ffn_down", vec![n_embd, n_ff]),
            ];
            shapes.extend(parts.map(|(name, shape)| (format!("blk.{layer}.{name}"), shape)));
        }
        let mut random = Random(seed);
        let tensor = |(name, shape): (String, Vec<u32>)| {
            let elems = random.elems(&shape);
            (format!("{name}.weight"), shape.into_iter().map(u64::from).collect(), elems)
        };
        shapes.into_iter().map(tensor).collect()
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) {
        self.writer().write(path).unwrap();
    }

    /// Options that suit it: exact, one thread, small chunks.
    pub(crate) fn options(&self) -> LoadOptions {
        LoadOptions {
            placement: Placement::all_cpu(self.n_layers as usize),
            budgets: Vec::new(),
            n_threads: 1,
            isa: None,
            context_length: 64,
            kv_types: KvTypes::both(KvType::F32),
            n_batch: 5,
            checkpoint_bytes: 1 << 20,
            preload: Preload::Weights,
        }
    }
}

/// Small numbers that look random.
struct Random(u64);

impl Random {
    /// A norm's weights lie around 1, all others around 0.
    fn elems(&mut self, shape: &[u32]) -> Vec<f32> {
        let n_elems = shape.iter().product::<u32>();
        let (middle, spread) = if shape.len() == 1 { (1.0, 0.2) } else { (0.0, 1.7 / (shape[1] as f32).sqrt()) };
        (0..n_elems).map(|_| middle + spread * self.next()).collect()
    }

    /// In -1..1 (xorshift, Marsaglia 2003).
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
