//! Q5_0: 32 weights in 22 bytes.
//!
//! ```text
//! 0   d      half
//! 2   h      u32: bit j is the fifth bit of weight j
//! 6   q[16]  low nibbles: weights 0..16, high nibbles: 16..32
//! w[j] = d * ((q | h_j << 4) - 16)
//! ```
use super::Format;
use super::codec::{Block32, half_at, inverse, put_half, read32, widest};
use super::format::gpu_kernel;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Q5_0>(Some(encode)).on_gpu(gpu_kernel!("q5_0"));

/// d, fifth bits, nibbles; 16 off.
pub(crate) struct Q5_0;

impl Block32 for Q5_0 {
    const TENSOR_TYPE: TensorType = TensorType::Q5_0;
    const BYTES: usize = 22;
    const TOP: u8 = 31;
    const BIAS: f32 = 16.0;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        five_bits(&b[2..], |j, q| out[j] = d * (f32::from(q) - 16.0));
    }

    #[inline(always)]
    unsafe fn pair<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
        // SAFETY: a block is 22 bytes; the ISA is the caller's.
        unsafe { pair_of_fives::<V>(a.add(2), b.add(2)) }
    }
}

fn encode(x: &[f32], out: &mut [u8]) {
    let d = widest(x) / -16.0;
    put_half(out, 0, d);
    put_five_bits(&mut out[2..], |j| ((x[j] * inverse(d) + 16.5) as u8).min(31));
}

/// Calls `f(j, q)` for the 32 five-bit quants at `b`: four bytes of fifth bits, then nibbles.
pub(super) fn five_bits(b: &[u8], mut f: impl FnMut(usize, u8)) {
    for j in 0..32 {
        let low = b[4 + j % 16] >> (4 * (j / 16)) & 15;
        f(j, low | (b[j / 8] >> (j % 8) & 1) << 4);
    }
}

/// The inverse of `five_bits`.
pub(super) fn put_five_bits(b: &mut [u8], q: impl Fn(usize) -> u8) {
    b[..20].fill(0);
    for j in 0..32 {
        b[4 + j % 16] |= (q(j) & 15) << (4 * (j / 16));
        b[j / 8] |= (q(j) >> 4) << (j % 8);
    }
}

/// Quants of two blocks whose fifth bits begin at `a` and `b`.
///
/// # Safety
/// The CPU has the ISA; 20 bytes are readable at each pointer.
#[inline(always)]
pub(super) unsafe fn pair_of_fives<V: Quants>(a: *const u8, b: *const u8) -> V::Q {
    // SAFETY: four bytes of bits and sixteen of nibbles.
    unsafe {
        let low = V::and(V::spread16(a.add(4), b.add(4)), 15);
        V::and_or(V::bits32(read32(a), read32(b)), 16, low)
    }
}
