//! TQ1_0: 256 ternary weights in 54 bytes; five per byte.
//!
//! ```text
//! 0   q[32]  digit n of byte i: weight 32n + i
//! 32  q[16]  digit n of byte i: weight 160 + 16n + i
//! 48  q[4]   digit n of byte i, four digits: weight 240 + 4n + i
//! 52  d      half
//! digit n of v = ((v * 3^n mod 256) * 3) / 256
//! w = d * (digit - 1)
//! ```
//! Digits are taken apart through a small buffer, in loops that the compiler makes vectors of.
use super::Format;
use super::codec::{Codec, half_at, read16, read32};
use super::tq2_0::ONES;
use crate::cpu::isa::Quants;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format = Format::quantised::<Tq1>(None);

/// Five ternary weights per byte.
pub(crate) struct Tq1;

impl Codec for Tq1 {
    const TENSOR_TYPE: TensorType = TensorType::TQ1_0;
    const BLOCK: usize = 256;
    const BYTES: usize = 54;
    const TOP: u8 = 2;
    const GROUP: usize = 32;
    const BIAS: f32 = 1.0;
    const INT: bool = true;

    fn decode(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 52);
        for (e, out) in out.iter_mut().enumerate() {
            let (byte, n) = match e {
                0..160 => (e % 32, e / 32),
                160..240 => (32 + e % 16, (e - 160) / 16),
                _ => (48 + e % 4, (e - 240) / 4),
            };
            *out = d * (f32::from(digit(b[byte], POWERS[n])) - 1.0);
        }
    }

    #[inline(always)]
    unsafe fn int_scales<V: Quants>(p: *const u8) -> (u128, u128, f32, f32) {
        // SAFETY: a block is 54 bytes; the ISA is the caller's.
        unsafe { (ONES, 0, V::f16(read16(p.add(52))), 0.0) }
    }

    #[inline(always)]
    unsafe fn quants<V: Quants, const C: usize>(p: *const u8, _: usize) -> V::Q {
        let mut q = [0; 64];
        for part in 0..4 {
            let out = &mut q[16 * part..16 * part + 16];
            // SAFETY: a block is 54 bytes.
            let bytes = |at: usize| unsafe { p.add(at).cast::<[u8; 16]>().read() };
            match 4 * C + part {
                k @ 0..10 => digits(out, bytes(16 * (k % 2)), [POWERS[k / 2]; 16]),
                k @ 10..15 => digits(out, bytes(32), [POWERS[k - 10]; 16]),
                // SAFETY: as above.
                _ => digits(out, unsafe { four_times(p.add(48)) }, LAST_POWERS),
            }
        }
        // SAFETY: 64 bytes; the ISA is the caller's.
        unsafe { V::load64(q.as_ptr()) }
    }
}

/// What brings digit n to the top of a byte.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
/// The same for the last 16 weights, which are four digits of four bytes.
const LAST_POWERS: [u8; 16] = [1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27];

/// The digit that `power` brings to the top.
#[inline(always)]
fn digit(v: u8, power: u8) -> u8 {
    (u16::from(v.wrapping_mul(power)) * 3).to_le_bytes()[1]
}

#[inline(always)]
fn digits(out: &mut [u8], v: [u8; 16], powers: [u8; 16]) {
    for i in 0..16 {
        out[i] = digit(v[i], powers[i]);
    }
}

/// Four bytes, four times.
///
/// # Safety
/// Four bytes are readable at `p`.
#[inline(always)]
unsafe fn four_times(p: *const u8) -> [u8; 16] {
    // SAFETY: the caller's contract.
    (u128::from(unsafe { read32(p) }) * 0x0000_0001_0000_0001_0000_0001_0000_0001).to_le_bytes()
}
