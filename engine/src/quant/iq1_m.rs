//! IQ1_M: 256 weights in 56 bytes; sixteen groups of 16 with a 3-bit scale, points of a ternary lattice of 2048.
//!
//! ```text
//! 0   q[32]  low eight bits of the points, eight weights each
//! 32  h[16]  per point a nibble: high three bits, whether an eighth comes off (else is added)
//! 48  s[4]   u16: four scales of three bits, then a nibble of d, lowest first
//! w = d * (2 scale + 1) * (point + 1/8 or - 1/8)
//! ```
use super::Format;
use super::codec::{read16, read64};
use super::grids::{IQ1, IQ1_DOWN, TERNARY_BIAS};
use super::lattice::{Lattice, Points, odd};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq1M>>(None);

/// Ternary points, an eighth up or down per eight weights.
pub(crate) struct Iq1M;

impl Lattice for Iq1M {
    const TENSOR_TYPE: TensorType = TensorType::IQ1_M;
    const BYTES: usize = 56;
    const GROUP: usize = 16;
    const STEP: f32 = 0.125;
    const BIAS: u8 = TERNARY_BIAS;
    const SIGNED: bool = false;

    #[inline(always)]
    unsafe fn d(p: *const u8) -> u16 {
        // SAFETY: a block is 56 bytes.
        let tops = unsafe { read64(p.add(48)) } & 0xf000_f000_f000_f000;
        (tops >> 12 | tops >> 24 | tops >> 36 | tops >> 48) as u16
    }

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        let eight = |at: usize| {
            // SAFETY: a block is 56 bytes.
            let (a, b) = unsafe { (read16(p.add(at)), read16(p.add(at + 2))) };
            let s = u64::from(a) | u64::from(b) << 32;
            let field = |k: u32| (s & (0x0000_0007_0000_0007 << (3 * k))) << (5 * k);
            odd(field(0) | field(1) | field(2) | field(3))
        };
        u128::from(eight(48)) | u128::from(eight(52)) << 64
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 56 bytes.
        let (low, h) = unsafe { (*p.add(i), *p.add(32 + i / 2) >> (4 * (i % 2))) };
        let down = IQ1_DOWN & u64::from(h >> 3 & 1).wrapping_neg();
        IQ1[usize::from(low) | usize::from(h & 7) << 8] - down
    }
}
