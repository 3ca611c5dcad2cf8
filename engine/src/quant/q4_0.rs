//! Q4_0: 32 weights in 18 bytes.
//!
//! ```text
//! 0   d      half
//! 2   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = d * (q - 8)
//! ```
use super::Format;
use super::codec::{Block32, half_at, inverse, put_half, widest};
use super::format::gpu_kernel;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q4_0>(Some(encode)).on_gpu(gpu_kernel!("q4_0"));

/// d, nibble - 8.
pub(crate) struct Q4_0;

impl Block32 for Q4_0 {
    const TENSOR_TYPE: TensorType = TensorType::Q4_0;
    const BYTES: usize = 18;
    const TOP: u8 = 15;
    const BIAS: f32 = 8.0;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for j in 0..16 {
            out[j] = d * (f32::from(b[2 + j] & 15) - 8.0);
            out[j + 16] = d * (f32::from(b[2 + j] >> 4) - 8.0);
        }
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 18 bytes; the ISA is the caller's.
        unsafe { V::and(V::spread16(a.add(2), b.add(2)), 15) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let d = widest(x) / -8.0;
    put_half(out, 0, d);
    let q = |v: f32| ((v * inverse(d) + 8.5) as u8).min(15);
    for j in 0..16 {
        out[2 + j] = q(x[j]) | q(x[j + 16]) << 4;
    }
}
