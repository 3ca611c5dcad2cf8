//! IQ2_XXS: 256 weights in 66 bytes; eight groups of 32 with a 4-bit scale, points of a lattice of 256.
//!
//! ```text
//! 0   d   half
//! 2   per group:
//!     i[4]  points of eight weights
//!     b     u32: four sign fields of seven bits (`even`), then the scale
//! w = d / 8 * (2 scale + 1) * point
//! ```
use super::Format;
use super::codec::read32;
use super::format::gpu_kernel;
use super::grids::{IQ2_XXS, SIGNED_BIAS};
use super::lattice::{Lattice, Points, even_of_28, odd};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq2Xxs>>(None).on_gpu(gpu_kernel!("iq2_xxs"));

/// Points of eight weights, seven sign bits each.
pub(crate) struct Iq2Xxs;

impl Lattice for Iq2Xxs {
    const TENSOR_TYPE: TensorType = TensorType::IQ2_XXS;
    const BYTES: usize = 66;
    const GROUP: usize = 32;
    const STEP: f32 = 0.125;
    const BIAS: u8 = SIGNED_BIAS;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        let mut n = 0;
        for g in 0..8 {
            // SAFETY: a block is 66 bytes.
            n |= u64::from(unsafe { *p.add(9 + 8 * g) } >> 4) << (8 * g);
        }
        u128::from(odd(n))
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 66 bytes.
        unsafe { IQ2_XXS[usize::from(*p.add(2 + 8 * (i / 4) + i % 4))] }
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // SAFETY: a block is 66 bytes.
        unsafe { even_of_28(read32(p.add(6 + 16 * c)), read32(p.add(14 + 16 * c))) }
    }
}
