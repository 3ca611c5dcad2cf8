//! The normative ISA: plain Rust over arrays, written to be read. Block formats are decoded here, not multiplied as bytes.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every method is the trait's: pointers hold what it names")]

use super::vector::{LANES, Vector};
use std::array::from_fn;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Vector for Scalar {
    type S = [f32; LANES];

    unsafe fn prefetch(_: *const u8) {}
    unsafe fn zero() -> Self::S {
        [0.0; LANES]
    }
    unsafe fn splat(v: f32) -> Self::S {
        [v; LANES]
    }
    unsafe fn load(p: *const f32) -> Self::S {
        p.cast::<[f32; LANES]>().read_unaligned()
    }
    unsafe fn load_f16(p: *const u16) -> Self::S {
        from_fn(|i| half::f16::from_bits(p.add(i).read_unaligned()).to_f32())
    }
    unsafe fn load_bf16(p: *const u16) -> Self::S {
        from_fn(|i| f32::from_bits(u32::from(p.add(i).read_unaligned()) << 16))
    }
    unsafe fn f16(h: u16) -> f32 {
        half::f16::from_bits(h).to_f32()
    }
    unsafe fn u8x16(x: u128) -> Self::S {
        x.to_le_bytes().map(f32::from)
    }
    unsafe fn i8x16(x: u128) -> Self::S {
        x.to_le_bytes().map(|b| f32::from(b as i8))
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
}
