//! The vector operations that kernels are written over: floats on every instruction set (`Vector`), bytes and small
//! integers where they are fast (`Quants`).
//!
//! The unit is 16 f32 (`S`), 64 weights as bytes (`Q`), 16 scales as i16 (`W`), so that one codec text serves 256-bit
//! and 512-bit machines. Every method is `unsafe` for two reasons only: the CPU must have the ISA, and a pointer must
//! hold the bytes that the method's sentence names. All are inlined into a `#[target_feature]` entry.

use super::Isa;

/// Lanes of `S` and `W`.
pub(crate) const LANES: usize = 16;

/// One instruction set: what floats need.
pub(crate) trait Vector: Copy + 'static {
    /// 16 f32.
    type S: Copy;

    /// Asks for the line at `p`; any address is allowed.
    unsafe fn prefetch(p: *const u8);
    /// 16 zeros.
    unsafe fn zero() -> Self::S;
    /// The same value 16 times.
    unsafe fn splat(v: f32) -> Self::S;
    /// 16 f32 from memory.
    unsafe fn load(p: *const f32) -> Self::S;
    /// 16 halves from memory.
    unsafe fn load_f16(p: *const u16) -> Self::S;
    /// 16 bfloat16 from memory.
    unsafe fn load_bf16(p: *const u16) -> Self::S;
    /// Half to single.
    unsafe fn f16(h: u16) -> f32;
    /// 16 unsigned bytes (little end first) to f32.
    unsafe fn u8x16(x: u128) -> Self::S;
    /// 16 signed bytes to f32.
    unsafe fn i8x16(x: u128) -> Self::S;
    /// Stores 16 f32.
    unsafe fn store(s: Self::S, p: *mut f32);
    /// s * k.
    unsafe fn scale(s: Self::S, k: f32) -> Self::S;
    /// a * b.
    unsafe fn mul(a: Self::S, b: Self::S) -> Self::S;
    /// a * b + c.
    unsafe fn fma(a: Self::S, b: Self::S, c: Self::S) -> Self::S;
    /// c - a * b.
    unsafe fn nfma(c: Self::S, a: Self::S, b: Self::S) -> Self::S;
    /// Sum of the 16 lanes.
    unsafe fn sum(s: Self::S) -> f32;
    /// Largest magnitude of 32 f32 from memory; NaN if one is NaN.
    unsafe fn max_abs32(p: *const f32) -> f32;
    /// Rounds 32 f32 from memory times `k` (to nearest, ties to even) to bytes at `q`; returns the sums of the first and
    /// of the last 16. Products beyond a byte give any byte.
    unsafe fn quantise32(p: *const f32, k: f32, q: *mut i8) -> [i16; 2];
}

/// Panels: eight rows abreast, one per 32-bit lane of 256 bits, which is quickest for many columns on every x86 machine.
///
/// A quad is four weights of each of eight rows, one row per lane.
pub(crate) trait Panels: Vector {
    /// 8 i32.
    type I: Copy;
    /// 8 f32.
    type F: Copy;

    /// Eight zeros.
    unsafe fn zero8() -> Self::F;
    /// 8 f32 from memory.
    unsafe fn load8(p: *const f32) -> Self::F;
    /// Stores 8 f32.
    unsafe fn store8(f: Self::F, p: *mut f32);
    /// acc + i * (s * d), 8 s from memory.
    unsafe fn fold8(acc: Self::F, i: Self::I, s: *const f32, d: f32) -> Self::F;
    /// acc - a * b, 8 a from memory.
    unsafe fn nfma8(acc: Self::F, a: *const f32, b: f32) -> Self::F;
    /// Turns 8 rows of 8 words of 32 bits, `row_bytes` apart, into columns at `to`; every word xor `flip`.
    unsafe fn turn8(rows: *const u8, row_bytes: usize, to: *mut u8, flip: u32);
    /// Dot products of QUADS quads of R panels, `panel_bytes` apart, with four activations each of N columns.
    ///
    /// Weights are signed if SIGNED (never where `Quants::FLIPS`). FIT products of pairs may be added in 16 bits.
    unsafe fn quads<const R: usize, const N: usize, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
        w: *const u8,
        panel_bytes: usize,
        x: [*const i8; N],
    ) -> [[Self::I; N]; R];
}

/// What block formats need besides, where weights are multiplied as bytes: every instruction set but the scalar one.
pub(crate) trait Quants: Panels {
    /// Its name.
    const ISA: Isa;
    /// The dot product wants unsigned weights: signed ones get +128, taken back through the offset.
    const FLIPS: bool;
    /// Codecs with integer scales accumulate in integers (faster here) instead of scaling each dot product in f32.
    const INT_FORM: bool;

    /// 64 bytes.
    type Q: Copy;
    /// 16 i16 scales.
    type W: Copy;
    /// Scales made ready for `idot`.
    type K: Copy;
    /// Integer accumulator.
    type A: Copy;

    /// 64 consecutive bytes.
    unsafe fn load64(p: *const u8) -> Self::Q;
    /// Stores 64 bytes.
    unsafe fn store64(q: Self::Q, p: *mut u8);
    /// Eight words of eight bytes.
    unsafe fn words(w: [u64; 8]) -> Self::Q;
    /// Sixteen words of four bytes.
    unsafe fn half_words(w: [u32; 16]) -> Self::Q;
    /// 32 bytes from `a`, then 32 from `b`.
    unsafe fn pair32(a: *const u8, b: *const u8) -> Self::Q;
    /// The same 32 bytes twice, first copy shifted right by A bits, second by B (negative: left).
    /// Bits that cross bytes are garbage: mask before use.
    unsafe fn spread32<const A: i32, const B: i32>(p: *const u8) -> Self::Q;
    /// 16 bytes of `a` twice, 16 bytes of `b` twice; even copies shifted right by 0, odd ones by 4.
    /// Bits that cross bytes are garbage.
    unsafe fn spread16(a: *const u8, b: *const u8) -> Self::Q;
    /// 32 bytes as four words of eight: each word twice, the second copy shifted right by 4.
    /// Bits that cross bytes are garbage.
    unsafe fn spread8(p: *const u8) -> Self::Q;
    /// One byte per bit, 32 of `a` and then 32 of `b`, lowest first: 0xff where the bit is set, else 0.
    unsafe fn bits32(a: u32, b: u32) -> Self::Q;
    /// Shift right by 4 inside 16-bit units; mask before use.
    unsafe fn shr4(q: Self::Q) -> Self::Q;
    /// q & m per byte.
    unsafe fn and(q: Self::Q, m: u8) -> Self::Q;
    /// (a & m) | b per byte.
    unsafe fn and_or(a: Self::Q, m: u8, b: Self::Q) -> Self::Q;
    /// Table look-up of 4-bit indices.
    unsafe fn lut(q: Self::Q, table: &[i8; 16]) -> Self::Q;
    /// q, or 128 - q where the byte's bit is set, lowest first.
    unsafe fn mirror(q: Self::Q, bits: u64) -> Self::Q;
    /// q ^ 0x80 per byte.
    unsafe fn flip(q: Self::Q) -> Self::Q;

    /// 8 halves, each twice, to f32.
    unsafe fn f16x8(x: u128) -> Self::S;
    /// 8 exponents (E8M0), each twice, to f32: 2^(x - 128), half of what the format says.
    unsafe fn e8m0x8(x: u64) -> Self::S;
    /// 16 small floats (UE4M3) to f32; 0x7f is 0.
    unsafe fn ue4m3x16(x: u128) -> Self::S;
    /// acc + per-16 dot products of 64 weights and the 64 activations at `a`, times s[4C..4C+4].
    /// `u` is unsigned; only where `FLIPS` may it exceed 127.
    unsafe fn dot<const C: usize>(acc: Self::S, u: Self::Q, a: *const i8, s: Self::S) -> Self::S;
    /// As `dot`, weights signed. Never called where `FLIPS`.
    unsafe fn dot_i8<const C: usize>(acc: Self::S, w: Self::Q, a: *const i8, s: Self::S) -> Self::S;

    /// 16 unsigned bytes to i16.
    unsafe fn wu8x16(x: u128) -> Self::W;
    /// 16 signed bytes to i16.
    unsafe fn wi8x16(x: u128) -> Self::W;
    /// 8 bytes to 16, each twice.
    unsafe fn twice(x: u64) -> u128;
    /// w * k per lane, 16 k from memory.
    unsafe fn wmul(w: Self::W, k: *const i16) -> Self::W;
    /// Makes scales ready.
    unsafe fn wprep(w: Self::W) -> Self::K;
    /// -(w . sums) for 16 sums from memory, shifted left by `bias_log2`: the start of an accumulator.
    unsafe fn istart(w: Self::W, sums: *const i16, bias_log2: u32) -> Self::A;
    /// Zero accumulator.
    unsafe fn izero() -> Self::A;
    /// acc + per-16 dots of 64 unsigned weights below 128 and the 64 activations at `a`, times scales 4C..4C+4.
    unsafe fn idot<const C: usize>(acc: Self::A, u: Self::Q, a: *const i8, k: Self::K) -> Self::A;
    /// As `idot`, weights signed. Never called where `FLIPS`.
    unsafe fn idot_i8<const C: usize>(acc: Self::A, w: Self::Q, a: *const i8, k: Self::K) -> Self::A;
    /// acc + i * d.
    unsafe fn ifold(acc: Self::S, i: Self::A, d: f32) -> Self::S;
}
