//! Q8_0: 32 weights in 34 bytes.
//!
//! ```text
//! 0   d      half
//! 2   q[32]  i8
//! w[j] = d * q[j]
//! ```
use super::Format;
use super::codec::{Block32, half_at, inverse, put_half};
use super::format::gpu_kernel;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q8_0>(Some(encode)).on_gpu(gpu_kernel!("q8_0"));

/// d, i8 x 32.
pub(crate) struct Q8_0;

impl Block32 for Q8_0 {
    const TENSOR_TYPE: TensorType = TensorType::Q8_0;
    const BYTES: usize = 34;
    const SIGNED: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for j in 0..32 {
            out[j] = d * f32::from(b[2 + j] as i8);
        }
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 34 bytes; the ISA is the caller's.
        unsafe { V::pair32(a.add(2), b.add(2)) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let d = x.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
    put_half(out, 0, d);
    for (q, v) in out[2..].iter_mut().zip(x) {
        *q = (v * inverse(d)).round() as i8 as u8;
    }
}
