//! Q5_K: 256 weights in 176 bytes; as Q4_K with a fifth bit per weight.
//!
//! ```text
//! 0   d       half
//! 2   dmin    half
//! 4   s[12]   scales and mins, packed as in Q4_K
//! 16  h[32]   bit g of byte i is the fifth bit of weight i of group g
//! 48  q[128]  32 bytes per 64 weights: low nibbles first 32, high nibbles next 32
//! w = d * scale * q - dmin * min
//! ```
use super::codec::Codec;
use super::format::gpu_kernel;
use super::q4_k::{Q4K, put_scales, scale_and_min};
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q5K>(Some(encode)).on_gpu(gpu_kernel!("q5_K"));

/// As Q4_K with a fifth bit per weight.
pub(crate) struct Q5K;

impl Codec for Q5K {
    const TENSOR_TYPE: TensorType = TensorType::Q5_K;
    const BLOCK: usize = 256;
    const BYTES: usize = 176;
    const TOP: u8 = 31;
    const GROUP: usize = 32;
    const MINS: bool = true;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        for g in 0..8 {
            let (d, m) = scale_and_min(b, g);
            for i in 0..32 {
                let low = b[48 + (g / 2) * 32 + i] >> (4 * (g % 2)) & 15;
                out[g * 32 + i] = d * f32::from(low | (b[16 + i] >> g & 1) << 4) - m;
            }
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: the first 16 bytes are those of Q4_K.
        unsafe { Q4K::int_scales::<V>(p) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 176 bytes; the ISA is the caller's.
        unsafe {
            let low = V::and(V::spread32::<0, 4>(p.add(48 + 32 * C)), 15);
            // bits 2C and 2C + 1 moved to bit 4
            let fifth = match C {
                0 => V::spread32::<-4, -3>(p.add(16)),
                1 => V::spread32::<-2, -1>(p.add(16)),
                2 => V::spread32::<0, 1>(p.add(16)),
                _ => V::spread32::<2, 3>(p.add(16)),
            };
            V::and_or(fifth, 16, low)
        }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let fit = fit::affine(x, 8, 31.0, 63.0);
    put_scales(&fit, out);
    for (e, q) in fit.q.into_iter().enumerate() {
        out[48 + 32 * (e / 64) + e % 32] |= (q & 15) << (4 * (e / 32 % 2));
        out[16 + e % 32] |= (q >> 4) << (e / 32);
    }
}
