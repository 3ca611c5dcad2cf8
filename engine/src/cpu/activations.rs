//! What the right-hand side of a product looks like: f32 for float weights, 8-bit spans for quantised ones.
#![expect(clippy::needless_range_loop, reason = "the arrays of a span are walked in lock step")]

use bytemuck::allocation::try_zeroed_vec;

use super::Cpu;
use super::isa::{LANES, Vector, per_isa};
use super::shared::SharedSlice;
use crate::quant::SPAN;

/// 256 activations as i8 with two-level scales, the one format of every quantised kernel.
///
/// A group of 32 has the scale `d0 * k`, k a small integer: float kernels read it as `d`, integer kernels multiply k
/// into the weights' own integer scales and convert once per 256. Both see the same values.
#[repr(C, align(64))]
#[derive(Clone)]
pub(crate) struct Span {
    /// Quants, in weight order.
    pub(crate) q: [i8; SPAN],
    /// `d[g]` = d0 * k[g]: scale of elements 16g..16g+16 (equal in pairs).
    pub(crate) d: [f32; 16],
    /// `s[g]` = d[g] * sum[g].
    pub(crate) s: [f32; 16],
    /// Integer scale, 1..=K_MAX.
    pub(crate) k: [i16; 16],
    /// Sum of q over elements 16g..16g+16.
    pub(crate) sum: [i16; 16],
    /// Scale of the whole span.
    pub(crate) d0: f32,
}

impl Span {
    /// Leaves of activations what this span does not say of them.
    #[inline(always)]
    fn take_from(&self, x: &mut [f32; SPAN]) {
        for g in 0..16 {
            for i in 16 * g..16 * g + 16 {
                x[i] -= self.d[g] * f32::from(self.q[i]);
            }
        }
    }

    const ZERO: Span = Span { q: [0; SPAN], d: [0.0; 16], s: [0.0; 16], k: [1; 16], sum: [0; 16], d0: 0.0 };
}

/// Largest integer scale: 63 * 127 * 2 * 2 * (128 * 31) * 8 stays below 2^31 (Q6_K, the widest case).
const K_MAX: i32 = 31;

/// Tokens per task when activations are set; one token of 1024 columns takes about 0.2 us.
const GRAIN_COLS: usize = 16 * 1024;

/// How finely quantised kernels see activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// Rounded to 8 bits: one span per 256. An error of 0.5 % of a typical value.
    #[default]
    Once,
    /// What rounding leaves is rounded to 8 bits in its turn and multiplied as a second column: exact to 16 bits, for
    /// up to twice the work.
    Twice,
}

impl Rounding {
    /// Columns that kernels see per token.
    pub(super) const fn n_parts(self) -> usize {
        match self {
            Rounding::Once => 1,
            Rounding::Twice => 2,
        }
    }
}

/// The activations of a product, in reusable buffers.
pub struct Activations {
    rounding: Rounding,
    max_cols: usize,
    max_tokens: usize,
    n_cols: usize,
    n_tokens: usize,
    /// [ceil(n_cols / 256), n_tokens, parts]: the same span of neighbouring tokens lies together, as kernels walk it
    spans: Vec<Span>,
    /// [n_tokens, n_cols rounded up to LANES], padded with zeros
    floats: Vec<f32>,
}

impl Activations {
    /// Buffers for at most so many columns and tokens; panics without memory for them.
    pub fn new(max_cols: usize, max_tokens: usize, rounding: Rounding) -> Activations {
        Activations::try_new(max_cols, max_tokens, rounding).expect("memory for activations")
    }

    /// The same; `None` without memory for them.
    pub fn try_new(max_cols: usize, max_tokens: usize, rounding: Rounding) -> Option<Activations> {
        let n_spans = max_cols.div_ceil(SPAN) * max_tokens * rounding.n_parts();
        let mut spans = Vec::new();
        spans.try_reserve_exact(n_spans).ok()?;
        spans.resize(n_spans, Span::ZERO);
        let floats = try_zeroed_vec(max_cols.next_multiple_of(LANES) * max_tokens).ok()?;
        Some(Activations { rounding, max_cols, max_tokens, n_cols: 0, n_tokens: 0, spans, floats })
    }

    /// Bytes of such buffers.
    pub fn n_bytes(max_cols: usize, max_tokens: usize, rounding: Rounding) -> u64 {
        let per_token = max_cols.div_ceil(SPAN) * rounding.n_parts() * size_of::<Span>()
            + max_cols.next_multiple_of(LANES) * size_of::<f32>();
        (per_token as u64).saturating_mul(max_tokens as u64)
    }

    /// Takes activations: keeps them as f32 and quantises them.
    ///
    /// x        [n_tokens, n_cols] f32
    /// Errors   none; panics if `x` is no whole number of tokens or more than the buffers hold
    /// Cost     O(n_tokens * n_cols), no allocation
    pub fn set(&mut self, cpu: &Cpu, x: &[f32], n_cols: usize) {
        assert!(n_cols > 0 && x.len().is_multiple_of(n_cols), "{} activations in rows of {n_cols}", x.len());
        let n_tokens = x.len() / n_cols;
        assert!(n_cols <= self.max_cols && n_tokens <= self.max_tokens, "{n_tokens} x {n_cols} activations");
        (self.n_cols, self.n_tokens) = (n_cols, n_tokens);
        let (n_parts, n_spans, n_floats) = (self.n_parts(), self.n_spans(), self.n_floats());
        let spans = SharedSlice::new(&mut self.spans[..n_tokens * n_parts * n_spans]);
        let floats = SharedSlice::new(&mut self.floats[..n_tokens * n_floats]);
        cpu.pool.split(n_tokens, GRAIN_COLS.div_ceil(n_cols), &|tokens| {
            for t in tokens {
                let x = &x[t * n_cols..][..n_cols];
                // SAFETY: each token belongs to one task.
                let floats = unsafe { floats.part(t * n_floats..(t + 1) * n_floats) };
                floats[..n_cols].copy_from_slice(x);
                floats[n_cols..].fill(0.0);
                // SAFETY: each token belongs to one task; the ISA of a `Cpu` is present.
                unsafe { quantise(cpu.isa(), x, spans.ptr(t * n_parts), n_tokens * n_parts, n_parts) };
            }
        });
    }

    /// Takes tokens of other activations, in any order and as often as named, as they are.
    ///
    /// tokens   [n_tokens], tokens of `from`
    /// Errors   none; panics if a token is not there or the buffers are too small
    /// Cost     O(n_tokens * n_cols), no allocation
    pub fn gather(&mut self, from: &Activations, tokens: &[u32]) {
        assert_eq!(self.rounding, from.rounding, "activations rounded in two ways");
        assert!(from.n_cols <= self.max_cols && tokens.len() <= self.max_tokens, "{} x {}", tokens.len(), from.n_cols);
        (self.n_cols, self.n_tokens) = (from.n_cols, tokens.len());
        let (n_parts, n_spans, n_floats) = (self.n_parts(), self.n_spans(), self.n_floats());
        for (to, &token) in tokens.iter().enumerate() {
            let token = token as usize;
            for b in 0..n_spans {
                let (to, from_token) = (b * tokens.len() + to, b * from.n_tokens + token);
                self.spans[to * n_parts..][..n_parts].clone_from_slice(&from.spans[from_token * n_parts..][..n_parts]);
            }
            self.floats[to * n_floats..][..n_floats].copy_from_slice(&from.floats()[token * n_floats..][..n_floats]);
        }
    }

    /// Columns of what was set last.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Tokens of what was set last.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Columns that kernels see per token.
    pub(super) fn n_parts(&self) -> usize {
        self.rounding.n_parts()
    }

    /// Spans per column.
    pub(super) fn n_spans(&self) -> usize {
        self.n_cols.div_ceil(SPAN)
    }

    /// Floats per token.
    pub(super) fn n_floats(&self) -> usize {
        self.n_cols.next_multiple_of(LANES)
    }

    /// [n_spans, n_tokens, n_parts]
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans[..self.n_tokens * self.n_parts() * self.n_spans()]
    }

    /// 256 activations of a token, rounded, and what that left.
    #[cfg(test)]
    pub(super) fn parts(&self, token: usize, b: usize) -> &[Span] {
        &self.spans()[(b * self.n_tokens + token) * self.n_parts()..][..self.n_parts()]
    }

    pub(super) fn floats(&self) -> &[f32] {
        &self.floats[..self.n_tokens * self.n_floats()]
    }
}

per_isa! {
    /// Quantises one token into spans that lie `stride` apart, each followed by what rounding left; the last one is padded
    /// with zeros.
    unsafe fn quantise<V>(x: &[f32], spans: *mut Span, stride: usize, n_parts: usize) {
        let mut i = 0;
        while i * SPAN < x.len() {
            let rest = &x[i * SPAN..];
            // SAFETY: the caller has room for ceil(n / 256) spans of `n_parts` and nobody else uses them.
            let parts = unsafe { std::slice::from_raw_parts_mut(spans.add(i * stride), n_parts) };
            let mut left = [0.0; SPAN];
            let n = rest.len().min(SPAN);
            left[..n].copy_from_slice(&rest[..n]);
            // SAFETY: 256 activations each; the ISA is the caller's.
            unsafe { quantise_span::<V>(left.as_ptr(), &mut parts[0]) };
            if n_parts == 2 {
                parts[0].take_from(&mut left);
                // SAFETY: as above.
                unsafe { quantise_span::<V>(left.as_ptr(), &mut parts[1]) };
            }
            i += 1;
        }
    }
}

/// Quantises the 256 activations at `x`; the same bits on every ISA.
///
/// Values that are not finite make the span's scales NaN or infinite, and so reach every product.
///
/// # Safety
/// The CPU has the ISA; 256 floats are readable at `x`.
#[inline(always)]
unsafe fn quantise_span<V: Vector>(x: *const f32, span: &mut Span) {
    let mut group = [0f32; 8];
    let mut largest = 0u32;
    for g in 0..8 {
        // SAFETY: 32 of the 256 floats.
        let m = unsafe { V::max_abs32(x.add(32 * g)) };
        group[g] = m / 127.0;
        // the bits of non-negative floats compare like integers; NaN compares highest
        largest = largest.max(m.to_bits());
    }
    let d0 = f32::from_bits(largest) / 127.0 / K_MAX as f32;
    // below this, 1 / d0 would overflow
    let d0 = if d0 < f32::MIN_POSITIVE { 0.0 } else { d0 };
    span.d0 = d0;
    for g in 0..8 {
        // rounding the scale up keeps |q| <= 127; where d0 is 0, any k will do
        let ratio = group[g] / d0 * 0.999_999;
        let whole = (ratio as i32).min(K_MAX);
        let k = (whole + i32::from(ratio > whole as f32)).clamp(1, K_MAX);
        let d = d0 * k as f32;
        let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
        // SAFETY: 32 of the 256 floats and quants.
        let sums = unsafe { V::quantise32(x.add(32 * g), inverse, span.q.as_mut_ptr().add(32 * g)) };
        for h in 0..2 {
            span.k[2 * g + h] = k as i16;
            span.d[2 * g + h] = d;
            span.sum[2 * g + h] = sums[h];
            span.s[2 * g + h] = d * f32::from(sums[h]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    fn set(isa: Isa, x: &[f32], n_cols: usize) -> Activations {
        let cpu = Cpu::new(isa, 2).unwrap();
        let mut a = Activations::new(n_cols, x.len() / n_cols, Rounding::Once);
        a.set(&cpu, x, n_cols);
        a
    }

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.7).sin() * (1.0 + (i / 32 % 5) as f32 * 3.0)).collect()
    }

    #[test]
    fn quants_are_within_half_a_step_and_consistent() {
        for n_cols in [32, 64, 256, 576, 1500] {
            let x = wave(3 * n_cols);
            let a = set(Isa::best(), &x, n_cols);
            for (t, x) in x.chunks_exact(n_cols).enumerate() {
                for i in 0..a.n_spans() * SPAN {
                    let (s, i) = (&a.parts(t, i / SPAN)[0], i);
                    let (v, g) = (x.get(i).copied().unwrap_or(0.0), i % SPAN / 16);
                    let got = f32::from(s.q[i % SPAN]) * s.d[g];
                    assert!((got - v).abs() <= s.d[g] * 0.5001, "{i}: {got} {v}");
                    assert!(s.q[i % SPAN] != i8::MIN && (1..=31).contains(&s.k[g]));
                }
                for b in 0..a.n_spans() {
                    let s = &a.parts(t, b)[0];
                    for g in 0..16 {
                        let sum: i16 = s.q[16 * g..][..16].iter().map(|&q| i16::from(q)).sum();
                        assert_eq!(s.sum[g], sum);
                        assert_eq!(s.d[g], s.d0 * f32::from(s.k[g]));
                        assert_eq!(s.s[g], s.d[g] * f32::from(sum));
                    }
                }
            }
        }
    }

    #[test]
    fn rounded_twice_is_exact_to_sixteen_bits() {
        let (n_cols, n_tokens) = (576, 3);
        let x = wave(n_tokens * n_cols);
        for isa in Isa::present() {
            let mut a = Activations::new(n_cols, n_tokens, Rounding::Twice);
            a.set(&Cpu::new(isa, 2).unwrap(), &x, n_cols);
            for (t, x) in x.chunks_exact(n_cols).enumerate() {
                for (i, v) in x.iter().enumerate() {
                    let parts = a.parts(t, i / SPAN);
                    let got: f32 = parts.iter().map(|s| f32::from(s.q[i % SPAN]) * s.d[i % SPAN / 16]).sum();
                    assert!((got - v).abs() <= parts[0].d[i % SPAN / 16] / 250.0, "{isa} {i}: {got} {v}");
                }
            }
        }
    }

    #[test]
    fn every_isa_gives_the_same_bits() {
        let x = wave(2 * 576);
        let want = set(Isa::Scalar, &x, 576);
        for isa in Isa::present() {
            let got = set(isa, &x, 576);
            for (g, w) in got.spans().iter().zip(want.spans()) {
                assert!(
                    g.q == w.q && g.d == w.d && g.s == w.s && g.k == w.k && g.sum == w.sum && g.d0 == w.d0,
                    "{isa}"
                );
            }
            assert_eq!(got.floats(), want.floats());
        }
    }

    #[test]
    fn zeros_denormals_and_non_finite_values() {
        let zero = set(Isa::best(), &[0.0; 64], 64);
        assert!(zero.spans()[0].q == [0; SPAN] && zero.spans()[0].d == [0.0; 16]);
        let tiny = set(Isa::best(), &[1e-40; 64], 64);
        assert!(tiny.spans()[0].s.iter().all(|v| v.is_finite()));
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [1.0; 64];
            x[5] = bad;
            assert!(!set(Isa::best(), &x, 64).spans()[0].d0.is_finite());
        }
    }
}
