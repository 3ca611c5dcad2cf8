//! IQ4_XS: 256 weights in 136 bytes; eight groups of 32 with a 6-bit scale, nibbles are indices of uneven levels.
//!
//! ```text
//! 0   d       half
//! 2   sh      u16: two-bit tops of the scales
//! 4   sl[4]   low nibbles of the scales
//! 8   q[128]  per 32 weights 16 bytes: low nibbles first 16, high nibbles next 16
//! w = d * (scale - 32) * LEVELS[q]
//! ```
use super::Format;
use super::codec::{Codec, half_at, nibbles, put_half, read16, read32};
use super::fit::Signed;
use super::format::gpu_kernel;
use super::iq4_nl::{LEVELS, level_scale, levels, put_levels};
use super::q3_k::minus_32;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Iq4Xs>(Some(encode)).on_gpu(gpu_kernel!("iq4_xs"));

/// Eight 6-bit scales - 32, nibbles through a table of levels.
pub(crate) struct Iq4Xs;

impl Codec for Iq4Xs {
    const TENSOR_TYPE: TensorType = TensorType::IQ4_XS;
    const BLOCK: usize = 256;
    const BYTES: usize = 136;
    const GROUP: usize = 32;
    const SIGNED: bool = true;
    const INT: bool = true;
    const INT_SIGNED: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let tops = u16::from_le_bytes([b[2], b[3]]);
        for g in 0..8 {
            let scale = u16::from(b[4 + g / 2] >> (4 * (g % 2)) & 15) | (tops >> (2 * g) & 3) << 4;
            levels(half_at(b, 0) * (f32::from(scale) - 32.0), &b[8 + 16 * g..], &mut out[32 * g..]);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a block is 136 bytes; the ISA is the caller's.
        unsafe { (V::twice(scale_bytes(read32(p.add(4)), read16(p.add(2)))), 0, V::f16(read16(p)), 0.0) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 136 bytes; the ISA is the caller's.
        unsafe { V::lut(V::and(V::spread16(p.add(8 + 32 * C), p.add(24 + 32 * C)), 15), &LEVELS) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let fit = Signed::new(x, 8, -32.0, level_scale);
    out.fill(0);
    put_half(out, 0, fit.d);
    let mut tops = 0;
    for g in 0..8 {
        let s = (fit.scales[g] + 32) as u8;
        tops |= u16::from(s >> 4) << (2 * g);
        out[4 + g / 2] |= (s & 15) << (4 * (g % 2));
        put_levels(&x[32 * g..], fit.inverse(g), &mut out[8 + 16 * g..]);
    }
    out[2..4].copy_from_slice(&tops.to_le_bytes());
}

/// The eight scales - 32 as signed bytes: 2-bit fields are spread to bytes by halving steps.
#[inline(always)]
fn scale_bytes(low: u32, tops: u16) -> u64 {
    let mut h = u64::from(tops);
    h = (h | h << 24) & 0x0000_00ff_0000_00ff;
    h = (h | h << 12) & 0x000f_000f_000f_000f;
    h = (h | h << 6) & 0x0303_0303_0303_0303;
    minus_32(nibbles(low) | h << 4)
}
