// Norms and what else looks at whole rows. One block of 256 threads per row.
#include "functions.cuh"

#define N_THREADS 256
#define N_WARPS 8

// y = x / sqrt(mean(x^2) + eps) * weight; in place if y is x.
KERNEL void __launch_bounds__(N_THREADS) rms_norm(const float* x, const float* weight, float* y, u32 n, float eps) {
    const float* row = x + (u64)blockIdx.x * n;
    float* out = y + (u64)blockIdx.x * n;
    float sum = 0;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) sum += row[i] * row[i];
    float scale = 1.0f / sqrtf(block_sum<N_WARPS>(sum) / n + eps);
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) out[i] = row[i] * scale * weight[i];
}

// x = (x - mean) / sqrt(variance + eps)
KERNEL void __launch_bounds__(N_THREADS) layer_norm(float* x, u32 n, float eps) {
    float* row = x + (u64)blockIdx.x * n;
    float sum = 0;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) sum += row[i];
    float mean = block_sum<N_WARPS>(sum) / n;
    float squares = 0;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) squares += (row[i] - mean) * (row[i] - mean);
    float scale = 1.0f / sqrtf(block_sum<N_WARPS>(squares) / n + eps);
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) row[i] = (row[i] - mean) * scale;
}

// Groups by their root mean square, times silu(gate) behind the norm or before it; weights are [n_weights], again and again.
KERNEL void __launch_bounds__(N_THREADS)
        gated_norm(float* x, const float* gate, const float* weight, u32 group, u32 n_weights, float eps, u32 is_gate_first) {
    u64 first = (u64)blockIdx.x * group;
    float* row = x + first;
    const float* g = gate + first;
    const float* w = weight + first % n_weights;
    float sum = 0;
    for (u32 i = threadIdx.x; i < group; i += N_THREADS) {
        float v = is_gate_first ? row[i] * silu(g[i]) : row[i];
        sum += v * v;
    }
    float scale = 1.0f / sqrtf(block_sum<N_WARPS>(sum) / group + eps);
    for (u32 i = threadIdx.x; i < group; i += N_THREADS) row[i] = row[i] * scale * w[i] * silu(g[i]);
}

// Heads to a length: the first n_heads of every row of row_width.
KERNEL void __launch_bounds__(N_THREADS) unit_heads(float* x, u32 n_heads, u32 dim, u32 row_width, float eps, float length) {
    float* head = x + (u64)(blockIdx.x / n_heads) * row_width + (u64)(blockIdx.x % n_heads) * dim;
    float sum = 0;
    for (u32 i = threadIdx.x; i < dim; i += N_THREADS) sum += head[i] * head[i];
    float scale = length / sqrtf(block_sum<N_WARPS>(sum) + eps);
    for (u32 i = threadIdx.x; i < dim; i += N_THREADS) head[i] *= scale;
}

// Rows get the length of another; n_pieces rows of x for each of `to`. Rows of zeros stay.
KERNEL void __launch_bounds__(N_THREADS) match_length(float* x, const float* to, u32 n_pieces, u32 width) {
    float* row = x + (u64)blockIdx.x * width;
    const float* other = to + (u64)(blockIdx.x / n_pieces) * width;
    float own = 0;
    float wanted = 0;
    for (u32 i = threadIdx.x; i < width; i += N_THREADS) {
        own += row[i] * row[i];
        wanted += other[i] * other[i];
    }
    own = sqrtf(block_sum<N_WARPS>(own));
    wanted = sqrtf(block_sum<N_WARPS>(wanted));
    float factor = own > 0.0f ? wanted / own : 0.0f;
    for (u32 i = threadIdx.x; i < width; i += N_THREADS) row[i] *= factor;
}

// Leaves what lies above the mean by so many standard deviations.
KERNEL void __launch_bounds__(N_THREADS) keep_outstanding(float* x, u32 n, float n_deviations) {
    float* row = x + (u64)blockIdx.x * n;
    float sum = 0;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) sum += row[i];
    float mean = block_sum<N_WARPS>(sum) / n;
    float squares = 0;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) squares += (row[i] - mean) * (row[i] - mean);
    float deviation = sqrtf(block_sum<N_WARPS>(squares) / (n > 1 ? n - 1 : 1));
    float threshold = mean + n_deviations * deviation;
    for (u32 i = threadIdx.x; i < n; i += N_THREADS) {
        float above = row[i] - threshold;
        row[i] = above < 0.0f ? 0.0f : above;  // what is no number stays none
    }
}
