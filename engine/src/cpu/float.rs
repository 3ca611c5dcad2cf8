//! The product of float weights (F32, F16, BF16) and f32 activations, accumulated in f32 lanes.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `product`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::isa::{LANES, Vector, per_isa};
use super::matmul::{COLUMN_BLOCK, Job, PREFETCH, STREAMS, far_rows};
use crate::quant::Element;

/// Columns per load of weights for many columns.
const COLUMNS: usize = 2;
/// Rows per load of a column for many columns.
const ROWS: usize = 2;
/// Bytes of the largest 16 weights.
const LANES_BYTES: usize = LANES * 4;

per_isa! {
    /// All rows and columns of a job.
    ///
    /// Lengths were checked by `Job::new`: weights hold n_rows rows of n_cols weights, every column n_floats floats.
    pub(crate) unsafe fn product<V, E: Element>(job: &Job<'_>) {
        if job.n_tokens == 1 { one_column::<E, V>(job) } else { many_columns::<E, V>(job) }
    }
}

#[inline(always)]
unsafe fn one_column<E: Element, V: Vector>(job: &Job<'_>) {
    let x = [job.floats.as_ptr()];
    for rows in far_rows(job.n_rows) {
        let mut w = [job.w.as_ptr(); STREAMS];
        for r in 0..STREAMS {
            w[r] = w[r].add(rows[r] * job.row_bytes);
        }
        let t = tile::<E, V, STREAMS, 1>(w, x, job.n_cols);
        for r in 0..STREAMS {
            *job.y.add(rows[r]) = t[r][0];
        }
    }
}

/// Many columns: as in `tile`, with as many rows and columns at once as registers hold.
#[inline(always)]
unsafe fn many_columns<E: Element, V: Vector>(job: &Job<'_>) {
    let mut first = 0;
    while first < job.n_tokens {
        let end = (first + COLUMN_BLOCK).min(job.n_tokens);
        let mut r = 0;
        while r < job.n_rows {
            let mut w = [job.w.as_ptr(); ROWS];
            for i in 0..ROWS {
                w[i] = w[i].add((r + i).min(job.n_rows - 1) * job.row_bytes);
            }
            let mut t = first;
            while t < end {
                let mut x = [job.floats.as_ptr(); COLUMNS];
                for n in 0..COLUMNS {
                    x[n] = x[n].add((t + n).min(end - 1) * job.n_floats);
                }
                let y = tile::<E, V, ROWS, COLUMNS>(w, x, job.n_cols);
                for n in 0..COLUMNS.min(end - t) {
                    for i in 0..ROWS.min(job.n_rows - r) {
                        *job.y.add((t + n) * job.y_stride + r + i) = y[i][n];
                    }
                }
                t += COLUMNS;
            }
            r += ROWS;
        }
        first = end;
    }
}

/// y[r][n] = sum_k W[r, k] x[n, k], for R rows and N columns at once.
///
/// w        first byte of each row
/// x        first float of each column, padded with zeros to a multiple of 16
#[inline(always)]
unsafe fn tile<E: Element, V: Vector, const R: usize, const N: usize>(
    w: [*const u8; R],
    x: [*const f32; N],
    n_cols: usize,
) -> [[f32; N]; R] {
    let mut acc = [[V::zero(); N]; R];
    let whole = n_cols - n_cols % LANES;
    let mut k = 0;
    while k < whole {
        for r in 0..R {
            let p = w[r].add(k * E::BYTES);
            V::prefetch(p.wrapping_add(PREFETCH));
            let v = E::load::<V>(p);
            for n in 0..N {
                acc[r][n] = V::fma(v, V::load(x[n].add(k)), acc[r][n]);
            }
        }
        k += LANES;
    }
    if whole < n_cols {
        for r in 0..R {
            // through a buffer: nothing behind the row may be read
            let mut rest = [0u8; LANES_BYTES];
            std::ptr::copy_nonoverlapping(w[r].add(whole * E::BYTES), rest.as_mut_ptr(), (n_cols - whole) * E::BYTES);
            let v = E::load::<V>(rest.as_ptr());
            for n in 0..N {
                acc[r][n] = V::fma(v, V::load(x[n].add(whole)), acc[r][n]);
            }
        }
    }
    let mut y = [[0.0; N]; R];
    for r in 0..R {
        for n in 0..N {
            y[r][n] = V::sum(acc[r][n]);
        }
    }
    y
}
