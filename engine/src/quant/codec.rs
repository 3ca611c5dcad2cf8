//! What a format tells the kernels: scales and quants of 256 weights, written over the ISA's vector operations.
//!
//! Three shapes of format: `Codec` in general (implemented directly by the super-block formats, 256 weights per block),
//! `Block32` for formats of 32 weights with one half-precision scale, `Element` for plain floats.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of every unsafe fn here: the CPU has the ISA, and the pointer holds the weights named"
)]

use super::Format;
use super::format::Encode;
use crate::cpu::Product;
use crate::cpu::isa::{Quants, Vector};
use crate::gguf::TensorType;

/// Weights per activation span and per super-block.
pub(crate) const SPAN: usize = 256;

/// A quantised block format.
pub(crate) trait Codec: 'static {
    /// The type.
    const TENSOR_TYPE: TensorType;
    /// Weights per block: 32, 64 or 256.
    const BLOCK: usize;
    /// Bytes per block.
    const BYTES: usize;
    /// Bytes per 256 weights.
    const SPAN_BYTES: usize = Self::BYTES * SPAN / Self::BLOCK;
    /// `quants` are signed bytes; otherwise unsigned and below 128.
    const SIGNED: bool = false;
    /// Largest quant, if they are not signed.
    const TOP: u8 = 127;
    /// Weights per scale: 16, or 32 where the scales of `scales` are equal in pairs.
    const GROUP: usize = 16;
    /// Taken from every quant (as scale * BIAS). A power of two, or zero.
    const BIAS: f32 = 0.0;
    /// Whether `scales` returns mins.
    const MINS: bool = false;
    /// Whether `int_scales` exists: scales are `d * small integer`.
    const INT: bool = false;
    /// `int_scales` are signed.
    const INT_SIGNED: bool = false;

    /// Normative decode of one block.
    fn decode(block: &[u8], out: &mut [f32]);

    /// Scale of each group of 16 in the 256 weights at `p`, and what is taken off each weight of the group.
    ///
    /// Of smaller blocks, only those of the first n <= 8 pieces of 32 weights are there; scales behind them are tiny.
    #[inline(always)]
    unsafe fn scales<V: Quants>(p: *const u8, _n: usize) -> (V::S, V::S) {
        let (s, m, d, dmin) = Self::int_scales::<V>(p);
        let s = if Self::INT_SIGNED { V::i8x16(s) } else { V::u8x16(s) };
        (V::scale(s, d), if Self::MINS { V::scale(V::u8x16(m), dmin) } else { V::zero() })
    }

    /// Weights 64C..64C+64 of the 256 at `p`. Of smaller blocks, n > 2C pieces are there; where the chunk's second piece
    /// is not, it may be anything.
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, n: usize) -> V::Q;

    /// Integer scale and min per group of 16 (bytes; scales signed if `INT_SIGNED`), d, dmin. Where `INT` this is
    /// all there is to say, and `scales` follows.
    #[inline(always)]
    unsafe fn int_scales<V: Quants>(_p: *const u8) -> (u128, u128, f32, f32) {
        (0, 0, 0.0, 0.0)
    }
}

/// A format of 32 weights per block that begins with its scale as a half: `w = d * (q - BIAS) [+ m]`.
pub(crate) trait Block32: 'static {
    /// The type.
    const TENSOR_TYPE: TensorType;
    /// Bytes per block.
    const BYTES: usize;
    /// As in `Codec`.
    const SIGNED: bool = false;
    /// As in `Codec`.
    const TOP: u8 = 127;
    /// As in `Codec`.
    const BIAS: f32 = 0.0;
    /// The scale is followed by a half that is added to every weight.
    const ADDS: bool = false;

    /// Normative decode of one block.
    fn decode(block: &[u8], out: &mut [f32]);

    /// Quants of block `a`, then of block `b`.
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q;
}

impl<B: Block32> Codec for B {
    const TENSOR_TYPE: TensorType = B::TENSOR_TYPE;
    const BLOCK: usize = 32;
    const BYTES: usize = B::BYTES;
    const SIGNED: bool = B::SIGNED;
    const TOP: u8 = B::TOP;
    const GROUP: usize = 32;
    const BIAS: f32 = B::BIAS;
    const MINS: bool = B::ADDS;

    fn decode(block: &[u8], out: &mut [f32]) {
        B::decode(block, out);
    }

    #[inline(always)]
    unsafe fn scales<V: Quants>(p: *const u8, n: usize) -> (V::S, V::S) {
        let m = if B::ADDS { V::scale(V::f16x8(fields::<2, 8>(p.add(2), B::BYTES, n)), -1.0) } else { V::zero() };
        (V::f16x8(fields::<2, 8>(p, B::BYTES, n)), m)
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, n: usize) -> V::Q {
        let [a, b] = pair_of_blocks::<C>(p, B::BYTES, n);
        B::pair::<V>(a, b)
    }
}

/// A plain float format: weights multiply f32 activations.
pub(crate) trait Element: 'static {
    /// The type.
    const TENSOR_TYPE: TensorType;
    /// Bytes per weight.
    const BYTES: usize;

    /// Decodes one weight.
    fn decode(bytes: &[u8]) -> f32;

    /// 16 weights from memory, at any alignment.
    unsafe fn load<V: Vector>(p: *const u8) -> V::S;
}

impl Format {
    /// The row of a quantised format.
    pub(super) const fn quantised<C: Codec>(encode: Option<Encode>) -> Format {
        Format {
            tensor_type: C::TENSOR_TYPE,
            decode: C::decode,
            encode,
            product: Product::quantised::<C>(),
            gpu_kernel: None,
        }
    }

    /// The row of a float format.
    pub(super) const fn float<E: Element>(encode: Encode) -> Format {
        Format {
            tensor_type: E::TENSOR_TYPE,
            decode: |block, out| out[0] = E::decode(block),
            encode: Some(encode),
            product: Product::float::<E>(),
            gpu_kernel: None,
        }
    }
}

/// The half at byte `at`.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Writes a half at byte `at`.
pub(super) fn put_half(block: &mut [u8], at: usize, v: f32) {
    block[at..at + 2].copy_from_slice(&half::f16::from_f32(v).to_le_bytes());
}

/// Smallest and largest value.
pub(super) fn min_max(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)))
}

/// The value of largest magnitude, with its sign; the first of equals.
pub(super) fn widest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m: f32, &v| if v.abs() > m.abs() { v } else { m })
}

/// 1 / d, or 0 for 0.
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Eight nibbles, low ones first, as bytes: spread by halving steps.
#[inline(always)]
pub(super) fn nibbles(x: u32) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

#[inline(always)]
pub(super) unsafe fn read16(p: *const u8) -> u16 {
    p.cast::<u16>().read_unaligned()
}
#[inline(always)]
pub(super) unsafe fn read32(p: *const u8) -> u32 {
    p.cast::<u32>().read_unaligned()
}
#[inline(always)]
pub(super) unsafe fn read64(p: *const u8) -> u64 {
    p.cast::<u64>().read_unaligned()
}
#[inline(always)]
pub(super) unsafe fn read128(p: *const u8) -> u128 {
    p.cast::<u128>().read_unaligned()
}

/// Blocks 2C and 2C + 1 of n > 2C; the first again where the second is not there.
#[inline(always)]
pub(super) unsafe fn pair_of_blocks<const C: usize>(p: *const u8, bytes: usize, n: usize) -> [*const u8; 2] {
    let second = if n > 2 * C + 1 { 2 * C + 1 } else { 2 * C };
    [p.add(2 * C * bytes), p.add(second * bytes)]
}

/// The first `WIDTH` bytes (1, 2 or 4) of n blocks that lie `stride` bytes apart; zero behind them. A span has `FULL` blocks.
#[inline(always)]
pub(super) unsafe fn fields<const WIDTH: usize, const FULL: usize>(p: *const u8, stride: usize, n: usize) -> u128 {
    let field = |i: usize| {
        let at = p.add(i * stride);
        let bits = match WIDTH {
            1 => u32::from(*at),
            2 => u32::from(read16(at)),
            _ => read32(at),
        };
        u128::from(bits) << (8 * WIDTH * i)
    };
    let mut all = 0;
    if n == FULL {
        // of a known length, so that it becomes loads and shifts
        for i in 0..FULL {
            all |= field(i);
        }
    } else {
        for i in 0..n {
            all |= field(i);
        }
    }
    all
}
