//! Copies of some of a layer's experts on a card, whose processor has all of them. Pairs whose expert has a copy are computed on
//! the card while the processor computes the others; the two sums are added in this order always. Experts with very many
//! tokens may be copied for their step, and copies may follow what is routed; see [`ExpertPolicy`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bank::Bank;
use super::{ExpertSizes, PartBuffers};
use crate::cpu::Rounding;
use crate::cuda::{Gpu, Gpus};
use crate::error::EngineError;
use crate::moe::{ExpertPolicy, ExpertStats, Routes, Slots};
use crate::ops::Ops;
use crate::place::Device;
use crate::tensor::{Input, Rows, room};

/// The copies, which sessions of a model share: who computes with them keeps them until all of it is asked for.
#[derive(Debug)]
pub(super) struct Copies(Mutex<Copied>);

/// The copies, and whose they are.
#[derive(Debug)]
pub(super) struct Copied {
    bank: Bank,
    slots: Slots,
}

/// Buffers of what a card computes of a layer's experts.
pub(super) struct CardBuffers {
    /// What the card computes at once.
    routes: Routes,
    part: PartBuffers,
    /// What experts yield that were copied for this step [n_tokens, n_embd].
    more: Rows,
    /// What the card yields [n_tokens, n_embd].
    pub(super) sum: Rows,
    /// [n_experts] whether the card computes them in this step
    pub(super) is_there: Vec<bool>,
    /// Experts to be copied for this step.
    streamed: Vec<u32>,
}

/// A session's use of copies.
#[derive(Debug, Default)]
pub(crate) struct ExpertUse {
    /// What it may do.
    pub(crate) policy: ExpertPolicy,
    /// What came of it.
    pub(crate) stats: ExpertStats,
    /// Bytes that the step may still copy for later ones.
    pub(crate) bytes_left: u64,
}

impl Copies {
    /// Copies the first `n` experts.
    pub(super) fn new(all: &Bank, n_experts: usize, gpu: &Arc<Gpu>, n: usize) -> Result<Self, EngineError> {
        let n = n.min(n_experts);
        Ok(Self(Mutex::new(Copied { bank: all.copies(gpu, n)?, slots: Slots::new(n_experts, n) })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Copied> {
        // A panic between two copies leaves no slot without its expert: copies are asked for at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copied {
    /// Where they are.
    pub(super) fn device(&self) -> Device {
        self.bank.device()
    }

    /// Starts what the card computes of a step, and waits for nothing. Says whether it is anything.
    ///
    /// all      the processor's experts
    /// input    the tokens, on the card
    pub(super) fn start(
        &mut self,
        all: &Bank,
        ops: &Ops,
        (routes, input, n_tokens): (&Routes, &Input, usize),
        card: &mut CardBuffers,
        uses: &mut ExpertUse,
    ) -> bool {
        self.slots.begin(routes.groups());
        card.is_there.fill(false);
        let (n_bytes, n_weights) = all.expert_size();
        card.streamed.clear();
        for (expert, slots) in routes.groups() {
            let n_pairs = u64::from(slots.end - slots.start);
            uses.stats.n_pairs += n_pairs;
            if self.slots.slot(*expert).is_some() {
                card.is_there[*expert as usize] = true;
                uses.stats.n_hits += n_pairs;
            } else if uses.policy.rates.is_some_and(|rates| rates.is_streamed(n_bytes, n_weights, n_pairs)) {
                card.streamed.push(*expert);
                uses.stats.n_streamed += n_pairs;
                uses.stats.streamed_bytes += n_bytes;
            }
        }
        let CardBuffers { routes: own, part, more, sum, is_there, streamed } = card;
        own.set_part(routes, self.slots.len(), |expert| self.slots.slot(expert).filter(|_| is_there[expert as usize]));
        let mut is_any = own.n_slots() > 0;
        if is_any {
            self.bank.run(ops, own, input, part, n_tokens, sum);
        }
        for chunk in streamed.chunks(self.slots.len().max(1)) {
            for expert in chunk {
                let slot = self.slots.take(*expert);
                self.bank.copy(all, *expert as usize, slot as usize);
                is_there[*expert as usize] = true;
            }
            own.set_part(routes, self.slots.len(), |expert| {
                self.slots.slot(expert).filter(|_| chunk.contains(&expert))
            });
            let y = if is_any { &mut *more } else { &mut *sum };
            self.bank.run(ops, own, input, part, n_tokens, y);
            if is_any {
                ops.add(sum, more);
            }
            is_any = true;
        }
        is_any
    }

    /// Copies experts that were missed in this step over those that were not used for longest, as long as bytes are left.
    pub(super) fn follow(&mut self, all: &Bank, routes: &Routes, uses: &mut ExpertUse) {
        let (n_bytes, _) = all.expert_size();
        while uses.bytes_left >= n_bytes {
            let Some(expert) = self.slots.missed(routes.groups()) else { return };
            let slot = self.slots.take(expert);
            self.bank.copy(all, expert as usize, slot as usize);
            uses.bytes_left -= n_bytes;
            uses.stats.uploaded_bytes += n_bytes;
        }
    }
}

impl CardBuffers {
    pub(super) fn new(
        gpus: &Gpus,
        sizes: &ExpertSizes,
        rounding: Rounding,
        n_batch: usize,
    ) -> Result<Self, EngineError> {
        let mut is_there = room("experts on a card", sizes.n_experts)?;
        is_there.resize(sizes.n_experts, false);
        Ok(Self {
            routes: Routes::new(n_batch, sizes.n_experts, sizes.n_used)?,
            part: PartBuffers::new(gpus, sizes, rounding, n_batch)?,
            more: Rows::new(gpus, n_batch, sizes.n_embd)?,
            sum: Rows::crossing(gpus, n_batch, sizes.n_embd)?,
            is_there,
            streamed: room("experts on a card", sizes.n_experts)?,
        })
    }
}

impl ExpertUse {
    /// A step begins.
    pub(crate) fn begin_step(&mut self) {
        self.bytes_left = self.policy.upload_bytes_per_step;
    }
}
