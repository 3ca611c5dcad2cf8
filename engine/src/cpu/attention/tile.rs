//! One tile of attention: the kernels, once per ISA. The types of K and of V are looked at once per block of positions.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `attend`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::stored::{Q4, Q8, Stored};
use super::{AttentionArgs, KvSlice, MAX_SPLITS, Shape, Tile};
use crate::cpu::isa::{LANES, Vector, per_isa};
use crate::cpu::math::exp;
use crate::cpu::ops::sum_of;
use crate::cpu::shared::SharedSlice;
use crate::quant::{F16, F32};
use std::ops::Range;

/// Rows (token, head) of a tile.
pub(super) const MAX_ROWS: usize = 16;
/// Positions per step of the online softmax.
const BLOCK: usize = 32;
/// Rows that share one load of K or V.
const SHARE: usize = 4;

/// Where a tile's results go.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// [n_tokens, n_heads, value_dim], finished.
    Out(&'a SharedSlice<'a, f32>),
    /// [n_heads, MAX_SPLITS, value_dim + 2], to be merged.
    Partial { partial: &'a SharedSlice<'a, f32>, split: usize },
}

per_isa! {
    /// One tile: scores of a block of positions, online softmax, weighted values, block after block.
    ///
    /// `args` passed `Shape::new`; nobody else writes the tile's part of the target.
    pub(super) unsafe fn attend<V>(args: &AttentionArgs<'_>, shape: &Shape, tile: &Tile, target: Target<'_>) {
        let n_heads = tile.heads.len();
        let n_rows = tile.tokens.len() * n_heads;
        let k = Cache::new(args.k, args.key_dim, shape.n_kv_heads, tile.kv_head);
        let v = args.v.map_or(k, |v| Cache::new(v, args.value_dim, shape.n_kv_heads, tile.kv_head));
        let mut rows = Rows::new(args, tile, target);
        let mut weights = [[0f32; BLOCK]; MAX_ROWS];
        // what the first token sees ends first, what the last one sees begins last
        let (first, last) = (shape.seen(tile.tokens.start), shape.seen(tile.tokens.end - 1));
        let begin = tile.positions.start.max(first.start);
        let end = tile.positions.end.min(last.end);
        let mut p = begin;
        while p < end {
            // a block ends where the rows begin anew
            let turn = p / shape.n_rows * shape.n_rows;
            let block = p..(p + BLOCK).min(end).min(turn + shape.n_rows);
            p = block.end;
            let all_see_all = block.end <= first.end && block.start >= last.start;
            let mut r = 0;
            while r < n_rows {
                // rows that see different positions go one by one
                let (n, seen) = if all_see_all {
                    (if n_rows - r >= SHARE { SHARE } else { 1 }, block.clone())
                } else {
                    let seen = shape.seen(tile.tokens.start + r / n_heads);
                    (1, block.start.max(seen.start)..block.end.min(seen.end))
                };
                if !seen.is_empty() {
                    let seen = seen.start - turn..seen.end - turn;
                    if n == SHARE {
                        scores::<V, SHARE>(&rows, r, &k, &seen, args.key_dim, &mut weights);
                    } else {
                        scores::<V, 1>(&rows, r, &k, &seen, args.key_dim, &mut weights);
                    }
                    for r in r..r + n {
                        rows.soften(r, &mut weights[r][..seen.len()], args);
                    }
                    if n == SHARE {
                        values::<V, SHARE>(&rows, r, &v, &seen, args.value_dim, &weights);
                    } else {
                        values::<V, 1>(&rows, r, &v, &seen, args.value_dim, &weights);
                    }
                }
                r += n;
            }
        }
        rows.finish(args, tile, target);
    }
}

/// K or V of one head: row p lies at `at + p * stride`.
#[derive(Clone, Copy)]
struct Cache<'a> {
    kv: KvSlice<'a>,
    at: *const u8,
    stride: usize,
}

impl<'a> Cache<'a> {
    /// Head `head` of `n_heads` of `dim` channels each.
    #[inline(always)]
    unsafe fn new(kv: KvSlice<'a>, dim: usize, n_heads: usize, head: usize) -> Cache<'a> {
        let (at, bytes) = (kv.as_ptr(), kv.head_bytes(dim));
        Cache { kv, at: at.add(head * bytes), stride: n_heads * bytes }
    }
}

/// The rows of a tile: query, weighted values so far, their weight, largest score.
struct Rows {
    q: [*const f32; MAX_ROWS],
    /// [value_dim] each, in `out` or in the scratch
    acc: [*mut f32; MAX_ROWS],
    weight: [f32; MAX_ROWS],
    max: [f32; MAX_ROWS],
}

impl Rows {
    #[inline(always)]
    unsafe fn new(args: &AttentionArgs<'_>, tile: &Tile, target: Target<'_>) -> Rows {
        let (dim, n_heads) = (args.value_dim, tile.heads.len());
        let mut rows = Rows {
            q: [std::ptr::null(); MAX_ROWS],
            acc: [std::ptr::null_mut(); MAX_ROWS],
            weight: [0.0; MAX_ROWS],
            max: [f32::NEG_INFINITY; MAX_ROWS],
        };
        for r in 0..tile.tokens.len() * n_heads {
            let (token, head) = (tile.tokens.start + r / n_heads, tile.heads.start + r % n_heads);
            let row = token * args.n_heads + head;
            rows.q[r] = args.q[row * args.key_dim..(row + 1) * args.key_dim].as_ptr();
            let acc = match target {
                Target::Out(out) => out.ptr(row * dim),
                Target::Partial { partial, split } => partial.ptr((head * MAX_SPLITS + split) * (dim + 2)),
            };
            // SAFETY: the row's part of the target is at least value_dim long and belongs to this tile.
            unsafe { std::slice::from_raw_parts_mut(acc, dim) }.fill(0.0);
            rows.acc[r] = acc;
        }
        rows
    }

    /// Scores to weights relative to the largest score so far; what was summed before shrinks where that rose.
    #[inline(always)]
    unsafe fn soften(&mut self, r: usize, scores: &mut [f32], args: &AttentionArgs<'_>) {
        let mut max = self.max[r];
        for s in scores.iter_mut() {
            *s *= args.scale;
            if let Some(cap) = args.options.softcap {
                *s = cap * (*s / cap).tanh();
            }
            max = if *s > max { *s } else { max };
        }
        for s in scores.iter_mut() {
            *s = exp(*s - max);
        }
        let shrink = exp(self.max[r] - max);
        self.weight[r] = self.weight[r] * shrink + sum_of(scores, |s| s);
        self.max[r] = max;
        if shrink != 1.0 {
            // SAFETY: the row's accumulator, see `new`.
            for v in unsafe { std::slice::from_raw_parts_mut(self.acc[r], args.value_dim) } {
                *v *= shrink;
            }
        }
    }

    /// Divides by the weights, or leaves weight and largest score for `merge`.
    #[inline(always)]
    unsafe fn finish(&self, args: &AttentionArgs<'_>, tile: &Tile, target: Target<'_>) {
        let (dim, n_heads) = (args.value_dim, tile.heads.len());
        for r in 0..tile.tokens.len() * n_heads {
            // SAFETY: the row's part of the target, see `new`; a partial one has two more elements.
            unsafe {
                match target {
                    Target::Out(_) => {
                        let sink = args.options.sinks.map(|s| s[tile.heads.start + r % n_heads]);
                        let inverse = 1.0 / (self.weight[r] + sink.map_or(0.0, |s| exp(s - self.max[r])));
                        for v in std::slice::from_raw_parts_mut(self.acc[r], dim) {
                            *v *= inverse;
                        }
                    }
                    Target::Partial { .. } => {
                        *self.acc[r].add(dim) = self.weight[r];
                        *self.acc[r].add(dim + 1) = self.max[r];
                    }
                }
            }
        }
    }
}

/// weights[r][i] = q[r] . k[seen.start + i] for N rows from `r` on.
///
/// # Safety
/// The CPU has the ISA; the rows have queries of `dim`; `k` holds the rows seen.
#[inline(always)]
unsafe fn scores<V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    k: &Cache<'_>,
    seen: &Range<usize>,
    dim: usize,
    weights: &mut [[f32; BLOCK]; MAX_ROWS],
) {
    match k.kv {
        KvSlice::F32(_) => scores_of::<F32, V, N>(rows, r, k, seen, dim, weights),
        KvSlice::F16(_) => scores_of::<F16, V, N>(rows, r, k, seen, dim, weights),
        KvSlice::Q8_0(_) => scores_of::<Q8, V, N>(rows, r, k, seen, dim, weights),
        KvSlice::Q4_0(_) => scores_of::<Q4, V, N>(rows, r, k, seen, dim, weights),
    }
}

#[inline(always)]
unsafe fn scores_of<K: Stored, V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    k: &Cache<'_>,
    seen: &Range<usize>,
    dim: usize,
    weights: &mut [[f32; BLOCK]; MAX_ROWS],
) {
    let whole = dim - dim % LANES;
    for (i, p) in seen.clone().enumerate() {
        // SAFETY: inside position p of `k` and inside the queries.
        unsafe {
            let k = k.at.add(p * k.stride);
            let mut acc = [V::zero(); N];
            let mut c = 0;
            while c < whole {
                let k = K::load::<V>(k, c);
                for n in 0..N {
                    acc[n] = V::fma(k, V::load(rows.q[r + n].add(c)), acc[n]);
                }
                c += LANES;
            }
            for n in 0..N {
                let mut sum = V::sum(acc[n]);
                for c in whole..dim {
                    sum += *rows.q[r + n].add(c) * K::element(k, c);
                }
                weights[r + n][i] = sum;
            }
        }
    }
}

/// acc[r] += sum_i weights[r][i] v[seen.start + i] for N rows from `r` on.
///
/// # Safety
/// The CPU has the ISA; the rows have accumulators of `dim`; `v` holds the rows seen.
#[inline(always)]
unsafe fn values<V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    v: &Cache<'_>,
    seen: &Range<usize>,
    dim: usize,
    weights: &[[f32; BLOCK]; MAX_ROWS],
) {
    match v.kv {
        KvSlice::F32(_) => values_of::<F32, V, N>(rows, r, v, seen, dim, weights),
        KvSlice::F16(_) => values_of::<F16, V, N>(rows, r, v, seen, dim, weights),
        KvSlice::Q8_0(_) => values_of::<Q8, V, N>(rows, r, v, seen, dim, weights),
        KvSlice::Q4_0(_) => values_of::<Q4, V, N>(rows, r, v, seen, dim, weights),
    }
}

#[inline(always)]
unsafe fn values_of<W: Stored, V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    v: &Cache<'_>,
    seen: &Range<usize>,
    dim: usize,
    weights: &[[f32; BLOCK]; MAX_ROWS],
) {
    let whole = dim - dim % LANES;
    // SAFETY: inside the positions of `v` and inside the accumulators.
    unsafe {
        let first = v.at.add(seen.start * v.stride);
        let mut c = 0;
        while c < whole {
            let mut acc = [V::zero(); N];
            for n in 0..N {
                acc[n] = V::load(rows.acc[r + n].add(c));
            }
            for i in 0..seen.len() {
                let v = W::load::<V>(first.add(i * v.stride), c);
                for n in 0..N {
                    acc[n] = V::fma(v, V::splat(weights[r + n][i]), acc[n]);
                }
            }
            for n in 0..N {
                V::store(acc[n], rows.acc[r + n].add(c));
            }
            c += LANES;
        }
        for c in whole..dim {
            for n in 0..N {
                for i in 0..seen.len() {
                    *rows.acc[r + n].add(c) += weights[r + n][i] * W::element(first.add(i * v.stride), c);
                }
            }
        }
    }
}
