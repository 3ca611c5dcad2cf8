// Recurrent mixers: the convolution over time, the gated delta rule, the selective scan. Each carries a state from step to step.
#include "functions.cuh"

#define MAX_TAPS 8

// One thread per channel, through all tokens, in place.
//
// x        [n_tokens, n_channels]
// taps     [n_taps, n_channels], the last for the token itself
// history  [n_taps - 1, n_channels] the inputs before the first token; after it, those before the next one
KERNEL void convolve(float* x, const float* taps, const float* bias, float* history, u32 n_tokens, u32 n_channels, u32 n_taps,
                                          u32 is_silu) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= n_channels) return;
    // The last taps and inputs, right-aligned; those before the first are zero.
    float tap[MAX_TAPS], input[MAX_TAPS];
    u32 unused = MAX_TAPS - n_taps;
#pragma unroll
    for (u32 j = 0; j < MAX_TAPS; j++) {
        tap[j] = j < unused ? 0.0f : taps[(j - unused) * n_channels + c];
        input[j] = j < unused || j == MAX_TAPS - 1 ? 0.0f : history[(j - unused) * n_channels + c];
    }
    float first = bias ? bias[c] : 0.0f;
    for (u32 t = 0; t < n_tokens; t++) {
        input[MAX_TAPS - 1] = x[(u64)t * n_channels + c];
        float sum = first;
#pragma unroll
        for (u32 j = 0; j < MAX_TAPS; j++) sum += tap[j] * input[j];
        x[(u64)t * n_channels + c] = is_silu ? silu(sum) : sum;
#pragma unroll
        for (u32 j = 0; j + 1 < MAX_TAPS; j++) input[j] = input[j + 1];
    }
#pragma unroll
    for (u32 j = 0; j + 1 < MAX_TAPS; j++) {
        if (j >= unused) history[(j - unused) * n_channels + c] = input[j];
    }
}

// beta = sigmoid(beta), alpha = e^(a * softplus(alpha + dt_bias))
KERNEL void delta_net_gates(float* beta, float* alpha, const float* dt_bias, const float* a, u32 n, u32 n_heads) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 head = i % n_heads;
    beta[i] = sigmoid(beta[i]);
    alpha[i] = expf(a[head] * softplus(alpha[i] + dt_bias[head]));
}

#define N_COLUMNS 8
#define MAX_ROWS 8

// The gated delta rule: a warp takes one column of one head's state through all tokens, a lane every 32nd row of it.
//
// qkv      [n_tokens, q | k | v], q and k of the length that they are to have
// state    [n_v_heads, dim (key), dim (value)]
// y        [n_tokens, n_v_heads, dim]
// grid     (columns / N_COLUMNS, n_v_heads)
KERNEL void __launch_bounds__(32 * N_COLUMNS)
        delta_net(const float* qkv, const float* beta, const float* decay, float* state, float* y, u32 n_tokens, u32 n_k_heads,
                            u32 n_v_heads, u32 dim, u32 is_tiled) {
    u32 lane = threadIdx.x % 32, column = blockIdx.x * N_COLUMNS + threadIdx.x / 32, head = blockIdx.y;
    if (column >= dim) return;
    u32 k_head = is_tiled ? head % n_k_heads : head / (n_v_heads / n_k_heads);
    u32 width = (2 * n_k_heads + n_v_heads) * dim;
    float* own = state + (u64)head * dim * dim + column;
    float s[MAX_ROWS];
#pragma unroll
    for (u32 i = 0; i < MAX_ROWS; i++) s[i] = lane + 32 * i < dim ? own[(u64)(lane + 32 * i) * dim] : 0.0f;
    for (u32 t = 0; t < n_tokens; t++) {
        const float* q = qkv + (u64)t * width + k_head * dim;
        const float* k = q + n_k_heads * dim;
        float v = qkv[(u64)t * width + (2 * n_k_heads + head) * dim + column];
        float b = beta[t * n_v_heads + head], g = decay[t * n_v_heads + head];
        float key[MAX_ROWS];
        float from_key = 0.0f;
#pragma unroll
        for (u32 i = 0; i < MAX_ROWS; i++) {
            key[i] = lane + 32 * i < dim ? k[lane + 32 * i] : 0.0f;
            s[i] *= g;
            from_key += s[i] * key[i];
        }
        float delta = b * (v - warp_sum(from_key));
        float from_query = 0.0f;
#pragma unroll
        for (u32 i = 0; i < MAX_ROWS; i++) {
            s[i] += key[i] * delta;
            if (lane + 32 * i < dim) from_query += s[i] * q[lane + 32 * i];
        }
        from_query = warp_sum(from_query);
        if (lane == 0) y[((u64)t * n_v_heads + head) * dim + column] = from_query;
    }
#pragma unroll
    for (u32 i = 0; i < MAX_ROWS; i++) {
        if (lane + 32 * i < dim) own[(u64)(lane + 32 * i) * dim] = s[i];
    }
}

// dt = softplus(dt + bias)
KERNEL void scan_steps(float* dt, const float* bias, u32 n, u32 n_heads) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dt[i] = softplus(dt[i] + bias[i % n_heads]);
}

// The selective scan: as `delta_net`, a warp takes one column of one head's state through all tokens.
//
// xbc      [n_tokens, x | B of all groups | C of all groups]
// steps    [n_tokens, n_heads]
// state    [n_heads, n_state, head_dim]
// y        [n_tokens, n_heads, head_dim]
// grid     (head_dim / N_COLUMNS, n_heads)
KERNEL void __launch_bounds__(32 * N_COLUMNS)
        scan(const float* xbc, const float* steps, const float* a, const float* d, float* state, float* y, u32 n_tokens, u32 head_dim,
                  u32 n_groups, u32 n_state) {
    u32 lane = threadIdx.x % 32, column = blockIdx.x * N_COLUMNS + threadIdx.x / 32, head = blockIdx.y, n_heads = gridDim.y;
    if (column >= head_dim) return;
    u32 group = head / (n_heads / n_groups);
    u32 width = n_heads * head_dim + 2 * n_groups * n_state;
    float* own = state + (u64)head * n_state * head_dim + column;
    float s[MAX_ROWS];
#pragma unroll
    for (u32 i = 0; i < MAX_ROWS; i++) s[i] = lane + 32 * i < n_state ? own[(u64)(lane + 32 * i) * head_dim] : 0.0f;
    for (u32 t = 0; t < n_tokens; t++) {
        const float* row = xbc + (u64)t * width;
        const float* b = row + n_heads * head_dim + group * n_state;
        const float* c = row + n_heads * head_dim + (n_groups + group) * n_state;
        float x = row[head * head_dim + column], step = steps[t * n_heads + head];
        float decay = expf(step * a[head]), taken = x * step;
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < MAX_ROWS; i++) {
            if (lane + 32 * i < n_state) {
                s[i] = s[i] * decay + b[lane + 32 * i] * taken;
                sum += s[i] * c[lane + 32 * i];
            }
        }
        sum = warp_sum(sum);
        if (lane == 0) y[((u64)t * n_heads + head) * head_dim + column] = sum + x * d[head];
    }
#pragma unroll
    for (u32 i = 0; i < MAX_ROWS; i++) {
        if (lane + 32 * i < n_state) own[(u64)(lane + 32 * i) * head_dim] = s[i];
    }
}
