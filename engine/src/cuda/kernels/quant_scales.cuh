// Scales and mins of Q4_K and Q5_K, eight each of six bits.
#pragma once
#include "quant.cuh"

DEVICE void scale_and_min(const u8* block, u32 group, float& scale, float& min) {
    const u8* s = block + 4;
    u32 of_scale, of_min;
    if (group < 4) {
        of_scale = s[group] & 63;
        of_min = s[group + 4] & 63;
    } else {
        of_scale = (s[group + 4] & 15) | (s[group - 4] >> 6) << 4;
        of_min = s[group + 4] >> 4 | (s[group] >> 6) << 4;
    }
    scale = half_at(block) * (float)of_scale;
    min = half_at(block + 2) * (float)of_min;
}
