// Kernels with one mistake each, and what they would be without it. The simulator must report the mistakes.

typedef unsigned char u8;
typedef unsigned int u32;
#define KERNEL extern "C" __global__

KERNEL void reads_beyond(const float* __restrict__ x, float* __restrict__ y) { y[threadIdx.x] = x[threadIdx.x + 1]; }

KERNEL void writes_beyond(float* __restrict__ y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }

/// A block of a 34-byte format, read by words.
KERNEL void reads_misaligned(const u8* __restrict__ x, u32* __restrict__ y) {
    y[threadIdx.x] = *(const u32*)(x + 34 * threadIdx.x + 2);
}

KERNEL void forgets_barrier(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[127 - threadIdx.x];
}

KERNEL void keeps_barrier(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[127 - threadIdx.x];
}

/// Writes where others may still read.
KERNEL void forgets_second_barrier(float* __restrict__ y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float other = tile[63 - threadIdx.x];
    tile[threadIdx.x] = other + 1;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

/// Lanes of one warp see each other's writes after a synchronisation only.
KERNEL void forgets_warp_barrier(float* __restrict__ y) {
    __shared__ volatile float tile[32];
    tile[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = tile[31 - threadIdx.x];
}

KERNEL void keeps_warp_barrier(float* __restrict__ y) {
    __shared__ volatile float tile[32];
    tile[threadIdx.x] = threadIdx.x;
    __syncwarp();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}

KERNEL void reads_uninitialised(float* __restrict__ y) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

KERNEL void diverges_at_barrier(float* __restrict__ y) {
    if (threadIdx.x < 40) __syncthreads();
    y[threadIdx.x] = 0;
}

KERNEL void diverges_at_shuffle(float* __restrict__ y) {
    float value = threadIdx.x;
    if (threadIdx.x % 2) value += __shfl_xor_sync(0xffffffff, value, 2);
    y[threadIdx.x] = value;
}

extern __shared__ float dynamic[];

KERNEL void fills_dynamic_shared(float* __restrict__ y, u32 n) {
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) dynamic[i] = i;
    __syncthreads();
    y[threadIdx.x] = dynamic[(threadIdx.x + 1) % n];
}

/// Plain reads beside atomic operations.
KERNEL void mixes_atomics(u32* __restrict__ y) {
    __shared__ u32 count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1u);
    y[threadIdx.x] = count;
}

KERNEL void __launch_bounds__(64) is_bounded(float* __restrict__ y) { y[threadIdx.x] = 1; }

#if __CUDA_ARCH__ >= 800
KERNEL void forgets_copy_wait(const float4* __restrict__ x, float* __restrict__ y) {
    __shared__ float4 tile[32];
    u32 into = (u32)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(into), "l"(x + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    y[threadIdx.x] = ((volatile float*)tile)[4 * threadIdx.x];
}
#endif

KERNEL void adds_one(float* __restrict__ y, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1;
}
