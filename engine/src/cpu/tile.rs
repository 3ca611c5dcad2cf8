//! The product of quantised weights and one or a few columns, written once over format and ISA; `panel` has many.
//!
//! Two forms. Float: each dot product of 16 weights is scaled in f32; every format. Integer: scales multiply as integers
//! and 256 weights are converted once; formats whose scales are `d * small integer`, where the ISA prefers it. The scalar
//! ISA has neither: it multiplies decoded weights, and is the norm of the others.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `product`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::activations::Span;
use super::isa::{LANES, Quants, per_isa};
use super::matmul::{Job, PREFETCH, STREAMS, far_rows};
use crate::quant::{Codec, SPAN};
use std::hint::black_box;

/// Columns per unpack for many columns.
const COLUMNS: usize = 4;

per_isa! {
    /// All rows and columns of a job.
    ///
    /// Lengths were checked by `Job::new`: weights hold n_rows whole rows of n_cols weights, every column ceil(n_cols / 256) spans.
    pub(crate) unsafe fn product<V: Quants, C: Codec>(job: &Job<'_>) {
        match (job.n_tokens, job.n_parts) {
            (1, 1) => far_columns::<C, V, 1>(job),
            (1, _) => far_columns::<C, V, 2>(job),
            _ => few_columns::<C, V>(job),
        }
    } scalar {
        decoded(job, C::decode, C::BLOCK, C::BYTES)
    }
}

per_isa! {
    /// Name of the form that a codec is multiplied in.
    pub(crate) unsafe fn form<V: Quants, C: Codec>() -> &'static str {
        if is_int::<C, V>() { "integer tile" } else { "float tile" }
    } scalar {
        "decoded"
    }
}

/// Whether spans are added up as integers.
#[inline(always)]
fn is_int<C: Codec, V: Quants>() -> bool {
    V::INT_FORM && C::INT && !(C::SIGNED && V::FLIPS)
}

/// The norm: weights decoded to f32 times activations as they were quantised.
unsafe fn decoded(job: &Job<'_>, decode: fn(&[u8], &mut [f32]), block_elems: usize, block_bytes: usize) {
    let mut w = [0.0; SPAN];
    for r in 0..job.n_rows {
        let row = &job.w[r * job.row_bytes..][..job.row_bytes];
        for t in 0..job.n_tokens {
            *job.y.add(t * job.y_stride + r) = 0.0;
        }
        for (b, blocks) in row.chunks(SPAN / block_elems * block_bytes).enumerate() {
            let mut n = 0;
            for block in blocks.chunks_exact(block_bytes) {
                decode(block, &mut w[n..n + block_elems]);
                n += block_elems;
            }
            for t in 0..job.n_tokens {
                *job.y.add(t * job.y_stride + r) += (0..job.n_parts)
                    .map(|part| dot(&w[..n], &*job.spans.add(b * job.span_stride + t * job.n_parts + part)))
                    .sum::<f32>();
            }
        }
    }
}

/// Decoded weights times the span's first ones.
fn dot(w: &[f32], x: &Span) -> f32 {
    let mut lanes = [0.0; LANES];
    for (g, w) in w.chunks_exact(LANES).enumerate() {
        for i in 0..LANES {
            lanes[i] += w[i] * (f32::from(x.q[LANES * g + i]) * x.d[g]);
        }
    }
    lanes.iter().sum()
}

/// One token, in PARTS columns: four rows at once, a quarter of the job apart, so that memory sees four streams.
#[inline(always)]
unsafe fn far_columns<C: Codec, V: Quants, const PARTS: usize>(job: &Job<'_>) {
    let row = Row::of(job);
    let mut x = [job.spans; PARTS];
    for n in 0..PARTS {
        x[n] = x[n].add(n);
    }
    for rows in far_rows(job.n_rows) {
        let mut w = [job.w.as_ptr(); STREAMS];
        for r in 0..STREAMS {
            w[r] = w[r].add(rows[r] * job.row_bytes);
        }
        let t = tile::<C, V, STREAMS, PARTS>(w, x, row, PREFETCH);
        for r in 0..STREAMS {
            *job.y.add(rows[r]) = if PARTS == 1 { t[r][0] } else { t[r][0] + t[r][PARTS - 1] };
        }
    }
}

/// A few columns: a row is unpacked once per four columns. Columns behind the last are the last one again.
#[inline(always)]
unsafe fn few_columns<C: Codec, V: Quants>(job: &Job<'_>) {
    let row = Row::of(job);
    for r in 0..job.n_rows {
        let w = job.w.as_ptr().add(r * job.row_bytes);
        let mut t = 0;
        let n_columns = job.n_tokens * job.n_parts;
        while t < n_columns {
            let mut x = [job.spans; COLUMNS];
            for n in 0..COLUMNS {
                x[n] = x[n].add((t + n).min(n_columns - 1));
            }
            // the next row comes into the cache while the first columns meet this one
            let y = tile::<C, V, 1, COLUMNS>([w], x, row, if t == 0 { job.row_bytes } else { 0 });
            for n in 0..COLUMNS.min(n_columns - t) / job.n_parts {
                let v = if job.n_parts == 1 { y[0][n] } else { y[0][2 * n] + y[0][2 * n + 1] };
                *job.y.add((t / job.n_parts + n) * job.y_stride + r) = v;
            }
            t += COLUMNS;
        }
    }
}

/// How a row is cut.
#[derive(Clone, Copy)]
struct Row {
    /// Pieces of 32 weights; the last span may have fewer than eight.
    n_pieces: usize,
    /// From one span of a column to its next.
    span_stride: usize,
}

impl Row {
    fn of(job: &Job<'_>) -> Row {
        Row { n_pieces: job.n_cols / 32, span_stride: job.span_stride }
    }
}

/// Pieces per span.
const PIECES: usize = 8;

/// y[r][n] = sum_k W[r, k] x[n, k], for R rows and N columns at once.
///
/// w        first byte of each row
/// x        first span of each column, the next ones `row.span_stride` apart
/// prefetch bytes ahead of the read position; 0 = none
#[inline(always)]
unsafe fn tile<C: Codec, V: Quants, const R: usize, const N: usize>(
    w: [*const u8; R],
    x: [*const Span; N],
    row: Row,
    prefetch: usize,
) -> [[f32; N]; R] {
    let mut acc = [[V::zero(); N]; R];
    // the compiler must not unroll rows: four copies of a span are no faster, and were most of what compiling costs
    let n_rows = if R == 1 { 1 } else { black_box(R) };
    for b in 0..row.n_pieces.div_ceil(PIECES) {
        let n = if C::BLOCK == SPAN { PIECES } else { PIECES.min(row.n_pieces - PIECES * b) };
        for r in 0..n_rows {
            let p = w.get_unchecked(r).add(b * C::SPAN_BYTES);
            // in registers until the span is done
            let mut sums = *acc.get_unchecked(r);
            if prefetch > 0 {
                let mut line = 0;
                while line < C::SPAN_BYTES {
                    V::prefetch(p.wrapping_add(prefetch + line));
                    line += 64;
                }
            }
            let b = b * row.span_stride;
            if is_int::<C, V>() {
                int_span::<C, V, N>(&mut sums, p, x, b);
            } else if N > 1 && n == PIECES {
                // whole spans have no branches in them, which pays where the work is in the columns
                float_span::<C, V, N>(&mut sums, p, PIECES, x, b);
            } else {
                float_span::<C, V, N>(&mut sums, p, n, x, b);
            }
            *acc.get_unchecked_mut(r) = sums;
        }
    }
    // plain loops: `array::map` is not inlined into a `target_feature` function and passes vectors through memory
    let mut y = [[0.0; N]; R];
    for r in 0..R {
        for n in 0..N {
            y[r][n] = V::sum(acc[r][n]);
        }
    }
    y
}

/// n pieces of 32 weights, float form, 64 weights at a time.
#[inline(always)]
unsafe fn float_span<C: Codec, V: Quants, const N: usize>(
    acc: &mut [V::S; N],
    p: *const u8,
    n: usize,
    x: [*const Span; N],
    b: usize,
) {
    let (s, m) = C::scales::<V>(p, n);
    let s = weigh::<C, V, N>(acc, s, m, x, b);
    float_chunk::<C, V, N, 0>(acc, p, n, x, b, &s);
    float_chunk::<C, V, N, 1>(acc, p, n, x, b, &s);
    float_chunk::<C, V, N, 2>(acc, p, n, x, b, &s);
    float_chunk::<C, V, N, 3>(acc, p, n, x, b, &s);
}

/// Takes mins and biases off and returns the scales of weights times those of activations.
#[inline(always)]
unsafe fn weigh<C: Codec, V: Quants, const N: usize>(
    acc: &mut [V::S; N],
    s: V::S,
    m: V::S,
    x: [*const Span; N],
    b: usize,
) -> [V::S; N] {
    let bias = C::BIAS + if V::FLIPS && C::SIGNED { 128.0 } else { 0.0 };
    let off = match (C::MINS, bias != 0.0) {
        (true, true) => V::fma(s, V::splat(bias), m),
        (true, false) => m,
        (false, _) => V::scale(s, bias),
    };
    let mut products = [s; N];
    for n in 0..N {
        let a = &*x[n].add(b);
        products[n] = V::mul(s, V::load(a.d.as_ptr()));
        if C::MINS || bias != 0.0 {
            acc[n] = V::nfma(acc[n], off, V::load(a.s.as_ptr()));
        }
    }
    products
}

#[inline(always)]
unsafe fn float_chunk<C: Codec, V: Quants, const N: usize, const J: usize>(
    acc: &mut [V::S; N],
    p: *const u8,
    n: usize,
    x: [*const Span; N],
    b: usize,
    s: &[V::S; N],
) {
    if n <= 2 * J {
        return;
    }
    let q = C::quants::<V, J>(p, n);
    let q = if V::FLIPS && C::SIGNED { V::flip(q) } else { q };
    for n in 0..N {
        let a = (*x[n].add(b)).q.as_ptr().add(64 * J);
        acc[n] =
            if C::SIGNED && !V::FLIPS { V::dot_i8::<J>(acc[n], q, a, s[n]) } else { V::dot::<J>(acc[n], q, a, s[n]) };
    }
}

/// 256 weights, integer form: converted once.
#[inline(always)]
unsafe fn int_span<C: Codec, V: Quants, const N: usize>(
    acc: &mut [V::S; N],
    p: *const u8,
    x: [*const Span; N],
    b: usize,
) {
    let (ws, wm, d, dmin) = C::int_scales::<V>(p);
    let ws = if C::INT_SIGNED { V::wi8x16(ws) } else { V::wu8x16(ws) };
    let mut i = [V::izero(); N];
    let mut k = [V::wprep(ws); N];
    for n in 0..N {
        let a = &*x[n].add(b);
        let w = V::wmul(ws, a.k.as_ptr());
        k[n] = V::wprep(w);
        if C::BIAS != 0.0 {
            i[n] = V::istart(w, a.sum.as_ptr(), (C::BIAS as u32).trailing_zeros());
        }
        if C::MINS {
            let m = V::istart(V::wmul(V::wu8x16(wm), a.k.as_ptr()), a.sum.as_ptr(), 0);
            acc[n] = V::ifold(acc[n], m, dmin * a.d0);
        }
    }
    int_chunk::<C, V, N, 0>(&mut i, p, x, b, &k);
    int_chunk::<C, V, N, 1>(&mut i, p, x, b, &k);
    int_chunk::<C, V, N, 2>(&mut i, p, x, b, &k);
    int_chunk::<C, V, N, 3>(&mut i, p, x, b, &k);
    for n in 0..N {
        acc[n] = V::ifold(acc[n], i[n], d * (*x[n].add(b)).d0);
    }
}

#[inline(always)]
unsafe fn int_chunk<C: Codec, V: Quants, const N: usize, const J: usize>(
    i: &mut [V::A; N],
    p: *const u8,
    x: [*const Span; N],
    b: usize,
    k: &[V::K; N],
) {
    let q = C::quants::<V, J>(p, PIECES);
    for n in 0..N {
        let a = (*x[n].add(b)).q.as_ptr().add(64 * J);
        i[n] = if C::SIGNED { V::idot_i8::<J>(i[n], q, a, k[n]) } else { V::idot::<J>(i[n], q, a, k[n]) };
    }
}
