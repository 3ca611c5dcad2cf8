// Products with IQ4_NL: d f16, 16 bytes of two indices, those of weights 16 apart.
#include "quant_levels.cuh"

struct IQ4_NL {
    static const u32 ELEMS = 32, BYTES = 18;
    static const bool HALVES = false;
    static const int MINS = NO_MIN;
    static DEVICE void unpack(const u8* block, u32 group, Weights& w) {
        w.scale[0] = half_at(block);
        levels(block + 2, w);
    }
};

PRODUCTS(IQ4_NL, iq4_nl)
