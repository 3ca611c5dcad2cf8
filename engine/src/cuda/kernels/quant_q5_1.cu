// Products with Q5_1: d f16, m f16, 32 fifth bits, 16 bytes of two weights, those 16 apart.
#include "quant.cuh"

struct Q5_1 {
    static const u32 ELEMS = 32, BYTES = 24;
    static const bool HALVES = false;
    static const int MINS = MIN_OF_32;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        w.scale[0] = half_at(block);
        w.min[0] = -half_at(block + 2);
        u32 fifth = *(const u32*)(block + 4);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 pairs = *(const u32*)(block + 8 + 4 * i);
            w.q[i] = pairs & 0x0f0f0f0fu | spread(fifth >> (4 * i)) << 4;
            w.q[4 + i] = pairs >> 4 & 0x0f0f0f0fu | spread(fifth >> (16 + 4 * i)) << 4;
        }
    }
};

PRODUCTS(Q5_1, q5_1)
