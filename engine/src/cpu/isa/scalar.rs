//! The normative ISA: plain Rust over arrays, written to be read.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every method is the trait's: pointers hold what it names")]

use super::vector::{LANES, Vector};
use std::array::from_fn;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Vector for Scalar {
    const FLIPS: bool = false;
    const INT_FORM: bool = true;
    type Q = [u8; 64];
    type S = [f32; LANES];
    type W = [i16; LANES];
    type K = [i16; LANES];
    type A = [i32; LANES];

    unsafe fn f16(h: u16) -> f32 {
        half::f16::from_bits(h).to_f32()
    }
    unsafe fn prefetch(_: *const u8) {}

    unsafe fn load64(p: *const u8) -> Self::Q {
        p.cast::<[u8; 64]>().read()
    }
    unsafe fn pair32(a: *const u8, b: *const u8) -> Self::Q {
        from_fn(|i| if i < 32 { *a.add(i) } else { *b.add(i - 32) })
    }
    unsafe fn spread32<const A: i32, const B: i32>(p: *const u8) -> Self::Q {
        let shift = |v: u8, by: i32| if by >= 0 { v >> by } else { v << -by };
        from_fn(|i| shift(*p.add(i % 32), if i < 32 { A } else { B }))
    }
    unsafe fn spread16(a: *const u8, b: *const u8) -> Self::Q {
        from_fn(|i| *(if i < 32 { a } else { b }).add(i % 16) >> (4 * (i / 16 % 2)))
    }
    unsafe fn bits32(a: u32, b: u32) -> Self::Q {
        from_fn(|i| if (if i < 32 { a } else { b }) >> (i % 32) & 1 == 1 { 0xff } else { 0 })
    }
    unsafe fn shr4(q: Self::Q) -> Self::Q {
        q.map(|v| v >> 4)
    }
    unsafe fn and(q: Self::Q, m: u8) -> Self::Q {
        q.map(|v| v & m)
    }
    unsafe fn and_or(a: Self::Q, m: u8, b: Self::Q) -> Self::Q {
        from_fn(|i| (a[i] & m) | b[i])
    }
    unsafe fn lut(q: Self::Q, table: &[i8; 16]) -> Self::Q {
        q.map(|v| table[usize::from(v)] as u8)
    }
    unsafe fn flip(q: Self::Q) -> Self::Q {
        q.map(|v| v ^ 0x80)
    }

    unsafe fn zero() -> Self::S {
        [0.0; LANES]
    }
    unsafe fn splat(v: f32) -> Self::S {
        [v; LANES]
    }
    unsafe fn u8x16(x: u128) -> Self::S {
        x.to_le_bytes().map(f32::from)
    }
    unsafe fn i8x16(x: u128) -> Self::S {
        x.to_le_bytes().map(|v| f32::from(v as i8))
    }
    unsafe fn u8x8(x: u64) -> Self::S {
        from_fn(|i| f32::from(x.to_le_bytes()[i / 2]))
    }
    unsafe fn i8x8(x: u64) -> Self::S {
        from_fn(|i| f32::from(x.to_le_bytes()[i / 2] as i8))
    }
    unsafe fn f16x8(x: u128) -> Self::S {
        from_fn(|i| Self::f16((x >> (16 * (i / 2))) as u16))
    }
    unsafe fn load(p: *const f32) -> Self::S {
        p.cast::<[f32; LANES]>().read_unaligned()
    }
    unsafe fn load_f16(p: *const u16) -> Self::S {
        from_fn(|i| Self::f16(p.add(i).read_unaligned()))
    }
    unsafe fn load_bf16(p: *const u16) -> Self::S {
        from_fn(|i| f32::from_bits(u32::from(p.add(i).read_unaligned()) << 16))
    }
    unsafe fn store(s: Self::S, p: *mut f32) {
        p.cast::<[f32; LANES]>().write_unaligned(s);
    }
    unsafe fn scale(s: Self::S, k: f32) -> Self::S {
        s.map(|v| v * k)
    }
    unsafe fn mul(a: Self::S, b: Self::S) -> Self::S {
        from_fn(|i| a[i] * b[i])
    }
    unsafe fn fma(a: Self::S, b: Self::S, c: Self::S) -> Self::S {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    unsafe fn nfma(c: Self::S, a: Self::S, b: Self::S) -> Self::S {
        from_fn(|i| c[i] - a[i] * b[i])
    }
    unsafe fn dot<const C: usize>(mut acc: Self::S, u: Self::Q, a: *const i8, s: Self::S) -> Self::S {
        for g in 0..4 {
            let i: i32 = (16 * g..16 * g + 16).map(|i| i32::from(u[i]) * i32::from(*a.add(i))).sum();
            acc[g] += i as f32 * s[4 * C + g];
        }
        acc
    }
    unsafe fn dot_i8<const C: usize>(mut acc: Self::S, w: Self::Q, a: *const i8, s: Self::S) -> Self::S {
        for g in 0..4 {
            let i: i32 = (16 * g..16 * g + 16).map(|i| i32::from(w[i] as i8) * i32::from(*a.add(i))).sum();
            acc[g] += i as f32 * s[4 * C + g];
        }
        acc
    }
    unsafe fn sum(s: Self::S) -> f32 {
        s.iter().sum()
    }

    unsafe fn max_abs32(p: *const f32) -> f32 {
        // the bits of non-negative floats compare like integers; NaN compares highest
        f32::from_bits((0..32).map(|i| (*p.add(i)).to_bits() & 0x7fff_ffff).max().unwrap_or(0))
    }
    unsafe fn quantise32(p: *const f32, k: f32, q: *mut i8) -> [i16; 2] {
        // adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits
        const ROUND: f32 = 12_582_912.0;
        let mut sums = [0; 2];
        for i in 0..32 {
            let v = (*p.add(i) * k + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i8;
            *q.add(i) = v;
            sums[i / 16] += i16::from(v);
        }
        sums
    }

    unsafe fn wu8x16(x: u128) -> Self::W {
        x.to_le_bytes().map(i16::from)
    }
    unsafe fn wi8x16(x: u128) -> Self::W {
        x.to_le_bytes().map(|v| i16::from(v as i8))
    }
    unsafe fn twice(x: u64) -> u128 {
        u128::from_le_bytes(from_fn(|i| x.to_le_bytes()[i / 2]))
    }
    unsafe fn wmul(w: Self::W, k: *const i16) -> Self::W {
        from_fn(|i| w[i] * *k.add(i))
    }
    unsafe fn wprep(w: Self::W) -> Self::K {
        w
    }
    unsafe fn istart(w: Self::W, sums: *const i16, bias_log2: u32) -> Self::A {
        from_fn(|i| -((i32::from(w[i]) * i32::from(*sums.add(i))) << bias_log2))
    }
    unsafe fn izero() -> Self::A {
        [0; LANES]
    }
    unsafe fn idot<const C: usize>(mut acc: Self::A, u: Self::Q, a: *const i8, k: Self::K) -> Self::A {
        for i in 0..64 {
            acc[i / 16] += i32::from(u[i]) * i32::from(*a.add(i)) * i32::from(k[4 * C + i / 16]);
        }
        acc
    }
    unsafe fn idot_i8<const C: usize>(mut acc: Self::A, w: Self::Q, a: *const i8, k: Self::K) -> Self::A {
        for i in 0..64 {
            acc[i / 16] += i32::from(w[i] as i8) * i32::from(*a.add(i)) * i32::from(k[4 * C + i / 16]);
        }
        acc
    }
    unsafe fn ifold(acc: Self::S, i: Self::A, d: f32) -> Self::S {
        from_fn(|j| acc[j] + i[j] as f32 * d)
    }
}
