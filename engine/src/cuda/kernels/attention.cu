// Rope, the cache of keys and values, and attention over it: heads by online softmax, nothing of size tokens x positions.
#include "functions.cuh"

// Turns pairs of channels by their angles: neighbours, or channels n_half apart. One thread per pair.
//
// x        [n_tokens, n_heads, head_dim]
// cos, sin [n_tokens, n_half]
KERNEL void rope(float* x, const float* cos, const float* sin, u32 n, u32 n_heads, u32 head_dim, u32 n_half, u32 is_neox) {
    u32 e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n) return;
    u32 j = e % n_half, head = e / n_half, t = head / n_heads;
    float* p = x + (u64)head * head_dim;
    float c = cos[t * n_half + j], s = sin[t * n_half + j];
    u32 first = is_neox ? j : 2 * j, second = is_neox ? j + n_half : 2 * j + 1;
    float a = p[first], b = p[second];
    p[first] = a * c - b * s;
    p[second] = a * s + b * c;
}

// Types of keys and values, as `KvType` counts them.
#define KV_F32 0
#define KV_F16 1
#define KV_Q8_0 2
#define KV_Q4_0 3

DEVICE u32 kv_bytes(u32 type, u32 n) {
    switch (type) {
        case KV_F32: return n * 4;
        case KV_F16: return n * 2;
        case KV_Q8_0: return n / 32 * 34;
        default: return n / 32 * 18;
    }
}

DEVICE float kv_at(const u8* head, u32 type, u32 c) {
    switch (type) {
        case KV_F32: return ((const float*)head)[c];
        case KV_F16: return f16_to_f32(((const u16*)head)[c]);
        case KV_Q8_0: {
            const u8* block = head + c / 32 * 34;
            return f16_to_f32(*(const u16*)block) * (float)(i8)block[2 + c % 32];
        }
        default: {
            const u8* block = head + c / 32 * 18;
            u32 q = block[2 + c % 16];
            q = c % 32 < 16 ? q & 15 : q >> 4;
            return f16_to_f32(*(const u16*)block) * ((float)q - 8.0f);
        }
    }
}

DEVICE float inverse(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

// Rows into the ring of a cache, position p into row p % n_rows. One thread per element, whole warps per block of 32.
//
// x        [n_tokens, width]
KERNEL void kv_store(const float* x, u8* cache, u32 type, u32 first_pos, u32 n_rows, u32 width, u32 n) {
    u32 e = blockIdx.x * blockDim.x + threadIdx.x;
    u32 t = e / width, c = e % width;
    u8* row = cache + (u64)((first_pos + t) % n_rows) * kv_bytes(type, width);
    if (type == KV_F32 || type == KV_F16) {
        if (e >= n) return;
        if (type == KV_F32) ((float*)row)[c] = x[e];
        else ((u16*)row)[c] = f32_to_f16(x[e]);
        return;
    }
    float v = e < n ? x[e] : 0.0f;
    u32 lane = threadIdx.x % 32;
    if (type == KV_Q8_0) {
        float d = warp_max(fabsf(v)) / 127.0f;
        if (e >= n) return;
        float q = v * inverse(d);
        u8* block = row + c / 32 * 34;
        block[2 + lane] = (u8)(i8)(q < 0.0f ? -floor_to_i32(0.5f - q) : floor_to_i32(q + 0.5f));
        if (lane == 0) *(u16*)block = f32_to_f16(d);
        return;
    }
    // The widest element with its sign, the first of equals.
    float widest = v;
    u32 at = lane;
    for (int m = 16; m > 0; m >>= 1) {
        float other = shfl_xor(widest, m);
        u32 other_at = shfl_xor(at, m);
        bool is_wider = fabsf(other) > fabsf(widest) || (fabsf(other) == fabsf(widest) && other_at < at);
        widest = is_wider ? other : widest;
        at = is_wider ? other_at : at;
    }
    float d = widest / -8.0f;
    i32 q = floor_to_i32(v * inverse(d) + 8.5f);
    q = q < 0 ? 0 : q > 15 ? 15 : q;
    u32 high = shfl_xor((u32)q, 16);
    if (e >= n) return;
    u8* block = row + c / 32 * 18;
    if (lane < 16) block[2 + lane] = (u8)((u32)q | high << 4);
    if (lane == 0) *(u16*)block = f32_to_f16(d);
}

#define N_WARPS 4
// Blocks that a multiprocessor holds at once, at least; see TILE_BLOCKS in quant.cuh.
#define N_BLOCKS 6

// One head of one token over a part of its positions. A lane holds every 32nd channel; warps take positions in turn, N_AHEAD at
// a time, each with its own running maximum; at the end they are put together.
//
// q        [n_tokens, n_heads, key_dim]
// k, v     [n_rows, n_kv_heads, dim]; v is k where values are the first channels of keys
// out      [n_tokens, n_heads, value_dim], if there is one part
// partial  [n_tokens, n_heads, n_parts, value_dim + 2] sums, their weight and the largest score, if there are several
// grid     (n_heads, n_tokens, n_parts)
template <u32 KEY, u32 VALUE, u32 N_AHEAD>
DEVICE void attend(const float* q, const u8* k, const u8* v, const float* sinks, float* out, float* partial, u32 k_type, u32 v_type,
                                u32 k_row, u32 v_row, u32 n_rows, u32 group, u32 key_dim, u32 value_dim, u32 v_head, u32 first_pos, u32 window,
                                float scale, float cap) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 head = blockIdx.x, t = blockIdx.y, n_heads = gridDim.x, n_parts = gridDim.z;
    u32 end = first_pos + t + 1;
    u32 start = window > 0 && end > window ? end - window : 0;
    u32 from = start + (u32)((u64)(end - start) * blockIdx.z / n_parts);
    u32 to = start + (u32)((u64)(end - start) * (blockIdx.z + 1) / n_parts);
    const u8* k_head = k + (u64)(head / group) * kv_bytes(k_type, key_dim);
    const u8* v_of_head = v + (u64)(head / group) * kv_bytes(v_type, v_head);
    const float* q_head = q + ((u64)t * n_heads + head) * key_dim;
    float query[KEY], sum[VALUE];
#pragma unroll
    for (u32 i = 0; i < KEY; i++) query[i] = lane + 32 * i < key_dim ? q_head[lane + 32 * i] * scale : 0.0f;
#pragma unroll
    for (u32 i = 0; i < VALUE; i++) sum[i] = 0.0f;
    float max = -infinity(), weight = 0.0f;
    for (u32 p = from + warp * N_AHEAD; p < to; p += N_WARPS * N_AHEAD) {
        float score[N_AHEAD];
        float top = max;
#pragma unroll
        for (u32 j = 0; j < N_AHEAD; j++) {
            score[j] = 0.0f;
            if (p + j < to) {
                const u8* key = k_head + (u64)((p + j) % n_rows) * k_row;
#pragma unroll
                for (u32 i = 0; i < KEY; i++) {
                    if (lane + 32 * i < key_dim) score[j] += query[i] * kv_at(key, k_type, lane + 32 * i);
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < N_AHEAD; j++) {
            score[j] = warp_sum(score[j]);
            if (cap > 0.0f) score[j] = cap * tanh_of(score[j] / cap);
            if (p + j < to) top = fmaxf(top, score[j]);
        }
        float decay = expf(max - top);
        weight *= decay;
#pragma unroll
        for (u32 i = 0; i < VALUE; i++) sum[i] *= decay;
        max = top;
#pragma unroll
        for (u32 j = 0; j < N_AHEAD; j++) {
            if (p + j < to) {
                float e = expf(score[j] - max);
                const u8* value = v_of_head + (u64)((p + j) % n_rows) * v_row;
                weight += e;
#pragma unroll
                for (u32 i = 0; i < VALUE; i++) {
                    if (lane + 32 * i < value_dim) sum[i] += e * kv_at(value, v_type, lane + 32 * i);
                }
            }
        }
    }
    __shared__ float sums[N_WARPS][32 * VALUE];
    __shared__ float tops[N_WARPS];
    __shared__ float weights[N_WARPS];
#pragma unroll
    for (u32 i = 0; i < VALUE; i++) sums[warp][lane + 32 * i] = sum[i];
    if (lane == 0) {
        tops[warp] = max;
        weights[warp] = weight;
    }
    __syncthreads();
    float top = n_parts == 1 && sinks ? sinks[head] : -infinity();
    for (u32 w = 0; w < N_WARPS; w++) top = fmaxf(top, tops[w]);
    float all = n_parts == 1 && sinks ? expf(sinks[head] - top) : 0.0f;
    float factor[N_WARPS];
#pragma unroll
    for (u32 w = 0; w < N_WARPS; w++) {
        factor[w] = weights[w] > 0.0f ? expf(tops[w] - top) : 0.0f;
        all += weights[w] * factor[w];
    }
    u64 row = (u64)t * n_heads + head;
    float* to_row = n_parts == 1 ? out + row * value_dim : partial + (row * n_parts + blockIdx.z) * (value_dim + 2);
    float last = n_parts == 1 ? 1.0f / all : 1.0f;
    for (u32 c = threadIdx.x; c < value_dim; c += 32 * N_WARPS) {
        float total = 0.0f;
#pragma unroll
        for (u32 w = 0; w < N_WARPS; w++) total += sums[w][c] * factor[w];
        to_row[c] = total * last;
    }
    if (n_parts > 1 && threadIdx.x == 0) {
        to_row[value_dim] = all;
        to_row[value_dim + 1] = top;
    }
}

#define ATTEND(name, key, value, n_ahead)                                                                                             \
    KERNEL void __launch_bounds__(32 * N_WARPS, N_BLOCKS)                                                                       \
            name(const float* q, const u8* k, const u8* v, const float* sinks, float* out, float* partial, u32 k_type, u32 v_type,  \
                      u32 k_row, u32 v_row, u32 n_rows, u32 group, u32 key_dim, u32 value_dim, u32 v_head, u32 first_pos, u32 window,    \
                      float scale, float cap) {                                                                                          \
        attend<key, value, n_ahead>(q, k, v, sinks, out, partial, k_type, v_type, k_row, v_row, n_rows, group, key_dim, value_dim, v_head, \
                                              first_pos, window, scale, cap);                                                                        \
    }

ATTEND(attend_64, 2, 2, 4)
ATTEND(attend_128, 4, 4, 4)
ATTEND(attend_256, 8, 8, 2)
ATTEND(attend_576, 18, 16, 1)

// Puts the parts of each head together. One block per head of a token.
//
// grid     (n_heads, n_tokens)
KERNEL void attend_merge(const float* partial, const float* sinks, float* out, u32 n_parts, u32 value_dim) {
    u32 head = blockIdx.x;
    u64 row = (u64)blockIdx.y * gridDim.x + head;
    u32 size = value_dim + 2;
    const float* parts = partial + row * n_parts * size;
    float top = sinks ? sinks[head] : -infinity();
    for (u32 i = 0; i < n_parts; i++) {
        if (parts[i * size + value_dim] > 0.0f) top = fmaxf(top, parts[i * size + value_dim + 1]);
    }
    float all = sinks ? expf(sinks[head] - top) : 0.0f;
    for (u32 i = 0; i < n_parts; i++) {
        float weight = parts[i * size + value_dim];
        if (weight > 0.0f) all += weight * expf(parts[i * size + value_dim + 1] - top);
    }
    for (u32 c = threadIdx.x; c < value_dim; c += blockDim.x) {
        float sum = 0.0f;
        for (u32 i = 0; i < n_parts; i++) {
            if (parts[i * size + value_dim] > 0.0f) sum += parts[i * size + c] * expf(parts[i * size + value_dim + 1] - top);
        }
        out[row * value_dim + c] = sum / all;
    }
}
