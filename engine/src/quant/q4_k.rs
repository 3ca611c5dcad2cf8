//! Q4_K: 256 weights in 144 bytes; eight groups of 32, each with a 6-bit scale and a 6-bit min.
//!
//! ```text
//! 0   d       half
//! 2   dmin    half
//! 4   s[12]   scales and mins, packed (`six_bit`)
//! 16  q[128]  32 bytes per 64 weights: low nibbles first 32, high nibbles next 32
//! w = d * scale * q - dmin * min
//! ```
use super::codec::{Codec, half_at, put_half, read16, read32};
use super::fit::Affine;
use super::format::gpu_kernel;
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q4K>(Some(encode)).on_gpu(gpu_kernel!("q4_K"));

/// d, dmin, eight 6-bit scales and mins, nibbles.
pub(crate) struct Q4K;

impl Codec for Q4K {
    const TENSOR_TYPE: TensorType = TensorType::Q4_K;
    const BLOCK: usize = 256;
    const BYTES: usize = 144;
    const TOP: u8 = 15;
    const GROUP: usize = 32;
    const MINS: bool = true;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        for g in 0..8 {
            let (d, m) = scale_and_min(b, g);
            for i in 0..32 {
                let q = b[16 + (g / 2) * 32 + i] >> (4 * (g % 2)) & 15;
                out[g * 32 + i] = d * f32::from(q) - m;
            }
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a block is 144 bytes; the ISA is the caller's.
        unsafe {
            let (s, m) = six_bit(read32(p.add(4)), read32(p.add(8)), read32(p.add(12)));
            (V::twice(s), V::twice(m), V::f16(read16(p)), V::f16(read16(p.add(2))))
        }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 144 bytes; the ISA is the caller's.
        unsafe { V::and(V::spread32::<0, 4>(p.add(16 + 32 * C)), 15) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let fit = fit::affine(x, 8, 15.0, 63.0);
    put_scales(&fit, out);
    for (e, q) in fit.q.into_iter().enumerate() {
        out[16 + 32 * (e / 64) + e % 32] |= q << (4 * (e / 32 % 2));
    }
}

/// Writes the first 16 bytes of a Q4_K or Q5_K block and clears the others.
pub(super) fn put_scales(fit: &Affine, out: &mut [u8]) {
    out.fill(0);
    put_half(out, 0, fit.d);
    put_half(out, 2, fit.dmin);
    let packed = &mut out[4..16];
    for g in 0..4 {
        packed[g] = fit.scales[g] | (fit.scales[g + 4] >> 4) << 6;
        packed[g + 4] = fit.mins[g] | (fit.mins[g + 4] >> 4) << 6;
        packed[g + 8] = (fit.scales[g + 4] & 15) | (fit.mins[g + 4] & 15) << 4;
    }
}

/// Scale and min of group `g` of a Q4_K or Q5_K block.
pub(super) fn scale_and_min(b: &[u8], g: usize) -> (f32, f32) {
    let s = &b[4..16];
    let (scale, min) = if g < 4 {
        (s[g] & 63, s[g + 4] & 63)
    } else {
        ((s[g + 4] & 15) | ((s[g - 4] >> 6) << 4), (s[g + 4] >> 4) | ((s[g] >> 6) << 4))
    };
    (half_at(b, 0) * f32::from(scale), half_at(b, 2) * f32::from(min))
}

/// The same for all groups at once: 12 bytes, as three words, to eight scales and eight mins in byte order.
#[inline(always)]
fn six_bit(a: u32, b: u32, c: u32) -> (u64, u64) {
    let s = (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030);
    let m = ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030);
    (u64::from(a & 0x3f3f_3f3f) | u64::from(s) << 32, u64::from(b & 0x3f3f_3f3f) | u64::from(m) << 32)
}
