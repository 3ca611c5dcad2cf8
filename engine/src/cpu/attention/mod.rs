//! Causal attention over the KV cache: heads of a group share each read of K and V, softmax runs along (online).
//!
//! A task is a tile: some tokens times some heads of one group, over a range of positions. For a single token the
//! positions are split over tasks too, and their partial results merged. Nothing of size tokens x positions exists.
mod stored;
#[cfg(test)]
mod tests;
mod tile;

use super::Cpu;
use super::math::exp;
use super::shared::SharedSlice;
use std::ops::Range;
use tile::{MAX_ROWS, Target, attend};

/// Keys or values: position p lies in row `p % n_rows`.
#[derive(Clone, Copy)]
pub enum KvSlice<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [half::f16]),
    /// Blocks of 32 in 34 bytes; heads are whole blocks.
    Q8_0(&'a [u8]),
    /// Blocks of 32 in 18 bytes; heads are whole blocks.
    Q4_0(&'a [u8]),
}

impl KvSlice<'_> {
    fn n_bytes(&self) -> usize {
        match self {
            KvSlice::F32(elems) => size_of_val(*elems),
            KvSlice::F16(elems) => size_of_val(*elems),
            KvSlice::Q8_0(bytes) | KvSlice::Q4_0(bytes) => bytes.len(),
        }
    }

    fn as_ptr(&self) -> *const u8 {
        match self {
            KvSlice::F32(elems) => elems.as_ptr().cast(),
            KvSlice::F16(elems) => elems.as_ptr().cast(),
            KvSlice::Q8_0(bytes) | KvSlice::Q4_0(bytes) => bytes.as_ptr(),
        }
    }

    /// Bytes of a head of `dim` channels.
    fn head_bytes(&self, dim: usize) -> usize {
        match self {
            KvSlice::F32(_) => dim * 4,
            KvSlice::F16(_) => dim * 2,
            KvSlice::Q8_0(_) => dim / 32 * 34,
            KvSlice::Q4_0(_) => dim / 32 * 18,
        }
    }

    /// Whether heads of `dim` channels can be read, and the first `n_read` of them alone.
    fn holds(&self, dim: usize, n_read: usize) -> bool {
        match self {
            KvSlice::F32(_) | KvSlice::F16(_) => true,
            KvSlice::Q8_0(_) | KvSlice::Q4_0(_) => dim.is_multiple_of(32) && n_read.is_multiple_of(32),
        }
    }
}

/// What attention computes.
#[derive(Clone, Copy)]
pub struct AttentionArgs<'a> {
    /// [n_tokens, n_heads, key_dim] queries, positions first_pos..first_pos + n_tokens
    pub q: &'a [f32],
    /// [n_rows, n_kv_heads, key_dim]: all positions that the tokens see, themselves included
    pub k: KvSlice<'a>,
    /// [n_rows, n_kv_heads, value_dim] as `k`; if `None`, the first `value_dim` channels of each key are the value
    pub v: Option<KvSlice<'a>>,
    /// Query heads, a multiple of `n_kv_heads`: head h reads KV head h / (n_heads / n_kv_heads).
    pub n_heads: usize,
    /// KV heads.
    pub n_kv_heads: usize,
    /// Channels of a head of queries and keys.
    pub key_dim: usize,
    /// Channels of a head of values and outputs.
    pub value_dim: usize,
    /// Position of the first token.
    pub first_pos: usize,
    /// Factor of the scores, usually 1 / sqrt(key_dim).
    pub scale: f32,
    /// What some models add.
    pub options: AttentionOptions<'a>,
}

/// What some models add to attention. The default adds nothing.
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Sliding window: position j is seen from i only if i - j < window.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// [n_heads] logits that only join the softmax's denominator.
    pub sinks: Option<&'a [f32]>,
}

/// Buffers of attention, allocated once.
pub struct AttentionScratch {
    /// [n_heads, MAX_SPLITS, value_dim + 2]: weighted values, their weight, the largest score
    partial: Vec<f32>,
}

/// A single token's positions are split into parts of at least so many.
const MIN_SPLIT: usize = 256;
/// ... and into at most so many parts.
const MAX_SPLITS: usize = 32;

impl AttentionScratch {
    /// For models of at most so many heads and channels of a value; panics without memory for it.
    pub fn new(n_heads: usize, value_dim: usize) -> AttentionScratch {
        AttentionScratch::try_new(n_heads, value_dim).expect("memory for attention")
    }

    /// The same; `None` without memory for it.
    pub fn try_new(n_heads: usize, value_dim: usize) -> Option<AttentionScratch> {
        let partial = bytemuck::allocation::try_zeroed_vec(n_heads * MAX_SPLITS * (value_dim + 2)).ok()?;
        Some(AttentionScratch { partial })
    }
}

/// out = softmax(scale * q k^T, causal) v, head by head.
///
/// out      [n_tokens, n_heads, value_dim] f32
/// Errors   none; panics if shapes do not fit
/// Cost     O(n_tokens * n_positions * n_heads * (key_dim + value_dim)), no allocation
/// Source   Dao et al. 2022 (online softmax in tiles); Dao et al. 2023 (split positions)
pub fn attention(cpu: &Cpu, scratch: &mut AttentionScratch, args: &AttentionArgs<'_>, out: &mut [f32]) {
    let shape = Shape::new(args, out.len());
    if shape.n_tokens == 0 {
        return;
    }
    let n_splits = shape.n_splits(cpu.pool.n_threads());
    let out = SharedSlice::new(out);
    if n_splits == 1 {
        cpu.pool.run(shape.n_tiles(), &|i| {
            let tile = shape.tile(i, 0..usize::MAX);
            // SAFETY: tiles are disjoint in (token, head), and so in `out`.
            unsafe { attend(cpu.isa(), args, &shape, &tile, Target::Out(&out)) };
        });
        return;
    }
    let partial = SharedSlice::new(&mut scratch.partial);
    let seen = shape.seen(0);
    let cut = |split: usize| seen.start + seen.len() * split / n_splits;
    cpu.pool.run(shape.n_tiles() * n_splits, &|i| {
        let split = i % n_splits;
        let tile = shape.tile(i / n_splits, cut(split)..cut(split + 1));
        // SAFETY: tiles are disjoint in heads, splits in their parts of the scratch.
        unsafe { attend(cpu.isa(), args, &shape, &tile, Target::Partial { partial: &partial, split }) };
    });
    for head in 0..args.n_heads {
        // SAFETY: the tasks are done; nobody else holds a part.
        let (partial, out) = unsafe {
            let size = args.value_dim + 2;
            (
                partial.part(head * MAX_SPLITS * size..(head * MAX_SPLITS + n_splits) * size),
                out.part(head * args.value_dim..(head + 1) * args.value_dim),
            )
        };
        merge(partial, args.options.sinks.map(|s| s[head]), out);
    }
}

/// Adds up the partial results of one head.
fn merge(partial: &[f32], sink: Option<f32>, out: &mut [f32]) {
    let size = out.len() + 2;
    let parts = || partial.chunks_exact(size).map(|part| (part[size - 2], part[size - 1]));
    let max = parts().fold(sink.unwrap_or(f32::NEG_INFINITY), |m, (_, max)| m.max(max));
    let weight: f32 = parts().map(|(weight, top)| weight * exp(top - max)).sum();
    let weight = weight + sink.map_or(0.0, |s| exp(s - max));
    out.fill(0.0);
    for part in partial.chunks_exact(size) {
        let factor = exp(part[size - 1] - max) / weight;
        for (out, v) in out.iter_mut().zip(part) {
            *out += v * factor;
        }
    }
}

/// Checked sizes and how the work is cut.
struct Shape {
    n_tokens: usize,
    /// Query heads per KV head.
    group: usize,
    /// Heads of a tile, within one group.
    tile_heads: usize,
    /// Tiles that cover a group's heads.
    n_head_tiles: usize,
    /// Tokens of a tile.
    tile_tokens: usize,
    n_kv_heads: usize,
    first_pos: usize,
    window: usize,
    /// Rows of K and V.
    n_rows: usize,
}

/// Some tokens times some heads that share a KV head, over a range of positions.
struct Tile {
    tokens: Range<usize>,
    heads: Range<usize>,
    kv_head: usize,
    positions: Range<usize>,
}

impl Shape {
    fn new(args: &AttentionArgs<'_>, n_out: usize) -> Shape {
        let (q_row, out_row) = (args.n_heads * args.key_dim, args.n_heads * args.value_dim);
        assert!(q_row > 0 && out_row > 0 && args.n_kv_heads > 0, "nothing to attend");
        assert!(args.n_heads.is_multiple_of(args.n_kv_heads), "heads");
        let n_tokens = args.q.len() / q_row;
        assert!(args.q.len() == n_tokens * q_row && n_out == n_tokens * out_row, "queries and outputs");
        assert!(args.options.window != Some(0), "an empty window");
        assert!(args.options.sinks.is_none_or(|s| s.len() == args.n_heads), "sinks");
        let n_value_read = if args.v.is_none() { args.value_dim } else { 0 };
        assert!(args.k.holds(args.key_dim, n_value_read) && n_value_read <= args.key_dim, "keys");
        let k_row = args.n_kv_heads * args.k.head_bytes(args.key_dim);
        let n_rows = args.k.n_bytes() / k_row;
        assert!(args.k.n_bytes() == n_rows * k_row, "keys");
        if let Some(v) = args.v {
            let v_row = args.n_kv_heads * v.head_bytes(args.value_dim);
            assert!(v.holds(args.value_dim, 0) && v.n_bytes() == n_rows * v_row, "values");
        }
        let window = args.options.window.unwrap_or(usize::MAX);
        let n_seen = (args.first_pos + n_tokens).min(window.saturating_add(n_tokens.saturating_sub(1)));
        assert!(n_rows >= n_seen, "{n_rows} cached rows for {n_seen} positions");
        let group = args.n_heads / args.n_kv_heads;
        let tile_heads = group.min(MAX_ROWS);
        Shape {
            n_tokens,
            group,
            tile_heads,
            n_head_tiles: group.div_ceil(tile_heads),
            tile_tokens: MAX_ROWS / tile_heads,
            n_kv_heads: args.n_kv_heads,
            first_pos: args.first_pos,
            window,
            n_rows,
        }
    }

    /// Positions that a token sees.
    fn seen(&self, token: usize) -> Range<usize> {
        let end = self.first_pos + token + 1;
        end.saturating_sub(self.window)..end
    }

    fn n_tiles(&self) -> usize {
        self.n_tokens.div_ceil(self.tile_tokens) * self.n_kv_heads * self.n_head_tiles
    }

    /// Tile `i`: the last tokens first, since they see most and take longest.
    fn tile(&self, i: usize, positions: Range<usize>) -> Tile {
        let per_tokens = self.n_kv_heads * self.n_head_tiles;
        let token_tile = self.n_tokens.div_ceil(self.tile_tokens) - 1 - i / per_tokens;
        let (kv_head, head_tile) = (i % per_tokens / self.n_head_tiles, i % self.n_head_tiles);
        let first = token_tile * self.tile_tokens;
        let first_head = head_tile * self.tile_heads;
        let heads = first_head..(first_head + self.tile_heads).min(self.group);
        Tile {
            tokens: first..(first + self.tile_tokens).min(self.n_tokens),
            heads: kv_head * self.group + heads.start..kv_head * self.group + heads.end,
            kv_head,
            positions,
        }
    }

    /// Parts that the positions of a single token are cut into.
    fn n_splits(&self, n_threads: usize) -> usize {
        if self.n_tokens > 1 || n_threads == 1 {
            return 1;
        }
        let wanted = (2 * n_threads).div_ceil(self.n_tiles());
        wanted.min(self.seen(0).len() / MIN_SPLIT).clamp(1, MAX_SPLITS)
    }
}
