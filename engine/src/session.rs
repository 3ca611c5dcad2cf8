//! A conversation with a loaded model. It is always given the *whole* sequence of tokens and finds out by itself what of it
//! it holds already, so that callers never manage caches: appending, editing, branching and starting over are one call.

use std::ops::Range;
use std::sync::Arc;

use crate::Flow;
use crate::arch::blocks::{Buffers, MAX_LOGIT_ROWS};
use crate::error::EngineError;
use crate::kv::{Cache, Mark};
use crate::model::{GpuMemory, Model, go_on};
pub use crate::moe::{ExpertPolicy, ExpertRates, ExpertStats};
use crate::tensor::room;
use crate::token::Tokenizer;

/// A conversation: which tokens the caches hold, the caches, and the buffers of a forward pass.
pub struct Session {
    model: Arc<Model>,
    cache: Cache,
    buffers: Buffers,
    gpu_memory: Vec<GpuMemory>,
    /// The tokens that the caches hold, completely.
    tokens: Vec<u32>,
    /// Whether the first row of logits belongs to the last of `tokens`.
    has_logits: bool,
}

/// How far prompt processing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptProgress {
    /// Tokens done, reused ones among them; a chunk under way counts by the layers that are done.
    pub n_done: usize,
    /// All tokens.
    pub n_total: usize,
    /// Tokens that were held already.
    pub n_reused: usize,
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Tokens that were held already.
    pub n_reused: usize,
    /// Tokens that were computed.
    pub n_new: usize,
}

impl Session {
    /// Allocates everything that it will ever need.
    pub fn new(model: Arc<Model>) -> Result<Self, EngineError> {
        let (cache, buffers, gpu_memory) = model.allocate()?;
        let tokens = room("the tokens of a conversation", model.options().context_length)?;
        Ok(Self { model, cache, buffers, gpu_memory, tokens, has_logits: false })
    }

    /// The model it talks to.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What it holds on GPUs, its model's weights among it.
    pub fn gpu_memory(&self) -> &[GpuMemory] {
        &self.gpu_memory
    }

    /// Says what is done with copies of experts on cards from the next step on; see [`crate::place::Ffn`].
    pub fn set_expert_policy(&mut self, policy: ExpertPolicy) {
        self.buffers.experts.uses.policy = policy;
    }

    /// What came of copies of experts since the session began.
    pub fn expert_stats(&self) -> ExpertStats {
        self.buffers.experts.uses.stats
    }

    /// The tokens it holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Makes the session hold exactly these tokens, and the logits of the last one.
    ///
    /// tokens   the whole sequence
    /// on       called before every half of a layer; `Break` cancels, in recurrent models after the token if it is a single
    ///          one. Chunks that were complete are kept
    /// Errors   `NoTokens`, `TokenUnknown`, `ContextOverflow`: nothing was done; `Cancelled`
    /// Cost     what is common with the tokens held is not computed again, or from a checkpoint on where layers cannot go
    ///          back; checkpoints may allocate, between steps
    pub fn feed(&mut self, tokens: &[u32], on: &mut dyn FnMut(PromptProgress) -> Flow) -> Result<Fed, EngineError> {
        self.check(tokens)?;
        let n_common = self.n_common(tokens);
        if self.has_logits && n_common == tokens.len() && n_common == self.tokens.len() {
            return Ok(Fed { n_reused: n_common, n_new: 0 });
        }
        // The last token is computed in any case: its logits are wanted.
        let n_reused = self.rewind(n_common.min(tokens.len() - 1));
        let n_total = tokens.len();
        let mut on_tokens = |n_done| on(PromptProgress { n_done, n_total, n_reused });
        if n_total - n_reused > 1 {
            self.cache.keep(n_reused, Mark::Turn);
        } else if self.cache.has_states() && n_reused >= self.cache.last_checkpoint() + ANSWER_STEP {
            self.cache.keep(n_reused, Mark::Chunk);
        }
        let model = Arc::clone(&self.model);
        let mut turns = Turns { tokenizer: model.tokenizer().map(Arc::as_ref), tokens, previous: n_reused };
        let mut n_last_chunk = 0;
        while self.tokens.len() < n_total {
            let first = self.tokens.len();
            let chunk = first..self.chunk_end(first, &turns);
            self.run_chunk(&tokens[chunk.clone()], &mut on_tokens)?;
            n_last_chunk = chunk.len();
            self.keep_checkpoints(chunk, &mut turns);
        }
        let (last, first) = (n_last_chunk - 1, n_total - n_last_chunk);
        let mut step = self.model.step(&tokens[first..], first, &mut self.cache, &mut self.buffers);
        self.model.head(last..last + 1, &mut step)?;
        self.has_logits = true;
        Ok(Fed { n_reused, n_new: n_total - n_reused })
    }

    /// Logits of the last token fed, [n_vocab]; empty if nothing has been fed since the last error.
    pub fn logits(&self) -> &[f32] {
        if self.has_logits { &self.buffers.logits.elems()[..self.model.n_vocab()] } else { &[] }
    }

    /// Computes all tokens anew and hands out the logits at every position.
    ///
    /// chunks   lengths of the chunks, cycled; empty, zero or too large stands for the largest batch
    /// sink     called with the position and its logits [n_vocab]; `Break` cancels
    /// Errors   as `feed`; `LogitsNotFinite`, `WeightNotFinite`
    pub fn teacher_forced(
        &mut self,
        tokens: &[u32],
        chunks: &[usize],
        sink: &mut dyn FnMut(usize, &[f32]) -> Flow,
    ) -> Result<(), EngineError> {
        self.check(tokens)?;
        self.rewind(0);
        let n_batch = self.model.options().n_batch;
        let whole = [n_batch];
        let mut lengths = if chunks.is_empty() { &whole[..] } else { chunks }.iter().cycle();
        while self.tokens.len() < tokens.len() {
            let asked = *lengths.next().unwrap_or(&n_batch);
            let n_tokens = if asked == 0 { n_batch } else { asked.min(n_batch) };
            let first = self.tokens.len();
            let chunk = &tokens[first..tokens.len().min(first + n_tokens)];
            self.run_chunk(chunk, &mut |_| Flow::Continue)?;
            for from in (0..chunk.len()).step_by(MAX_LOGIT_ROWS) {
                let rows = from..chunk.len().min(from + MAX_LOGIT_ROWS);
                let mut step = self.model.step(chunk, first, &mut self.cache, &mut self.buffers);
                self.model.head(rows.clone(), &mut step)?;
                let logits = self.buffers.logits.elems().chunks_exact(self.model.n_vocab());
                for (row, logits) in rows.zip(logits) {
                    if let Some(token) = logits.iter().position(|logit| !logit.is_finite()) {
                        let error = EngineError::LogitsNotFinite { token: token as u32 };
                        return Err(self.model.blamed(error, &mut || Flow::Continue));
                    }
                    go_on(sink(first + row, logits))?;
                }
            }
        }
        Ok(())
    }

    /// Forgets everything; the memory stays.
    pub fn clear(&mut self) {
        self.rewind(0);
    }

    /// Where a chunk that begins at `first` ends. States can be kept only after a step, so it ends where they will be wanted.
    fn chunk_end(&self, first: usize, turns: &Turns<'_>) -> usize {
        let end = turns.tokens.len().min(first + self.model.options().n_batch);
        if self.cache.has_states() { turns.next_after(first).map_or(end, |turn| end.min(turn)) } else { end }
    }

    /// Makes checkpoints at the turns of a chunk that is complete, and at its end if the prompt goes on.
    fn keep_checkpoints(&mut self, chunk: Range<usize>, turns: &mut Turns<'_>) {
        while let Some(n) = turns.next_after(chunk.start.max(turns.previous)).filter(|&n| n <= chunk.end) {
            self.cache.keep(n, Mark::Turn);
            turns.previous = n;
        }
        if chunk.end < turns.tokens.len() {
            self.cache.keep(chunk.end, Mark::Chunk);
        }
    }

    /// Takes one chunk through all layers; it is held only when it is complete.
    fn run_chunk(&mut self, chunk: &[u32], on_tokens: &mut dyn FnMut(usize) -> Flow) -> Result<(), EngineError> {
        let first = self.tokens.len();
        let n_halves = 2 * self.model.n_layers();
        // Half a token cannot be taken out of states, and no checkpoint precedes a generated one: it is finished before a
        // stop is obeyed.
        let must_finish = chunk.len() == 1 && self.cache.has_states();
        if must_finish {
            go_on(on_tokens(first))?;
        }
        let mut is_stopped = false;
        let mut on_half = |n_done: usize| {
            if is_stopped || (must_finish && n_done == 0) {
                return Flow::Continue;
            }
            let flow = on_tokens(first + chunk.len() * n_done / n_halves);
            is_stopped = flow == Flow::Break;
            if must_finish { Flow::Continue } else { flow }
        };
        self.cache.begin(first + chunk.len());
        let mut step = self.model.step(chunk, first, &mut self.cache, &mut self.buffers);
        match self.model.forward(&mut step, &mut on_half) {
            Ok(()) => {
                self.cache.finish(first + chunk.len());
                self.tokens.extend_from_slice(chunk);
                if is_stopped { Err(EngineError::Cancelled) } else { Ok(()) }
            }
            Err(error) => {
                self.rewind(first);
                Err(error)
            }
        }
    }

    /// Forgets tokens from `n_wanted` on, and says how many are left.
    fn rewind(&mut self, n_wanted: usize) -> usize {
        self.has_logits = false;
        let n_left = self.cache.rewind(n_wanted);
        self.tokens.truncate(n_left);
        n_left
    }

    fn n_common(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let n_vocab = self.model.n_vocab();
        let context_length = self.model.options().context_length;
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= n_vocab) {
            return Err(EngineError::TokenUnknown { token, n_vocab });
        }
        match tokens.len().checked_sub(context_length) {
            None | Some(0) => Ok(()),
            Some(n_over) => Err(EngineError::ContextOverflow { n_tokens: tokens.len(), context_length, n_over }),
        }
    }
}

/// Tokens of an answer between two checkpoints: when it comes back as a part of the next prompt, its text may be cut into other
/// tokens than were generated, from some place on.
const ANSWER_STEP: usize = 256;

/// Where in a prompt somebody may come back to: turns end there.
struct Turns<'a> {
    tokenizer: Option<&'a Tokenizer>,
    tokens: &'a [u32],
    /// The last one passed.
    previous: usize,
}

/// Turns that end closer together share a checkpoint: a step of fewer tokens is slower.
const MIN_TURN_TOKENS: usize = 32;

impl Turns<'_> {
    /// The next turn behind `first`, at some distance from the previous one; the last token counts as one, since an answer
    /// that is generated again begins with it.
    fn next_after(&self, first: usize) -> Option<usize> {
        let is_end = |token: u32| self.tokenizer.is_some_and(|tokenizer| tokenizer.is_end_of_generation(token));
        let (from, last) = (first.max(self.previous + MIN_TURN_TOKENS - 1) + 1, self.tokens.len() - 1);
        (from..last).find(|&n| is_end(self.tokens[n - 1])).or((first < last).then_some(last))
    }
}

#[cfg(test)]
mod tests;
