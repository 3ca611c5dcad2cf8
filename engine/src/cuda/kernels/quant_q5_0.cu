// Products with Q5_0: d f16, 32 fifth bits, 16 bytes of two weights, those 16 apart; minus 16.
#include "quant.cuh"

struct Q5_0 {
    static const u32 ELEMS = 32, BYTES = 22;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        w.scale[0] = half_at(block);
        u32 fifth = word_at(block + 2);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 pairs = word_at(block + 6 + 4 * i);
            w.q[i] = minus(pairs & 0x0f0f0f0fu | spread(fifth >> (4 * i)) << 4, 16);
            w.q[4 + i] = minus(pairs >> 4 & 0x0f0f0f0fu | spread(fifth >> (16 + 4 * i)) << 4, 16);
        }
    }
};

PRODUCTS(Q5_0, q5_0)
