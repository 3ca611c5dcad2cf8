//! IQ3_S: 256 weights in 110 bytes; eight groups of 32 with a 4-bit scale, points of a lattice of 512.
//!
//! ```text
//! 0    d      half
//! 2    q[64]  low eight bits of the points, four weights each
//! 66   h[8]   ninth bits of eight points
//! 74   s[32]  signs, one bit per weight
//! 106  s[4]   scales of two groups: low nibble, high nibble
//! w = d * (2 scale + 1) * point
//! ```
use super::Format;
use super::codec::{nibbles, read32, read64};
use super::grids::{IQ3_S, SIGNED_BIAS};
use super::lattice::{Lattice, Points, odd};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq3S>>(None);

/// Points of four weights, a sign bit per weight.
pub(crate) struct Iq3S;

impl Lattice for Iq3S {
    const TENSOR_TYPE: TensorType = TensorType::IQ3_S;
    const BYTES: usize = 110;
    const GROUP: usize = 32;
    const STEP: f32 = 1.0;
    const BIAS: u8 = SIGNED_BIAS;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        // SAFETY: a block is 110 bytes.
        u128::from(odd(nibbles(unsafe { read32(p.add(106)) })))
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 110 bytes.
        let (a, b, ninth) = unsafe { (*p.add(2 + 2 * i), *p.add(3 + 2 * i), *p.add(66 + i / 4) >> (2 * (i % 4))) };
        let point = |low: u8, top: u8| u64::from(IQ3_S[usize::from(low) | usize::from(top & 1) << 8]);
        point(a, ninth) | point(b, ninth >> 1) << 32
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // SAFETY: a block is 110 bytes.
        unsafe { read64(p.add(74 + 8 * c)) }
    }
}
