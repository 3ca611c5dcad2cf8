// Points of the IQ2 and IQ3 lattices with their signs.
#pragma once
#include "quant.cuh"

/// Eight weights of a point; a sign bit each.
DEVICE void eight(u64 point, u32 signs, u32& low, u32& high) {
    low = negate((u32)point, signs);
    high = negate((u32)(point >> 32), signs >> 4);
}
