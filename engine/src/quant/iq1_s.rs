//! IQ1_S: 256 weights in 50 bytes; eight groups of 32 with a 3-bit scale, points of a ternary lattice of 2048.
//!
//! ```text
//! 0   d      half
//! 2   q[32]  low eight bits of the points, eight weights each
//! 34  h[8]   u16: high three bits of four points, the scale in three, whether an eighth comes off (else is added)
//! w = d * (2 scale + 1) * (point + 1/8 or - 1/8)
//! ```
use super::Format;
use super::codec::read16;
use super::grids::{IQ1, IQ1_DOWN, TERNARY_BIAS};
use super::lattice::{Lattice, Points, odd};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq1S>>(None);

/// Ternary points, an eighth up or down per 32 weights.
pub(crate) struct Iq1S;

impl Lattice for Iq1S {
    const TENSOR_TYPE: TensorType = TensorType::IQ1_S;
    const BYTES: usize = 50;
    const GROUP: usize = 32;
    const STEP: f32 = 0.125;
    const BIAS: u8 = TERNARY_BIAS;
    const SIGNED: bool = false;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        let mut n = 0;
        for g in 0..8 {
            // SAFETY: a block is 50 bytes.
            n |= u64::from(unsafe { *p.add(35 + 2 * g) } >> 4 & 7) << (8 * g);
        }
        u128::from(odd(n))
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 50 bytes.
        let (low, h) = unsafe { (*p.add(2 + i), read16(p.add(34 + 2 * (i / 4)))) };
        let down = IQ1_DOWN & u64::from(h >> 15).wrapping_neg();
        IQ1[usize::from(low) | usize::from(h >> (3 * (i % 4)) & 7) << 8] - down
    }
}
