// Which experts a few tokens go to: what `moe::Routes` decides on the host, without the host.
#include "functions.cuh"

// As `Gating` counts them.
#define SOFTMAX 0
#define SIGMOID 1
#define SOFTMAX_OF_SELECTED 2

#define MAX_EXPERTS 1024
#define MAX_GROUPS 64
#define MAX_USED 32
// A divisor below this would blow up rounding errors; see `moe::route`.
#define MIN_WEIGHT_SUM 6.1035156e-5f

// Takes the experts of all but the best groups out of the race; a group counts by the sum of its two best, the first of equals wins.
DEVICE void keep_best_groups(float* scores, float* of_group, u32 n_experts, u32 n_groups, u32 n_used_groups) {
    u32 size = n_experts / n_groups;
    for (u32 group = threadIdx.x; group < n_groups; group += 32) {
        float first = -infinity(), second = -infinity();
        for (u32 i = group * size; i < (group + 1) * size; i++) {
            if (scores[i] > first) {
                second = first;
                first = scores[i];
            } else {
                second = fmaxf(second, scores[i]);
            }
        }
        of_group[group] = size == 1 ? first : first + second;
    }
    __syncthreads();
    for (u32 group = threadIdx.x; group < n_groups; group += 32) {
        u32 n_better = 0;
        for (u32 i = 0; i < n_groups; i++) {
            if (of_group[i] > of_group[group] || (of_group[i] == of_group[group] && i < group)) n_better++;
        }
        if (n_better < n_used_groups) continue;
        for (u32 i = group * size; i < (group + 1) * size; i++) scores[i] = -infinity();
    }
    __syncthreads();
}

// One warp per token.
//
// logits   [n_tokens, n_experts]
// bias     [n_experts] added for selecting only; may be null
// ids      [n_tokens, n_used] experts, the best first
// weights  as ids
// Grid     (n_tokens)
KERNEL void __launch_bounds__(32)
    route(const float* logits, const float* bias, u32* ids, float* weights, u32 n_experts, u32 n_used, u32 gating,
          u32 is_normalised, float scale, u32 n_groups, u32 n_used_groups) {
    __shared__ float probabilities[MAX_EXPERTS];
    __shared__ float scores[MAX_EXPERTS];
    __shared__ float of_group[MAX_GROUPS];
    __shared__ float weight[MAX_USED];
    u32 lane = threadIdx.x;
    const float* x = logits + (u64)blockIdx.x * n_experts;
    float max = -infinity(), sum = 0.0f;
    if (gating == SOFTMAX) {
        for (u32 i = lane; i < n_experts; i += 32) max = fmaxf(max, x[i]);
        max = warp_max(max);
        for (u32 i = lane; i < n_experts; i += 32) sum += expf(x[i] - max);
        sum = warp_sum(sum);
    }
    for (u32 i = lane; i < n_experts; i += 32) {
        float p = gating == SOFTMAX ? expf(x[i] - max) / sum : gating == SIGMOID ? sigmoid(x[i]) : x[i];
        probabilities[i] = p;
        scores[i] = bias ? p + bias[i] : p;
    }
    __syncthreads();
    if (n_used_groups < n_groups) keep_best_groups(scores, of_group, n_experts, n_groups, n_used_groups);
    for (u32 k = 0; k < n_used; k++) {
        float best = -infinity();
        u32 at = n_experts;
        // What is no number never wins.
        for (u32 i = lane; i < n_experts; i += 32) {
            if (scores[i] > best || (scores[i] == best && i < at)) {
                best = scores[i];
                at = i;
            }
        }
        for (int mask = 16; mask > 0; mask >>= 1) {
            float other = shfl_xor(best, mask);
            u32 other_at = shfl_xor(at, mask);
            if (other > best || (other == best && other_at < at)) {
                best = other;
                at = other_at;
            }
        }
        if (at == n_experts) at = 0;
        // Every lane looks only at every 32nd score, so that no other one sees this.
        if (at % 32 == lane) scores[at] = -infinity();
        if (lane == 0) {
            ids[blockIdx.x * n_used + k] = at;
            weight[k] = probabilities[at];
        }
    }
    if (lane > 0) return;
    if (gating == SOFTMAX_OF_SELECTED) {
        float top = -infinity(), all = 0.0f;
        for (u32 k = 0; k < n_used; k++) top = fmaxf(top, weight[k]);
        for (u32 k = 0; k < n_used; k++) all += weight[k] = expf(weight[k] - top);
        for (u32 k = 0; k < n_used; k++) weight[k] /= all;
    }
    if (is_normalised) {
        float all = 0.0f;
        for (u32 k = 0; k < n_used; k++) all += weight[k];
        all = fmaxf(all, MIN_WEIGHT_SUM);
        for (u32 k = 0; k < n_used; k++) weight[k] /= all;
    }
    for (u32 k = 0; k < n_used; k++) weights[blockIdx.x * n_used + k] = weight[k] * scale;
}
