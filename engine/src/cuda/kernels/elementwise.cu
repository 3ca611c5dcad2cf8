// Operations on single elements, and copies of rows. One thread per element; blocks of 256.
#include "functions.cuh"

DEVICE u32 element() { return blockIdx.x * blockDim.x + threadIdx.x; }

// x += y, where y is as long as x or one row of n_y that every row of x gets.
KERNEL void add(float* x, const float* y, u32 n, u32 n_y) {
    u32 i = element();
    if (i < n) x[i] += y[i % n_y];
}

// x *= y, as `add`.
KERNEL void multiply(float* x, const float* y, u32 n, u32 n_y) {
    u32 i = element();
    if (i < n) x[i] *= y[i % n_y];
}

KERNEL void scale(float* x, float factor, u32 n) {
    u32 i = element();
    if (i < n) x[i] *= factor;
}

KERNEL void clamp(float* x, float limit, u32 n) {
    u32 i = element();
    if (i >= n) return;
    float v = x[i];
    v = v > limit ? limit : v;
    x[i] = v < -limit ? -limit : v;
}

KERNEL void softcap(float* x, float cap, u32 n) {
    u32 i = element();
    if (i < n) x[i] = cap * tanh_of(x[i] / cap);
}

KERNEL void relu_squared(float* x, u32 n) {
    u32 i = element();
    if (i >= n) return;
    float v = x[i] < 0.0f ? 0.0f : x[i];  // what is no number stays none
    x[i] = v * v;
}

KERNEL void gate_silu(float* gate, const float* up, u32 n) {
    u32 i = element();
    if (i < n) gate[i] = silu(gate[i]) * up[i];
}

KERNEL void gate_gelu(float* gate, const float* up, u32 n) {
    u32 i = element();
    if (i >= n) return;
    float v = gate[i];
    gate[i] = v * sigmoid(2.0f * 0.7978845608f * (v + 0.044715f * v * v * v)) * up[i];
}

KERNEL void gate_clamped_swish(float* gate, const float* up, u32 n) {
    u32 i = element();
    if (i >= n) return;
    float v = gate[i] > 7.0f ? 7.0f : gate[i];
    float u = up[i] > 7.0f ? 7.0f : up[i];
    u = u < -7.0f ? -7.0f : u;
    gate[i] = v * sigmoid(1.702f * v) * (u + 1.0f);
}

// x *= sigmoid(gate), one gate for n_cols elements.
KERNEL void sigmoid_mul(float* x, const float* gate, u32 n, u32 n_cols) {
    u32 i = element();
    if (i < n) x[i] *= sigmoid(gate[i / n_cols]);
}

// Every row of n_cols by a factor of its own.
KERNEL void scale_rows(float* x, const float* factors, u32 n, u32 n_cols) {
    u32 i = element();
    if (i < n) x[i] *= factors[i / n_cols];
}

// y[i, j, k] = x[i, j, k] for i < n / (m * dim), j < m, k < dim, with steps of rows and pieces of their own: splits, joins,
// takes columns and transposes.
KERNEL void copy_strided(const float* x, float* y, u32 n, u32 m, u32 dim, u32 x_row, u32 x_piece, u32 y_row, u32 y_piece) {
    u32 e = element();
    if (e >= n) return;
    u32 k = e % dim, j = e / dim % m, i = e / dim / m;
    y[(u64)i * y_row + (u64)j * y_piece + k] = x[(u64)i * x_row + (u64)j * x_piece + k];
}

// y[i] = x[rows[i]]
KERNEL void gather_rows(const float* x, const u32* rows, float* y, u32 n, u32 width) {
    u32 i = element();
    if (i < n) y[i] = x[(u64)rows[i / width] * width + i % width];
}

// x[i] += biases[ids[i]]
KERNEL void add_group_bias(float* x, const float* biases, const u32* ids, u32 n, u32 width) {
    u32 i = element();
    if (i < n) x[i] += biases[(u64)ids[i / width] * width + i % width];
}

// Every row by the factor of its matrix.
KERNEL void scale_groups(float* x, const float* factors, const u32* ids, u32 n, u32 width) {
    u32 i = element();
    if (i < n) x[i] *= factors[ids[i / width]];
}

// No slot: the expert is computed elsewhere.
#define NO_SLOT 0xffffffffu

// y[t] = sum over n_used slots of weight * x[slot]
KERNEL void combine(const float* x, const u32* slots, const float* weights, float* y, u32 n, u32 n_used, u32 width) {
    u32 i = element();
    if (i >= n) return;
    u32 t = i / width, c = i % width;
    float sum = 0;
    for (u32 k = 0; k < n_used; k++) {
        u32 slot = slots[t * n_used + k];
        if (slot != NO_SLOT) sum += weights[t * n_used + k] * x[(u64)slot * width + c];
    }
    y[i] = sum;
}

// One row of a token added to each of its n_pieces pieces.
KERNEL void add_to_each(float* x, const float* y, u32 n, u32 n_pieces, u32 width) {
    u32 i = element();
    if (i < n) x[i] += y[i / (n_pieces * width) * width + i % width];
}

#define MAX_STREAMS 8

// Alternating updates: every stream becomes itself plus a mix of all. One thread per column of a token.
KERNEL void predict_streams(float* active, float* others, const float* coefs, u32 n, u32 n_streams, u32 width) {
    u32 e = element();
    if (e >= n) return;
    u32 t = e / width, c = e % width;
    float old[MAX_STREAMS];
#pragma unroll
    for (u32 j = 0; j < MAX_STREAMS; j++) {
        if (j < n_streams) old[j] = j == 0 ? active[e] : others[((u64)t * (n_streams - 1) + j - 1) * width + c];
    }
    const float* m = coefs + t * n_streams * n_streams;
    for (u32 i = 0; i < n_streams; i++) {
        float sum = 0;
        float own = 0;
#pragma unroll
        for (u32 j = 0; j < MAX_STREAMS; j++) {
            if (j < n_streams) sum += m[i * n_streams + j] * old[j];
            if (j == i) own = old[j];
        }
        if (i == 0) active[e] = own + sum;
        else others[((u64)t * (n_streams - 1) + i - 1) * width + c] = own + sum;
    }
}

// Every stream takes its part of what the layer changed in the active one.
KERNEL void correct_streams(float* made, const float* active, float* others, const float* coefs, u32 n, u32 n_streams, u32 width) {
    u32 e = element();
    if (e >= n) return;
    u32 t = e / width, c = e % width;
    float change = made[e] - active[e];
    const float* k = coefs + t * n_streams;
    for (u32 i = 1; i < n_streams; i++) others[((u64)t * (n_streams - 1) + i - 1) * width + c] += (1.0f + k[i]) * change;
    made[e] = active[e] + (1.0f + k[0]) * change;
}
