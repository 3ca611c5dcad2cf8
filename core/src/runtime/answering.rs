//! One answer being generated: the worker's events, brought to the caller's thread and watched for its stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::worker::{EndReason, GenerateEvent, GenerateRequest, GenerateStats};

use super::{Loaded, Runtime};
use crate::wire::Phase;

/// Longest time between two looks at the clock while tokens are awaited.
const TICK: Duration = Duration::from_millis(30);

/// The engine, taken for one answer. Dropping it gives the engine back.
pub struct Answering<'a> {
    runtime: &'a Runtime,
    loaded: Arc<Loaded>,
    stop: Arc<AtomicBool>,
    _taken: MutexGuard<'a, ()>,
}

/// What comes while an answer is generated.
pub enum Step {
    /// The prompt is being read.
    Prompt {
        /// Tokens done, reused ones included.
        n_done: usize,
        /// Tokens in all.
        n_total: usize,
        /// Tokens taken from the cache.
        n_reused: usize,
    },
    /// Bytes of one more token; they may end inside a character.
    Token(Vec<u8>),
    /// Nothing new; time to show what has gathered.
    Tick,
}

impl<'a> Answering<'a> {
    pub(super) fn new(
        runtime: &'a Runtime,
        loaded: Arc<Loaded>,
        stop: Arc<AtomicBool>,
        taken: MutexGuard<'a, ()>,
    ) -> Self {
        Self { runtime, loaded, stop, _taken: taken }
    }

    /// The model that answers.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Whether somebody wants it to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Generates; returns when the engine has ended.
    ///
    /// on       called on this thread, at least every 30 ms; `Break` stops
    pub fn generate(
        &self,
        request: GenerateRequest,
        on: &mut dyn FnMut(Step) -> Flow,
    ) -> Result<(EndReason, GenerateStats), EngineError> {
        let (sender, events) = channel();
        let send = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Break };
        let token = self.runtime.worker.generate(request, Box::new(send));
        let mut pace = Pace::new();
        loop {
            if self.is_stopped() {
                token.cancel();
            }
            let step = match events.recv_timeout(TICK) {
                Ok(GenerateEvent::Prompt(progress)) => {
                    let (n_done, n_total, n_reused) = (progress.n_done, progress.n_total, progress.n_reused);
                    self.runtime.note(Phase::Prompt, pace.of_prompt(n_done - n_reused));
                    Step::Prompt { n_done, n_total, n_reused }
                }
                Ok(GenerateEvent::Token { bytes, .. }) => {
                    self.runtime.note(Phase::Generating, pace.of_token());
                    Step::Token(bytes)
                }
                Ok(GenerateEvent::Done { reason, stats }) => {
                    self.runtime.note(Phase::Idle, pace.of_answer(&stats));
                    self.runtime.report(&self.loaded, &stats);
                    return Ok((reason, stats));
                }
                Ok(GenerateEvent::Failed(error)) => {
                    self.runtime.failed(&error);
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => Step::Tick,
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Cancelled),
            };
            if on(step) == Flow::Break {
                token.cancel();
            }
        }
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.runtime.note(Phase::Idle, None);
    }
}

/// Tokens per second while they come.
struct Pace {
    started: Instant,
    first_token: Option<Instant>,
    n_tokens: u32,
}

impl Pace {
    fn new() -> Self {
        Self { started: Instant::now(), first_token: None, n_tokens: 0 }
    }

    fn of_prompt(&self, n_new: usize) -> Option<f64> {
        rate(n_new as f64, self.started)
    }

    fn of_token(&mut self) -> Option<f64> {
        let first = *self.first_token.get_or_insert_with(Instant::now);
        self.n_tokens += 1;
        rate(f64::from(self.n_tokens - 1), first)
    }

    fn of_answer(&self, stats: &GenerateStats) -> Option<f64> {
        Some(stats.generation_tokens_per_s()).filter(|rate| *rate > 0.0)
    }
}

fn rate(n: f64, since: Instant) -> Option<f64> {
    let seconds = since.elapsed().as_secs_f64();
    (n > 0.0 && seconds > 0.0).then(|| n / seconds)
}
