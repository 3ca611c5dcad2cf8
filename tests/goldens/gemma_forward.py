"""Gemma 2, 3, 3n and 4 in numpy, from their papers and file formats: logits of a small f32 file in f64, with GELU as it is.

llama.cpp takes GELU from a table in half precision, so it is near this and no more; with `half_gelu` this does the same,
and then the two agree. What `make_arch_goldens.py` stores for these models is the exact one.
"""
import gguf
import numpy as np


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {field.name: field.contents() for field in reader.fields.values()}
        self.arch = self.keys["general.architecture"]
        self.tensors = {tensor.name: np.array(tensor.data, np.float64) for tensor in reader.tensors}

    def key(self, name, absent=None):
        return self.keys.get(f"{self.arch}.{name}", absent)

    def of_layer(self, name, layer):
        value = self.key(name)
        return value[layer] if isinstance(value, list) else value


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def half_gelu(x):
    half = gelu(x.astype(np.float16).astype(np.float32)).astype(np.float16).astype(np.float64)
    return np.where(x <= -10, 0.0, np.where(x >= 10, x, half))


def rms(x, weight=1.0, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope(x, base, n_rotated, factors=1.0, scale=1.0):
    half = n_rotated // 2
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half) * scale / factors
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:n_rotated]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos, x[..., n_rotated:]], -1)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attention(q, k, v, scale, window, cap):
    i, j = np.arange(len(q))[:, None], np.arange(len(q))[None]
    is_seen = (j <= i) & ((i - j < window) if window else True)
    group = q.shape[1] // k.shape[1]
    heads = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T * scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        heads.append(softmax(np.where(is_seen, scores, -np.inf)) @ v[:, head // group])
    return np.concatenate(heads, -1)


def experts(x, logits, gate_up, down, down_scale, n_used, gelu):
    probabilities, out = softmax(logits), np.zeros_like(x)
    for token in range(len(x)):
        chosen = np.argsort(-probabilities[token], kind="stable")[:n_used]
        weights = probabilities[token, chosen]
        for expert, weight in zip(chosen, weights / weights.sum()):
            gate, up = np.split(gate_up[expert] @ x[token], 2)
            out[token] += weight * down_scale[expert] * (down[expert] @ (gelu(gate) * up))
    return out


def sliding(file, n_layers):
    pattern = file.key("attention.sliding_window_pattern", {"gemma2": 2, "gemma3n": 5}.get(file.arch, 6))
    return pattern if isinstance(pattern, list) else [(i + 1) % pattern != 0 for i in range(n_layers)]


def projected_inputs(file, x, tokens, n_layers, eps):
    """What each layer adds of its own for each token: [n_layers, n_tokens, width]."""
    t, width = file.tensors, file.key("embedding_length_per_layer_input")
    own = t["per_layer_token_embd.weight"][tokens].reshape(len(tokens), n_layers, width) * np.sqrt(width)
    projected = (x @ t["per_layer_model_proj.weight"].T / np.sqrt(x.shape[-1])).reshape(own.shape)
    return ((own + rms(projected, t["per_layer_proj_norm.weight"], eps)) / np.sqrt(2)).transpose(1, 0, 2)


class Layers:
    """Attention of any of the four, and the caches that later layers may read."""

    def __init__(self, file, eps):
        self.file, self.eps, self.caches = file, eps, {}
        self.n_layers = file.key("block_count")
        self.is_sliding = sliding(file, self.n_layers)
        n_shared = file.key("attention.shared_kv_layers", 0)
        self.n_own = min(20, self.n_layers) if file.arch == "gemma3n" else self.n_layers - n_shared

    def attention(self, i, h):
        file, eps = self.file, self.eps
        weight = lambda name: file.tensors[f"blk.{i}.{name}.weight"]
        has = lambda name: f"blk.{i}.{name}.weight" in file.tensors
        is_sliding = self.is_sliding[i]
        dim = file.key("attention.key_length")
        dim = file.key("attention.key_length_swa", dim) if is_sliding else dim
        base = file.key("rope.freq_base")
        if file.arch != "gemma2" and is_sliding:
            base = file.key("rope.freq_base_swa", 10000.0)
        is_plain = file.arch != "gemma2" and is_sliding
        factors = file.tensors.get("rope_freqs.weight", 1.0)
        turned = lambda x: rope(
            x, base, dim, 1.0 if is_plain else factors, 1.0 if is_plain else 1 / file.key("rope.scaling.factor", 1.0)
        )
        heads = lambda name: (h @ weight(name).T).reshape(len(h), -1, dim)
        normed = lambda x, name: rms(x, weight(name), eps) if has(name) else x
        has_plain_values = file.arch in ("gemma2", "gemma3")
        if i < self.n_own:
            k = heads("attn_k")
            v = heads("attn_v") if has("attn_v") else k
            v = v if has_plain_values else rms(v, 1.0, eps)
            self.caches[i] = turned(normed(k, "attn_k_norm")), v
            k, v = self.caches[i]
        else:
            k, v = self.caches[self.n_own - (2 if is_sliding else 1)]
        scale = 1 / np.sqrt(dim) if has_plain_values else 1.0
        window = file.key("attention.sliding_window", 0) if is_sliding else 0
        q = turned(normed(heads("attn_q"), "attn_q_norm"))
        out = attention(q, k, v, scale, window, file.key("attn_logit_softcapping", 0.0)) @ weight("attn_output").T
        return rms(out, weight("post_attention_norm"), eps)


def usual(file, layers, x, tokens, eps, gelu):
    width = file.key("embedding_length_per_layer_input", 0)
    inputs = projected_inputs(file, x, tokens, layers.n_layers, eps) if width else None
    for i in range(layers.n_layers):
        weight = lambda name: file.tensors[f"blk.{i}.{name}.weight"]
        x = x + layers.attention(i, rms(x, weight("attn_norm"), eps))
        h = rms(x, weight("ffn_norm"), eps)
        out = (gelu(h @ weight("ffn_gate").T) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
        if f"blk.{i}.ffn_gate_inp.weight" in file.tensors:
            out = rms(out, weight("post_ffw_norm_1"), eps)
            scaled = rms(x, file.tensors[f"blk.{i}.ffn_gate_inp.scale"], eps) / np.sqrt(x.shape[-1])
            routed = experts(
                rms(x, weight("pre_ffw_norm_2"), eps),
                scaled @ weight("ffn_gate_inp").T,
                weight("ffn_gate_up_exps"),
                weight("ffn_down_exps"),
                file.tensors[f"blk.{i}.ffn_down_exps.scale"],
                file.key("expert_used_count"),
                gelu,
            )
            out = out + rms(routed, weight("post_ffw_norm_2"), eps)
        x = x + rms(out, weight("post_ffw_norm"), eps)
        if width:
            gated = gelu(x @ weight("inp_gate").T) * inputs[i]
            x = x + rms(gated @ weight("proj").T, weight("post_norm"), eps)
        x = x * file.tensors.get(f"blk.{i}.layer_output_scale.weight", 1.0)
    return x


def streams(file, layers, x, tokens, eps, gelu):
    """Gemma 3n: several residual streams, of which each layer computes one and predicts the others."""
    t, n_embd = file.tensors, x.shape[-1]
    inputs = projected_inputs(file, x, tokens, layers.n_layers, eps)
    size = lambda x: np.sqrt((x * x).sum(-1, keepdims=True))
    sized = lambda y, like: y * size(like) / size(y)
    s = np.stack([x] + [sized(x @ w.T, x) for w in t["altup_proj.weight"]])
    n = len(s)
    for i in range(layers.n_layers):
        weight = lambda name: t[f"blk.{i}.{name}.weight"]
        modes = lambda x: np.tanh(rms(x, weight("altup_router_norm"), eps) / n_embd @ weight("altup_router").T)
        mixing = (modes(s[0]) @ weight("altup_predict_coef").T).reshape(-1, n, n)
        predicted = s + np.einsum("toi,itn->otn", mixing, s)
        active = predicted[0]
        h = rms(active, weight("attn_norm"), eps)
        laurel = h + rms(h @ weight("laurel_l").T @ weight("laurel_r").T, weight("laurel_post_norm"), eps)
        mixed = (layers.attention(i, h) + active + laurel) / np.sqrt(2)
        h = rms(mixed, weight("ffn_norm"), eps)
        gate = h @ weight("ffn_gate").T
        if i < 10:
            cut = gate.mean(-1, keepdims=True) + 1.6448533535003662 * gate.std(-1, ddof=1, keepdims=True)
            gate = np.maximum(gate - cut, 0)
        out = (gelu(gate) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
        out = rms(out, weight("post_ffw_norm"), eps) + mixed
        correcting = modes(out) @ weight("altup_correct_coef").T + 1
        s = predicted + correcting.T[:, :, None] * (out - active)
        gated = gelu((s[0] * weight("altup_correct_scale")) @ weight("inp_gate").T) * inputs[i]
        s[1:] += rms(gated @ weight("proj").T, weight("post_norm"), eps)
    others = [sized(s[1 + i] @ w.T, s[0]) for i, w in enumerate(t["altup_unembd_proj.weight"])]
    return (s[0] + sum(others)) / n


def logits(path, tokens, gelu=gelu):
    """[n_tokens, n_vocab]"""
    file = File(path)
    eps = file.key("attention.layer_norm_rms_epsilon")
    embedding = file.tensors["token_embd.weight"]
    tokens = np.array(tokens) % len(embedding)
    x = embedding[tokens] * np.sqrt(embedding.shape[1])
    forward = streams if file.arch == "gemma3n" else usual
    x = forward(file, Layers(file, eps), x, tokens, eps, gelu)
    out = rms(x, file.tensors["output_norm.weight"], eps) @ embedding.T
    cap = file.key("final_logit_softcapping", 30.0 if file.arch == "gemma3n" else 0.0)
    return cap * np.tanh(out / cap) if cap else out
