//! Q3_K: 256 weights in 110 bytes; sixteen groups of 16 with a 6-bit scale.
//!
//! ```text
//! 0    h[32]  bit t of byte i: third bit of weight 32t + i
//! 32   q[64]  low two bits: per 128 weights 32 bytes, bits 2k..2k+2 of byte i: weight 32k + i
//! 96   s[12]  scales: low nibbles, high nibbles, then two-bit tops
//! 108  d      half
//! w = d * (scale - 32) * (q - 4)
//! ```
use super::codec::{Codec, half_at, put_half, read16, read32, read64};
use super::fit::Signed;
use super::format::gpu_kernel;
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q3K>(Some(encode)).on_gpu(gpu_kernel!("q3_K"));

/// Sixteen 6-bit scales - 32, 3-bit quants - 4.
pub(crate) struct Q3K;

impl Codec for Q3K {
    const TENSOR_TYPE: TensorType = TensorType::Q3_K;
    const BLOCK: usize = 256;
    const BYTES: usize = 110;
    const TOP: u8 = 7;
    const BIAS: f32 = 4.0;
    const INT: bool = true;
    const INT_SIGNED: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let (d, s) = (half_at(b, 108), &b[96..108]);
        for (e, out) in out.iter_mut().enumerate() {
            let g = e / 16;
            let scale = (s[g % 8] >> (4 * (g / 8)) & 15) | (s[8 + g % 4] >> (2 * (g / 4)) & 3) << 4;
            let low = b[32 + 32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3;
            let top = b[e % 32] >> (e / 32) & 1;
            *out = d * (f32::from(scale) - 32.0) * (f32::from(low | top << 2) - 4.0);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        // SAFETY: a block is 110 bytes.
        unsafe {
            let (low, top) = (read64(p.add(96)), read32(p.add(104)));
            let two = |by: u32| u64::from(top >> by & 0x0303_0303) << 4;
            let first = minus_32((low & LOW) | two(0) | two(2) << 32);
            let second = minus_32((low >> 4 & LOW) | two(4) | two(6) << 32);
            (u128::from(first) | u128::from(second) << 64, 0, V::f16(read16(p.add(108))), 0.0)
        }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 110 bytes; the ISA is the caller's.
        unsafe {
            let q = p.add(32 + 32 * (C / 2));
            let low = V::and(if C.is_multiple_of(2) { V::spread32::<0, 2>(q) } else { V::spread32::<4, 6>(q) }, 3);
            // bits 2C and 2C + 1 moved to bit 2
            let top = match C {
                0 => V::spread32::<-2, -1>(p),
                1 => V::spread32::<0, 1>(p),
                2 => V::spread32::<2, 3>(p),
                _ => V::spread32::<4, 5>(p),
            };
            V::and_or(top, 4, low)
        }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let level = |v: f32| v.round().clamp(-4.0, 3.0);
    let fit = Signed::new(x, 16, -32.0, |x| fit::scale(x, -4.0, 1.0, level));
    out.fill(0);
    for (e, v) in x.iter().enumerate() {
        let q = (level(v * fit.inverse(e / 16)) + 4.0) as u8;
        out[32 + 32 * (e / 128) + e % 32] |= (q & 3) << (2 * (e / 32 % 4));
        out[e % 32] |= (q >> 2) << (e / 32);
    }
    for g in 0..16 {
        let s = (fit.scales[g] + 32) as u8;
        out[96 + g % 8] |= (s & 15) << (4 * (g / 8));
        out[104 + g % 4] |= (s >> 4) << (2 * (g / 4));
    }
    put_half(out, 108, fit.d);
}

/// Eight 6-bit values less 32 as signed bytes: bit 5 flipped and, where it was clear, copied to bits 6 and 7.
#[inline(always)]
pub(super) fn minus_32(x: u64) -> u64 {
    let negative = !x & 0x2020_2020_2020_2020;
    (x ^ 0x2020_2020_2020_2020) | negative << 1 | negative << 2
}
