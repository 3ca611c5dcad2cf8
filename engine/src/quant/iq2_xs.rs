//! IQ2_XS: 256 weights in 74 bytes; sixteen groups of 16 with a 4-bit scale, points of a lattice of 512.
//!
//! ```text
//! 0   d      half
//! 2   q[32]  u16: a point of eight weights in nine bits, a sign field in seven (`even`)
//! 66  s[8]   scales of two groups: low nibble, high nibble
//! w = d / 8 * (2 scale + 1) * point
//! ```
use super::Format;
use super::codec::read64;
use super::format::gpu_kernel;
use super::grids::{IQ2_XS, SIGNED_BIAS};
use super::lattice::{Lattice, Points, even, odd_nibbles};
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Points<Iq2Xs>>(None).on_gpu(gpu_kernel!("iq2_xs"));

/// Points of eight weights, seven sign bits each.
pub(crate) struct Iq2Xs;

impl Lattice for Iq2Xs {
    const TENSOR_TYPE: TensorType = TensorType::IQ2_XS;
    const BYTES: usize = 74;
    const GROUP: usize = 16;
    const STEP: f32 = 0.125;
    const BIAS: u8 = SIGNED_BIAS;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> u128 {
        // SAFETY: a block is 74 bytes.
        unsafe { odd_nibbles(read64(p.add(66))) }
    }

    #[inline(always)]
    unsafe fn word(p: *const u8, i: usize) -> u64 {
        // four at once: taken one by one, the compiler masks them in a vector and pays for each way back
        // SAFETY: a block is 74 bytes.
        let four = unsafe { read64(p.add(2 + 8 * (i / 4))) };
        IQ2_XS[(four >> (16 * (i % 4)) & 511) as usize]
    }

    #[inline(always)]
    unsafe fn signs(p: *const u8, c: usize) -> u64 {
        // four fields in every other byte, then side by side
        let four = |q: u64| {
            let s = even(q >> 9 & 0x007f_007f_007f_007f);
            let s = (s | s >> 8) & 0x0000_ffff_0000_ffff;
            (s | s >> 16) & 0xffff_ffff
        };
        // SAFETY: a block is 74 bytes.
        unsafe { four(read64(p.add(2 + 16 * c))) | four(read64(p.add(10 + 16 * c))) << 32 }
    }
}
