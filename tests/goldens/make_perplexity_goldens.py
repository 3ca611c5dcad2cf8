#!/usr/bin/env python3
"""How well the real models know `tests/data/perplexity.txt`, by llama.cpp: the goldens of `tests/tests/perplexity.rs`.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 numpy
    cd tests/goldens && python make_perplexity_goldens.py MODEL.gguf … > perplexity.json

One batch, f32 cache, no flash attention, llama.cpp's plain kernels (`use_extra_bufts` off). Per model:

    tokens   of the text, with the begin token where the vocabulary asks for it
    nll      mean of -log p(next token); the perplexity is its exponential
    exact    the same from the same weights decoded to f32
    kl       mean Kullback-Leibler divergence from the same weights decoded to f32, over the first `N_EXACT` tokens
"""
import ctypes
import json
import os
import sys
import tempfile

import gguf
import gguf.quants
import llama_cpp as lc
import numpy as np

N_EXACT = 208
TEXT = os.path.join(os.path.dirname(__file__), "../data/perplexity.txt")


def load(path):
    params = lc.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lc.llama_model_load_from_file(path.encode(), params)
    assert model, f"{path} did not load"
    return model


def tokenize(model, text):
    data = text.encode()
    ids = (lc.llama_token * (len(data) + 8))()
    n = lc.llama_tokenize(lc.llama_model_get_vocab(model), data, len(data), ids, len(ids), True, False)
    assert n > 0
    return list(ids[:n])


def decoded(path, out):
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1])
    for tensor in reader.tensors:
        elems = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, elems.reshape([int(n) for n in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_probabilities(model, tokens):
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 1024
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = 0  # GGML_TYPE_F32
    context = lc.llama_init_from_model(model, params)
    assert context, "no context"
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    assert lc.llama_decode(context, batch) == 0
    rows = np.stack(
        [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)) for i in range(len(tokens))]
    ).astype(np.float64)
    lc.llama_batch_free(batch)
    lc.llama_free(context)
    rows -= rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def golden(path):
    with open(TEXT, encoding="utf-8") as file:
        text = file.read()
    model = load(path)
    tokens = tokenize(model, text)
    rows = log_probabilities(model, tokens)
    nll = -rows[np.arange(len(tokens) - 1), tokens[1:]].mean()
    lc.llama_model_free(model)
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        decoded(path, file.name)
        model = load(file.name)
        exact = log_probabilities(model, tokens)
        lc.llama_model_free(model)
    exact_nll = -exact[np.arange(len(tokens) - 1), tokens[1:]].mean()
    rows, exact = rows[:N_EXACT], exact[:N_EXACT]
    kl = (np.exp(exact) * (exact - rows)).sum(1).mean()
    name = os.path.basename(path)
    print(f"{name}: {len(tokens)} tokens, perplexity {np.exp(nll):.4f}, exact {np.exp(exact_nll):.4f}, KL from exact {kl:.3e}", file=sys.stderr)
    return {"file": name, "tokens": tokens, "nll": float(nll), "exact": float(exact_nll), "kl": float(kl)}


def main():
    callback = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(callback, ctypes.c_void_p(0))
    lc.llama_backend_init()
    json.dump([golden(path) for path in sys.argv[1:]], sys.stdout, separators=(",", ":"))
    print()


main()
