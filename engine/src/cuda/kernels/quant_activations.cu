// Activations as blocks of 32 signed bytes, what the integer products multiply weights with.
#include "gpu.cuh"

/// Rounds activations to signed bytes, each 32 of a row with a scale of their own.
///
/// x        [n_rows, width] f32; width a multiple of 32
/// q        [n_rows, width] i8: round(x / d), d = largest magnitude of the 32 / 127
/// scales   [n_rows, width / 32] of (d, d · sum of the 32 bytes), f32
/// Grid     (ceil(width / 256), n_rows), 256 threads
KERNEL void __launch_bounds__(256)
    quantize_activations(const float* __restrict__ x, i8* __restrict__ q, float2* __restrict__ scales, u32 width) {
    u32 column = blockIdx.x * 256 + threadIdx.x;
    // Whole warps leave: width is a multiple of 32.
    if (column >= width) return;
    u64 at = (u64)blockIdx.y * width + column;
    float value = x[at];
    float d = warp_max(fabsf(value)) / 127.0f;
    i32 rounded = d == 0.0f ? 0 : round_to_i32(value / d);
    float sum = warp_sum((float)rounded);
    q[at] = (i8)rounded;
    if (threadIdx.x % 32 == 0) scales[at / 32] = make_float2(d, d * sum);
}
