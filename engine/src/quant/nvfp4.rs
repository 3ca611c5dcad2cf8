//! NVFP4: 64 weights in 36 bytes; four groups of 16 four-bit floats, each with a small float (UE4M3) as scale.
//!
//! ```text
//! 0   s[4]   UE4M3, taken half since LEVELS are doubled
//! 4   q[32]  per group 8 bytes: low nibbles first 8 weights, high nibbles next 8
//! w = s / 2 * (LEVELS[q] - 16)
//! ```
//! Files have one more factor per tensor beside it, `<name>.scale`, which is not part of the block.
use super::Format;
use super::codec::{Codec, fields};
use super::mxfp4::{LEVELS, LEVELS_BIAS, level};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Nvfp4>(None);

/// Four UE4M3 scales, nibbles through the levels of MXFP4.
pub(crate) struct Nvfp4;

impl Codec for Nvfp4 {
    const TENSOR_TYPE: TensorType = TensorType::NVFP4;
    const BLOCK: usize = 64;
    const BYTES: usize = 36;
    const TOP: u8 = 28;
    const BIAS: f32 = LEVELS_BIAS;

    fn decode(b: &[u8], out: &mut [f32]) {
        for (g, out) in out.chunks_exact_mut(16).enumerate() {
            let d = ue4m3(b[g]) * 0.5;
            for j in 0..8 {
                let q = b[4 + 8 * g + j];
                out[j] = d * level(q & 15);
                out[j + 8] = d * level(q >> 4);
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Quants>(p: *const u8, n: usize) -> (V::S, V::S) {
        // SAFETY: `n` pieces are n / 2 blocks of 36 bytes; the ISA is the caller's.
        unsafe { (V::scale(V::ue4m3x16(fields::<4, 4>(p, 36, n / 2)), 0.5), V::zero()) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 36 bytes; the ISA is the caller's.
        unsafe { V::lut(V::and(V::spread8(p.add(36 * C + 4)), 15), &LEVELS) }
    }
}

/// Four bits of exponent, three of mantissa; what would be the largest is 0.
fn ue4m3(x: u8) -> f32 {
    let (exponent, mantissa) = (x >> 3 & 15, f32::from(x & 7));
    match (x, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(i32::from(exponent) - 7),
    }
}
