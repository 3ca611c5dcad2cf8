//! How each type of K and V gives 16 channels to the kernels; quantised ones are decoded in registers.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of every unsafe fn here: the CPU has the ISA, the head is there"
)]

use crate::cpu::isa::Vector;
use crate::quant::Element;

/// A type of K or V.
pub(super) trait Stored: 'static {
    /// Channels 16n..16n+16 of the head at `head`, where `c` is 16n.
    unsafe fn load<V: Vector>(head: *const u8, c: usize) -> V::S;

    /// Channel `c` of the head at `head`; only of types that take heads of any size.
    unsafe fn element(head: *const u8, c: usize) -> f32;
}

impl<E: Element> Stored for E {
    #[inline(always)]
    unsafe fn load<V: Vector>(head: *const u8, c: usize) -> V::S {
        E::load::<V>(head.add(c * E::BYTES))
    }

    #[inline(always)]
    unsafe fn element(head: *const u8, c: usize) -> f32 {
        // SAFETY: the caller's contract.
        E::decode(unsafe { std::slice::from_raw_parts(head.add(c * E::BYTES), E::BYTES) })
    }
}

/// Blocks of 32 as in `quant::q8_0`.
pub(super) struct Q8;

impl Stored for Q8 {
    #[inline(always)]
    unsafe fn load<V: Vector>(head: *const u8, c: usize) -> V::S {
        let block = head.add(c / 32 * 34);
        let d = V::f16(block.cast::<u16>().read_unaligned());
        V::scale(V::i8x16(block.add(2 + c % 32).cast::<u128>().read_unaligned()), d)
    }

    unsafe fn element(_head: *const u8, _c: usize) -> f32 {
        unreachable!("heads are whole blocks")
    }
}

/// Blocks of 32 as in `quant::q4_0`.
pub(super) struct Q4;

impl Stored for Q4 {
    #[inline(always)]
    unsafe fn load<V: Vector>(head: *const u8, c: usize) -> V::S {
        const LOW: u128 = u128::MAX / 255 * 15;
        let block = head.add(c / 32 * 18);
        let d = V::f16(block.cast::<u16>().read_unaligned());
        let nibbles = block.add(2).cast::<u128>().read_unaligned() >> (c % 32 / 4) & LOW;
        V::fma(V::u8x16(nibbles), V::splat(d), V::splat(-8.0 * d))
    }

    unsafe fn element(_head: *const u8, _c: usize) -> f32 {
        unreachable!("heads are whole blocks")
    }
}
