//! Checkpoints: copies of what cannot go back by itself. A recurrent layer knows only its present state, and the ring of a
//! sliding window gives up what left it; a checkpoint holds the states at one position, and of the rings what is seen from
//! there, the latter only once the ring is about to give it up.

use super::shape::{CacheOptions, CacheShape, KvShape};
use super::{KvCache, LayerCache, State};
use crate::tensor::zeroed;

/// Why a checkpoint is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A chunk of a long prompt or a piece of a long answer ends here.
    Chunk,
    /// A turn begins or ends here: edits and branches start at such places.
    Turn,
}

/// Checkpoints are at most so many: more are no nearer to where anybody goes back to.
const MAX_CHECKPOINTS: u64 = 32;
/// A checkpoint at a turn is worth as much as one that saves so many times the tokens.
const TURN_WEIGHT: f64 = 4.0;

/// The checkpoints of a cache, by position.
#[derive(Debug)]
pub(super) struct Checkpoints {
    max: usize,
    made: Vec<Checkpoint>,
    /// Their buffers are used again.
    dropped: Vec<Checkpoint>,
}

/// What is held after `n` positions.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) n: usize,
    mark: Mark,
    /// States of the recurrent layers, one after the other.
    states: Vec<f32>,
    /// Rows of the rings, one layer after the other.
    windows: Vec<u8>,
    /// Whether the rows are saved: until then the rings hold them.
    has_windows: bool,
}

/// Bytes that all checkpoints of a cache may take.
pub fn checkpoint_bytes(shapes: &[CacheShape], options: &CacheOptions) -> u64 {
    let bytes = one_bytes(shapes, options);
    n_checkpoints(bytes, options) * bytes
}

/// Bytes of one checkpoint.
fn one_bytes(shapes: &[CacheShape], options: &CacheOptions) -> u64 {
    let layer = |shape: &CacheShape| match shape {
        CacheShape::Nothing => 0,
        CacheShape::Attention(kv) => (kv.n_saved(options) as u64).saturating_mul(kv.row_bytes(options.types)),
        CacheShape::Recurrent { .. } => shape.n_bytes(options),
    };
    shapes.iter().fold(0, |sum: u64, shape| sum.saturating_add(layer(shape)))
}

fn n_checkpoints(bytes: u64, options: &CacheOptions) -> u64 {
    options.checkpoint_bytes.checked_div(bytes).unwrap_or(0).min(MAX_CHECKPOINTS)
}

impl KvShape {
    /// Rows that a checkpoint saves, if rows are given up at all.
    fn n_saved(&self, options: &CacheOptions) -> usize {
        if self.n_rows(options) < options.n_positions { self.window.unwrap_or(0) } else { 0 }
    }
}

impl Checkpoints {
    pub(super) fn new(shapes: &[CacheShape], options: &CacheOptions) -> Self {
        let max = n_checkpoints(one_bytes(shapes, options), options) as usize;
        Self { max, made: Vec::with_capacity(max), dropped: Vec::with_capacity(max) }
    }

    /// The latest one at or before `n` that everything can go back to.
    pub(super) fn last_before(&self, n: usize, layers: &[LayerCache]) -> Option<&Checkpoint> {
        self.made.iter().rfind(|made| made.n <= n && (made.has_windows || rings(layers).all(|kv| kv.serves(made.n))))
    }

    /// Where the last one is; 0 if there is none.
    pub(super) fn last(&self) -> usize {
        self.made.last().map_or(0, |made| made.n)
    }

    /// Copies the states, which are those after `n` positions. Without memory for that there is no checkpoint.
    pub(super) fn keep(&mut self, n: usize, mark: Mark, layers: &[LayerCache]) {
        if let Some(made) = self.made.iter_mut().find(|made| made.n == n) {
            made.mark = if mark == Mark::Turn { mark } else { made.mark };
            return;
        }
        if self.made.len() >= self.max
            && let Some(least) = self.least(n)
        {
            self.dropped.push(self.made.remove(least));
        }
        if self.made.len() >= self.max {
            return;
        }
        let mut checkpoint = self.dropped.pop().unwrap_or_else(Checkpoint::empty);
        if checkpoint.take(n, mark, layers) {
            let at = self.made.partition_point(|made| made.n < n);
            self.made.insert(at, checkpoint);
        } else {
            self.max = self.made.len();
        }
    }

    /// Saves rows that the rings are about to give up, since positions up to `end` come.
    pub(super) fn save_windows(&mut self, end: usize, layers: &[LayerCache]) {
        for made in self.made.iter_mut().filter(|made| !made.has_windows) {
            if rings(layers).any(|kv| !kv.serves_after(made.n, end)) && rings(layers).all(|kv| kv.serves(made.n)) {
                made.save_windows(layers);
            }
        }
    }

    /// Drops those after `n`: the tokens there are others now.
    pub(super) fn drop_after(&mut self, n: usize) {
        while let Some(made) = self.made.pop_if(|made| made.n > n) {
            self.dropped.push(made);
        }
    }

    /// Which one is missed least once there is one at `end`: by the tokens that it saves, turned down the further back it is,
    /// so that distances grow towards the beginning.
    fn least(&self, end: usize) -> Option<usize> {
        let position = |i: usize| self.made.get(i).map_or(end, |made| made.n);
        let worth = |i: usize| {
            let before = if i == 0 { 0 } else { position(i - 1) };
            let (n, next) = (position(i), position(i + 1));
            let weight = if self.made[i].mark == Mark::Turn { TURN_WEIGHT } else { 1.0 };
            weight * (n - before) as f64 * (next - n) as f64 / (end - n).max(1) as f64
        };
        (0..self.made.len()).min_by(|&a, &b| worth(a).total_cmp(&worth(b)))
    }
}

impl Checkpoint {
    fn empty() -> Self {
        Self { n: 0, mark: Mark::Chunk, states: Vec::new(), windows: Vec::new(), has_windows: false }
    }

    /// Makes it one of the present; false if there is no memory.
    fn take(&mut self, n: usize, mark: Mark, layers: &[LayerCache]) -> bool {
        let n_elems = states(layers).map(State::len).sum();
        if !sized(&mut self.states, n_elems) {
            return false;
        }
        let mut rest = &mut self.states[..];
        for state in states(layers) {
            state.save(rest.split_off_mut(..state.len()).expect("as large as all states"));
        }
        (self.n, self.mark, self.has_windows) = (n, mark, false);
        true
    }

    fn save_windows(&mut self, layers: &[LayerCache]) {
        let n_bytes = rings(layers).map(|kv| kv.n_seen_bytes()).sum();
        if !sized(&mut self.windows, n_bytes) {
            return;
        }
        let mut rest = &mut self.windows[..];
        for kv in rings(layers) {
            let seen = kv.seen_from(self.n);
            let saved = rest.split_off_mut(..kv.n_seen_bytes()).expect("as large as all windows");
            kv.save(seen.clone(), &mut saved[..seen.len() * kv.row_bytes()]);
        }
        self.has_windows = true;
    }

    /// Brings states back, and rows where a ring has given them up.
    pub(super) fn restore(&self, layers: &mut [LayerCache]) {
        let (mut states, mut windows) = (&self.states[..], &self.windows[..]);
        for layer in layers {
            match layer {
                LayerCache::Recurrent(state) => {
                    state.restore(states.split_off(..state.len()).expect("as large as all states"));
                }
                LayerCache::Attention(kv) if kv.is_ring() && self.has_windows => {
                    let saved = windows.split_off(..kv.n_seen_bytes()).expect("as large as all windows");
                    if !kv.serves(self.n) {
                        let seen = kv.seen_from(self.n);
                        kv.restore(seen.clone(), &saved[..seen.len() * kv.row_bytes()]);
                    }
                }
                LayerCache::Attention(_) | LayerCache::Nothing => {}
            }
        }
    }
}

/// Gives a buffer its size; false if there is no memory for it.
fn sized<T: bytemuck::Zeroable>(buffer: &mut Vec<T>, n_elems: usize) -> bool {
    if buffer.len() != n_elems {
        let Ok(zeros) = zeroed("a checkpoint", 1, n_elems) else { return false };
        *buffer = zeros;
    }
    true
}

fn states(layers: &[LayerCache]) -> impl Iterator<Item = &State> {
    layers.iter().filter_map(|layer| match layer {
        LayerCache::Recurrent(state) => Some(state),
        LayerCache::Attention(_) | LayerCache::Nothing => None,
    })
}

/// Attention layers that give rows up.
fn rings(layers: &[LayerCache]) -> impl Iterator<Item = &KvCache> {
    layers.iter().filter_map(|layer| match layer {
        LayerCache::Attention(kv) if kv.is_ring() => Some(kv),
        LayerCache::Attention(_) | LayerCache::Recurrent(_) | LayerCache::Nothing => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(checkpoint_bytes: u64) -> CacheOptions {
        use super::super::{KvType, KvTypes};
        CacheOptions { n_positions: 100_000, n_batch: 4, types: KvTypes::both(KvType::F16), checkpoint_bytes }
    }

    const STATE: CacheShape = CacheShape::Recurrent { n_elems: 10 };

    impl Checkpoints {
        fn at(&self, n: usize) -> Option<&Checkpoint> {
            self.made.iter().find(|made| made.n == n)
        }
    }

    fn positions(checkpoints: &Checkpoints) -> Vec<usize> {
        checkpoints.made.iter().map(|made| made.n).collect()
    }

    #[test]
    fn they_stay_within_their_bytes_and_may_be_none() {
        for (budget, n) in [(0, 0), (39, 0), (40, 1), (119, 2), (u64::MAX, 32)] {
            let options = options(budget);
            assert_eq!(checkpoint_bytes(&[STATE, CacheShape::Nothing], &options), n * 40);
            let mut checkpoints = Checkpoints::new(&[STATE], &options);
            (1..100).for_each(|i| checkpoints.keep(i * 7, Mark::Turn, &[]));
            assert_eq!(checkpoints.made.len(), n as usize);
            assert!(n == 0 || checkpoints.at(99 * 7).is_some(), "the latest is kept");
        }
        assert_eq!(checkpoint_bytes(&[CacheShape::Nothing], &options(1000)), 0, "nothing to keep");
    }

    #[test]
    fn distances_between_chunks_grow_towards_the_beginning() {
        let mut checkpoints = Checkpoints::new(&[STATE], &options(8 * 40));
        (1..=200).for_each(|i| checkpoints.keep(i * 512, Mark::Chunk, &[]));
        let positions = positions(&checkpoints);
        let gaps: Vec<usize> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(positions.len(), 8);
        assert!(gaps[gaps.len() - 1] <= 1024, "{positions:?}");
        assert!(gaps[0] >= 8 * gaps[gaps.len() - 1], "{positions:?}");
        assert!(positions[0] <= 80_000, "the first half is not given up: {positions:?}");
    }

    #[test]
    fn turns_outlive_chunks() {
        let mut checkpoints = Checkpoints::new(&[STATE], &options(4 * 40));
        checkpoints.keep(1000, Mark::Turn, &[]);
        (1..=6).for_each(|i| checkpoints.keep(1000 + i * 300, Mark::Chunk, &[]));
        assert!(checkpoints.at(1000).is_some(), "{:?}", positions(&checkpoints));
        checkpoints.keep(2800, Mark::Turn, &[]);
        assert_eq!(checkpoints.at(2800).map(|made| made.mark), Some(Mark::Turn));
        checkpoints.drop_after(2799);
        assert!(checkpoints.at(2800).is_none() && !checkpoints.dropped.is_empty());
    }
}
