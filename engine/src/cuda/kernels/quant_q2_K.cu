// Products with Q2_K: 16 bytes of scale and min, 64 bytes of four weights, d f16, dmin f16.
#include "quant.cuh"

struct Q2_K {
    static const u32 ELEMS = 256, BYTES = 84;
    static const bool HALVES = true;
    static const int MINS = MIN_OF_16;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        float d = half_at(block + 80), dmin = half_at(block + 82);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 both = block[2 * group + half];
            w.scale[half] = d * (float)(both & 15);
            w.min[half] = dmin * (float)(both >> 4);
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            w.q[i] = *(const u32*)(block + 16 + 32 * (group / 4) + 4 * i) >> (2 * (group % 4)) & 0x03030303u;
        }
    }
};

PRODUCTS(Q2_K, q2_K)
