// What the kernels between products share: reductions over a block, and functions of one number.
#pragma once
#include "gpu.cuh"

DEVICE float infinity() { return __uint_as_float(0x7f800000u); }

DEVICE u32 shfl_xor(u32 value, int mask) {
    u32 got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(got) : "r"(value), "r"(mask));
    return got;
}

/// The integer below.
DEVICE i32 floor_to_i32(float value) {
    i32 floored;
    asm("cvt.rmi.s32.f32 %0, %1;" : "=r"(floored) : "f"(value));
    return floored;
}

/// The sum over a block of n_warps warps; every thread gets it, and all of them must call it.
template <u32 n_warps>
DEVICE float block_sum(float value) {
    __shared__ float part[n_warps];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (u32 i = 0; i < n_warps; i++) sum += part[i];
    return sum;
}

DEVICE float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

DEVICE float silu(float v) { return v / (1.0f + expf(-v)); }

/// By a series near 0, where the difference would lose digits.
DEVICE float tanh_of(float v) {
    float small = v - v * v * v * (1.0f / 3.0f) + v * v * v * v * v * (2.0f / 15.0f);
    float large = 1.0f - 2.0f / (expf(2.0f * v) + 1.0f);
    return fabsf(v) < 0.05f ? small : large;
}

/// ln(1 + e^v), by a series where the sum would lose the digits of e^v.
DEVICE float softplus(float v) {
    if (v > 20.0f) return v;
    float e = expf(v);
    return e < 1e-3f ? e * (1.0f - e * (0.5f - e * (1.0f / 3.0f))) : logf(1.0f + e);
}
