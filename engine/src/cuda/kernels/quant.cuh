// Products of quantised matrices, in the file's own blocks, with activations in signed bytes (`quantize_activations`).
//
// A format says only how 32 of its weights unpack: to signed bytes, a scale (or one for each 16), and what is taken away
// (`MINS`). The products are written once over that, and each file `quant_*.cu` gives one format's unpacking to `PRODUCTS`.
#pragma once
#include "gpu.cuh"

/// 32 weights: weight[i] = scale[i / 16] · byte i of q - min[i / 16]. Formats with one scale set only the first.
struct Weights {
    u32 q[8];
    float scale[2];
    float min[2];
};

/// What is taken from each weight: nothing, the same from 32, or the same from 16.
enum { NO_MIN, MIN_OF_32, MIN_OF_16 };

// ---- reading blocks ----

/// Four bytes at a multiple of two.
DEVICE u32 word_at(const u8* p) { return *(const u16*)p | (u32) * (const u16*)(p + 2) << 16; }

/// Four bytes anywhere.
DEVICE u32 word_of_bytes(const u8* p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }

DEVICE float half_at(const u8* p) { return f16_to_f32(*(const u16*)p); }

/// Takes n from each byte below 128.
DEVICE u32 minus(u32 q, u32 n) { return ((q | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u; }

/// Four bits to bit 0 of four bytes.
DEVICE u32 spread(u32 bits) { return ((bits & 15) * 0x00204081u) & 0x01010101u; }

/// Negates bytes, none of them zero, where one of four bits is set.
DEVICE u32 negate(u32 q, u32 bits) {
    u32 ones = spread(bits);
    return (q ^ ones * 255) + ones;
}

/// Seven signs and the eighth, which makes their number even.
DEVICE u32 even_signs(u32 seven) { return seven | (__popc(seven) & 1) << 7; }

/// Bytes of a table of 16 at eight four-bit indices: the low ones of each byte to `low`, the high ones to `high`.
DEVICE void look_up(u32 indices, const u32 (&table)[4], u32& low, u32& high) {
    u32 pairs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 four = indices >> (16 * i) & 0xffff;
        u32 first = __byte_perm(table[0], table[1], four & 0x7777), second = __byte_perm(table[2], table[3], four & 0x7777);
        pairs[i] = __byte_perm(first, second, 0x3210 | (four & 0x8888) >> 1);
    }
    low = __byte_perm(pairs[0], pairs[1], 0x6420);
    high = __byte_perm(pairs[0], pairs[1], 0x7531);
}

// ---- one product ----

/// The product of 32 weights with 32 activations; `scales` are their scale, and that times their sum.
template <class F>
DEVICE float dot(const Weights& w, const u32 (&x)[8], float2 scales) {
    i32 first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first = dp4a(w.q[i], x[i], first);
        second = dp4a(w.q[4 + i], x[4 + i], second);
    }
    float sum = F::HALVES ? w.scale[0] * (float)first + w.scale[1] * (float)second : w.scale[0] * (float)(first + second);
    if (F::MINS == MIN_OF_32) return scales.x * sum - w.min[0] * scales.y;
    if (F::MINS == MIN_OF_16) {
        i32 of_first = 0, of_second = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            of_first = dp4a(0x01010101u, x[i], of_first);
            of_second = dp4a(0x01010101u, x[4 + i], of_second);
        }
        sum -= w.min[0] * (float)of_first + w.min[1] * (float)of_second;
    }
    return scales.x * sum;
}

DEVICE void load_activations(const i8* q, u32 (&x)[8]) {
    uint4 first = ((const uint4*)q)[0], second = ((const uint4*)q)[1];
    x[0] = first.x, x[1] = first.y, x[2] = first.z, x[3] = first.w;
    x[4] = second.x, x[5] = second.y, x[6] = second.z, x[7] = second.w;
}

/// Where a row of a matrix begins.
template <class F>
DEVICE const u8* row_of(const u8* w, u32 row, u32 n_cols) {
    return w + (u64)row * (n_cols / F::ELEMS) * F::BYTES;
}

template <class F>
DEVICE void unpack(const u8* row, u32 group, Weights& w) {
    F::unpack(row + (u64)(group / (F::ELEMS / 32)) * F::BYTES, group % (F::ELEMS / 32), w);
}

// ---- few inputs: a warp per row ----

/// Rows of a block of threads, a warp each.
#define MATVEC_WARPS 8

/// y[i] = W[ids[i]] x[i] for N inputs at once; with more than one, all are of the same matrix.
///
/// w        matrices of matrix_bytes each, [n_rows, n_cols] in blocks
/// ids      [n] which matrix; null: the first
/// q        [n, n_cols] i8, scales [n, n_cols / 32]
/// y        [n, n_rows] f32
/// Grid     (ceil(n_rows / MATVEC_WARPS), ceil(n / N))
template <class F, u32 N>
DEVICE void matvec(const u8* w, u64 matrix_bytes, const u32* ids, const i8* q, const float2* scales, float* y, u32 n_rows,
                   u32 n_cols, u32 n) {
    u32 lane = threadIdx.x % 32, row = blockIdx.x * MATVEC_WARPS + threadIdx.x / 32, first = blockIdx.y * N;
    if (row >= n_rows) return;
    const u8* weights = row_of<F>(w + (ids ? ids[first] * matrix_bytes : 0), row, n_cols);
    u32 n_groups = n_cols / 32;
    float sum[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) sum[j] = 0.0f;
    for (u32 group = lane; group < n_groups; group += 32) {
        Weights unpacked;
        unpack<F>(weights, group, unpacked);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            if (first + j < n) {
                u32 x[8];
                load_activations(q + (u64)(first + j) * n_cols + 32 * group, x);
                sum[j] += dot<F>(unpacked, x, scales[(u64)(first + j) * n_groups + group]);
            }
        }
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        sum[j] = warp_sum(sum[j]);
        if (lane == 0 && first + j < n) y[(u64)(first + j) * n_rows + row] = sum[j];
    }
}

// ---- many inputs: tiles in shared memory ----

#define TILE_ROWS 64
#define TILE_INPUTS 32
#define TILE_THREADS 128
/// Blocks that a multiprocessor holds at once, at least. Said, because an assembler left to itself gives up a register or two to
/// memory for one block more.
#define TILE_BLOCKS(TENSOR_CORES) (TENSOR_CORES ? 6 : 4)
/// Groups of 32 that a tile is deep.
#define TILE_GROUPS 2
/// Bytes from row to row: 16 more than a row has, so that eight rows lie in different banks.
#define TILE_STRIDE (32 * TILE_GROUPS + 16)

struct Tile {
    u8 w[TILE_ROWS * TILE_STRIDE];
    i8 x[TILE_INPUTS * TILE_STRIDE];
    /// scale[0], scale[1], min[0], min[1]
    float4 of_weights[TILE_ROWS][TILE_GROUPS];
    float2 of_inputs[TILE_INPUTS][TILE_GROUPS];
    /// Scale times sum, of 16 each.
    float sums[TILE_INPUTS][2 * TILE_GROUPS];
};

/// d [16, 8] i32 += a [16, 16] i8 · b [16, 8] i8: half of `mma_i8`.
DEVICE void mma_i8_half(i32 (&d)[4], u32 a0, u32 a1, u32 b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a0), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(d[2]), "+r"(d[3])
                 : "r"(a1), "r"(b));
#endif
}

/// Takes `min` from a sum as the format does.
template <class F>
DEVICE float without_min(float sum, float4 weights, float2 inputs, const float* sums) {
    if (F::MINS == MIN_OF_32) return sum - weights.z * inputs.y;
    if (F::MINS == MIN_OF_16) return sum - weights.z * sums[0] - weights.w * sums[1];
    return sum;
}

/// Adds one group of a tile with tensor cores: 16 rows per warp, all inputs.
///
/// sum      by eight inputs, as the fragments lie
template <class F>
DEVICE void add_with_mma(const Tile& tile, u32 group, float (&sum)[16]) {
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    u32 row = 16 * warp + g;
    const u8* upper = tile.w + row * TILE_STRIDE + 32 * group + 4 * t;
    const u8* lower = upper + 8 * TILE_STRIDE;
    u32 a[4] = {*(const u32*)upper, *(const u32*)lower, *(const u32*)(upper + 16), *(const u32*)(lower + 16)};
    float4 weights[2] = {tile.of_weights[row][group], tile.of_weights[row + 8][group]};
#pragma unroll
    for (u32 eight = 0; eight < TILE_INPUTS / 8; eight++) {
        const i8* column = tile.x + (8 * eight + g) * TILE_STRIDE + 32 * group + 4 * t;
        u32 b[2] = {*(const u32*)column, *(const u32*)(column + 16)};
        i32 first[4] = {0, 0, 0, 0}, second[4] = {0, 0, 0, 0};
        if (F::HALVES) {
            mma_i8_half(first, a[0], a[1], b[0]);
            mma_i8_half(second, a[2], a[3], b[1]);
        } else {
            mma_i8(first, a, b);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 input = 8 * eight + 2 * t + i % 2;
            float4 w = weights[i / 2];
            float2 x = tile.of_inputs[input][group];
            float product = F::HALVES ? w.x * (float)first[i] + w.y * (float)second[i] : w.x * (float)first[i];
            sum[4 * eight + i] += without_min<F>(x.x * product, w, x, &tile.sums[input][2 * group]);
        }
    }
}

/// The same with integer products, for cards without tensor cores: four rows and four inputs per thread.
template <class F>
DEVICE void add_with_dp4a(const Tile& tile, u32 group, float (&sum)[16]) {
    u32 row = threadIdx.x / 8 * 4, input = threadIdx.x % 8 * 4;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32* w = (const u32*)(tile.w + (row + i) * TILE_STRIDE + 32 * group);
        float4 weights = tile.of_weights[row + i][group];
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32* x = (const u32*)(tile.x + (input + j) * TILE_STRIDE + 32 * group);
            i32 first = 0, second = 0;
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                first = dp4a(w[k], x[k], first);
                second = dp4a(w[4 + k], x[4 + k], second);
            }
            float2 inputs = tile.of_inputs[input + j][group];
            float product = F::HALVES ? weights.x * (float)first + weights.y * (float)second : weights.x * (float)(first + second);
            sum[4 * i + j] +=
                without_min<F>(inputs.x * product, weights, inputs, &tile.sums[input + j][2 * group]);
        }
    }
}

/// Unpacks what the rows of a tile have in its groups: a group per thread.
template <class F>
DEVICE void fill_weights(Tile& tile, const u8* w, u32 first_row, u32 n_rows, u32 n_cols, u32 first_group) {
    u32 row = threadIdx.x / TILE_GROUPS, group = threadIdx.x % TILE_GROUPS;
    Weights unpacked;
#pragma unroll
    for (u32 i = 0; i < 8; i++) unpacked.q[i] = 0;
    unpacked.scale[0] = unpacked.scale[1] = unpacked.min[0] = unpacked.min[1] = 0.0f;
    if (first_row + row < n_rows && first_group + group < n_cols / 32) {
        unpack<F>(row_of<F>(w, first_row + row, n_cols), first_group + group, unpacked);
    }
    uint4* into = (uint4*)(tile.w + row * TILE_STRIDE + 32 * group);
    into[0] = make_uint4(unpacked.q[0], unpacked.q[1], unpacked.q[2], unpacked.q[3]);
    into[1] = make_uint4(unpacked.q[4], unpacked.q[5], unpacked.q[6], unpacked.q[7]);
    tile.of_weights[row][group] = make_float4(unpacked.scale[0], unpacked.scale[1], unpacked.min[0], unpacked.min[1]);
}

/// Brings what the inputs of a tile have in its groups: 16 bytes per thread.
DEVICE void fill_inputs(Tile& tile, const i8* q, const float2* scales, u64 input, bool is_there, u32 n_cols, u32 first_group) {
    u32 column = threadIdx.x / (2 * TILE_GROUPS), part = threadIdx.x % (2 * TILE_GROUPS), group = first_group + part / 2;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    float2 of_input = make_float2(0.0f, 0.0f);
    if (is_there && group < n_cols / 32) {
        bytes = *(const uint4*)(q + input * n_cols + 32 * group + 16 * (part % 2));
        of_input = scales[input * (n_cols / 32) + group];
    }
    *(uint4*)(tile.x + column * TILE_STRIDE + 16 * part) = bytes;
    if (part % 2 == 0) tile.of_inputs[column][part / 2] = of_input;
    i32 sum = dp4a(0x01010101u, bytes.x, dp4a(0x01010101u, bytes.y, dp4a(0x01010101u, bytes.z, dp4a(0x01010101u, bytes.w, 0))));
    tile.sums[column][part] = of_input.x * (float)sum;
}

/// y[i] = W[e] x[i / share] for the inputs i of each matrix e.
///
/// w        matrices of matrix_bytes each, [n_rows, n_cols] in blocks
/// offsets  [n_matrices + 1] where the inputs of each matrix begin in `inputs`; null: one matrix, inputs 0..n
/// inputs   indices i of results; null with `offsets`
/// q        [n / share, n_cols] i8, scales [n / share, n_cols / 32]
/// y        [n, n_rows] f32
/// Grid     (ceil(n_rows / TILE_ROWS), ceil(most inputs of a matrix / TILE_INPUTS), n_matrices), TILE_THREADS threads
template <class F, bool TENSOR_CORES>
DEVICE void matmul(const u8* w, u64 matrix_bytes, const u32* offsets, const u32* inputs, u32 share, const i8* q,
                   const float2* scales, float* y, u32 n_rows, u32 n_cols, u32 n) {
    __shared__ __align__(16) Tile tile;
    u32 matrix = blockIdx.z, begin = offsets ? offsets[matrix] : 0, end = offsets ? offsets[matrix + 1] : n;
    u32 first_row = blockIdx.x * TILE_ROWS, first_input = begin + blockIdx.y * TILE_INPUTS;
    // All threads leave together.
    if (first_input >= end) return;
    w += matrix * matrix_bytes;
    u32 mine = first_input + threadIdx.x / (2 * TILE_GROUPS);
    bool is_there = mine < end;
    u64 input = is_there ? (inputs ? inputs[mine] : mine) / share : 0;
    float sum[16];
#pragma unroll
    for (u32 i = 0; i < 16; i++) sum[i] = 0.0f;
    for (u32 group = 0; group < n_cols / 32; group += TILE_GROUPS) {
        fill_weights<F>(tile, w, first_row, n_rows, n_cols, group);
        fill_inputs(tile, q, scales, input, is_there, n_cols, group);
        __syncthreads();
#pragma unroll
        for (u32 part = 0; part < TILE_GROUPS; part++) {
            if (TENSOR_CORES) {
                add_with_mma<F>(tile, part, sum);
            } else {
                add_with_dp4a<F>(tile, part, sum);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        u32 row, column;
        if (TENSOR_CORES) {
            row = first_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 4 / 2 * 8;
            column = first_input + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        } else {
            row = first_row + threadIdx.x / 8 * 4 + i / 4;
            column = first_input + threadIdx.x % 8 * 4 + i % 4;
        }
        if (row < n_rows && column < end) y[(u64)(inputs ? inputs[column] : column) * n_rows + row] = sum[i];
    }
}

// ---- single rows ----

/// x[i] = the row ids[i] of the matrix, decoded. A thread per 32 weights.
///
/// x        [n / n_cols, n_cols] f32, n weights in all
template <class F>
DEVICE void rows(const u8* w, const u32* ids, float* x, u32 n_cols, u32 n) {
    u32 at = 32 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= n) return;
    Weights unpacked;
    unpack<F>(row_of<F>(w, ids[at / n_cols], n_cols), at % n_cols / 32, unpacked);
#pragma unroll
    for (u32 i = 0; i < 32; i++) {
        u32 half = F::HALVES ? i / 16 : 0, of_min = F::MINS == MIN_OF_16 ? i / 16 : 0;
        float value = unpacked.scale[half] * (float)(i8)(unpacked.q[i / 4] >> (8 * (i % 4)));
        x[at + i] = F::MINS == NO_MIN ? value : value - unpacked.min[of_min];
    }
}

#define MATVEC(name, F, N)                                                                                                      \
    KERNEL void __launch_bounds__(32 * MATVEC_WARPS)                                                                            \
        name(const u8* __restrict__ w, u64 matrix_bytes, const u32* __restrict__ ids, const i8* __restrict__ q,                 \
             const float2* __restrict__ scales, float* __restrict__ y, u32 n_rows, u32 n_cols, u32 n) {                         \
        matvec<F, N>(w, matrix_bytes, ids, q, scales, y, n_rows, n_cols, n);                                                    \
    }

#define MATMUL(name, F, TENSOR_CORES)                                                                                           \
    KERNEL void __launch_bounds__(TILE_THREADS, TILE_BLOCKS(TENSOR_CORES))                                                      \
        name(const u8* __restrict__ w, u64 matrix_bytes, const u32* __restrict__ offsets, const u32* __restrict__ inputs,       \
             u32 share, const i8* __restrict__ q, const float2* __restrict__ scales, float* __restrict__ y, u32 n_rows,         \
             u32 n_cols, u32 n) {                                                                                               \
        matmul<F, TENSOR_CORES>(w, matrix_bytes, offsets, inputs, share, q, scales, y, n_rows, n_cols, n);                      \
    }

#if __CUDA_ARCH__ >= 800
#define MATMUL_WITHOUT_TENSOR_CORES(name, F)
#else
// Cards named GTX 16 are of compute 7.5 and have none.
#define MATMUL_WITHOUT_TENSOR_CORES(name, F) MATMUL(name, F, false)
#endif

/// All kernels of a format.
#define PRODUCTS(F, name)                                                                                                       \
    MATVEC(quant_matvec_##name, F, 1)                                                                                           \
    MATVEC(quant_matvec8_##name, F, 8)                                                                                          \
    MATMUL(quant_matmul_##name, F, true)                                                                                        \
    MATMUL_WITHOUT_TENSOR_CORES(quant_matmul_dp4a_##name, F)                                                                    \
    KERNEL void quant_rows_##name(const u8* __restrict__ w, const u32* __restrict__ ids, float* __restrict__ x, u32 n_cols,     \
                                  u32 n) {                                                                                      \
        rows<F>(w, ids, x, n_cols, n);                                                                                          \
    }
