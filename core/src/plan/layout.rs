//! One way to lay a model out on a machine, for a context and a type of cache: what lies where, what is left, how fast it is.
//!
//! Weights are read from the mapped file: what does not fit of them can be read again from disk, at a price that the
//! speed shows. Cache and buffers cannot: where they do not fit, nothing runs.
use super::place::{self, Context, Split};
use super::predict::{Load, Prediction, Predictor};
use super::sizes::{Sizes, sum};
use super::{Engine, TIGHT_BYTES};
use crate::wire::{Hardware, Verdict, Wishes};

/// Taken by the engine for any model: pool, stacks, graph of layers, and the program's own pages that a pass uses. Source: median over
/// eleven files, vocabularies of 49 and 262 thousand tokens, of what a process grew by from its start until a pass had filled a
/// context of 512 tokens, less all that is counted elsewhere (`tandem predictions --rounds 0 --check FILE…`).
const HOST_BASE_BYTES: u64 = 9 << 20;
/// Tokens in the context for which speed is told. Layouts are compared at the same depth: so what is told never rises with a longer
/// context.
const TYPICAL_TOKENS: u32 = 1024;

/// What layouts are made for.
#[derive(Clone, Debug)]
pub(super) struct Planner<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) hardware: &'a Hardware,
    pub(super) wishes: &'a Wishes,
    pub(super) engine: Engine,
    pub(super) predictor: Predictor<'a>,
    /// Tokens per chunk of a prompt.
    pub(super) n_batch: u32,
}

/// A model laid out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) context: Context,
    /// What the card holds and computes.
    pub(super) split: Option<Split>,
    pub(super) ram: Ram,
    pub(super) prediction: Prediction,
    /// Generation with a full context, likely, tokens per second.
    pub(super) full_rate: f64,
}

/// Main memory of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ram {
    pub(super) dense_bytes: u64,
    pub(super) experts_bytes: u64,
    pub(super) embeddings_bytes: u64,
    pub(super) head_bytes: u64,
    pub(super) kv_bytes: u64,
    pub(super) buffers_bytes: u64,
    pub(super) available_bytes: u64,
}

impl Planner<'_> {
    /// The fastest layout for a context; with a wish for layers on the card that does not work, the nearest that does.
    pub(super) fn at(&self, context: Context) -> Layout {
        let wished = self.with_layers(context, self.wishes.n_gpu_layers);
        let Some(wish) = self.wishes.n_gpu_layers.filter(|_| self.engine == Engine::WithGpu && !wished.works()) else {
            return wished;
        };
        let most = self.sizes.n_layers() + self.sizes.n_layers_ahead + 1;
        let wish = wish.min(most);
        let nearest = (1..=most).flat_map(|step| [wish.checked_add(step), wish.checked_sub(step)]).flatten();
        let mut others = nearest.filter(|n| *n <= most).map(|n| self.with_layers(context, Some(n)));
        others.find(Layout::works).unwrap_or(wished)
    }

    fn with_layers(&self, context: Context, n_gpu_layers: Option<u32>) -> Layout {
        let splits = match self.engine {
            Engine::WithGpu => place::splits(self.sizes, self.hardware, context, n_gpu_layers, self.wishes),
            Engine::CpuOnly => Vec::new(),
        };
        // No way at all is a layout too.
        let ways = if splits.is_empty() { vec![None] } else { splits.into_iter().map(Some).collect() };
        let layouts = ways.into_iter().map(|split| self.with_split(context, split));
        // The first of equals: the usual way.
        let best = layouts.reduce(|best, next| if next.merit() > best.merit() { next } else { best });
        best.expect("there is one at least")
    }

    fn with_split(&self, context: Context, split: Option<Split>) -> Layout {
        let (ram, prediction) = self.lay_out(context, split.as_ref(), TYPICAL_TOKENS.min(context.length));
        let full = self.lay_out(context, split.as_ref(), context.length).1;
        Layout { context, split, ram, prediction, full_rate: full.generation.likely }
    }

    /// Memory and speed with a part of the model on a card that computes, when `n_tokens` are in the context.
    fn lay_out(&self, context: Context, split: Option<&Split>, n_tokens: u32) -> (Ram, Prediction) {
        let n_batch = split.map_or(self.n_batch, |split| split.n_batch);
        let ram = Ram::of(self.sizes, self.hardware, context, split, n_batch);
        let load = Load { split, kv_types: context.kv_types, n_tokens, missing_bytes: ram.missing_bytes(), n_batch };
        (ram, self.predictor.predict(self.sizes, &load))
    }
}

impl Layout {
    /// Whether everything that must be in memory finds room there.
    pub(super) fn is_possible(&self) -> bool {
        self.ram.must_have_bytes() <= self.ram.available_bytes
    }

    /// What layouts for one context are compared by: what finds no room is worth nothing, and what is told counts.
    fn merit(&self) -> (bool, f64) {
        (self.is_possible(), self.prediction.generation.likely)
    }

    /// Whether anybody would want to use it.
    pub(super) fn works(&self) -> bool {
        self.verdict() != Verdict::TooLarge
    }

    /// In one word; the same everywhere.
    pub(super) fn verdict(&self) -> Verdict {
        let rate = self.prediction.generation.likely;
        if rate < 1.0 || !self.is_possible() {
            Verdict::TooLarge
        } else if self.ram.spare_bytes() < TIGHT_BYTES {
            Verdict::Tight
        } else if rate < 8.0 {
            Verdict::Slow
        } else if rate < 20.0 {
            Verdict::RunsWell
        } else {
            Verdict::Fast
        }
    }

    /// Caches of all layers, wherever they lie.
    pub(super) fn kv_bytes(&self) -> u64 {
        self.ram.kv_bytes.saturating_add(self.split.as_ref().map_or(0, |split| split.kv_bytes))
    }
}

impl Ram {
    /// What lies there beside a card that computes; everything without one.
    pub(super) fn of(
        sizes: &Sizes,
        hardware: &Hardware,
        context: Context,
        split: Option<&Split>,
        n_batch: u32,
    ) -> Self {
        let on_card = |bytes: fn(&Split) -> u64| split.map_or(0, bytes);
        let n_kept = sizes.layers.len() - split.map_or(0, |split| split.n_layers as usize);
        let kept = sizes.layers.iter().take(n_kept);
        Self {
            dense_bytes: sizes.dense_bytes().saturating_sub(on_card(|split| split.dense_bytes)),
            experts_bytes: sizes.experts_bytes().saturating_sub(on_card(|split| split.experts_bytes)),
            embeddings_bytes: sizes.embeddings_bytes,
            head_bytes: if split.is_some() { 0 } else { sizes.head_bytes },
            kv_bytes: sum(kept.map(|layer| layer.kv.bytes(context.length, n_batch, context.kv_types))),
            buffers_bytes: buffers(sizes, n_batch),
            available_bytes: hardware.ram_available_bytes,
        }
    }

    pub(super) fn weights_bytes(&self) -> u64 {
        sum([self.dense_bytes, self.experts_bytes, self.embeddings_bytes, self.head_bytes])
    }

    /// What cannot be read again from the file.
    pub(super) fn must_have_bytes(&self) -> u64 {
        self.kv_bytes.saturating_add(self.buffers_bytes)
    }

    fn all_bytes(&self) -> u64 {
        self.weights_bytes().saturating_add(self.must_have_bytes())
    }

    /// Available beyond what the plan takes.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.available_bytes.saturating_sub(self.all_bytes())
    }

    /// Weights that find no room and are read from disk while the model runs.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.all_bytes().saturating_sub(self.available_bytes).min(self.weights_bytes())
    }
}

/// Buffers of the forward pass on the processor, as the engine allocates them; the header and its vocabulary; and what any model takes.
fn buffers(sizes: &Sizes, n_batch: u32) -> u64 {
    sum([sizes.survey.buffer_bytes(n_batch as usize), sizes.header_bytes, HOST_BASE_BYTES])
}
