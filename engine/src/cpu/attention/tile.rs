//! One tile of attention: the kernels, over ISA and over the types of K and V.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `attend`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::{AttentionArgs, KvSlice, MAX_SPLITS, Shape, Tile};
use crate::cpu::isa::{Isa, LANES, Vector, per_isa};
use crate::cpu::math::exp;
use crate::cpu::ops::sum_of;
use crate::cpu::shared::SharedSlice;
use crate::quant::{Element, F16, F32};
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
    /// [n_tokens, n_heads, head_dim], finished.
    Out(&'a SharedSlice<'a, f32>),
    /// [n_heads, MAX_SPLITS, head_dim + 2], to be merged.
    Partial { partial: &'a SharedSlice<'a, f32>, split: usize },
}

/// Picks the kernel for the types of K and V.
///
/// # Safety
/// The CPU has `isa`; `args` passed `Shape::new`; nobody else writes the tile's part of the target.
pub(super) unsafe fn attend(isa: Isa, args: &AttentionArgs<'_>, shape: &Shape, tile: &Tile, target: Target<'_>) {
    // SAFETY: the caller's contract; the pointers are those of slices whose length `Shape::new` checked.
    unsafe {
        match (args.k, args.v) {
            (KvSlice::F32(k), KvSlice::F32(v)) => {
                tile_product::<F32, F32>(isa, args, shape, tile, k.as_ptr().cast(), v.as_ptr().cast(), target);
            }
            (KvSlice::F32(k), KvSlice::F16(v)) => {
                tile_product::<F32, F16>(isa, args, shape, tile, k.as_ptr().cast(), v.as_ptr().cast(), target);
            }
            (KvSlice::F16(k), KvSlice::F32(v)) => {
                tile_product::<F16, F32>(isa, args, shape, tile, k.as_ptr().cast(), v.as_ptr().cast(), target);
            }
            (KvSlice::F16(k), KvSlice::F16(v)) => {
                tile_product::<F16, F16>(isa, args, shape, tile, k.as_ptr().cast(), v.as_ptr().cast(), target);
            }
        }
    }
}

per_isa! {
    /// One tile: scores of a block of positions, online softmax, weighted values, block after block.
    unsafe fn tile_product<V, K: Element, W: Element>(
        args: &AttentionArgs<'_>,
        shape: &Shape,
        tile: &Tile,
        k: *const u8,
        v: *const u8,
        target: Target<'_>,
    ) {
        let (dim, n_heads) = (args.head_dim, tile.heads.len());
        let n_rows = tile.tokens.len() * n_heads;
        let k = Cache { at: k.add(tile.kv_head * dim * K::BYTES), stride: shape.n_kv_heads * dim * K::BYTES };
        let v = Cache { at: v.add(tile.kv_head * dim * W::BYTES), stride: shape.n_kv_heads * dim * W::BYTES };
        let mut rows = Rows::new(args, tile, target);
        let mut weights = [[0f32; BLOCK]; MAX_ROWS];
        // what the first token sees ends first, what the last one sees begins last
        let window = args.options.window.unwrap_or(usize::MAX);
        let begin_of = |token: usize| (args.first_pos + token + 1).saturating_sub(window);
        let end_of = |token: usize| args.first_pos + token + 1;
        let begin = tile.positions.start.max(begin_of(tile.tokens.start));
        let end = tile.positions.end.min(end_of(tile.tokens.end - 1));
        let mut p = begin;
        while p < end {
            let block = p..(p + BLOCK).min(end);
            p = block.end;
            let all_see_all = block.end <= end_of(tile.tokens.start) && block.start >= begin_of(tile.tokens.end - 1);
            let mut r = 0;
            while r < n_rows {
                let token = tile.tokens.start + r / n_heads;
                // rows that see different positions go one by one
                let (n, seen) = if all_see_all {
                    (if n_rows - r >= SHARE { SHARE } else { 1 }, block.clone())
                } else {
                    (1, block.start.max(begin_of(token))..block.end.min(end_of(token)))
                };
                if !seen.is_empty() {
                    if n == SHARE {
                        scores::<K, V, SHARE>(&rows, r, k, &seen, dim, &mut weights);
                    } else {
                        scores::<K, V, 1>(&rows, r, k, &seen, dim, &mut weights);
                    }
                    for r in r..r + n {
                        rows.soften::<V>(r, &mut weights[r][..seen.len()], args.scale, args.options.softcap, dim);
                    }
                    if n == SHARE {
                        values::<W, V, SHARE>(&rows, r, v, &seen, dim, &weights);
                    } else {
                        values::<W, V, 1>(&rows, r, v, &seen, dim, &weights);
                    }
                }
                r += n;
            }
        }
        rows.finish(args, tile, target);
    }
}

/// K or V of one head: position p lies at `at + p * stride`.
#[derive(Clone, Copy)]
struct Cache {
    at: *const u8,
    stride: usize,
}

/// The rows of a tile: query, weighted values so far, their weight, largest score.
struct Rows {
    q: [*const f32; MAX_ROWS],
    /// [head_dim] each, in `out` or in the scratch
    acc: [*mut f32; MAX_ROWS],
    weight: [f32; MAX_ROWS],
    max: [f32; MAX_ROWS],
}

impl Rows {
    #[inline(always)]
    unsafe fn new(args: &AttentionArgs<'_>, tile: &Tile, target: Target<'_>) -> Rows {
        let (dim, n_heads) = (args.head_dim, tile.heads.len());
        let mut rows = Rows {
            q: [std::ptr::null(); MAX_ROWS],
            acc: [std::ptr::null_mut(); MAX_ROWS],
            weight: [0.0; MAX_ROWS],
            max: [f32::NEG_INFINITY; MAX_ROWS],
        };
        for r in 0..tile.tokens.len() * n_heads {
            let (token, head) = (tile.tokens.start + r / n_heads, tile.heads.start + r % n_heads);
            let at = (token * args.n_heads + head) * dim;
            rows.q[r] = args.q[at..at + dim].as_ptr();
            let acc = match target {
                Target::Out(out) => out.ptr(at),
                Target::Partial { partial, split } => partial.ptr((head * MAX_SPLITS + split) * (dim + 2)),
            };
            // SAFETY: the row's part of the target is at least head_dim long and belongs to this tile.
            unsafe { std::slice::from_raw_parts_mut(acc, dim) }.fill(0.0);
            rows.acc[r] = acc;
        }
        rows
    }

    /// Scores to weights relative to the largest score so far; what was summed before shrinks where that rose.
    #[inline(always)]
    unsafe fn soften<V: Vector>(&mut self, r: usize, scores: &mut [f32], scale: f32, softcap: Option<f32>, dim: usize) {
        let mut max = self.max[r];
        for s in scores.iter_mut() {
            *s *= scale;
            if let Some(cap) = softcap {
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
            for v in unsafe { std::slice::from_raw_parts_mut(self.acc[r], dim) } {
                *v *= shrink;
            }
        }
    }

    /// Divides by the weights, or leaves weight and largest score for `merge`.
    #[inline(always)]
    unsafe fn finish(&self, args: &AttentionArgs<'_>, tile: &Tile, target: Target<'_>) {
        let (dim, n_heads) = (args.head_dim, tile.heads.len());
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
/// The CPU has the ISA; the rows have queries of `dim`; `k` holds the positions.
#[inline(always)]
unsafe fn scores<K: Element, V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    k: Cache,
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
                let k = K::load::<V>(k.add(c * K::BYTES));
                for n in 0..N {
                    acc[n] = V::fma(k, V::load(rows.q[r + n].add(c)), acc[n]);
                }
                c += LANES;
            }
            for n in 0..N {
                let mut sum = V::sum(acc[n]);
                for c in whole..dim {
                    sum += *rows.q[r + n].add(c) * element::<K>(k, c);
                }
                weights[r + n][i] = sum;
            }
        }
    }
}

/// acc[r] += sum_i weights[r][i] v[seen.start + i] for N rows from `r` on.
///
/// # Safety
/// The CPU has the ISA; the rows have accumulators of `dim`; `v` holds the positions.
#[inline(always)]
unsafe fn values<W: Element, V: Vector, const N: usize>(
    rows: &Rows,
    r: usize,
    v: Cache,
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
                let v = W::load::<V>(first.add(i * v.stride + c * W::BYTES));
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
                    *rows.acc[r + n].add(c) += weights[r + n][i] * element::<W>(first.add(i * v.stride), c);
                }
            }
        }
    }
}

/// Element `c` of the head at `p`.
///
/// # Safety
/// It is readable.
#[inline(always)]
unsafe fn element<E: Element>(p: *const u8, c: usize) -> f32 {
    // SAFETY: the caller's contract.
    E::decode(unsafe { std::slice::from_raw_parts(p.add(c * E::BYTES), E::BYTES) })
}
