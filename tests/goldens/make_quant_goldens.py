#!/usr/bin/env python3
"""Makes engine/tests/data/quant-goldens.json: what other implementations make of every block format.

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 numpy
    python tests/goldens/make_quant_goldens.py > engine/tests/data/quant-goldens.json

Per tensor type `decode_hash`: FNV-1a over the f32 that gguf-py decodes from 256 blocks of random bytes, without the
blocks that hold an infinity or a NaN. Where llama.cpp can encode the type, `encode_error`: its relative rms error on
normal values and on their cubes. The random numbers are those of engine/tests/kernels_decode.rs.
"""
import ctypes
import glob
import json
import os

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type, quants

DECODED = """Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS IQ2_XXS IQ1_M
IQ1_S TQ1_0 TQ2_0 MXFP4 NVFP4""".split()
ENCODED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
N_BLOCKS = 256
N_ROWS, N_COLS = 32, 512


def random_words(seed, n):
    """xorshift64."""
    words, mask = [], (1 << 64) - 1
    for _ in range(n):
        seed ^= seed << 13 & mask
        seed ^= seed >> 7
        seed ^= seed << 17 & mask
        words.append(seed)
    return np.array(words, np.uint64)


def decode_hash(kind):
    n_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = (random_words(int(kind) + 1, N_BLOCKS * n_bytes) >> np.uint64(32)).astype(np.uint8)
    with np.errstate(all="ignore"):
        values = quants.dequantize(blocks.reshape(N_BLOCKS, n_bytes), kind)
    kept = values[np.isfinite(values).all(axis=1)].astype("<f4").tobytes()
    digest = 0xCBF29CE484222325
    for byte in kept:
        digest = (digest ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return f"{digest:016x}"


def normal_values(n):
    """Sums of twelve uniform values, less 6, in f32."""
    uniform = (random_words(1, 12 * n) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
    total = np.zeros(n, np.float32)
    for column in uniform.reshape(n, 12).T:
        total += column
    return total - np.float32(6)


def llama_quantise(ggml, kind, x):
    elems, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((N_ROWS, N_COLS // elems * n_bytes), np.uint8)
    ggml.ggml_quantize_chunk(int(kind), x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                             ctypes.c_int64(0), ctypes.c_int64(N_ROWS), ctypes.c_int64(N_COLS), None)
    return out


def main():
    ggml = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so*"))[0])
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    normal = normal_values(N_ROWS * N_COLS).reshape(N_ROWS, N_COLS)
    goldens = {}
    for name in DECODED:
        kind = Type[name]
        goldens[name] = {"decode_hash": decode_hash(kind)}
        if name in ENCODED:
            errors = []
            for x in (normal, normal * normal * normal):
                y = quants.dequantize(llama_quantise(ggml, kind, x), kind).astype(np.float64)
                errors.append(float(f"{np.sqrt(((y - x) ** 2).sum() / (x.astype(np.float64) ** 2).sum()):.6f}"))
            goldens[name]["encode_error"] = errors
    print("{\n" + ",\n".join(f'  "{name}": {json.dumps(golden)}' for name, golden in goldens.items()) + "\n}")


if __name__ == "__main__":
    main()
