//! Q6_K: 256 weights in 210 bytes; sixteen groups of 16 with an 8-bit scale.
//!
//! ```text
//! 0    l[128]  low four bits: per 128 weights 64 bytes, low nibbles first 64, high nibbles next 64
//! 128  h[64]   high two bits: per 128 weights 32 bytes, bits 2k..2k+2 of byte i: weight 32k + i
//! 192  s[16]   i8
//! 208  d       half
//! w = d * s * (q - 32)
//! ```
use super::codec::{Codec, half_at, put_half, read16, read128};
use super::fit::Signed;
use super::format::gpu_kernel;
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q6K>(Some(encode)).on_gpu(gpu_kernel!("q6_K"));

/// Sixteen i8 scales, 6-bit quants - 32.
pub(crate) struct Q6K;

impl Codec for Q6K {
    const TENSOR_TYPE: TensorType = TensorType::Q6_K;
    const BLOCK: usize = 256;
    const BYTES: usize = 210;
    const TOP: u8 = 63;
    const BIAS: f32 = 32.0;
    const INT: bool = true;
    const INT_SIGNED: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 208);
        for (e, out) in out.iter_mut().enumerate() {
            let (h, part, i) = (e / 128, e / 32 % 4, e % 32);
            let low = b[64 * h + 32 * (part % 2) + i] >> (4 * (part / 2)) & 15;
            let high = b[128 + 32 * h + i] >> (2 * part) & 3;
            *out = d * f32::from(b[192 + e / 16] as i8) * (f32::from(low | high << 4) - 32.0);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a block is 210 bytes.
        unsafe { (read128(p.add(192)), 0, V::f16(read16(p.add(208))), 0.0) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 210 bytes; the ISA is the caller's.
        unsafe {
            let low = V::load64(p.add(64 * (C / 2)));
            let high = p.add(128 + 32 * (C / 2));
            // the two high bits moved to bits 4 and 5
            if C.is_multiple_of(2) {
                V::and_or(V::spread32::<-4, -2>(high), 0x30, V::and(low, 15))
            } else {
                V::and_or(V::spread32::<0, 2>(high), 0x30, V::and(V::shr4(low), 15))
            }
        }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let level = |v: f32| v.round().clamp(-32.0, 31.0);
    let fit = Signed::new(x, 16, -128.0, |x| fit::scale(x, -32.0, 1.0, level));
    out.fill(0);
    for (e, v) in x.iter().enumerate() {
        let (h, part, i) = (e / 128, e / 32 % 4, e % 32);
        let q = (level(v * fit.inverse(e / 16)) + 32.0) as u8;
        out[64 * h + 32 * (part % 2) + i] |= (q & 15) << (4 * (part / 2));
        out[128 + 32 * h + i] |= (q >> 4) << (2 * part);
    }
    for g in 0..16 {
        out[192 + g] = fit.scales[g] as u8;
    }
    put_half(out, 208, fit.d);
}
