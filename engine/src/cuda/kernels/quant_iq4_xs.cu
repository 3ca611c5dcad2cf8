// Products with IQ4_XS: d f16, two top bits and four low ones of eight scales, 128 bytes of two indices, those of weights 16 apart.
#include "quant_levels.cuh"

struct IQ4_XS {
    static const u32 ELEMS = 256, BYTES = 136;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        u32 scale = (block[4 + group / 2] >> (4 * (group % 2)) & 15) | (*(const u16*)(block + 2) >> (2 * group) & 3) << 4;
        w.scale[0] = half_at(block) * ((float)scale - 32.0f);
        levels(block + 8 + 16 * group, w);
    }
};

PRODUCTS(IQ4_XS, iq4_xs)
