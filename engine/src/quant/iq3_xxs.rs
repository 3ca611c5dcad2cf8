//! IQ3_XXS: 256 weights in 98 bytes; eight groups of 32 with a 4-bit scale, points of a lattice of 256.
//!
//! ```text
//! 0   d      half
//! 2   q[64]  points of four weights
//! 66  b[8]   u32: four sign fields of seven bits (`even`), then the scale
//! w = d / 4 * (2 scale + 1) * point
//! ```
use super::Format;
use super::codec::read32;
use super::format::gpu_kernel;
use super::grids::{IQ3_XXS, SIGNED_BIAS};
use super::lattice::{Lattice, Points, even_of_28, odd, words_of_halves};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq3Xxs>>(None).on_gpu(gpu_kernel!("iq3_xxs"));

/// Points of four weights, seven sign bits for eight.
pub(crate) struct Iq3Xxs;

impl Lattice for Iq3Xxs {
    const TENSOR_TYPE: TensorType = TensorType::IQ3_XXS;
    const BYTES: usize = 98;
    const GROUP: usize = 32;
    const STEP: f32 = 0.25;
    const BIAS: u8 = SIGNED_BIAS;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        let mut n = 0;
        for g in 0..8 {
            // SAFETY: a block is 98 bytes.
            n |= u64::from(unsafe { *p.add(69 + 4 * g) } >> 4) << (8 * g);
        }
        u128::from(odd(n))
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // SAFETY: a block is 98 bytes.
        unsafe { u64::from(point(p, 2 * i)) | u64::from(point(p, 2 * i + 1)) << 32 }
    }

    #[inline(always)]
    unsafe fn words<V: Quants, const C: usize>(p: *const u8) -> V::Q {
        // SAFETY: a block is 98 bytes; the ISA is the caller's.
        unsafe { words_of_halves::<V, C>(|k| point(p, k)) }
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // SAFETY: a block is 98 bytes.
        unsafe { even_of_28(read32(p.add(66 + 8 * c)), read32(p.add(70 + 8 * c))) }
    }
}

/// Weights 4k..4k+4.
///
/// # Safety
/// `p` is that of a block.
#[inline(always)]
unsafe fn point(p: *const u8, k: usize) -> u32 {
    // SAFETY: a block is 98 bytes.
    IQ3_XXS[usize::from(unsafe { *p.add(2 + k) })]
}
