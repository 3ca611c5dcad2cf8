#!/usr/bin/env python3
"""How far llama.cpp's small caches are from a large one: `LLAMA_CPP_CACHES` of `tests/tests/perplexity.rs`.

    pip install llama-cpp-python==0.3.36 numpy
    python tests/goldens/make_cache_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf

Mean Kullback-Leibler divergence from the logits with a cache in f32, over the first 200 tokens of `tests/data/perplexity.txt`,
one batch, flash attention (which llama.cpp wants for values in blocks), and how often the first choice is the same.
"""
import ctypes
import os
import sys

import llama_cpp as lc
import numpy as np

N_TOKENS = 200
TEXT = os.path.join(os.path.dirname(__file__), "../data/perplexity.txt")
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}


def log_probabilities(model, tokens, k, v):
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.type_k, params.type_v = TYPES[k], TYPES[v]
    context = lc.llama_init_from_model(model, params)
    assert context, "no context"
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    assert lc.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)) for i in range(len(tokens))]
    rows = np.stack(rows).astype(np.float64)
    lc.llama_free(context)
    rows -= rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def main():
    callback = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(callback, ctypes.c_void_p(0))
    lc.llama_backend_init()
    params = lc.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lc.llama_model_load_from_file(sys.argv[1].encode(), params)
    with open(TEXT, encoding="utf-8") as file:
        data = file.read().encode()
    ids = (lc.llama_token * (len(data) + 8))()
    n = lc.llama_tokenize(lc.llama_model_get_vocab(model), data, len(data), ids, len(ids), True, False)
    tokens = list(ids[: min(n, N_TOKENS)])
    exact = log_probabilities(model, tokens, "f32", "f32")
    for k, v in [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0")]:
        rows = log_probabilities(model, tokens, k, v)
        kl = (np.exp(exact) * (exact - rows)).sum(1).mean()
        same = (rows.argmax(1) == exact.argmax(1)).mean()
        print(f"{k}/{v}: KL {kl:.3e}, same first choice {100 * same:.1f} %")


main()
