// Products with Q4_K: d f16, dmin f16, eight scales and mins of six bits, 128 bytes of two weights, those 32 apart.
#include "quant_scales.cuh"

struct Q4_K {
    static const u32 ELEMS = 256, BYTES = 144;
    static const bool HALVES = false;
    static const int MINS = MIN_OF_32;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        scale_and_min(block, group, w.scale[0], w.min[0]);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            w.q[i] = *(const u32*)(block + 16 + 32 * (group / 2) + 4 * i) >> (4 * (group % 2)) & 0x0f0f0f0fu;
        }
    }
};

PRODUCTS(Q4_K, q4_K)
