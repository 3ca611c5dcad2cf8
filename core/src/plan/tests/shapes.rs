//! Headers of real models' shapes, made by code: hyperparameters and tensor tables as published, no weights; and machines.
use tandem_engine::gguf::{ModelFacts, Prefix, TensorType, Writer};

use crate::wire::{Cpu, Disk, DiskKind, Gpu, GpuProbe, Hardware, Measured};

pub(super) const GIB: u64 = 1 << 30;

/// Hyperparameters of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) architecture: &'static str,
    pub(super) n_layers: u32,
    n_embd: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    n_ff: u64,
    n_vocab: u64,
    context: u32,
    is_tied: bool,
    experts: Option<Experts>,
    /// Every n-th layer is full attention, the others keep a state.
    full_attention_interval: u32,
}

#[derive(Clone, Copy, Debug)]
struct Experts {
    n: u64,
    n_used: u32,
    n_ff: u64,
    n_ff_shared: u64,
}

const LLAMA: Shape = Shape {
    architecture: "llama",
    n_layers: 32,
    n_embd: 4096,
    n_heads: 32,
    n_kv_heads: 8,
    head_dim: 128,
    n_ff: 14_336,
    n_vocab: 128_256,
    context: 131_072,
    is_tied: false,
    experts: None,
    full_attention_interval: 1,
};

pub(super) const LLAMA_8B: Shape = LLAMA;

pub(super) const LLAMA_1B: Shape =
    Shape { n_layers: 16, n_embd: 2048, head_dim: 64, n_ff: 8192, is_tied: true, ..LLAMA };

pub(super) const SMOLLM2: Shape = Shape {
    n_layers: 30,
    n_embd: 576,
    n_heads: 9,
    n_kv_heads: 3,
    head_dim: 64,
    n_ff: 1536,
    n_vocab: 49_152,
    context: 8192,
    is_tied: true,
    ..LLAMA
};

pub(super) const QWEN3_30B: Shape = Shape {
    architecture: "qwen3moe",
    n_layers: 48,
    n_embd: 2048,
    n_heads: 32,
    n_kv_heads: 4,
    n_vocab: 151_936,
    context: 40_960,
    experts: Some(Experts { n: 128, n_used: 8, n_ff: 768, n_ff_shared: 0 }),
    ..LLAMA
};

pub(super) const QWEN36_35B: Shape = Shape {
    architecture: "qwen35moe",
    n_layers: 40,
    n_embd: 2048,
    n_heads: 16,
    n_kv_heads: 2,
    head_dim: 256,
    n_vocab: 248_320,
    context: 262_144,
    experts: Some(Experts { n: 256, n_used: 8, n_ff: 512, n_ff_shared: 512 }),
    full_attention_interval: 4,
    ..LLAMA
};

pub(super) const SHAPES: &[(&str, Shape)] = &[
    ("SmolLM2-135M", SMOLLM2),
    ("Llama-3.2-1B", LLAMA_1B),
    ("Llama-3.1-8B", LLAMA_8B),
    ("Qwen3-30B-A3B", QWEN3_30B),
    ("Qwen3.6-35B-A3B", QWEN36_35B),
];

/// Label, type of most matrices, type of values, half of the down-projections, and the head.
pub(super) const QUANTS: &[(&str, TensorType, TensorType)] = &[
    ("Q2_K", TensorType::Q2_K, TensorType::Q3_K),
    ("UD-IQ3_XXS", TensorType::IQ3_XXS, TensorType::IQ3_XXS),
    ("Q3_K_S", TensorType::Q3_K, TensorType::Q3_K),
    ("Q3_K_M", TensorType::Q3_K, TensorType::Q5_K),
    ("IQ4_XS", TensorType::IQ4_XS, TensorType::IQ4_XS),
    ("Q4_K_S", TensorType::Q4_K, TensorType::Q4_K),
    ("Q4_K_M", TensorType::Q4_K, TensorType::Q6_K),
    ("Q5_K_M", TensorType::Q5_K, TensorType::Q6_K),
    ("Q6_K", TensorType::Q6_K, TensorType::Q6_K),
    ("Q8_0", TensorType::Q8_0, TensorType::Q8_0),
    ("F16", TensorType::F16, TensorType::F16),
];

/// Type of most matrices, and of those that matter more.
pub(super) fn types_of(quant: &str) -> (TensorType, TensorType) {
    let (_, most, high) = *QUANTS.iter().find(|(label, ..)| *label == quant).expect("a label of the table");
    (most, high)
}

/// The header of a model in a quantisation.
pub(super) fn facts(name: &str, shape: Shape, quant: &str) -> ModelFacts {
    let (most, high) = types_of(quant);
    let writer = Builder { writer: metadata(shape), shape, most, high }.tensors();
    read(&writer, &format!("{name}-{quant}.gguf"))
}

/// The same with one more layer behind the others, which predicts the token after the next.
pub(super) fn facts_with_layer_ahead(name: &str, shape: Shape, quant: &str) -> ModelFacts {
    let (most, high) = types_of(quant);
    let shape = Shape { n_layers: shape.n_layers + 1, ..shape };
    let writer = metadata(shape).meta(&format!("{}.nextn_predict_layers", shape.architecture), 1u32);
    read(&Builder { writer, shape, most, high }.tensors(), &format!("{name}-{quant}.gguf"))
}

/// Facts from a header without data, as long as if its vocabulary stood in it.
pub(super) fn read(writer: &Writer, file_name: &str) -> ModelFacts {
    let (header, file_bytes) = writer.header().expect("a header");
    let mut facts = match ModelFacts::from_prefix(&header, file_bytes).expect("good facts") {
        Prefix::Complete(facts) => facts.with_file_name(file_name),
        Prefix::NeedMore { at_least_bytes } => panic!("the whole header was given; {at_least_bytes} asked"),
    };
    let n_tokens = facts.tensor("token_embd.weight").map_or(0, |tensor| tensor.shape[0]);
    facts.files[0].data_offset_bytes += n_tokens * BYTES_PER_TOKEN;
    facts
}

/// What a token and its merges take in memory, text and header. Source: Llama 3's vocabulary.
const BYTES_PER_TOKEN: u64 = 120;

fn metadata(shape: Shape) -> Writer {
    let arch = shape.architecture;
    let key = |name: &str| format!("{arch}.{name}");
    let mut writer = Writer::new(arch)
        .meta(&key("block_count"), shape.n_layers)
        .meta(&key("context_length"), shape.context)
        .meta(&key("embedding_length"), shape.n_embd as u32)
        .meta(&key("attention.head_count"), shape.n_heads as u32)
        .meta(&key("attention.head_count_kv"), shape.n_kv_heads as u32)
        .meta(&key("attention.key_length"), shape.head_dim as u32)
        .meta(&key("attention.value_length"), shape.head_dim as u32)
        .meta(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)
        .meta(&key("feed_forward_length"), shape.n_ff as u32);
    if let Some(experts) = shape.experts {
        writer = writer.meta(&key("expert_count"), experts.n as u32).meta(&key("expert_used_count"), experts.n_used);
        writer = writer.meta(&key("expert_feed_forward_length"), experts.n_ff as u32);
    }
    if shape.full_attention_interval > 1 {
        let ssm = [
            ("conv_kernel", 4),
            ("state_size", 128),
            ("group_count", 16),
            ("time_step_rank", 32),
            ("inner_size", 4096),
        ];
        for (name, value) in ssm {
            writer = writer.meta(&key(&format!("ssm.{name}")), value);
        }
        writer = writer.meta(&key("rope.dimension_count"), 64u32);
    }
    writer
}

struct Builder {
    writer: Writer,
    shape: Shape,
    most: TensorType,
    high: TensorType,
}

impl Builder {
    fn tensors(mut self) -> Writer {
        let shape = self.shape;
        self.add("token_embd.weight", &[shape.n_vocab, shape.n_embd], self.most);
        for layer in 0..shape.n_layers {
            self.mixer(layer);
            self.ffn(layer);
        }
        self.add("output_norm.weight", &[shape.n_embd], TensorType::F32);
        if !shape.is_tied {
            self.add("output.weight", &[shape.n_vocab, shape.n_embd], self.high);
        }
        self.writer
    }

    fn mixer(&mut self, layer: u32) {
        let Shape { n_embd: n, n_heads, n_kv_heads, head_dim, .. } = self.shape;
        let (most, high) = (self.most, self.high);
        self.add_to(layer, "attn_norm.weight", &[n], TensorType::F32);
        if !(layer + 1).is_multiple_of(self.shape.full_attention_interval) {
            self.add_to(layer, "attn_qkv.weight", &[8192, n], most);
            self.add_to(layer, "attn_gate.weight", &[4096, n], most);
            self.add_to(layer, "ssm_conv1d.weight", &[8192, 4], TensorType::F32);
            self.add_to(layer, "ssm_beta.weight", &[32, n], most);
            self.add_to(layer, "ssm_alpha.weight", &[32, n], most);
            self.add_to(layer, "ssm_dt.bias", &[32], TensorType::F32);
            self.add_to(layer, "ssm_a", &[32], TensorType::F32);
            self.add_to(layer, "ssm_norm.weight", &[128], TensorType::F32);
            self.add_to(layer, "ssm_out.weight", &[n, 4096], most);
            return;
        }
        // Attention beside recurrent layers has gates behind its queries.
        let n_q = if self.shape.full_attention_interval > 1 { 2 } else { 1 } * n_heads * head_dim;
        if self.shape.architecture != "llama" {
            self.add_to(layer, "attn_q_norm.weight", &[head_dim], TensorType::F32);
            self.add_to(layer, "attn_k_norm.weight", &[head_dim], TensorType::F32);
        }
        self.add_to(layer, "attn_q.weight", &[n_q, n], most);
        self.add_to(layer, "attn_k.weight", &[n_kv_heads * head_dim, n], most);
        self.add_to(layer, "attn_v.weight", &[n_kv_heads * head_dim, n], high);
        self.add_to(layer, "attn_output.weight", &[n, n_heads * head_dim], most);
    }

    fn ffn(&mut self, layer: u32) {
        let Shape { n_embd: n, n_ff, .. } = self.shape;
        let down = if layer.is_multiple_of(2) { self.high } else { self.most };
        let norm =
            if self.shape.full_attention_interval > 1 { "post_attention_norm.weight" } else { "ffn_norm.weight" };
        self.add_to(layer, norm, &[n], TensorType::F32);
        let Some(experts) = self.shape.experts else {
            self.add_to(layer, "ffn_gate.weight", &[n_ff, n], self.most);
            self.add_to(layer, "ffn_up.weight", &[n_ff, n], self.most);
            self.add_to(layer, "ffn_down.weight", &[n, n_ff], down);
            return;
        };
        self.add_to(layer, "ffn_gate_inp.weight", &[experts.n, n], TensorType::F32);
        self.add_to(layer, "ffn_gate_exps.weight", &[experts.n, experts.n_ff, n], self.most);
        self.add_to(layer, "ffn_up_exps.weight", &[experts.n, experts.n_ff, n], self.most);
        self.add_to(layer, "ffn_down_exps.weight", &[experts.n, n, experts.n_ff], down);
        if experts.n_ff_shared > 0 {
            self.add_to(layer, "ffn_gate_inp_shexp.weight", &[n], TensorType::F32);
            self.add_to(layer, "ffn_gate_shexp.weight", &[experts.n_ff_shared, n], self.most);
            self.add_to(layer, "ffn_up_shexp.weight", &[experts.n_ff_shared, n], self.most);
            self.add_to(layer, "ffn_down_shexp.weight", &[n, experts.n_ff_shared], self.most);
        }
    }

    fn add_to(&mut self, layer: u32, name: &str, dims: &[u64], tensor_type: TensorType) {
        self.add(&format!("blk.{layer}.{name}"), dims, tensor_type);
    }

    /// Rows that are no multiple of a block fall back to a type of 32, as quantisers do.
    fn add(&mut self, name: &str, dims: &[u64], tensor_type: TensorType) {
        let n_cols = dims.last().copied().unwrap_or(0);
        let fits = n_cols.is_multiple_of(tensor_type.row().block_elems);
        let tensor_type = if fits { tensor_type } else { TensorType::Q4_1 };
        let writer = std::mem::take(&mut self.writer);
        self.writer = writer.tensor_absent(name, dims, tensor_type);
    }
}

/// A machine in GiB: VRAM with half a GiB of it taken, RAM, and what is free of that.
pub(super) fn machine(vram: Option<f64>, ram_total: f64, ram_available: f64) -> Hardware {
    let bytes = |gib: f64| (gib * GIB as f64) as u64;
    Hardware {
        cpu: Cpu {
            name: "Six cores".into(),
            n_physical_cores: 6,
            n_logical_cores: 12,
            n_performance_cores: 6,
            n_allowed_cores: 12,
            isa: "avx2".into(),
        },
        ram_total_bytes: bytes(ram_total),
        ram_available_bytes: bytes(ram_available),
        gpus: vram.map(|vram| card(0, vram, vram - 0.5)).into_iter().collect(),
        gpu_probe: if vram.is_some() { GpuProbe::Found } else { GpuProbe::NoDriver },
        ram_modules: None,
        swap_total_bytes: 0,
        swap_used_bytes: 0,
        disk: Disk {
            path: "/models".into(),
            total_bytes: bytes(500.0),
            free_bytes: bytes(200.0),
            kind: DiskKind::Solid,
        },
        os: "Linux".into(),
        measured: Measured::default(),
    }
}

pub(super) fn card(index: u32, vram: f64, free: f64) -> Gpu {
    Gpu {
        index,
        name: format!("Card of {vram} GB"),
        vram_total_bytes: (vram * GIB as f64) as u64,
        vram_free_bytes: (free.max(0.0) * GIB as f64) as u64,
        driver: "580.1".into(),
        load_percent: None,
        temperature_c: None,
        unusable: None,
    }
}
