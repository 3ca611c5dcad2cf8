// Products with Q6_K: 128 bytes of two low nibbles, 64 bytes of four times two high bits, 16 signed scales, d f16; minus 32.
#include "quant.cuh"

struct Q6_K {
    static const u32 ELEMS = 256, BYTES = 210;
    static const bool HALVES = true;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        float d = half_at(block + 208);
        w.scale[0] = d * (float)(i8)block[192 + 2 * group];
        w.scale[1] = d * (float)(i8)block[193 + 2 * group];
        u32 part = group % 4;
        const u8* low = block + 64 * (group / 4) + 32 * (part % 2);
        const u8* high = block + 128 + 32 * (group / 4);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 four = word_at(low + 4 * i) >> (4 * (part / 2)) & 0x0f0f0f0fu;
            u32 two = word_at(high + 4 * i) >> (2 * part) & 0x03030303u;
            w.q[i] = minus(four | two << 4, 32);
        }
    }
};

PRODUCTS(Q6_K, q6_K)
