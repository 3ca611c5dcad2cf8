"""Token ids of llama.cpp for every line of a corpus: the goldens that `tests/tests/tokens.rs` compares with.

    pip install llama-cpp-python==0.3.36
    python tests/goldens/make_token_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf \
        tests/data/token-corpus.jsonl > tests/data/token-goldens-smollm2.jsonl
    python tests/goldens/make_token_goldens.py gemma-3-270m-q4_k_m.gguf \
        tests/data/token-corpus.jsonl > tests/data/token-goldens-gemma3.jsonl

One line per line of the corpus, `parse` with special tokens parsed and `literal` without; never a BOS. The last line is the
vocabulary's: which tokens end a generation, BOS, the runs of control tokens (first, last), and the bytes of every 97th token in
hex, of fewer where there are more than 97000. The corpus has no characters younger than Unicode 15: those are not in llama.cpp's
tables.
"""

import ctypes
import json
import sys

import llama_cpp


def load(path):
    """A vocabulary and its owner, which must outlive it."""
    llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    return llama, llama._model.vocab


def tokenize(vocab, text, special):
    data = text.encode()
    ids = (llama_cpp.llama_token * (len(data) + 16))()
    n = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), False, special)
    assert n >= 0, text
    return list(ids[:n])


def piece(vocab, token):
    buffer = ctypes.create_string_buffer(512)
    n = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, True)
    assert n >= 0, token
    return buffer.raw[:n]


def runs(ids):
    """First and last of each run of consecutive ids."""
    found = []
    for i in ids:
        if found and found[-1][1] == i - 1:
            found[-1][1] = i
        else:
            found.append([i, i])
    return found


def main():
    model_path, corpus_path = sys.argv[1:3]
    llama, vocab = load(model_path)
    for line in open(corpus_path, encoding="utf-8"):
        text = json.loads(line)["text"]
        ids = {"parse": tokenize(vocab, text, True), "literal": tokenize(vocab, text, False)}
        print(json.dumps(ids, separators=(",", ":")))
    n_tokens = llama_cpp.llama_vocab_n_tokens(vocab)
    print(json.dumps({
        "n_tokens": n_tokens,
        "ends": [i for i in range(n_tokens) if llama_cpp.llama_vocab_is_eog(vocab, i)],
        "control": runs(i for i in range(n_tokens) if llama_cpp.llama_vocab_is_control(vocab, i)),
        "bos": llama_cpp.llama_vocab_bos(vocab),
        "add_bos": llama_cpp.llama_vocab_get_add_bos(vocab),
        "bytes": {i: piece(vocab, i).hex() for i in range(0, n_tokens, max(97, n_tokens // 1000))},
    }, separators=(",", ":")))


if __name__ == "__main__":
    main()
