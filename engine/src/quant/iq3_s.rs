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
use super::format::gpu_kernel;
use super::grids::{IQ3_S, SIGNED_BIAS};
use super::lattice::{Lattice, Points, odd, words_of_halves};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq3S>>(None).on_gpu(gpu_kernel!("iq3_s"));

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
        unsafe { u64::from(point(p, 2 * i)) | u64::from(point(p, 2 * i + 1)) << 32 }
    }

    #[inline(always)]
    unsafe fn words<V: Quants, const C: usize>(p: *const u8) -> V::Q {
        // SAFETY: a block is 110 bytes; the ISA is the caller's.
        unsafe { words_of_halves::<V, C>(|k| point(p, k)) }
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // SAFETY: a block is 110 bytes.
        unsafe { read64(p.add(74 + 8 * c)) }
    }
}

/// Weights 4k..4k+4.
///
/// # Safety
/// `p` is that of a block.
#[inline(always)]
unsafe fn point(p: *const u8, k: usize) -> u32 {
    // SAFETY: a block is 110 bytes.
    let (low, ninths) = unsafe { (*p.add(2 + k), usize::from(*p.add(66 + k / 8))) };
    IQ3_S[usize::from(low) | ninths << (8 - k % 8) & 256]
}
