//! What must lie in main memory now, and the context length that follows from it.
//!
//! Weights are read from the mapped file: what does not fit of them can be read again from disk, at a price that the
//! speed shows. Cache and buffers cannot: where they do not fit, there is no plan.
use super::refusal::PlanRefusal;
use super::sizes::{Sizes, sum};
use super::{DEFAULT_CONTEXT, MIN_CONTEXT};
use crate::wire::{Hardware, Wishes};

/// Taken by the engine for any model: vocabulary, pool, stacks.
const HOST_BASE_BYTES: u64 = 64 << 20;
/// A context that somebody did not choose is a multiple of this.
const CONTEXT_STEP: u32 = 256;

/// Main memory of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Context length in tokens.
    pub(super) context: u32,
    pub(super) context_why: ContextWhy,
    pub(super) kv_bytes: u64,
    pub(super) buffers_bytes: u64,
    /// Available beyond what the plan takes.
    pub(super) spare_bytes: u64,
    /// Weights that find no room and are read from disk while the model runs.
    pub(super) missing_bytes: u64,
}

/// What the context length follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextWhy {
    /// The default.
    Default,
    /// The model was trained for no more.
    Trained,
    /// A longer one finds no room.
    Room,
    /// Somebody asked for it.
    Wish,
    /// Somebody asked for more than there is: this is the most that works.
    NearestToWish,
}

/// Picks the longest context, up to the wish or the default, with which everything fits; else the shortest.
pub(super) fn choose(sizes: &Sizes, hardware: &Hardware, wishes: &Wishes, n_batch: u32) -> Result<Memory, PlanRefusal> {
    let trained = sizes.max_context.max(1);
    let shortest = MIN_CONTEXT.min(trained);
    let wanted = wishes.context_length.unwrap_or(DEFAULT_CONTEXT).clamp(1, trained);
    let at = |context| Memory::at(context, sizes, hardware, n_batch);
    let is_possible = |memory: &Memory| memory.must_have_bytes() <= hardware.ram_available_bytes;

    let first = at(wanted);
    let memory = match wishes.context_length {
        // A wish is a constraint: it may push weights out to disk, with a warning.
        Some(wish) if is_possible(&first) => {
            let why = if wish > trained { ContextWhy::NearestToWish } else { ContextWhy::Wish };
            Memory { context_why: why, ..first }
        }
        None if first.missing_bytes == 0 => {
            let why = if wanted < DEFAULT_CONTEXT { ContextWhy::Trained } else { ContextWhy::Default };
            Memory { context_why: why, ..first }
        }
        None => {
            let shorter: Vec<Memory> = ladder(wanted, shortest).map(at).collect();
            let fits = |memory: &&Memory| memory.missing_bytes == 0;
            let best = shorter.iter().find(fits).or(shorter.last()).copied().unwrap_or(first);
            Memory { context_why: ContextWhy::Room, ..best }
        }
        Some(_) => {
            let fits = |context| at(context).missing_bytes == 0;
            let nearest = longest(shortest, wanted, fits).unwrap_or(shortest.min(wanted));
            Memory { context_why: ContextWhy::NearestToWish, ..at(nearest) }
        }
    };
    if is_possible(&memory) {
        Ok(memory)
    } else {
        let needed_bytes = memory.must_have_bytes();
        Err(PlanRefusal::NoRoom {
            context: memory.context,
            needed_bytes,
            missing_bytes: needed_bytes - hardware.ram_available_bytes,
        })
    }
}

/// Halves from below `from` down to `to`, which always comes last.
fn ladder(from: u32, to: u32) -> impl Iterator<Item = u32> {
    let halves = std::iter::successors(Some(from / 2), |context| Some(context / 2));
    halves.take_while(move |context| *context > to).chain([to.min(from)])
}

/// The longest context from `from` to `to` that fits, to whole steps; what fits does so at every shorter one.
fn longest(from: u32, to: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut good, mut bad) = (from / CONTEXT_STEP, to / CONTEXT_STEP + 1);
    if from > to || !fits(from) {
        return None;
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle * CONTEXT_STEP) { good = middle } else { bad = middle }
    }
    Some((good * CONTEXT_STEP).max(from))
}

impl Memory {
    fn at(context: u32, sizes: &Sizes, hardware: &Hardware, n_batch: u32) -> Self {
        let kv_bytes = sizes.kv_bytes(context, n_batch);
        let buffers_bytes = buffers(sizes, n_batch);
        let all = sum([sizes.weights_bytes(), kv_bytes, buffers_bytes]);
        let available = hardware.ram_available_bytes;
        Self {
            context,
            context_why: ContextWhy::Default,
            kv_bytes,
            buffers_bytes,
            spare_bytes: available.saturating_sub(all),
            missing_bytes: all.saturating_sub(available).min(sizes.weights_bytes()),
        }
    }

    /// What cannot be read again from the file.
    fn must_have_bytes(&self) -> u64 {
        self.kv_bytes.saturating_add(self.buffers_bytes)
    }
}

/// Buffers of the forward pass on the processor, as the engine allocates them, and what it takes for any model.
fn buffers(sizes: &Sizes, n_batch: u32) -> u64 {
    sizes.survey.buffer_bytes(n_batch as usize).saturating_add(HOST_BASE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_halves_and_ends_at_the_shortest() {
        let steps = |from, to| ladder(from, to).collect::<Vec<_>>();
        assert_eq!(steps(8192, 2048), [4096, 2048]);
        assert_eq!(steps(10_000, 2048), [5000, 2500, 2048]);
        assert_eq!(steps(2048, 2048), [2048]);
        assert_eq!(steps(1000, 2048), [1000]);
        assert_eq!(steps(u32::MAX, 1).len(), 31);
    }

    #[test]
    fn the_longest_context_is_found_to_the_step() {
        for limit in [2048, 2049, 5000, 131_071, 131_072, u32::MAX] {
            let found = longest(2048, 131_072, |context| context <= limit).unwrap();
            assert_eq!(found, limit.min(131_072) / CONTEXT_STEP * CONTEXT_STEP);
        }
        assert_eq!(longest(2048, 4096, |_| false), None);
        assert_eq!(longest(4096, 2048, |_| true), None);
        assert_eq!(longest(1000, 1000, |_| true), Some(1000));
        assert_eq!(longest(1, u32::MAX, |_| true), Some(u32::MAX / CONTEXT_STEP * CONTEXT_STEP));
    }
}
