// Products of matrices of plain floats with f32 activations: weights are decoded on the way and never kept. One warp per row of
// the matrix. A format says how its elements decode; the products are written once. Block formats are in `quant_*.cu`.
#include "functions.cuh"

struct F32 {
    static const u32 ELEMS = 1, BYTES = 4;
    static DEVICE float at(const u8* b, u32) { return *(const float*)b; }
};

struct F16 {
    static const u32 ELEMS = 1, BYTES = 2;
    static DEVICE float at(const u8* b, u32) { return f16_to_f32(*(const u16*)b); }
};

struct BF16 {
    static const u32 ELEMS = 1, BYTES = 2;
    static DEVICE float at(const u8* b, u32) { return bf16_to_f32(*(const u16*)b); }
};

#define N_WARPS 8

// y[s] = W[ids[s]] x[s] for N inputs at once, all of the same matrix.
//
// w        matrices of matrix_bytes each, [n_rows, n_cols] in blocks
// ids      [n] which matrix; null for the first
// x        [n, n_cols]
// y        [n, n_rows]
// grid     (n_rows / N_WARPS, n / N)
template <class F, u32 N>
DEVICE void product(const u8* w, u64 matrix_bytes, const u32* ids, const float* x, float* y, u32 n_rows, u32 n_cols, u32 n) {
    u32 lane = threadIdx.x % 32, row = blockIdx.x * N_WARPS + threadIdx.x / 32, first = blockIdx.y * N;
    if (row >= n_rows) return;
    const u8* weights = w + (ids ? ids[first] * matrix_bytes : 0) + (u64)row * (n_cols / F::ELEMS) * F::BYTES;
    float sum[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) sum[j] = 0.0f;
    for (u32 c = lane; c < n_cols; c += 32) {
        float weight = F::at(weights + (u64)(c / F::ELEMS) * F::BYTES, c % F::ELEMS);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            if (first + j < n) sum[j] += weight * x[(u64)(first + j) * n_cols + c];
        }
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        sum[j] = warp_sum(sum[j]);
        if (lane == 0 && first + j < n) y[(u64)(first + j) * n_rows + row] = sum[j];
    }
}

// x[i] = the row ids[i] of the matrix, decoded. One thread per element.
template <class F> DEVICE void rows(const u8* w, const u32* ids, float* x, u32 n_cols, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 c = i % n_cols;
    const u8* row = w + (u64)ids[i / n_cols] * (n_cols / F::ELEMS) * F::BYTES;
    x[i] = F::at(row + (u64)(c / F::ELEMS) * F::BYTES, c % F::ELEMS);
}

#define FORMAT(F, name)                                                                                                       \
    KERNEL void __launch_bounds__(32 * N_WARPS)                                                                                 \
            matvec_##name(const u8* w, u64 matrix_bytes, const u32* ids, const float* x, float* y, u32 n_rows, u32 n_cols, u32 n) { \
        product<F, 1>(w, matrix_bytes, ids, x, y, n_rows, n_cols, n);                                                             \
    }                                                                                                                           \
    KERNEL void __launch_bounds__(32 * N_WARPS)                                                                                 \
            matmul_##name(const u8* w, u64 matrix_bytes, const u32* ids, const float* x, float* y, u32 n_rows, u32 n_cols, u32 n) { \
        product<F, 8>(w, matrix_bytes, (const u32*)0, x, y, n_rows, n_cols, n);                                                   \
    }                                                                                                                           \
    KERNEL void rows_##name(const u8* w, const u32* ids, float* x, u32 n_cols, u32 n) { rows<F>(w, ids, x, n_cols, n); }

FORMAT(F32, f32)
FORMAT(F16, f16)
FORMAT(BF16, bf16)
