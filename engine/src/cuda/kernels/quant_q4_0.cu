// Products with Q4_0: d f16, 16 bytes of two weights, those 16 apart; minus 8.
#include "quant.cuh"

struct Q4_0 {
    static const u32 ELEMS = 32, BYTES = 18;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        w.scale[0] = half_at(block);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 pairs = word_at(block + 2 + 4 * i);
            w.q[i] = minus(pairs & 0x0f0f0f0fu, 8);
            w.q[4 + i] = minus(pairs >> 4 & 0x0f0f0f0fu, 8);
        }
    }
};

PRODUCTS(Q4_0, q4_0)
