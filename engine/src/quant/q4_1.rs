//! Q4_1: 32 weights in 20 bytes.
//!
//! ```text
//! 0   d      half
//! 2   m      half
//! 4   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = d * q + m
//! ```
use super::Format;
use super::codec::{Block32, half_at, inverse, min_max, put_half};
use super::format::gpu_kernel;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q4_1>(Some(encode)).on_gpu(gpu_kernel!("q4_1"));

/// d, m, nibbles.
pub(crate) struct Q4_1;

impl Block32 for Q4_1 {
    const TENSOR_TYPE: TensorType = TensorType::Q4_1;
    const BYTES: usize = 20;
    const TOP: u8 = 15;
    const ADDS: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        for j in 0..16 {
            out[j] = d * f32::from(b[4 + j] & 15) + m;
            out[j + 16] = d * f32::from(b[4 + j] >> 4) + m;
        }
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 20 bytes; the ISA is the caller's.
        unsafe { V::and(V::spread16(a.add(4), b.add(4)), 15) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let (min, max) = min_max(x);
    let d = (max - min) / 15.0;
    put_half(out, 0, d);
    put_half(out, 2, min);
    let q = |v: f32| (((v - min) * inverse(d) + 0.5) as u8).min(15);
    for j in 0..16 {
        out[4 + j] = q(x[j]) | q(x[j + 16]) << 4;
    }
}
