// Products with MXFP4: exponent, 16 bytes of two indices, those of weights 16 apart.
#include "quant.cuh"

struct MXFP4 {
    static const u32 ELEMS = 32, BYTES = 17;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        // Half of the standard scale, as the levels are doubled: 2^(e - 128), which is denormal for the two least.
        u32 e = block[0];
        w.scale[0] = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        const u32 table[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
#pragma unroll
        for (u32 i = 0; i < 4; i++) look_up(word_of_bytes(block + 1 + 4 * i), table, w.q[i], w.q[4 + i]);
    }
};

PRODUCTS(MXFP4, mxfp4)
