// The 16 levels of IQ4_NL and IQ4_XS.
#pragma once
#include "quant.cuh"

/// 32 weights from 16 bytes of two indices, those of weights 16 apart.
DEVICE void levels(const u8* indices, Weights& w) {
    // -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113
    const u32 table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
#pragma unroll
    for (u32 i = 0; i < 4; i++) look_up(word_at(indices + 4 * i), table, w.q[i], w.q[4 + i]);
}
