"""A small vocabulary for testing pre-tokenizers, and llama.cpp's token ids under each: `tests/tests/tokens.rs` compares.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36   # has vendor/llama.cpp/models/ggml-vocab-gpt-2.gguf
    python tests/goldens/make_small_vocab.py ggml-vocab-gpt-2.gguf tests/data

Keeps of GPT-2's vocabulary (MIT licence) what the corpus needs under any of the rules: every byte, every token that comes
out, and the merges that build them. Then asks llama.cpp for the ids of each line of at most 100 characters, one JSON
object per rule. Rules for which llama.cpp itself only approximates the published pattern (gpt-4o, tekken, youtu) are
left out.
"""

import json
import os
import sys
import tempfile

import gguf

from make_token_goldens import load, tokenize

RULES = [
    "llama-bpe", "glm4", "dbrx", "qwen2", "qwen35", "deepseek-v3", "deepseek-coder", "gpt-2", "smollm", "falcon", "bloom",
    "viking", "seed-coder", "bailingmoe", "minicpm5", "exaone-moe", "laguna", "default",
]


def write(path, tokens, types, merges, pre, end):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"A part of GPT-2's vocabulary")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def applied_merges(text, ranks):
    """The merges that build a token, by doing them."""
    symbols, applied = list(text), set()
    while len(symbols) > 1:
        rank, i = min((ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(symbols, symbols[1:])))
        if rank == 1 << 30:
            break
        applied.add(rank)
        symbols[i:i + 2] = ["".join(symbols[i:i + 2])]
    return applied


def main():
    source, folder = sys.argv[1:3]
    corpus = [json.loads(line)["text"] for line in open(f"{folder}/token-corpus.jsonl", encoding="utf-8")]
    fields = gguf.GGUFReader(source).fields
    contents = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    tokens, types, merges = contents("tokens"), contents("token_type"), contents("merges")
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    end = contents("eos_token_id")

    kept_ids = {i for i, token in enumerate(tokens) if len(token) == 1} | {end}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "whole.gguf")
        for rule in RULES:
            write(path, tokens, types, merges, rule, end)
            llama, vocab = load(path)
            for text in corpus:
                kept_ids.update(tokenize(vocab, text, True))
    kept_merges = set()
    for i in kept_ids - {end}:
        kept_merges |= applied_merges(tokens[i], ranks)
    by_text = {token: i for i, token in enumerate(tokens)}
    kept_ids |= {by_text[merges[rank].replace(" ", "")] for rank in kept_merges}

    ids = sorted(kept_ids)
    small = ([tokens[i] for i in ids], [types[i] for i in ids], [merges[rank] for rank in sorted(kept_merges)])
    write(f"{folder}/vocab-small.gguf", *small, "gpt-2", ids.index(end))
    with tempfile.TemporaryDirectory() as scratch, open(f"{folder}/token-goldens-rules.jsonl", "w") as out:
        path = os.path.join(scratch, "small.gguf")
        for rule in RULES:
            write(path, *small, rule, ids.index(end))
            llama, vocab = load(path)
            found = [tokenize(vocab, text, True) for text in corpus if len(text) <= 100]
            out.write(json.dumps({"pre": rule, "ids": found}, separators=(",", ":")) + "\n")


main()
