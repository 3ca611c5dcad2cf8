// Products with Q5_K: d f16, dmin f16, eight scales and mins of six bits, 32 bytes of fifth bits, 128 bytes of two weights.
#include "quant_scales.cuh"

struct Q5_K {
    static const u32 ELEMS = 256, BYTES = 176;
    static const bool HALVES = false;
    static const int MINS = MIN_OF_32;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        scale_and_min(block, group, w.scale[0], w.min[0]);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 low = *(const u32*)(block + 48 + 32 * (group / 2) + 4 * i) >> (4 * (group % 2)) & 0x0f0f0f0fu;
            u32 fifth = *(const u32*)(block + 16 + 4 * i) >> group & 0x01010101u;
            w.q[i] = low | fifth << 4;
        }
    }
};

PRODUCTS(Q5_K, q5_K)
