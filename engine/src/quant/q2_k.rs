//! Q2_K: 256 weights in 84 bytes; sixteen groups of 16, each with a 4-bit scale and a 4-bit min.
//!
//! ```text
//! 0   s[16]  low nibble: scale, high nibble: min
//! 16  q[64]  per 128 weights 32 bytes, bits 2k..2k+2 of byte i: weight 32k + i
//! 80  d      half
//! 82  dmin   half
//! w = d * scale * q - dmin * min
//! ```
use super::codec::{Codec, half_at, put_half, read16, read128};
use super::format::gpu_kernel;
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q2K>(Some(encode)).on_gpu(gpu_kernel!("q2_K"));

/// 4-bit scales and mins, 2-bit quants.
pub(crate) struct Q2K;

impl Codec for Q2K {
    const TENSOR_TYPE: TensorType = TensorType::Q2_K;
    const BLOCK: usize = 256;
    const BYTES: usize = 84;
    const TOP: u8 = 3;
    const MINS: bool = true;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(b, 80), half_at(b, 82));
        for (e, out) in out.iter_mut().enumerate() {
            let q = b[16 + 32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3;
            let s = b[e / 16];
            *out = d * f32::from(s & 15) * f32::from(q) - dmin * f32::from(s >> 4);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        const LOW: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;
        // SAFETY: a block is 84 bytes.
        unsafe {
            let s = read128(p);
            (s & LOW, s >> 4 & LOW, V::f16(read16(p.add(80))), V::f16(read16(p.add(82))))
        }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 84 bytes; the ISA is the caller's.
        unsafe {
            let q = p.add(16 + 32 * (C / 2));
            V::and(if C.is_multiple_of(2) { V::spread32::<0, 2>(q) } else { V::spread32::<4, 6>(q) }, 3)
        }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let fit = fit::affine(x, 16, 3.0, 15.0);
    out.fill(0);
    for (out, (scale, min)) in out.iter_mut().zip(fit.scales.into_iter().zip(fit.mins)) {
        *out = scale | min << 4;
    }
    for (e, q) in fit.q.into_iter().enumerate() {
        out[16 + 32 * (e / 128) + e % 32] |= q << (2 * (e / 32 % 4));
    }
    put_half(out, 80, fit.d);
    put_half(out, 82, fit.dmin);
}
