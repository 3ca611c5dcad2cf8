//! IQ4_NL: 32 weights in 18 bytes; nibbles are indices of sixteen uneven levels.
//!
//! ```text
//! 0   d      half
//! 2   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = d * LEVELS[q]
//! ```
use super::codec::{Block32, half_at, inverse, put_half};
use super::fit::as_half;
use super::format::gpu_kernel;
use super::{Format, fit};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Iq4Nl>(Some(encode)).on_gpu(gpu_kernel!("iq4_nl"));

/// The sixteen levels of IQ4_NL and IQ4_XS. Source: `kvalues_iq4nl` of `ggml-common.h`.
pub(super) static LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// d, nibbles through a table of levels.
pub(crate) struct Iq4Nl;

impl Block32 for Iq4Nl {
    const TENSOR_TYPE: TensorType = TensorType::IQ4_NL;
    const BYTES: usize = 18;
    const SIGNED: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        levels(half_at(b, 0), &b[2..], out);
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 18 bytes; the ISA is the caller's.
        unsafe { V::lut(V::and(V::spread16(a.add(2), b.add(2)), 15), &LEVELS) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let d = as_half(level_scale(x));
    put_half(out, 0, d);
    put_levels(x, inverse(d), &mut out[2..]);
}

/// The best scale of some weights.
pub(super) fn level_scale(x: &[f32]) -> f32 {
    fit::scale(x, f32::from(LEVELS[0]), 10.0, |v| f32::from(LEVELS[usize::from(nearest(v))]))
}

/// The inverse of `levels`; `by` takes a weight to levels.
pub(super) fn put_levels(x: &[f32], by: f32, q: &mut [u8]) {
    for j in 0..16 {
        q[j] = nearest(x[j] * by) | nearest(x[j + 16] * by) << 4;
    }
}

/// Index of the level next to v.
fn nearest(v: f32) -> u8 {
    LEVELS.windows(2).filter(|pair| v > (f32::from(pair[0]) + f32::from(pair[1])) * 0.5).count() as u8
}

/// 32 weights from 16 bytes of indices.
pub(super) fn levels(d: f32, q: &[u8], out: &mut [f32]) {
    for j in 0..16 {
        out[j] = d * f32::from(LEVELS[usize::from(q[j] & 15)]);
        out[j + 16] = d * f32::from(LEVELS[usize::from(q[j] >> 4)]);
    }
}
