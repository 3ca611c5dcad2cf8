//! MXFP4: 32 weights in 17 bytes; four-bit floats with an exponent as scale.
//!
//! ```text
//! 0   e      u8: 2^(e - 128), half of the standard's scale since LEVELS are doubled
//! 1   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = 2^(e - 128) * (LEVELS[q] - 16)
//! ```
use super::Format;
use super::codec::{Codec, fields, pair_of_blocks, widest};
use super::format::gpu_kernel;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Mxfp4>(Some(encode)).on_gpu(gpu_kernel!("mxfp4"));

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
    const TOP: u8 = 28;
    const GROUP: usize = 32;
    const BIAS: f32 = LEVELS_BIAS;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_of_e8m0(b[0]);
        for j in 0..16 {
            out[j] = d * level(b[1 + j] & 15);
            out[j + 16] = d * level(b[1 + j] >> 4);
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Quants>(p: *const u8, n: usize) -> (V::S, V::S) {
        // SAFETY: `n` blocks of 17 bytes; the ISA is the caller's.
        unsafe { (V::e8m0x8(fields::<1, 8>(p, 17, n) as u64), V::zero()) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, n: usize) -> V::Q {
        // SAFETY: `n` blocks of 17 bytes; the ISA is the caller's.
        unsafe {
            let [a, b] = pair_of_blocks::<C>(p, 17, n);
            V::lut(V::and(V::spread16(a.add(1), b.add(1)), 15), &LEVELS)
        }
    }
}

/// The standard's exponent takes the widest weight to 4..8, though the widest level is 6: one more is tried.
fn encode(x: &[f32], out: &mut [u8]) {
    let exponent = (widest(x).to_bits() >> 23 & 0xff) as i32;
    let mut least = f32::INFINITY;
    for e in [exponent - 2, exponent - 1] {
        let e = e.clamp(0, 254) as u8;
        let mut block = [e; 17];
        for j in 0..16 {
            let q = |v: f32| nearest(v / half_of_e8m0(e));
            block[1 + j] = q(x[j]) | q(x[j + 16]) << 4;
        }
        let mut y = [0.0; 32];
        Mxfp4::decode(&block, &mut y);
        let error: f32 = x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum();
        if error < least {
            least = error;
            out.copy_from_slice(&block);
        }
    }
}

/// The nibble whose level, doubled, is next to v.
fn nearest(v: f32) -> u8 {
    let larger = |q: &u8| v.abs() > (level(*q) + level(q + 1)) * 0.5;
    (0..7).filter(larger).count() as u8 | u8::from(v < 0.0) << 3
}

/// The value of a nibble, doubled.
pub(super) fn level(q: u8) -> f32 {
    f32::from(LEVELS[usize::from(q)]) - LEVELS_BIAS
}

/// 2^(e - 128), of which the two smallest are denormal.
fn half_of_e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 1 << (21 + e) } else { u32::from(e - 1) << 23 })
}
