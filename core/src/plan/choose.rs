//! Which context length and which type of cache a model gets: what somebody fixed, as far as it works; else what their aim or
//! an ordinary conversation asks for, as far as memory allows.
use tandem_engine::kv::{KvType, KvTypes};

use super::layout::{Layout, Planner};
use super::place::Context;
use super::refusal::PlanRefusal;
use super::{DEFAULT_CONTEXT, MIN_CONTEXT, TIGHT_BYTES};
use crate::wire::{Aim, ContextStep, Verdict};

/// A context that somebody did not choose is a multiple of this.
const CONTEXT_STEP: u32 = 256;
/// For those who want speed: still room for a conversation.
const FAST_CONTEXT: u32 = 4096;
/// Speed that is worth half of the context.
const WORTHWHILE_GAIN: f64 = 1.02;
/// What a cache is stored as, unless somebody says so or a long context needs less.
const USUAL_TYPES: KvTypes = KvTypes::both(KvType::F16);
/// Half the size, at a loss that nobody notices.
const SMALL_TYPES: KvTypes = KvTypes::both(KvType::Q8_0);

/// The layout that was chosen, and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) layout: Layout,
    pub(super) context_why: ContextWhy,
    pub(super) kv_why: KvWhy,
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
    /// Somebody asked for a long one.
    Longest,
    /// Somebody asked for speed, and a shorter one gives it.
    Faster,
}

/// What the type of the cache follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KvWhy {
    /// The usual one.
    Usual,
    /// Somebody asked for it.
    Wish,
    /// It was the fastest of those tried.
    Tuned,
    /// Only so the context finds room.
    Room,
    /// Only so it is fast enough for the verdict.
    Faster,
}

/// Contexts and caches to choose from.
pub(super) struct Chooser<'a> {
    planner: &'a Planner<'a>,
    /// Types that may be taken, the preferred one first.
    types: Vec<KvTypes>,
    kv_why: KvWhy,
    trained: u32,
    shortest: u32,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(planner: &'a Planner<'a>) -> Self {
        let takes = |types: &KvTypes| planner.sizes.layers.iter().all(|layer| layer.kv.takes(*types));
        let named = |name: Option<&String>| name.and_then(|name| name.parse().ok()).filter(takes);
        let wish: Option<KvTypes> = named(planner.wishes.kv_type.as_ref());
        let tuned: Option<KvTypes> = named(planner.wishes.tuned.as_ref().map(|tuned| &tuned.kv_type));
        let first = tuned.unwrap_or(USUAL_TYPES);
        // What was fastest is a beginning, no wish: a smaller one may still be needed.
        let small = Some(SMALL_TYPES).filter(takes).filter(|small| *small != first);
        let trained = planner.sizes.max_context.max(1);
        Self {
            planner,
            types: wish.map_or_else(|| std::iter::once(first).chain(small).collect(), |wish| vec![wish]),
            kv_why: match (wish, tuned) {
                (Some(_), _) => KvWhy::Wish,
                (None, Some(_)) => KvWhy::Tuned,
                (None, None) => KvWhy::Usual,
            },
            trained,
            shortest: MIN_CONTEXT.min(trained),
        }
    }

    /// The layout to take.
    ///
    /// Errors   `NoRoom` if not even the shortest context finds room
    pub(super) fn choose(&self) -> Result<Chosen, PlanRefusal> {
        let (layout, context_why) = match (self.planner.wishes.context_length, self.planner.wishes.aim) {
            (Some(wish), _) => self.wished(wish),
            (None, Aim::LongerContext) => self.longest_with_room().unwrap_or_else(|| self.usual()),
            (None, Aim::Faster) => self.faster(),
            (None, Aim::Balanced | Aim::BetterQuality) => self.usual(),
        };
        if !layout.is_possible() {
            let needed_bytes = layout.ram.must_have_bytes();
            let missing_bytes = needed_bytes - layout.ram.available_bytes;
            return Err(PlanRefusal::NoRoom { context: layout.context.length, needed_bytes, missing_bytes });
        }
        let kv_why = if layout.context.kv_types == self.types[0] { self.kv_why } else { self.why_smaller(&layout) };
        Ok(Chosen { kv_why, layout, context_why })
    }

    /// What the usual cache would have cost.
    fn why_smaller(&self, layout: &Layout) -> KvWhy {
        let usual = self.at(layout.context.length, self.types[0]);
        let is_tight = matches!(usual.verdict(), Verdict::TooLarge | Verdict::Tight);
        if is_tight { KvWhy::Room } else { KvWhy::Faster }
    }

    /// The longest context that works here; 0 if none does.
    pub(super) fn usable(&self) -> u32 {
        longest(self.shortest, self.trained, |length| self.best_at(length).works()).unwrap_or(0)
    }

    /// What contexts from the shortest to the longest would do.
    pub(super) fn steps(&self) -> Vec<ContextStep> {
        let doubled = std::iter::successors(Some(self.shortest), |length| length.checked_mul(2));
        let lengths = doubled.take_while(|length| *length < self.trained).chain([self.trained]);
        let mut steps: Vec<ContextStep> = lengths.map(|length| self.step(length)).collect();
        // Layouts are compared at one depth: when a context is full, a longer one may have a split that is a hair faster. The shorter
        // one could have it too, so that this is no gain of the longer one.
        for i in 1..steps.len() {
            if steps[i].kv_type == steps[i - 1].kv_type {
                steps[i].generation_tokens_per_s =
                    steps[i].generation_tokens_per_s.min(steps[i - 1].generation_tokens_per_s);
            }
        }
        steps
    }

    fn step(&self, length: u32) -> ContextStep {
        let layout = self.best_at(length);
        ContextStep {
            context_length: length,
            kv_bytes: layout.kv_bytes(),
            kv_type: layout.context.kv_types.to_string(),
            n_layers_on_gpu: layout.split.as_ref().map_or(0, |split| split.n_whole_layers(self.planner.sizes)),
            generation_tokens_per_s: layout.full_rate,
            verdict: layout.verdict(),
        }
    }

    fn at(&self, length: u32, kv_types: KvTypes) -> Layout {
        self.planner.at(Context { length, kv_types })
    }

    /// With the usual cache, or with a smaller one if only that gets the better verdict or leaves the weights in memory: so a
    /// longer context never has the better one.
    fn best_at(&self, length: u32) -> Layout {
        let all = self.types.iter().map(|types| self.at(length, *types));
        // The first of equals: the usual one.
        let best = all.reduce(|best, next| if grade(&next) > grade(&best) { next } else { best });
        best.expect("there is one type at least")
    }

    /// A wish is a constraint: it may push weights out to disk, with a warning. Where it does not work, the longest that does.
    fn wished(&self, wish: u32) -> (Layout, ContextWhy) {
        let wanted = wish.clamp(1, self.trained);
        let layout = self.best_at(wanted);
        if layout.works() {
            return (layout, if wish > self.trained { ContextWhy::NearestToWish } else { ContextWhy::Wish });
        }
        let shortest = self.shortest.min(wanted);
        let nearest = longest(shortest, wanted, |length| self.best_at(length).works());
        (self.best_at(nearest.unwrap_or(shortest)), ContextWhy::NearestToWish)
    }

    /// The default, or the longest below it with which everything fits; else the shortest, if need be with a smaller cache.
    fn usual(&self) -> (Layout, ContextWhy) {
        let wanted = DEFAULT_CONTEXT.min(self.trained);
        let mut lengths = std::iter::once(wanted).chain(ladder(wanted, self.shortest));
        let fitting = lengths.find(|length| self.at(*length, self.types[0]).ram.missing_bytes() == 0);
        let layout = self.best_at(fitting.unwrap_or(self.shortest));
        let why = match layout.context.length {
            length if length < wanted => ContextWhy::Room,
            _ if wanted < DEFAULT_CONTEXT => ContextWhy::Trained,
            _ => ContextWhy::Default,
        };
        (layout, why)
    }

    /// The longest with which everything fits and something is left.
    fn longest_with_room(&self) -> Option<(Layout, ContextWhy)> {
        let fits = |layout: &Layout| layout.works() && layout.ram.spare_bytes() >= TIGHT_BYTES;
        let best = |length| self.types.iter().map(|types| self.at(length, *types)).find(|layout| fits(layout));
        let shortest = DEFAULT_CONTEXT.min(self.trained);
        let length = longest(shortest, self.trained, |length| best(length).is_some())?;
        let why = if length == self.trained { ContextWhy::Trained } else { ContextWhy::Longest };
        best(length).map(|layout| (layout, why))
    }

    /// A shorter context where that brings more of the model on the card.
    fn faster(&self) -> (Layout, ContextWhy) {
        let (usual, why) = self.usual();
        let short = self.at(FAST_CONTEXT.min(usual.context.length), usual.context.kv_types);
        let rate = |layout: &Layout| layout.prediction.generation.likely;
        if rate(&short) > rate(&usual) * WORTHWHILE_GAIN { (short, ContextWhy::Faster) } else { (usual, why) }
    }
}

/// How well a layout does, in steps that a person is told.
fn grade(layout: &Layout) -> (u8, bool) {
    let verdict = match layout.verdict() {
        Verdict::TooLarge => 0,
        Verdict::Tight => 1,
        Verdict::Slow => 2,
        Verdict::RunsWell => 3,
        Verdict::Fast => 4,
    };
    (verdict, layout.ram.missing_bytes() == 0)
}

/// Halves from below `from` down to `to`, which always comes last.
fn ladder(from: u32, to: u32) -> impl Iterator<Item = u32> {
    let halves = std::iter::successors(Some(from / 2), |context| Some(context / 2));
    halves.take_while(move |context| *context > to).chain([to.min(from)])
}

/// The longest context from `from` to `to` that fits, to whole steps; what fits does so at every shorter one.
fn longest(from: u32, to: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    if from > to || !fits(from) {
        return None;
    }
    if fits(to) {
        return Some(to);
    }
    let (mut good, mut bad) = (from / CONTEXT_STEP, to.div_ceil(CONTEXT_STEP));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle * CONTEXT_STEP) { good = middle } else { bad = middle }
    }
    Some((good * CONTEXT_STEP).max(from))
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
        for limit in [2048, 2049, 5000, 131_071] {
            let found = longest(2048, 131_072, |context| context <= limit).unwrap();
            assert_eq!(found, limit / CONTEXT_STEP * CONTEXT_STEP);
        }
        assert_eq!(longest(2048, 131_072, |_| true), Some(131_072));
        assert_eq!(longest(2048, 4096, |_| false), None);
        assert_eq!(longest(4096, 2048, |_| true), None);
        assert_eq!(longest(1000, 1000, |_| true), Some(1000));
        assert_eq!(longest(1, u32::MAX, |_| true), Some(u32::MAX));
        assert_eq!(longest(1, u32::MAX, |context| context < u32::MAX), Some(u32::MAX / CONTEXT_STEP * CONTEXT_STEP));
    }
}
