//! IQ2_S: 256 weights in 82 bytes; sixteen groups of 16 with a 4-bit scale, points of a lattice of 1024.
//!
//! ```text
//! 0   d      half
//! 2   q[32]  low eight bits of the points, eight weights each
//! 34  s[32]  signs, one bit per weight
//! 66  h[8]   high two bits of four points
//! 74  s[8]   scales of two groups: low nibble, high nibble
//! w = d / 8 * (2 scale + 1) * point
//! ```
use super::Format;
use super::codec::read64;
use super::format::gpu_kernel;
use super::grids::{IQ2_S, SIGNED_BIAS};
use super::lattice::{Lattice, Points, odd_nibbles};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq2S>>(None).on_gpu(gpu_kernel!("iq2_s"));

/// Points of eight weights, a sign bit per weight.
pub(crate) struct Iq2S;

impl Lattice for Iq2S {
    const TENSOR_TYPE: TensorType = TensorType::IQ2_S;
    const BYTES: usize = 82;
    const GROUP: usize = 16;
    const STEP: f32 = 0.125;
    const BIAS: u8 = SIGNED_BIAS;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        // SAFETY: a block is 82 bytes.
        unsafe { odd_nibbles(read64(p.add(74))) }
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 82 bytes.
        let (low, high) = unsafe { (*p.add(2 + i), *p.add(66 + i / 4)) };
        IQ2_S[usize::from(low) | usize::from(high >> (2 * (i % 4)) & 3) << 8]
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // SAFETY: a block is 82 bytes.
        unsafe { read64(p.add(34 + 8 * c)) }
    }
}
