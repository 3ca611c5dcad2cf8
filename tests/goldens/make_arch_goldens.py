#!/usr/bin/env python3
"""Tiny random models and what llama.cpp computes from them: the goldens of `engine/tests/architectures.rs`.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 numpy
    python tests/goldens/make_arch_goldens.py models engine/tests/data/arch    # the models described below
    python tests/goldens/make_arch_goldens.py logits engine/tests/data/arch    # `.long.f32` beside every model that has none
    python tests/goldens/make_arch_goldens.py quantised engine/tests/data/arch # `quantised.json`

The models have the odd parts of real files that the first fixtures lack: what each is for stands beside it. Logits are
little-endian f32 [96][n_vocab]: 96 tokens of `tokens.json` (modulo the vocabulary) in one batch on the CPU, a context of
256, f32 cache, no flash attention. Those of Gemma models are from `gemma_forward.py`, since llama.cpp rounds its GELU; here
it is held that the two agree to 2e-3 of the largest logit when both round.

`quantised.json` has the mean Kullback-Leibler divergence of llama.cpp's logits for the same tokens when the large matrices
are quantised, from those for the same weights decoded to f32.
"""
import ctypes
import json
import os
import sys
import tempfile

import gemma_forward
import gguf
import gguf.quants
import llama_cpp as lc
import numpy as np

N_TOKENS = 96
N_CONTEXT = 256

# What is quantised, if its rows are whole blocks. The same list stands in `engine/tests/architectures_quantised.rs`.
QUANTISED = [
    "token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "attn_gate", "attn_q_a", "attn_q_b",
    "attn_kv_a_mqa", "attn_k_b", "attn_v_b", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_exps", "ffn_up_exps",
    "ffn_gate_up_exps", "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ssm_in", "ssm_out",
    "in_proj", "out_proj",
]  # fmt: skip
TYPES = [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0]


class Model:
    """A file to be: keys, and tensors of random weights."""

    def __init__(self, arch, name, n=32, heads=4, kv=2, head_dim=8, ff=48, layers=2, vocab=48, seed=11):
        self.arch, self.name, self.rng, self.keys, self.tensors = arch, name, np.random.default_rng(seed), {}, {}
        self.n, self.heads, self.kv, self.head_dim, self.ff, self.vocab = n, heads, kv, head_dim, ff, vocab
        self.layers = range(layers)
        self.set(vocab_size=vocab, context_length=128, embedding_length=n, block_count=layers, feed_forward_length=ff)
        self.set(**{"attention.head_count": heads, "attention.head_count_kv": kv, "rope.freq_base": 10000.0})
        self.set(**{"attention.layer_norm_rms_epsilon": 1e-5})

    def set(self, **keys):
        self.keys.update(keys)

    def weight(self, name, *shape, spread=None, middle=0.0):
        spread = 1 / np.sqrt(shape[-1]) if spread is None else spread
        self.tensors[name] = (self.rng.standard_normal(shape) * spread + middle).astype(np.float32)

    def norm(self, name, n):
        self.weight(name, n, spread=0.15, middle=1.0)

    def bias(self, name, *shape):
        self.weight(name, *shape, spread=0.3)

    def ends(self, tied=False):
        self.weight("token_embd.weight", self.vocab, self.n, spread=1.0)
        self.norm("output_norm.weight", self.n)
        if not tied:
            self.weight("output.weight", self.vocab, self.n)

    def norms(self, layer, *names):
        for name in names:
            self.norm(f"blk.{layer}.{name}.weight", self.n)

    def attention(self, layer, bias=(), fused=False, head_norm=False):
        block = f"blk.{layer}."
        rows = {"q": self.heads * self.head_dim, "k": self.kv * self.head_dim, "v": self.kv * self.head_dim}
        parts = {"qkv": sum(rows.values())} if fused else rows
        for part, n_rows in parts.items():
            self.weight(f"{block}attn_{part}.weight", n_rows, self.n)
            if part in bias:
                self.bias(f"{block}attn_{part}.bias", n_rows)
        self.weight(f"{block}attn_output.weight", self.n, rows["q"])
        if "output" in bias:
            self.bias(f"{block}attn_output.bias", self.n)
        if head_norm:
            self.norm(f"{block}attn_q_norm.weight", self.head_dim)
            self.norm(f"{block}attn_k_norm.weight", self.head_dim)

    def dense(self, layer, bias=False, ff=None, suffix="", gate=True):
        block, ff = f"blk.{layer}.ffn_", self.ff if ff is None else ff
        for part, shape in {"gate": (ff, self.n), "up": (ff, self.n), "down": (self.n, ff)}.items():
            if part == "gate" and not gate:
                continue
            self.weight(f"{block}{part}{suffix}.weight", *shape)
            if bias:
                self.bias(f"{block}{part}{suffix}.bias", shape[0])

    def experts(self, layer, n_experts, ff, gate=True, fused=False, width=None):
        block, width = f"blk.{layer}.ffn_", self.n if width is None else width
        self.weight(f"{block}gate_inp.weight", n_experts, self.n)
        if fused:
            self.weight(f"{block}gate_up_exps.weight", n_experts, 2 * ff, width)
        else:
            for part in ["gate", "up"] if gate else ["up"]:
                self.weight(f"{block}{part}_exps.weight", n_experts, ff, width)
        self.weight(f"{block}down_exps.weight", n_experts, width, ff)

    def mamba(self, layer, inner=64, heads=8, groups=2, state=8, kernel=4):
        block, channels = f"blk.{layer}.ssm_", inner + 2 * groups * state
        self.weight(f"{block}in.weight", inner + channels + heads, self.n)
        self.weight(f"{block}conv1d.weight", channels, kernel, spread=0.5)
        self.bias(f"{block}conv1d.bias", channels)
        self.bias(f"{block}dt.bias", heads)
        self.tensors[f"{block}a"] = -np.exp(self.rng.standard_normal((heads, 1)) * 0.5).astype(np.float32)
        self.weight(f"{block}d", heads, 1, spread=0.3, middle=1.0)
        self.weight(f"{block}norm.weight", groups, inner // groups, spread=0.15, middle=1.0)
        self.weight(f"{block}out.weight", self.n, inner)
        self.set(**{"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state})
        self.set(**{"ssm.time_step_rank": heads, "ssm.group_count": groups})

    def nextn(self, layer):
        self.weight(f"blk.{layer}.nextn.eh_proj.weight", self.n, 2 * self.n)
        self.norms(layer, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")

    def write(self, path):
        writer = gguf.GGUFWriter(path, self.arch)
        writer.add_string("tokenizer.ggml.model", "none")
        for key, value in self.keys.items():
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add.get(type(value), writer.add_array)(f"{self.arch}.{key}", value)
        for name, elems in self.tensors.items():
            writer.add_tensor(name, elems)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def llama_biases():
    """Biases everywhere, heads and widths said for each layer, tied ends."""
    m = Model("llama", "llama-biases")
    m.set(**{"attention.head_count": [4, 4], "attention.head_count_kv": [2, 2], "feed_forward_length": [48, 48]})
    m.set(**{"rope.dimension_count": 8})
    m.ends(tied=True)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i, bias=("q", "k", "v", "output"))
        m.dense(i, bias=True)
    return m


def llama_linear():
    """A rope stretched by a factor, under the key that has no type; heads wider than the stream divided among them."""
    m = Model("llama", "llama-linear", head_dim=16)
    m.set(**{"rope.scale_linear": 4.0, "attention.key_length": 16, "attention.value_length": 16})
    m.set(**{"rope.dimension_count": 16})
    m.ends()
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i)
        m.dense(i)
    return m


def llama_old_experts():
    """Mixtral as it was first converted: one tensor per expert."""
    m = Model("llama", "llama-old-experts")
    m.set(**{"expert_count": 4, "expert_used_count": 2, "rope.dimension_count": 8})
    m.ends()
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i)
        m.experts(i, 4, m.ff)
    return m


def mistral3_experts():
    """YaRN with betas of its own and its usual sharpening, queries that do not grow, experts."""
    m = Model("mistral3", "mistral3-experts", head_dim=16)
    m.set(**{"attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16})
    m.set(**{"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 32})
    m.set(**{"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 0.5})
    m.set(**{"expert_count": 4, "expert_used_count": 2})
    m.ends(tied=True)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i)
        m.experts(i, 4, m.ff)
    return m


def qwen2_fused():
    """One tensor for queries, keys and values with one for their biases, and a bias on the logits."""
    m = Model("qwen2", "qwen2-fused")
    m.ends()
    m.bias("output.bias", m.vocab)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i, bias=("qkv",), fused=True)
        m.dense(i)
    return m


def qwen3_tied():
    """The small models' tied ends, and YaRN."""
    m = Model("qwen3", "qwen3-tied", head_dim=16)
    m.set(**{"attention.key_length": 16, "attention.value_length": 16, "rope.scaling.type": "yarn"})
    m.set(**{"rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32})
    m.ends(tied=True)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i, head_norm=True)
        m.dense(i)
    return m


def gemma3_small():
    """As the small models are: nothing stretched, how often a layer sees everything as a number, and a cap on the logits."""
    m = Model("gemma3", "gemma3-small", kv=1, layers=4)
    m.set(**{"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 33})
    m.set(**{"attention.sliding_window_pattern": 3, "rope.freq_base": 1e6, "rope.freq_base_swa": 5000.0})
    m.set(**{"final_logit_softcapping": 20.0})
    m.ends(tied=True)
    for i in m.layers:
        m.norms(i, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        m.attention(i, head_norm=True)
        m.dense(i)
    return m


def gemma3n_shared():
    """Enough layers that the last ones read the caches of earlier ones and that some are dense."""
    layers, per_layer, altup, laurel = 22, 256, 4, 64
    m = Model("gemma3n", "gemma3n-shared", n=16, heads=2, kv=1, ff=24, layers=layers, vocab=16)
    is_sliding = [i % 5 < 4 and i != 20 for i in m.layers]
    m.set(**{"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 33})
    m.set(**{"attention.sliding_window_pattern": is_sliding, "rope.freq_base": 1e6})
    m.set(**{"embedding_length_per_layer_input": per_layer, "altup.active_idx": 0, "altup.num_inputs": altup})
    m.ends(tied=True)
    m.weight("altup_proj.weight", altup - 1, m.n, m.n)
    m.weight("altup_unembd_proj.weight", altup - 1, m.n, m.n)
    m.weight("per_layer_token_embd.weight", m.vocab, per_layer * layers)
    m.weight("per_layer_model_proj.weight", per_layer * layers, m.n)
    m.norm("per_layer_proj_norm.weight", per_layer)
    for i in m.layers:
        block = f"blk.{i}."
        m.norms(i, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        m.norms(i, "laurel_post_norm", "altup_router_norm", "altup_correct_scale")
        m.attention(i, head_norm=True)
        m.dense(i)
        m.weight(f"{block}inp_gate.weight", per_layer, m.n)
        m.weight(f"{block}proj.weight", m.n, per_layer)
        m.weight(f"{block}altup_correct_coef.weight", altup, altup, spread=0.3)
        m.weight(f"{block}altup_predict_coef.weight", altup * altup, altup, spread=0.3)
        m.weight(f"{block}altup_router.weight", altup, m.n)
        m.weight(f"{block}laurel_l.weight", laurel, m.n)
        m.weight(f"{block}laurel_r.weight", m.n, laurel)
    return m


def latent(name, q_rank, fused=False, layers=3, dense=1, **keys):
    rank, plain, rotated, value, n_experts, ff = 16, 8, 4, 12, 8, 16
    m = Model("deepseek2", name, kv=1, layers=layers)
    m.set(**{"rope.dimension_count": rotated, "attention.q_lora_rank": q_rank, "attention.kv_lora_rank": rank})
    m.set(**{"attention.key_length": rank + rotated, "attention.value_length": rank})
    m.set(**{"attention.key_length_mla": plain + rotated, "attention.value_length_mla": value})
    m.set(**{"expert_count": n_experts, "expert_used_count": 3, "expert_feed_forward_length": ff})
    m.set(**{"expert_shared_count": 2, "leading_dense_block_count": dense, **keys})
    m.ends()
    for i in m.layers:
        block, q_rows = f"blk.{i}.", m.heads * (plain + rotated)
        m.norms(i, "attn_norm", "ffn_norm")
        if q_rank:
            m.weight(f"{block}attn_q_a.weight", q_rank, m.n)
            m.norm(f"{block}attn_q_a_norm.weight", q_rank)
            m.weight(f"{block}attn_q_b.weight", q_rows, q_rank)
        else:
            m.weight(f"{block}attn_q.weight", q_rows, m.n)
        m.weight(f"{block}attn_kv_a_mqa.weight", rank + rotated, m.n)
        m.norm(f"{block}attn_kv_a_norm.weight", rank)
        m.weight(f"{block}attn_k_b.weight", m.heads, rank, plain)
        m.weight(f"{block}attn_v_b.weight", m.heads, value, rank)
        m.weight(f"{block}attn_output.weight", m.n, m.heads * value)
        if i < dense:
            m.dense(i)
        else:
            m.experts(i, n_experts, ff, fused=fused)
            m.dense(i, ff=2 * ff, suffix="_shexp")
    return m


def deepseek2_lite():
    """V2 Lite: queries straight from the stream, softmax because the file does not say, weights as they are, YaRN."""
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 32}
    return latent("deepseek2-lite", 0, **yarn, **{"rope.scaling.yarn_log_multiplier": 0.0707})


def deepseek2_groups():
    """V3: only experts of the best groups are looked at, chosen with a bias; their gates and ups are in one tensor."""
    groups = {"expert_group_count": 4, "expert_group_used_count": 2, "expert_gating_func": 2}
    m = latent("deepseek2-groups", 24, fused=True, **groups, expert_weights_norm=True, expert_weights_scale=2.5)
    for i in m.layers[1:]:
        m.bias(f"blk.{i}.exp_probs_b.bias", 8)
    return m


def glm4moe_nextn():
    """The Air models: no norms of heads; a last layer that predicts further ahead and takes no part."""
    m = Model("glm4moe", "glm4moe-nextn", layers=4)
    m.set(**{"attention.key_length": 8, "attention.value_length": 8, "rope.dimension_count": 4})
    m.set(**{"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 16, "expert_shared_count": 1})
    m.set(**{"leading_dense_block_count": 1, "expert_weights_scale": 1.5, "expert_weights_norm": True})
    m.set(nextn_predict_layers=1)
    m.ends()
    for i in m.layers:
        m.norms(i, "attn_norm", "post_attention_norm")
        m.attention(i, bias=("q", "k", "v"))
        if i == 0:
            m.dense(i)
        else:
            m.experts(i, 8, 16)
            m.bias(f"blk.{i}.exp_probs_b.bias", 8)
            m.dense(i, ff=16, suffix="_shexp")
    m.nextn(3)
    return m


def phi3_short():
    """A context as short as trained: the other set of factors."""
    m = Model("phi3", "phi3-short")
    m.set(**{"context_length": 512, "rope.dimension_count": 6, "rope.scaling.original_context_length": 512})
    m.set(**{"rope.scaling.attn_factor": 1.19, "rope.scaling.type": "longrope"})
    m.ends()
    m.tensors["rope_factors_long.weight"] = np.array([1.5, 3, 9], np.float32)
    m.tensors["rope_factors_short.weight"] = np.array([1.1, 1.3, 2], np.float32)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i, fused=True)
        m.weight(f"blk.{i}.ffn_up.weight", 2 * m.ff, m.n)
        m.weight(f"blk.{i}.ffn_down.weight", m.n, m.ff)
    return m


def olmo2_plain():
    """OLMo 2: neither windows nor YaRN."""
    m = Model("olmo2", "olmo2-plain", kv=4)
    m.ends()
    for i in m.layers:
        m.norms(i, "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm")
        m.attention(i)
        m.dense(i)
    return m


def qwen35_heads():
    """Three heads of values per key, their size no multiple of a vector, a short kernel, attention in every other layer."""
    k_heads, v_heads, state, kernel, head_dim = 2, 6, 24, 3, 16
    m = Model("qwen35", "qwen35-heads", kv=1, head_dim=head_dim, layers=4)
    channels, inner = (2 * k_heads + v_heads) * state, v_heads * state
    m.set(**{"attention.key_length": head_dim, "attention.value_length": head_dim, "full_attention_interval": 2})
    m.set(**{"rope.dimension_count": 12, "rope.dimension_sections": [2, 2, 2, 0]})
    m.set(**{"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state})
    m.set(**{"ssm.time_step_rank": v_heads, "ssm.group_count": k_heads})
    m.ends(tied=True)
    for i in m.layers:
        block = f"blk.{i}."
        m.norms(i, "attn_norm", "post_attention_norm")
        m.dense(i)
        if i % 2 == 1:
            m.attention(i, head_norm=True)
            m.weight(f"{block}attn_q.weight", 2 * m.heads * head_dim, m.n)
            continue
        m.weight(f"{block}attn_qkv.weight", channels, m.n)
        m.weight(f"{block}attn_gate.weight", inner, m.n)
        m.weight(f"{block}ssm_conv1d.weight", channels, kernel, spread=0.5)
        m.bias(f"{block}ssm_dt.bias", v_heads)
        m.tensors[f"{block}ssm_a"] = -np.exp(m.rng.standard_normal(v_heads) * 0.5).astype(np.float32)
        m.weight(f"{block}ssm_beta.weight", v_heads, m.n)
        m.weight(f"{block}ssm_alpha.weight", v_heads, m.n)
        m.norm(f"{block}ssm_norm.weight", state)
        m.weight(f"{block}ssm_out.weight", m.n, inner)
    return m


def lfm2_window():
    """A long kernel, attention that sees a window and turns half of each head."""
    m = Model("lfm2", "lfm2-window", layers=3)
    m.set(**{"attention.head_count_kv": [0, 2, 0], "attention.sliding_window": 33, "rope.dimension_count": 4})
    m.set(**{"shortconv.l_cache": 4})
    m.ends(tied=True)
    m.tensors["token_embd_norm.weight"] = m.tensors.pop("output_norm.weight")
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.dense(i)
        if i == 1:
            m.attention(i, head_norm=True)
            continue
        m.weight(f"blk.{i}.shortconv.conv.weight", m.n, 4)
        m.weight(f"blk.{i}.shortconv.in_proj.weight", 3 * m.n, m.n)
        m.weight(f"blk.{i}.shortconv.out_proj.weight", m.n, m.n)
    return m


def granitehybrid_rope():
    """Attention that knows positions beside the state, several groups of it, no shared expert."""
    m = Model("granitehybrid", "granitehybrid-rope", layers=3)
    m.set(**{"attention.head_count_kv": [0, 2, 0], "rope.dimension_count": 8, "rope.scaling.finetuned": True})
    m.set(**{"attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.3, "logit_scale": 4.0})
    m.set(**{"expert_count": 4, "expert_used_count": 2})
    m.ends(tied=True)
    for i in m.layers:
        m.norms(i, "attn_norm", "ffn_norm")
        m.attention(i) if i == 1 else m.mamba(i)
        m.experts(i, 4, m.ff)
    return m


def nemotron_h_moe_latent():
    """Experts that work in a narrower space than the stream."""
    m = Model("nemotron_h_moe", "nemotron_h_moe-latent", layers=4)
    latent, ff, shared = 16, 24, 40
    m.set(**{"attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, ff, 0, ff]})
    m.set(**{"attention.key_length": 8, "attention.value_length": 8, "attention.layer_norm_epsilon": 1e-5})
    m.set(**{"rope.dimension_count": 8, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": ff})
    m.set(**{"expert_shared_feed_forward_length": shared, "expert_shared_count": 1, "expert_weights_norm": True})
    m.set(**{"expert_weights_scale": 2.5, "moe_latent_size": latent})
    m.ends()
    for i in m.layers:
        m.norms(i, "attn_norm")
        if i == 0:
            m.mamba(i)
        elif i == 2:
            m.attention(i)
        else:
            m.experts(i, 8, ff, gate=False, width=latent)
            m.bias(f"blk.{i}.exp_probs_b.bias", 8)
            m.weight(f"blk.{i}.ffn_latent_down.weight", latent, m.n)
            m.weight(f"blk.{i}.ffn_latent_up.weight", m.n, latent)
            m.dense(i, ff=shared, suffix="_shexp", gate=False)
    return m


def edited(source, name, without=(), **keys):
    """A model of this folder with other keys."""
    reader = gguf.GGUFReader(f"{sys.argv[2]}/{source}.gguf")
    m = Model(source, name)
    fields = {key: field.contents() for key, field in reader.fields.items() if key.startswith(f"{source}.")}
    m.keys = {key.removeprefix(f"{source}."): value for key, value in fields.items()}
    m.keys = {key: value for key, value in m.keys.items() if key not in without} | keys
    m.tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    return m


def phi3_untyped():
    """Factors for long contexts without a type of scaling, as early converters wrote it."""
    return edited("phi3", "phi3-untyped", without=["rope.scaling.type"])


def mistral3_multiplier():
    """YaRN, part of whose sharpening is dealt with elsewhere."""
    keys = {"rope.scaling.yarn_log_multiplier": 0.5, "rope.scaling.attn_factor": 0.9}
    return edited("mistral3", "mistral3-multiplier", **keys)


def granite_still():
    """Attention that knows no positions."""
    return edited("granite", "granite-still", **{"rope.scaling.finetuned": False})


def gpt_oss_pattern():
    """Other layers with windows than the usual ones, and a frequency base of their own."""
    keys = {"attention.sliding_window_pattern": [False, True, True], "rope.freq_base_swa": 500.0}
    return edited("gpt-oss", "gpt-oss-pattern", **keys)


def qwen3moe_lists():
    """Counts of experts and their width as lists with a value for each layer."""
    m = edited("qwen3moe", "qwen3moe-lists")
    for key in ["expert_used_count", "expert_feed_forward_length"]:
        m.keys[key] = [m.keys[key]] * m.keys["block_count"]
    return m


MODELS = [
    llama_biases, llama_linear, llama_old_experts, mistral3_experts, qwen2_fused, qwen3_tied, gemma3_small,
    gemma3n_shared, deepseek2_lite, deepseek2_groups, glm4moe_nextn, phi3_short, olmo2_plain, qwen35_heads, lfm2_window,
    granitehybrid_rope, nemotron_h_moe_latent, phi3_untyped, mistral3_multiplier, granite_still, gpt_oss_pattern,
    qwen3moe_lists,
]  # fmt: skip


def with_old_experts(model):
    """The same weights, one tensor per expert, as llama.cpp no longer reads them."""
    for name in [name for name in model.tensors if "_exps" in name]:
        for i, elems in enumerate(model.tensors.pop(name)):
            model.tensors[name.replace("_exps", f".{i}")] = elems
    return model


def logits(path, tokens):
    params = lc.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lc.llama_model_load_from_file(path.encode(), params)
    assert model, f"{path} did not load"
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CONTEXT
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = 0  # GGML_TYPE_F32
    params.swa_full = False
    context = lc.llama_init_from_model(model, params)
    assert context, f"{path}: no context"
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token % n_vocab, i, 1, 0
        batch.logits[i] = 1
    assert lc.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)).copy() for i in range(len(tokens))]
    lc.llama_batch_free(batch)
    lc.llama_free(context)
    lc.llama_model_free(model)
    return np.stack(rows).astype("<f4")


def write_logits(path, folder, name):
    with open(f"{folder}/tokens.json", encoding="utf-8") as file:
        tokens = json.load(file)
    rows = logits(path, tokens)
    assert np.isfinite(rows).all(), name
    if name.startswith("gemma"):
        rounded = gemma_forward.logits(path, tokens, gemma_forward.half_gelu)
        difference = np.abs(rounded - rows).max() / np.abs(rows).max()
        assert difference <= 2e-3, f"{name}: {difference:.1e}"
        rows = gemma_forward.logits(path, tokens).astype("<f4")
    rows.tofile(f"{folder}/{name}.long.f32")
    print(f"{name}: logits up to {np.abs(rows).max():.2f}")


def quantised(path, out, type, is_decoded):
    """The same model with large matrices of a type, or with what is left of them as f32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1])
    for tensor in reader.tensors:
        elems = np.array(tensor.data)
        is_large = tensor.name.endswith(".weight") and tensor.name.split(".")[-2] in QUANTISED
        if not is_large or elems.ndim < 2 or elems.shape[-1] % 32:
            writer.add_tensor(tensor.name, elems)
            continue
        blocks = gguf.quants.quantize(elems, type)
        if is_decoded:
            writer.add_tensor(tensor.name, gguf.quants.dequantize(blocks, type).astype(np.float32))
        else:
            writer.add_tensor(tensor.name, blocks, raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def divergence(exact, got):
    logs = [rows - rows.max(1, keepdims=True) for rows in (exact.astype(np.float64), got.astype(np.float64))]
    exact, got = [rows - np.log(np.exp(rows).sum(1, keepdims=True)) for rows in logs]
    return float((np.exp(exact) * (exact - got)).sum(1).mean())


def write_divergences(folder):
    with open(f"{folder}/tokens.json", encoding="utf-8") as file:
        tokens = json.load(file)
    divergences = {}
    for file in sorted(os.listdir(folder)):
        # llama.cpp does not read this one; its experts are those of another.
        if not file.endswith(".gguf") or file == "llama-old-experts.gguf":
            continue
        name, path = file.removesuffix(".gguf"), f"{folder}/{file}"
        with tempfile.TemporaryDirectory() as scratch:
            for type in TYPES:
                rows = []
                for is_decoded in (True, False):
                    quantised(path, f"{scratch}/model.gguf", type, is_decoded)
                    rows.append(logits(f"{scratch}/model.gguf", tokens))
                divergences.setdefault(name, {})[type.name] = float(f"{divergence(*rows):.3e}")
        print(name, divergences[name])
    with open(f"{folder}/quantised.json", "w", encoding="utf-8") as file:
        json.dump(divergences, file, indent=1)
        file.write("\n")


def main():
    what, folder = sys.argv[1:3]
    callback = lc.llama_log_callback(lambda level, text, _: level == 4 and sys.stderr.write(text.decode()))
    lc.llama_log_set(callback, ctypes.c_void_p(0))
    lc.llama_backend_init()
    tokens = f"{folder}/tokens.json"
    if not os.path.exists(tokens):
        with open(tokens, "w", encoding="utf-8") as file:
            json.dump([int(token) for token in np.random.default_rng(5).integers(0, 48, N_TOKENS)], file)
            file.write("\n")
    if what == "models":
        for make in MODELS:
            model = make()
            if len(sys.argv) > 3 and model.name not in sys.argv[3:]:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                model.write(f"{scratch}/model.gguf")
                write_logits(f"{scratch}/model.gguf", folder, model.name)
            model = with_old_experts(model) if model.name == "llama-old-experts" else model
            model.write(f"{folder}/{model.name}.gguf")
    elif what == "quantised":
        write_divergences(folder)
    else:
        for file in sorted(os.listdir(folder)):
            name = file.removesuffix(".gguf")
            if file.endswith(".gguf") and not os.path.exists(f"{folder}/{name}.long.f32"):
                write_logits(f"{folder}/{file}", folder, name)


main()
