//! Rope, the cache of keys and values, and attention over it.

use super::gpu::{Arg, At, Gpu};
use super::ops::DeviceRows;
use crate::kv::KvType;

/// Where the rows of K or of V lie: position p in row `p % n_rows`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceKv {
    /// Where they begin.
    pub(crate) at: At,
    /// How they are stored.
    pub(crate) kv_type: KvType,
    /// Rows.
    pub(crate) n_rows: usize,
    /// Bytes of each.
    pub(crate) row_bytes: usize,
}

/// An attention over a cache; what is not said here is in `ops::Attend`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend {
    /// Keys.
    pub(crate) k: DeviceKv,
    /// Values; the keys where values are their first channels.
    pub(crate) v: DeviceKv,
    /// Channels between one head of the values and the next.
    pub(crate) v_stride: usize,
    /// Query heads.
    pub(crate) n_heads: usize,
    /// Heads of keys.
    pub(crate) n_kv_heads: usize,
    /// Channels of a key.
    pub(crate) key_dim: usize,
    /// Channels of a value.
    pub(crate) value_dim: usize,
    /// Position of the first token.
    pub(crate) first_pos: usize,
    /// Positions that are seen, the own one among them.
    pub(crate) window: Option<usize>,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// Scores become `cap · tanh(score / cap)`.
    pub(crate) softcap: Option<f32>,
    /// [n_heads]
    pub(crate) sinks: Option<At>,
}

/// Most channels of a key and of a value that there is a kernel for.
pub(crate) const MAX_KEY_DIM: usize = 576;
pub(crate) const MAX_VALUE_DIM: usize = 512;
/// Blocks of threads that keep a card busy; fewer tokens are cut into parts of their positions.
const WANTED_BLOCKS: usize = 256;
/// Positions of a part, at least.
const MIN_PART: usize = 64;
/// Parts of a token, at most: the scratch has room for so many per token of a small step.
const MAX_PARTS: usize = 32;
/// Threads of a block; the kernels count on it.
const THREADS: usize = 128;

/// Bytes of what attention keeps in between.
pub(crate) fn scratch_bytes(n_heads: usize, head_dim: usize) -> usize {
    n_heads * MAX_PARTS * (head_dim + 2) * size_of::<f32>()
}

impl Gpu {
    /// Turns heads by their angles.
    ///
    /// cos, sin [n_tokens, n_half]
    pub(crate) fn rope(&self, x: DeviceRows, head_dim: usize, [cos, sin]: [At; 2], n_half: usize, is_neox: bool) {
        let n_heads = x.width / head_dim;
        let n = x.n_rows * n_heads * n_half;
        let args: [Arg; 8] = [
            x.at.into(),
            cos.into(),
            sin.into(),
            n.into(),
            n_heads.into(),
            head_dim.into(),
            n_half.into(),
            is_neox.into(),
        ];
        self.each(self.functions.rope, n, args);
    }

    /// Writes rows into a cache from a position on.
    pub(crate) fn kv_store(&self, x: DeviceRows, cache: &DeviceKv, first_pos: usize) {
        assert!(x.n_rows <= cache.n_rows, "{} positions in {} rows", x.n_rows, cache.n_rows);
        let args: [Arg; 7] = [
            x.at.into(),
            cache.at.into(),
            kv_type(cache.kv_type).into(),
            first_pos.into(),
            cache.n_rows.into(),
            x.width.into(),
            x.n_elems().into(),
        ];
        self.each(self.functions.kv_store, x.n_elems(), args);
    }

    /// scratch  `scratch_bytes` of them
    /// q        [n_tokens, n_heads · key_dim]
    /// y        [n_tokens, n_heads · value_dim]
    pub(crate) fn attend(&self, attend: &Attend, scratch: At, q: DeviceRows, y: DeviceRows) {
        let &Attend { k, v, n_heads, key_dim, value_dim, .. } = attend;
        let function = match (key_dim, value_dim) {
            (..=64, ..=64) => self.functions.attend_64,
            (..=128, ..=128) => self.functions.attend_128,
            (..=256, ..=256) => self.functions.attend_256,
            (..=MAX_KEY_DIM, ..=MAX_VALUE_DIM) => self.functions.attend_576,
            _ => unreachable!("heads of {key_dim} and {value_dim} were refused at load"),
        };
        let n_tokens = q.n_rows;
        let n_seen = attend.window.unwrap_or(usize::MAX).min(attend.first_pos + n_tokens);
        let wanted = WANTED_BLOCKS.div_ceil((n_heads * n_tokens).max(1)).min(n_seen.div_ceil(MIN_PART));
        let n_parts = wanted.clamp(1, (MAX_PARTS / n_tokens.max(1)).max(1));
        let sinks = attend.sinks.unwrap_or(At::NONE);
        let args: [Arg; 19] = [
            q.at.into(),
            k.at.into(),
            v.at.into(),
            sinks.into(),
            y.at.into(),
            scratch.into(),
            kv_type(k.kv_type).into(),
            kv_type(v.kv_type).into(),
            k.row_bytes.into(),
            v.row_bytes.into(),
            k.n_rows.into(),
            (n_heads / attend.n_kv_heads).into(),
            key_dim.into(),
            value_dim.into(),
            attend.v_stride.into(),
            attend.first_pos.into(),
            attend.window.unwrap_or(0).into(),
            attend.scale.into(),
            attend.softcap.unwrap_or(0.0).into(),
        ];
        self.launch(function, [n_heads, n_tokens, n_parts], THREADS, args);
        if n_parts > 1 {
            let args = [scratch.into(), sinks.into(), y.at.into(), n_parts.into(), value_dim.into()];
            self.launch(self.functions.attend_merge, [n_heads, n_tokens, 1], THREADS, args);
        }
    }
}

/// The number by which kernels know a type.
fn kv_type(kv_type: KvType) -> u32 {
    match kv_type {
        KvType::F32 => 0,
        KvType::F16 => 1,
        KvType::Q8_0 => 2,
        KvType::Q4_0 => 3,
    }
}
