//! The IQ formats: eight weights at a time are a point of a lattice, under integer scales of 16 or 32 weights.
//!
//! Points come from a table (`grids`), biased so that they are unsigned; where the lattice holds magnitudes, a bit per
//! weight mirrors it about the bias. All of it is exact in integers, so decode and kernels read the same words.
use std::marker::PhantomData;

use super::codec::{Codec, nibbles, read16};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

/// A format of 256 weights per block whose weights are points of a lattice.
///
/// # Safety
/// Pointers of all methods are those of whole blocks.
pub(crate) trait Lattice: 'static {
    /// The type.
    const TENSOR_TYPE: TensorType;
    /// Bytes per block.
    const BYTES: usize;
    /// Weights per scale: 16 or 32.
    const GROUP: usize;
    /// w = d * STEP * scale * (u - BIAS), u mirrored where its sign is set.
    const STEP: f32;
    /// What the bytes of a word have too much.
    const BIAS: u8;
    /// Whether there are signs.
    const SIGNED: bool;

    /// The bits of d.
    #[inline(always)]
    unsafe fn d(p: *const u8) -> u16 {
        // SAFETY: a whole block.
        unsafe { read16(p) }
    }

    /// Scale of each group, one byte each, unsigned.
    unsafe fn scales(p: *const u8) -> u128;

    /// Weights 8i..8i+8, one byte each, lowest first.
    unsafe fn word(p: *const u8, i: usize) -> u64;

    /// Weights 64C..64C+64: the words of those.
    #[inline(always)]
    unsafe fn words<V: Quants, const C: usize>(p: *const u8) -> V::Q {
        let w = |i: usize| {
            // SAFETY: a whole block.
            unsafe { Self::word(p, 8 * C + i) }
        };
        // SAFETY: the ISA is the caller's.
        unsafe { V::words([w(0), w(1), w(2), w(3), w(4), w(5), w(6), w(7)]) }
    }

    /// Bit j: weight 64c + j is mirrored. Only where `SIGNED`.
    #[inline(always)]
    unsafe fn signs(_p: *const u8, _c: usize) -> u64 {
        0
    }
}

/// The codec of a lattice.
pub(crate) struct Points<L>(PhantomData<L>);

impl<L: Lattice> Codec for Points<L> {
    const TENSOR_TYPE: TensorType = L::TENSOR_TYPE;
    const BLOCK: usize = 256;
    const BYTES: usize = L::BYTES;
    const GROUP: usize = L::GROUP;
    const BIAS: f32 = L::BIAS as f32;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let p = b[..L::BYTES].as_ptr();
        // SAFETY: a whole block.
        let (d, scales) = unsafe { (L::d(p), L::scales(p).to_le_bytes()) };
        let step = half::f16::from_bits(d).to_f32() * L::STEP;
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            // SAFETY: a whole block.
            let (word, signs) = unsafe { (L::word(p, i), L::signs(p, i / 8) >> (8 * (i % 8))) };
            for (j, (u, out)) in word.to_le_bytes().into_iter().zip(out).enumerate() {
                let w = f32::from(u) - Self::BIAS;
                let w = if signs >> j & 1 == 1 { -w } else { w };
                *out = step * f32::from(scales[8 * i / L::GROUP]) * w;
            }
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a whole block; the ISA is the caller's.
        unsafe {
            let s = L::scales(p);
            (if L::GROUP == 32 { V::twice(s as u64) } else { s }, 0, V::f16(L::d(p)) * L::STEP, 0.0)
        }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a whole block; the ISA is the caller's.
        unsafe {
            let q = L::words::<V, C>(p);
            if L::SIGNED { V::mirror(q, L::signs(p, C)) } else { q }
        }
    }
}

/// As `Lattice::words`, from points of four weights.
#[inline(always)]
pub(super) unsafe fn words_of_halves<V: Quants, const C: usize>(point: impl Fn(usize) -> u32) -> V::Q {
    let mut w = [0; 16];
    let mut i = 0;
    while i < 16 {
        w[i] = point(16 * C + i);
        i += 1;
    }
    // SAFETY: the ISA is the caller's.
    unsafe { V::half_words(w) }
}

/// Eight bytes for eight scales n: 2n + 1.
#[inline(always)]
pub(super) fn odd(n: u64) -> u64 {
    n << 1 | 0x0101_0101_0101_0101
}

/// The same for sixteen scales in nibbles, low ones first.
#[inline(always)]
pub(super) fn odd_nibbles(n: u64) -> u128 {
    u128::from(odd(nibbles(n as u32))) | u128::from(odd(nibbles((n >> 32) as u32))) << 64
}

/// The sign bytes that fields of seven bits stand for: the eighth bit makes the number of set bits even.
///
/// `x` has the fields in bytes, or in every other byte.
#[inline(always)]
pub(super) fn even(x: u64) -> u64 {
    // neighbours only spoil bits that the last mask takes out
    let mut parity = x ^ x >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    x | (parity & 0x0101_0101_0101_0101) << 7
}

/// Sign bytes of two words of four seven-bit fields each.
#[inline(always)]
pub(super) fn even_of_28(a: u32, b: u32) -> u64 {
    let x = u64::from(a) | u64::from(b) << 32;
    let field = |k: u32| (x & (0x0000_007f_0000_007f << (7 * k))) << k;
    even(field(0) | field(1) | field(2) | field(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_bytes_have_an_even_number_of_bits() {
        for i in 0..128u32 {
            let fields = [i, 127, 0, i ^ 85, 1, i, i, 64];
            let half = |f: &[u32]| f[0] | f[1] << 7 | f[2] << 14 | f[3] << 21 | 0b1010 << 28;
            let got = even_of_28(half(&fields[..4]), half(&fields[4..])).to_le_bytes();
            for (field, byte) in fields.into_iter().zip(got) {
                assert!(u32::from(byte & 127) == field && byte.count_ones().is_multiple_of(2), "{field:#x} {byte:#x}");
            }
        }
    }
}
