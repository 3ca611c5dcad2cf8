//! TQ2_0: 256 ternary weights in 66 bytes.
//!
//! ```text
//! 0   q[64]  per 128 weights 32 bytes, bits 2k..2k+2 of byte i: weight 32k + i
//! 64  d      half
//! w = d * (q - 1)
//! ```
use super::Format;
use super::codec::{Codec, half_at, read16};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Tq2>(None);

/// Two bits per ternary weight.
pub(crate) struct Tq2;

impl Codec for Tq2 {
    const TENSOR_TYPE: TensorType = TensorType::TQ2_0;
    const BLOCK: usize = 256;
    const BYTES: usize = 66;
    const TOP: u8 = 2;
    const GROUP: usize = 32;
    const BIAS: f32 = 1.0;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 64);
        for (e, out) in out.iter_mut().enumerate() {
            let q = b[32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3;
            *out = d * (f32::from(q) - 1.0);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a block is 66 bytes; the ISA is the caller's.
        unsafe { (ONES, 0, V::f16(read16(p.add(64))), 0.0) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        // SAFETY: a block is 66 bytes; the ISA is the caller's.
        unsafe {
            let q = p.add(32 * (C / 2));
            V::and(if C.is_multiple_of(2) { V::spread32::<0, 2>(q) } else { V::spread32::<4, 6>(q) }, 3)
        }
    }
}

/// The scales of a format that has only d.
pub(super) const ONES: u128 = u128::from_le_bytes([1; 16]);
