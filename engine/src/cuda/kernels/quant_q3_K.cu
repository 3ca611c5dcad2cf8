// Products with Q3_K: 32 bytes of top bits, 64 bytes of four weights, 16 scales of six bits, d f16.
#include "quant.cuh"

struct Q3_K {
    static const u32 ELEMS = 256, BYTES = 110;
    static const bool HALVES = true;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        float d = half_at(block + 108);
        const u8* scales = block + 96;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 at = 2 * group + half;
            u32 scale = (scales[at % 8] >> (4 * (at / 8)) & 15) | (scales[8 + at % 4] >> (2 * (at / 4)) & 3) << 4;
            w.scale[half] = d * ((float)scale - 32.0f);
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 low = word_at(block + 32 + 32 * (group / 4) + 4 * i) >> (2 * (group % 4)) & 0x03030303u;
            u32 top = word_at(block + 4 * i) >> group & 0x01010101u;
            w.q[i] = minus(low | top << 2, 4);
        }
    }
};

PRODUCTS(Q3_K, q3_K)
