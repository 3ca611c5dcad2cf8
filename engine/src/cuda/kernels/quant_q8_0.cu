// Products with Q8_0: d f16, 32 signed bytes.
#include "quant.cuh"

struct Q8_0 {
    static const u32 ELEMS = 32, BYTES = 34;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        w.scale[0] = half_at(block);
#pragma unroll
        for (u32 i = 0; i < 8; i++) w.q[i] = word_at(block + 2 + 4 * i);
    }
};

PRODUCTS(Q8_0, q8_0)
