//! The product of quantised weights and many columns: sixteen rows are unpacked once, turned so that rows lie abreast,
//! and used for all columns.
//!
//! A codec only unpacks 256 weights of sixteen rows (`Unpacked`); what follows is one text for all formats.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `product`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::activations::Span;
use super::isa::{Isa, Quants, per_isa};
use super::matmul::Job;
use crate::quant::{Codec, SPAN};

/// From so many columns on, panels are faster than tiles.
pub(super) const MIN_COLUMNS: usize = 5;
/// Rows per panel: two registers of eight.
const ROWS: usize = 2 * ABREAST;
/// Rows per register.
const ABREAST: usize = 8;
/// Columns whose sums are in registers at a time.
const COLUMNS: usize = 4;
/// Columns that pass while a panel is unpacked: their sums stay in the first-level cache ...
const MAX_BLOCK: usize = 128;
/// ... and their activations in the second-level cache.
const BLOCK_BYTES: usize = 512 * 1024;
/// Groups of 16 per span.
const GROUPS: usize = SPAN / 16;

/// 256 weights of sixteen rows: `w = s * q - off`.
#[repr(C, align(64))]
pub(crate) struct Unpacked {
    q: [[u8; SPAN]; ROWS],
    /// Per group of 16.
    s: [[f32; GROUPS]; ROWS],
    off: [[f32; GROUPS]; ROWS],
}

/// The same, rows abreast.
#[repr(C, align(64))]
struct Turned {
    /// [half][four weights][row]
    q: [[[[u8; 4]; ABREAST]; SPAN / 4]; 2],
    /// [half][group][row]
    s: [[[f32; ABREAST]; GROUPS]; 2],
    off: [[[f32; ABREAST]; GROUPS]; 2],
}

/// What a codec says about itself.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    unpack: unsafe fn(Isa, [*const u8; ROWS], usize, &mut Unpacked),
    span_bytes: usize,
    group: usize,
    top: u8,
    is_signed: bool,
}

impl Panel {
    /// Of a codec.
    pub(super) const fn of<C: Codec>() -> Panel {
        let (span_bytes, is_signed) = (C::SPAN_BYTES, C::SIGNED);
        Panel { unpack: unpack::<C>, span_bytes, group: C::GROUP, top: C::TOP, is_signed }
    }

    /// All rows and columns of a job.
    ///
    /// # Safety
    /// As `product`.
    pub(super) unsafe fn product(&self, isa: Isa, job: &Job<'_>) {
        product(isa, self, job);
    }
}

per_isa! {
    /// Unpacks n pieces of 32 weights of sixteen rows. What lies behind them meets activations that are zero.
    unsafe fn unpack<V: Quants, C: Codec>(rows: [*const u8; ROWS], n: usize, to: &mut Unpacked) {
        for r in 0..ROWS {
            let p = rows[r];
            let (s, m) = C::scales::<V>(p, n);
            let off = match (C::MINS, C::BIAS != 0.0) {
                (true, true) => V::fma(s, V::splat(C::BIAS), m),
                (true, false) => m,
                (false, _) => V::scale(s, C::BIAS),
            };
            V::store(s, to.s[r].as_mut_ptr());
            V::store(off, to.off[r].as_mut_ptr());
            let q = to.q[r].as_mut_ptr();
            unpack_chunk::<C, V, 0>(p, n, q);
            unpack_chunk::<C, V, 1>(p, n, q);
            unpack_chunk::<C, V, 2>(p, n, q);
            unpack_chunk::<C, V, 3>(p, n, q);
        }
    } scalar {
        let _ = (rows, n, to);
        unreachable!("the scalar kernels decode")
    }
}

#[inline(always)]
unsafe fn unpack_chunk<C: Codec, V: Quants, const J: usize>(p: *const u8, n: usize, q: *mut u8) {
    if n > 2 * J {
        V::store64(C::quants::<V, J>(p, n), q.add(64 * J));
    }
}

per_isa! {
    /// All rows and columns of a job.
    ///
    /// Lengths were checked by `Part::new`: weights hold n_rows whole rows of n_cols weights, columns ceil(n_cols / 256)
    /// spans.
    unsafe fn product<V: Quants>(panel: &Panel, job: &Job<'_>) {
        let n_pieces = job.n_cols / 32;
        let n_spans = n_pieces.div_ceil(SPAN / 32);
        let block = (BLOCK_BYTES / (n_spans * size_of::<Span>())).clamp(COLUMNS, MAX_BLOCK) / COLUMNS * COLUMNS;
        let mut raw = Unpacked { q: [[0; SPAN]; ROWS], s: [[0.0; GROUPS]; ROWS], off: [[0.0; GROUPS]; ROWS] };
        let mut w = Turned {
            q: [[[[0; 4]; ABREAST]; SPAN / 4]; 2],
            s: [[[0.0; ABREAST]; GROUPS]; 2],
            off: [[[0.0; ABREAST]; GROUPS]; 2],
        };
        let mut sums = [[[0.0; ABREAST]; 2]; MAX_BLOCK];
        let n_all = job.n_tokens * job.n_parts;
        let mut first = 0;
        while first < n_all {
            let n_columns = block.min(n_all - first);
            let mut row = 0;
            while row < job.n_rows {
                let mut p = [job.w.as_ptr(); ROWS];
                for r in 0..ROWS {
                    // rows behind the last are the last one again
                    p[r] = p[r].add((row + r).min(job.n_rows - 1) * job.row_bytes);
                }
                for n in 0..n_columns.next_multiple_of(COLUMNS) {
                    sums[n] = [[0.0; ABREAST]; 2];
                }
                for b in 0..n_spans {
                    (panel.unpack)(V::ISA, p, (n_pieces - 8 * b).min(8), &mut raw);
                    turn::<V>(&raw, &mut w, V::FLIPS && panel.is_signed);
                    for r in 0..ROWS {
                        p[r] = p[r].wrapping_add(panel.span_bytes);
                        prefetch_span::<V>(p[r], panel.span_bytes);
                    }
                    let x = job.spans.add(b * job.span_stride + first);
                    multiply::<V>(panel, &w, x, n_columns, &mut sums);
                }
                let n_rows = ROWS.min(job.n_rows - row);
                for n in 0..n_columns / job.n_parts {
                    let mut sum = sums[job.n_parts * n];
                    if job.n_parts == 2 {
                        let second = sums[2 * n + 1].as_flattened();
                        sum.as_flattened_mut().iter_mut().zip(second).for_each(|(sum, v)| *sum += v);
                    }
                    let y = job.y.add((first / job.n_parts + n) * job.y_stride + row);
                    std::ptr::copy_nonoverlapping(sum.as_ptr().cast::<f32>(), y, n_rows);
                }
                row += ROWS;
            }
            first += n_columns;
        }
    } scalar {
        let _ = (panel, job);
        unreachable!("the scalar kernels decode")
    }
}

#[inline(always)]
unsafe fn prefetch_span<V: Quants>(p: *const u8, n_bytes: usize) {
    let mut line = 0;
    while line < n_bytes {
        V::prefetch(p.wrapping_add(line));
        line += 64;
    }
}

/// Brings rows abreast. Signed weights are flipped to unsigned where the ISA wants it; the offset takes it back.
#[inline(always)]
unsafe fn turn<V: Quants>(raw: &Unpacked, w: &mut Turned, flips: bool) {
    let flip = if flips { 0x8080_8080 } else { 0 };
    for half in 0..2 {
        let first = half * ABREAST;
        for k in 0..8 {
            let to = w.q[half][8 * k].as_mut_ptr().cast::<u8>();
            V::turn8(raw.q[first].as_ptr().add(32 * k), SPAN, to, flip);
        }
        for k in 0..2 {
            let (s, off) = (raw.s[first].as_ptr().add(8 * k), raw.off[first].as_ptr().add(8 * k));
            V::turn8(s.cast(), 4 * GROUPS, w.s[half][8 * k].as_mut_ptr().cast(), 0);
            V::turn8(off.cast(), 4 * GROUPS, w.off[half][8 * k].as_mut_ptr().cast(), 0);
        }
        if flips {
            for g in 0..GROUPS {
                for r in 0..ABREAST {
                    w.off[half][g][r] += 128.0 * w.s[half][g][r];
                }
            }
        }
    }
}

/// sums[n] += w x[n] for n_columns spans.
#[inline(always)]
unsafe fn multiply<V: Quants>(
    panel: &Panel,
    w: &Turned,
    x: *const Span,
    n_columns: usize,
    sums: &mut [[[f32; ABREAST]; 2]; MAX_BLOCK],
) {
    // products of pairs that fit into 16 bits: 2 * 127 * top each
    match (panel.group, panel.is_signed, panel.top) {
        (32, true, _) if !V::FLIPS => columns::<V, 8, 1, true>(w, x, n_columns, sums),
        (32, false, ..=16) => columns::<V, 8, 8, false>(w, x, n_columns, sums),
        (32, false, ..=32) => columns::<V, 8, 4, false>(w, x, n_columns, sums),
        (32, ..) => columns::<V, 8, 1, false>(w, x, n_columns, sums),
        (_, true, _) if !V::FLIPS => columns::<V, 4, 1, true>(w, x, n_columns, sums),
        (_, false, ..=32) => columns::<V, 4, 4, false>(w, x, n_columns, sums),
        (_, false, ..=64) => columns::<V, 4, 2, false>(w, x, n_columns, sums),
        _ => columns::<V, 4, 1, false>(w, x, n_columns, sums),
    }
}

#[inline(always)]
unsafe fn columns<V: Quants, const QUADS: usize, const FIT: usize, const SIGNED: bool>(
    w: &Turned,
    x: *const Span,
    n_columns: usize,
    sums: &mut [[[f32; ABREAST]; 2]; MAX_BLOCK],
) {
    let mut t = 0;
    while t < n_columns {
        let mut a = [x; COLUMNS];
        let mut f = [[V::zero8(); COLUMNS]; 2];
        for n in 0..COLUMNS {
            a[n] = x.add((t + n).min(n_columns - 1));
            for half in 0..2 {
                f[half][n] = V::load8(sums[t + n][half].as_ptr());
            }
        }
        let step = QUADS / 4;
        let mut g = 0;
        while g < GROUPS {
            let mut q = [std::ptr::null(); COLUMNS];
            for n in 0..COLUMNS {
                q[n] = (*a[n]).q.as_ptr().add(16 * g);
            }
            let quads = w.q[0][4 * g].as_ptr().cast::<u8>();
            let i = V::quads::<2, COLUMNS, QUADS, FIT, SIGNED>(quads, SPAN * ABREAST, q);
            for n in 0..COLUMNS {
                let d = (*a[n]).d[g];
                for half in 0..2 {
                    f[half][n] = V::fold8(f[half][n], i[half][n], w.s[half][g].as_ptr(), d);
                }
                if !SIGNED {
                    let s = if step == 2 { (*a[n]).s[g] + (*a[n]).s[g + 1] } else { (*a[n]).s[g] };
                    for half in 0..2 {
                        f[half][n] = V::nfma8(f[half][n], w.off[half][g].as_ptr(), s);
                    }
                }
            }
            g += step;
        }
        for n in 0..COLUMNS {
            for half in 0..2 {
                V::store8(f[half][n], sums[t + n][half].as_mut_ptr());
            }
        }
        t += COLUMNS;
    }
}
