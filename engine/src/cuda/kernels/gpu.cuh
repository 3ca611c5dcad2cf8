// What every kernel includes: short names of types, and the instructions that CUDA C has no word for.
//
// No CUDA header is needed. What depends on the card is chosen here, by `__CUDA_ARCH__`: compute_75 has narrower tensor
// core instructions and no asynchronous copy.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__

// ---- conversions ----

DEVICE float f16_to_f32(u16 half) {
    float single;
    asm("cvt.f32.f16 %0, %1;" : "=f"(single) : "h"(half));
    return single;
}

DEVICE u16 f32_to_f16(float single) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(single));
    return half;
}

DEVICE float bf16_to_f32(u16 brain) { return __uint_as_float((u32)brain << 16); }

/// Nearest integer, ties to even.
DEVICE i32 round_to_i32(float value) {
    i32 rounded;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

// ---- warps ----

DEVICE float shfl_xor(float value, int mask) {
    u32 got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                 : "=r"(got)
                 : "r"(__float_as_uint(value)), "r"(mask));
    return __uint_as_float(got);
}

DEVICE float warp_sum(float value) {
    for (int mask = 16; mask > 0; mask >>= 1) value += shfl_xor(value, mask);
    return value;
}

DEVICE float warp_max(float value) {
    for (int mask = 16; mask > 0; mask >>= 1) value = fmaxf(value, shfl_xor(value, mask));
    return value;
}

// ---- integer dot products ----

/// sum + four products of signed bytes.
DEVICE i32 dp4a(u32 a, u32 b, i32 sum) {
    i32 result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

// ---- tensor cores ----
//
// Lane l of a warp, g = l / 4, t = l % 4, holds of
//   d [16, 8]   d[0..2] row g, columns 2t and 2t+1; d[2..4] the same of row g+8
//   a [16, k]   a[0] row g, a[1] row g+8, of the first half of k; a[2], a[3] of the second half; 4 bytes from 4t on
//   b [k, 8]    b[0] column g of the first half of k, b[1] of the second; 4 bytes from 4t on

/// d [16, 8] i32 += a [16, 32] i8 · b [32, 8] i8
DEVICE void mma_i8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int half = 0; half < 2; half++) {
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(d[0]), "+r"(d[1])
                     : "r"(a[2 * half]), "r"(b[half]));
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(d[2]), "+r"(d[3])
                     : "r"(a[2 * half + 1]), "r"(b[half]));
    }
#endif
}

/// d [16, 8] f32 += a [16, 16] f16 · b [16, 8] f16
DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int half = 0; half < 2; half++) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
#endif
}

// ---- copies from global to shared memory, asynchronous where the card can ----

/// 16 bytes; both addresses are multiples of 16.
DEVICE void copy_async_16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
    u32 address;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
    *(uint4*)shared = *(const uint4*)global;
#endif
}

/// Ends a group of copies.
DEVICE void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most `n_groups` of this thread's groups are on their way.
template <int n_groups>
DEVICE void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n_groups) : "memory");
#endif
}
