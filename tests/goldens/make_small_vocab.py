"""Small vocabularies for testing tokenizers, and llama.cpp's token ids under each: `engine/tests/token.rs` compares.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 tokenizers==0.23.3
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36   # has vendor/llama.cpp/models
    python tests/goldens/make_small_vocab.py vendor/llama.cpp/models tests/data

Asks for the ids of each line of at most 100 characters.

- `vocab-small.gguf` is trained on those lines without a pre-tokenizer, so that it has tokens across every place where a
  pre-tokenizer may cut, and ids tell where it did. `token-goldens-rules.jsonl` has one JSON object per pre-tokenizer.
- `vocab-small-spm.gguf` and `vocab-small-gemma4.gguf` are what the lines need of Phi-3's vocabulary (MIT licence) and Gemma 4's
  (Apache 2.0 licence): every byte, every special token, every token that comes out, and what it is merged from.
  `token-goldens-characters.jsonl` has one JSON object per vocabulary and change of its keys.
"""

import json
import os
import sys
import tempfile

import gguf
import tokenizers

from make_token_goldens import load, tokenize

RULES = [
    "llama-bpe", "glm4", "dbrx", "qwen2", "qwen35", "deepseek-v3", "gpt-2", "smollm", "falcon",
    "bloom", "viking", "seed-coder", "bailingmoe", "minicpm5", "exaone-moe", "laguna", "superbpe", "spark2_5", "ufakzeka", "default",
    "deepseek-llm", "deepseek-coder", "gpt-4o", "tekken", "kimi-k2", "youtu",
]

# Changes of keys under which the vocabularies of characters are asked; `None` leaves a key out.
CHANGES = {
    "spm": [
        {},
        {"general.name": "Another model"},
        {"tokenizer.ggml.add_space_prefix": False},
        {"tokenizer.ggml.scores": None},
    ],
    "gemma4": [{}],
}


class Vocabulary:
    """The tokenizer keys of a file."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        contents = lambda key: fields[key].contents() if key in fields else None
        self.name = contents("general.name")
        self.model, self.tokens, self.types, self.scores, self.merges = (
            contents(f"tokenizer.ggml.{key}") for key in ["model", "tokens", "token_type", "scores", "merges"])
        self.ids = {key: contents(key) for key in fields if key.startswith("tokenizer.") and key.endswith("_token_id")}
        self.flags = {f"tokenizer.ggml.{key}": contents(f"tokenizer.ggml.{key}") for key in ["add_bos_token", "add_space_prefix"]}
        self.ranks = {split(merge): rank for rank, merge in enumerate(self.merges or [])}
        self.by_text = {token: i for i, token in enumerate(self.tokens)}

    @classmethod
    def trained(cls, texts, end):
        """Byte-level merges learned from texts, up to the last pair of neighbours, for tokens of at most 6 bytes."""
        bytes_only = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = bytes_only
        tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
            min_frequency=1, max_token_length=6, initial_alphabet=bytes_only.alphabet(), show_progress=False))
        model = json.loads(tokenizer.to_str())["model"]
        learned = cls.__new__(cls)
        learned.name, learned.model, learned.flags, learned.scores = "A small vocabulary", "gpt2", {}, None
        learned.tokens = [*sorted(model["vocab"], key=model["vocab"].get), end]
        learned.types = [1] * (len(learned.tokens) - 1) + [3]
        learned.merges = [" ".join(pair) for pair in model["merges"]]
        learned.ids = {f"tokenizer.ggml.{which}_token_id": len(learned.tokens) - 1 for which in ["bos", "eos"]}
        return learned

    def part(self, kept):
        """Only these tokens, and the merges that make them."""
        part = Vocabulary.__new__(Vocabulary)
        part.name, part.model, part.flags = self.name, self.model, self.flags
        ids = sorted(kept)
        texts = {self.tokens[i] for i in ids}
        pick = lambda values: values and [values[i] for i in ids]
        part.tokens, part.types, part.scores = pick(self.tokens), pick(self.types), pick(self.scores)
        part.merges = self.merges and [merge for merge in self.merges if {*split(merge), "".join(split(merge))} <= texts]
        part.ids = {key: ids.index(i) for key, i in self.ids.items() if i in kept}
        return part

    def write(self, path, changes={}):
        writer = gguf.GGUFWriter(path, "llama")
        keep = lambda key, value: changes.get(key, value)
        writer.add_name(keep("general.name", self.name))
        writer.add_tokenizer_model(self.model)
        if "tokenizer.ggml.pre" in changes:
            writer.add_tokenizer_pre(changes["tokenizer.ggml.pre"])
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if keep("tokenizer.ggml.scores", self.scores):
            writer.add_token_scores(self.scores)
        if self.merges:
            writer.add_token_merges(self.merges)
        for key, i in self.ids.items():
            writer.add_uint32(key, i)
        for key, flag in self.flags.items():
            if keep(key, flag) is not None:
                writer.add_bool(key, keep(key, flag))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def parts_of(self, i):
        """The tokens that a token is merged from, by merging it."""
        symbols, parts = list(self.tokens[i]), set()
        while True:
            parts.update(self.by_text[symbol] for symbol in symbols if symbol in self.by_text)
            pairs = [(self.order(pair), i) for i, pair in enumerate(zip(symbols, symbols[1:]))]
            best, i = min(((order, i) for order, i in pairs if order is not None), default=(None, None))
            if best is None:
                return parts
            symbols[i:i + 2] = ["".join(symbols[i:i + 2])]

    def order(self, pair):
        if self.merges:
            return self.ranks.get(pair)
        merged = self.by_text.get("".join(pair))
        return None if merged is None else -self.scores[merged]

    def needed(self, used):
        """Used tokens, special and byte tokens, and what they are merged from."""
        kept = used | {i for i, kind in enumerate(self.types) if kind != 1} | {i for i, text in enumerate(self.tokens) if len(text) == 1 and ord(text) < 0x144}
        return kept.union(*(self.parts_of(i) for i in kept if self.types[i] == 1))


def split(merge):
    at = merge.index(" ", 1)
    return merge[:at], merge[at + 1:]


def asked(vocabulary, texts, changes, special=True):
    """llama.cpp's ids."""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "vocab.gguf")
        vocabulary.write(path, changes)
        llama, vocab = load(path)
        return [tokenize(vocab, text, special) for text in texts]


def main():
    models, folder = sys.argv[1:3]
    corpus = [json.loads(line)["text"] for line in open(f"{folder}/token-corpus.jsonl", encoding="utf-8")]
    short = [text for text in corpus if len(text) <= 100]

    # `</s>` would be special to llama.cpp by its text.
    small = Vocabulary.trained([text for text in short if "</s>" not in text], "<|endoftext|>")
    small.write(f"{folder}/vocab-small.gguf", {"tokenizer.ggml.pre": "gpt-2"})
    with open(f"{folder}/token-goldens-rules.jsonl", "w") as out:
        for rule in RULES:
            golden = {"pre": rule, "ids": asked(small, short, {"tokenizer.ggml.pre": rule})}
            out.write(json.dumps(golden, separators=(",", ":")) + "\n")

    with open(f"{folder}/token-goldens-characters.jsonl", "w") as out:
        for name, source in [("spm", "phi-3"), ("gemma4", "gemma-4")]:
            whole = Vocabulary(f"{models}/ggml-vocab-{source}.gguf")
            used = set()
            for changes in CHANGES[name]:
                used.update(*asked(whole, short, changes))
            small = whole.part(whole.needed(used))
            small.name = f"A part of the vocabulary of {source}"
            small.write(f"{folder}/vocab-small-{name}.gguf")
            for changes in CHANGES[name]:
                ids = {key: asked(small, short, changes, key == "parse") for key in ["parse", "literal"]}
                out.write(json.dumps({"vocabulary": name, "changes": changes, **ids}, separators=(",", ":")) + "\n")


main()
