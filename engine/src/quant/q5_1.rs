//! Q5_1: 32 weights in 24 bytes.
//!
//! ```text
//! 0   d      half
//! 2   m      half
//! 4   h      u32: bit j is the fifth bit of weight j
//! 8   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = d * (q | h_j << 4) + m
//! ```
use super::Format;
use super::codec::{Block32, half_at, inverse, min_max, put_half};
use super::format::gpu_kernel;
use super::q5_0::{five_bits, pair_of_fives, put_five_bits};
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q5_1>(Some(encode)).on_gpu(gpu_kernel!("q5_1"));

/// d, m, fifth bits, nibbles.
pub(crate) struct Q5_1;

impl Block32 for Q5_1 {
    const TENSOR_TYPE: TensorType = TensorType::Q5_1;
    const BYTES: usize = 24;
    const TOP: u8 = 31;
    const ADDS: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        five_bits(&b[4..], |j, q| out[j] = d * f32::from(q) + m);
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 24 bytes; the ISA is the caller's.
        unsafe { pair_of_fives::<V>(a.add(4), b.add(4)) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let (min, max) = min_max(x);
    let d = (max - min) / 31.0;
    put_half(out, 0, d);
    put_half(out, 2, min);
    put_five_bits(&mut out[4..], |j| (((x[j] - min) * inverse(d) + 0.5) as u8).min(31));
}
