#!/usr/bin/env python3
"""Teacher-forced log-probabilities of SmolLM2 by llama.cpp: the goldens of `tests/tests/logits.rs`.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 numpy
    python tests/goldens/make_logit_goldens.py target/models/SmolLM2-135M-Instruct.Q4_1.gguf > tests/goldens/smollm2-logits.json

Several times over the same tokens, with an f32 cache:

    plain         one batch, no flash attention, llama.cpp's plain kernels (`use_extra_bufts` off)
    default       the same with the kernels that it picks by itself (weights repacked where this processor has that)
    one_by_one    plain, but one token at a time
    flash         plain, but with flash attention
    exact         plain, on the same weights decoded to f32: no 8-bit activations, so nothing but rounding is left

All but the last differ in nothing but the order of sums, so their differences are how much llama.cpp differs from
itself. Per position: log-probability of the token that follows, most likely token, and how far its logit is above the
second.
"""
import ctypes
import hashlib
import json
import sys
import tempfile

import gguf
import gguf.quants
import llama_cpp as lc
import numpy as np

TEXT = """The lighthouse keeper wrote down the weather every evening: wind from the north-west, 14 knots, light rain, \
visibility about three miles. In forty years he had missed one entry, on the night his daughter was born.

```rust
/// Sums the squares of the even numbers below `n`.
fn even_squares(n: u64) -> u64 {
    (0..n).filter(|i| i % 2 == 0).map(|i| i * i).sum()
}
```

def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        yield a
        a, b = b, a + b

人工智能正在改变我们的生活方式。昨天晚上,我和朋友一起去了北京的一家小餐馆,点了一份宫保鸡丁和两碗米饭。

Q: What is the capital of France, and which river runs through it?
A: The capital of France is Paris. The river Seine runs through it from the south-east to the north-west.

SELECT name, COUNT(*) AS n FROM orders WHERE total > 99.5 GROUP BY name ORDER BY n DESC LIMIT 10;

Der Zug nach M\u00fcnchen hatte zwanzig Minuten Versp\u00e4tung \U0001f682, also tranken wir noch einen Kaffee. E = mc\u00b2, 3.14159265, \
2 + 2 = 4, 2^10 = 1024. Once upon a time there was a small model that could run on any computer, and everyone was happy.
"""


def load(path, use_extra_bufts):
    params = lc.llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_extra_bufts = use_extra_bufts
    model = lc.llama_model_load_from_file(path.encode(), params)
    assert model, "the model did not load"
    return model


def tokenize(model, text):
    data = text.encode()
    ids = (lc.llama_token * (len(data) + 8))()
    n = lc.llama_tokenize(lc.llama_model_get_vocab(model), data, len(data), ids, len(ids), False, False)
    assert n > 0
    return list(ids[:n])


def decoded(path, out):
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "llama")
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


def logits(model, tokens, step=None, flash=0):
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 1024
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = flash
    params.type_k = params.type_v = 0  # GGML_TYPE_F32
    context = lc.llama_init_from_model(model, params)
    assert context, "no context"
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    rows = []
    step = step or len(tokens)
    for first in range(0, len(tokens), step):
        part = tokens[first : first + step]
        batch = lc.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, first + i, 1, 0
            batch.logits[i] = 1
        assert lc.llama_decode(context, batch) == 0
        for i in range(len(part)):
            rows.append(np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)).copy())
        lc.llama_batch_free(batch)
    lc.llama_free(context)
    return np.stack(rows).astype(np.float64)


def summary(rows, tokens):
    rows, following = rows[:-1], np.array(tokens[1:])
    peak = rows.max(1)
    logprob = rows[np.arange(len(rows)), following] - peak - np.log(np.exp(rows - peak[:, None]).sum(1))
    best = np.sort(rows, 1)[:, -2:]
    return {
        "logprob": [round(float(x), 6) for x in logprob],
        "top1": [int(x) for x in rows.argmax(1)],
        "margin": [round(float(x), 5) for x in best[:, 1] - best[:, 0]],
    }


def main():
    path = sys.argv[1]
    callback = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(callback, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = load(path, False)
    tokens = tokenize(model, TEXT)
    runs = {
        "plain": summary(logits(model, tokens), tokens),
        "one_by_one": summary(logits(model, tokens, step=1), tokens),
        "flash": summary(logits(model, tokens, flash=1), tokens),
    }
    lc.llama_model_free(model)
    model = load(path, True)
    runs["default"] = summary(logits(model, tokens), tokens)
    lc.llama_model_free(model)
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        decoded(path, file.name)
        runs["exact"] = summary(logits(load(file.name, False), tokens), tokens)
    for name, run in runs.items():
        difference = np.abs(np.array(run["logprob"]) - np.array(runs["plain"]["logprob"])).mean()
        sure = np.array(runs["plain"]["margin"]) > 0.1
        same = (np.array(run["top1"]) == np.array(runs["plain"]["top1"]))[sure].mean()
        print(f"{name:>10}: mean |difference| from plain {difference:.5f}, top-1 {100 * same:.2f} %", file=sys.stderr)
    with open(path, "rb") as file:
        sha256 = hashlib.sha256(file.read()).hexdigest()
    golden = {"model_sha256": sha256, "llama_cpp_python": lc.__version__, "tokens": tokens, **runs}
    json.dump(golden, sys.stdout, separators=(",", ":"))
    print()


main()
