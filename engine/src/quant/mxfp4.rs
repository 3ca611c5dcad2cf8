//! MXFP4: 32 weights in 17 bytes; four-bit floats with an exponent as scale.
//!
//! ```text
//! 0   e      u8: 2^(e - 128), half of the standard's scale since LEVELS are doubled
//! 1   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = 2^(e - 128) * (LEVELS[q] - 16)
//! ```
use super::Format;
use super::codec::Codec;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Mxfp4>(None);

/// The sixteen E2M1 values, doubled, plus 16: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
/// Source: OCP Microscaling Formats 1.0, section 5.3.3.
pub(super) static LEVELS: [i8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];
/// What `LEVELS` has too much.
pub(super) const LEVELS_BIAS: f32 = 16.0;

/// Exponent, nibbles through a table of levels.
pub(crate) struct Mxfp4;

impl Codec for Mxfp4 {
    const TENSOR_TYPE: TensorType = TensorType::MXFP4;
    const BLOCK: usize = 32;
    const BYTES: usize = 17;
    const BIAS: f32 = LEVELS_BIAS;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_of_e8m0(b[0]);
        for j in 0..16 {
            out[j] = d * level(b[1 + j] & 15);
            out[j + 16] = d * level(b[1 + j] >> 4);
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Quants>(p: *const u8) -> (V::S, V::S) {
        // SAFETY: eight blocks of 17 bytes; the ISA is the caller's.
        unsafe { Self::tail_scales::<V>(p, 8) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8) -> V::Q {
        // SAFETY: two blocks of 17 bytes; the ISA is the caller's.
        unsafe { V::lut(V::and(V::spread16(p.add(34 * C + 1), p.add(34 * C + 18)), 15), &LEVELS) }
    }

    #[inline(always)]
    unsafe fn tail_scales<V: Quants>(p: *const u8, n: usize) -> (V::S, V::S) {
        // an exponent of 0 behind the last block is a tiny scale, and meets activations that are 0
        let mut e = 0;
        for i in 0..8 {
            // SAFETY: `n` blocks of 17 bytes.
            e |= if i < n { u64::from(unsafe { *p.add(17 * i) }) << (8 * i) } else { 0 };
        }
        // SAFETY: the ISA is the caller's.
        unsafe { (V::e8m0x8(e), V::zero()) }
    }

    #[inline(always)]
    unsafe fn tail_quants<V: Quants>(p: *const u8) -> V::Q {
        // SAFETY: a block is 17 bytes; the ISA is the caller's.
        unsafe { V::lut(V::and(V::spread16(p.add(1), p.add(1)), 15), &LEVELS) }
    }
}

/// The value of a nibble, doubled.
pub(super) fn level(q: u8) -> f32 {
    f32::from(LEVELS[usize::from(q)]) - LEVELS_BIAS
}

/// 2^(e - 128), of which the two smallest are denormal.
fn half_of_e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 1 << (21 + e) } else { u32::from(e - 1) << 23 })
}
