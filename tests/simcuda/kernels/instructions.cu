// Kernels that use instructions whose outcome the tests compute themselves.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__

/// Counts, maxima and sums of all threads.
KERNEL void counts(const i32* __restrict__ x, u32* __restrict__ n, i32* __restrict__ most, float* __restrict__ sum, u64* __restrict__ bits) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ u32 here;
    if (threadIdx.x == 0) here = 0;
    __syncthreads();
    if (x[i] > 0) atomicAdd(&here, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(n, here);
    atomicMax(most, x[i]);
    atomicAdd(sum, (float)x[i]);
    atomicOr(bits, 1ull << (i % 64));
    atomicCAS((u32*)(bits + 1), 0u, 7u);
    atomicExch((u32*)(bits + 1) + 1, 9u);
}

/// Votes and masks.
KERNEL void votes(const i32* __restrict__ x, u32* __restrict__ y) {
    u32 lane = threadIdx.x;
    bool odd = x[lane] & 1;
    u32 ballot = __ballot_sync(0xffffffff, odd);
    u32 all = __all_sync(0xffffffff, odd), any = __any_sync(0xffffffff, odd);
    u32 active = 0;
    if (lane < 10) active = __activemask();
    y[4 * lane] = ballot;
    y[4 * lane + 1] = all * 2 + any;
    y[4 * lane + 2] = active;
    y[4 * lane + 3] = __popc(ballot & ((1u << lane) - 1));
}

/// Shuffles in segments of eight lanes.
KERNEL void shuffles(const u32* __restrict__ x, u32* __restrict__ y) {
    u32 lane = threadIdx.x, v = x[lane];
    y[lane] = __shfl_up_sync(0xffffffff, v, 1, 8);
    y[32 + lane] = __shfl_down_sync(0xffffffff, v, 3, 8);
    y[64 + lane] = __shfl_sync(0xffffffff, v, 5, 8);
    y[96 + lane] = __shfl_xor_sync(0xffffffff, v, 9);
}

/// Bit operations that have instructions of their own.
KERNEL void bits(const u32* __restrict__ x, u32* __restrict__ y) {
    u32 a = x[3 * threadIdx.x], b = x[3 * threadIdx.x + 1], c = x[3 * threadIdx.x + 2];
    u32 r;
    u32* out = y + 8 * threadIdx.x;
    out[0] = __byte_perm(a, b, c & 0x7777);
    out[1] = __funnelshift_l(a, b, c);
    out[2] = __funnelshift_r(a, b, c);
    asm("bfe.s32 %0, %1, %2, 7;" : "=r"(r) : "r"(a), "r"(c & 31));
    out[3] = r;
    asm("bfi.b32 %0, %1, %2, %3, 5;" : "=r"(r) : "r"(a), "r"(b), "r"(c & 31));
    out[4] = r;
    asm("lop3.b32 %0, %1, %2, %3, 0xd8;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    out[5] = r;
    out[6] = __brev(a) ^ __clz(b) ^ __ffs(c);
    out[7] = (u32)(((u64)a * b) >> 32) + __umulhi(a, c) + (u32)__mulhi((i32)b, (i32)c);
}

/// Arithmetic on halves and pairs, by bits.
KERNEL void halves(const u32* __restrict__ x, u32* __restrict__ y) {
    u32 a = x[2 * threadIdx.x], b = x[2 * threadIdx.x + 1], r;
    u32* out = y + 4 * threadIdx.x;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    out[0] = r;
    asm("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(r) : "r"(a), "r"(b));
    out[1] = r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(*(u16*)&r) : "f"(__uint_as_float(a)));
    out[2] = r & 0xffff;
#if __CUDA_ARCH__ >= 800
    asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(r) : "r"(a), "r"(b));
    out[3] = r;
#else
    out[3] = 0;
#endif
}

/// Loads and stores of all widths; bytes with and without sign; a jump table; f64.
KERNEL void widths(const u8* __restrict__ x, i64* __restrict__ y, float4* __restrict__ z, double* __restrict__ w) {
    u32 i = threadIdx.x;
    i64 sum = x[i] + ((const i8*)x)[i] + ((const u16*)x)[i] + ((const short*)x)[i] + ((const u64*)x)[i % 4];
    switch (i % 7) {
        case 0: sum += 3; break;
        case 1: sum *= 5; break;
        case 2: sum ^= 77; break;
        case 3: sum -= i; break;
        case 4: sum = sum / 3; break;
        case 5: sum = sum % 11; break;
        default: sum = -sum;
    }
    y[i] = sum;
    float4 v = ((const float4*)x)[i % 2];
    z[i] = make_float4(v.w, v.z, v.y, v.x);
    w[i] = 1.0 / (1.0 + i) + (double)(float)i * 0.5;
}

#if __CUDA_ARCH__ >= 800
/// Copies in two groups, waited for one after the other; matrices out of shared memory.
KERNEL void pipelines(const uint4* __restrict__ x, u32* __restrict__ y) {
    __shared__ uint4 tile[2][32];
    for (int group = 0; group < 2; group++) {
        u32 into = (u32)__cvta_generic_to_shared(&tile[group][threadIdx.x]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(into), "l"(x + 32 * group + threadIdx.x) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();
    u32 at = (u32)__cvta_generic_to_shared(&tile[0][threadIdx.x]);
    u32 a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
    y[threadIdx.x] = a;
    y[32 + threadIdx.x] = d;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    at = (u32)__cvta_generic_to_shared(&tile[1][threadIdx.x % 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at));
    y[64 + threadIdx.x] = a;
    y[96 + threadIdx.x] = __reduce_add_sync(0xffffffff, threadIdx.x);
}
#endif
