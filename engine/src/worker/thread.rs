//! The thread itself: one command after the other, each of them stoppable, none of them able to end the thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::CancelToken;
use super::events::{
    AtEnd, EndReason, GenerateEvent, GenerateRequest, GenerateSink, GenerateStats, LoadEvent, LoadSink, Ready,
};
use crate::Flow;
use crate::error::EngineError;
use crate::model::{LoadOptions, Model, go_on};
use crate::sample::Sampler;
use crate::session::{ExpertPolicy, Session};
use crate::tensor::zeroed;

/// What the handle asks for.
pub(super) enum Command {
    Load { path: PathBuf, options: LoadOptions, sink: LoadSink, stop: Stop },
    Generate { request: GenerateRequest, sink: GenerateSink, stop: Stop, asked_at: Instant },
    SetExpertPolicy(ExpertPolicy),
    Unload { done: SyncSender<()> },
}

/// Whether one command is to stop: by its own token, or because all up to its number were revoked.
pub(super) struct Stop {
    pub(super) token: CancelToken,
    pub(super) number: u64,
    pub(super) n_revoked: Arc<AtomicU64>,
}

/// The thread: one command after the other until the channel closes.
pub(super) fn serve(commands: Receiver<Command>) {
    let mut session: Option<Session> = None;
    let mut expert_policy = ExpertPolicy::default();
    for command in commands {
        match command {
            Command::Load { path, options, mut sink, stop } => {
                drop(session.take());
                let loaded = caught(|| load(&path, &options, &mut sink, &stop));
                session = reported(loaded, |error| sink(LoadEvent::Failed(error)));
                session.iter_mut().for_each(|session| session.set_expert_policy(expert_policy));
            }
            Command::SetExpertPolicy(policy) => {
                expert_policy = policy;
                session.iter_mut().for_each(|session| session.set_expert_policy(policy));
            }
            Command::Generate { request, mut sink, stop, asked_at } => {
                let generated = caught(|| match &mut session {
                    Some(session) => generate(session, &request, &mut sink, &stop, asked_at),
                    None => Err(EngineError::NotLoaded),
                });
                if let (Err(EngineError::Panicked { .. }), Some(session)) = (&generated, &mut session) {
                    session.clear();
                }
                reported(generated, |error| sink(GenerateEvent::Failed(error)));
            }
            Command::Unload { done } => {
                drop(session.take());
                // Nobody waits any more if this fails.
                let _ = done.send(());
            }
        }
    }
}

fn load(path: &Path, options: &LoadOptions, sink: &mut LoadSink, stop: &Stop) -> Result<Session, EngineError> {
    let started = Instant::now();
    let model = Model::load(path, options, &mut |done| match stop.flow() {
        Flow::Continue => sink(LoadEvent::Progress(done)),
        Flow::Break => Flow::Break,
    })?;
    let session = Session::new(Arc::new(model))?;
    let model = session.model();
    let ready = Ready {
        tokenizer: model.tokenizer().cloned(),
        n_vocab: model.n_vocab(),
        context_length: model.options().context_length,
        gpu_memory: session.gpu_memory().to_vec(),
        staying: model.staying().to_vec(),
        load_ms: ms_since(started),
    };
    go_on(sink(LoadEvent::Ready(ready)))?;
    Ok(session)
}

fn generate(
    session: &mut Session,
    request: &GenerateRequest,
    sink: &mut GenerateSink,
    stop: &Stop,
    asked_at: Instant,
) -> Result<(), EngineError> {
    let mut stats = GenerateStats { n_prompt: request.tokens.len(), ..Default::default() };
    let experts = session.expert_stats();
    let ended = tokens(session, request, sink, stop, asked_at, &mut stats);
    stats.experts = session.expert_stats().since(&experts);
    let reason = match ended {
        Ok(reason) => reason,
        Err(EngineError::Cancelled) => EndReason::Stopped,
        Err(error) => return Err(session.model().blamed(error, &mut || stop.flow())),
    };
    // It has ended whatever the sink says.
    let _ = sink(GenerateEvent::Done { reason, stats });
    Ok(())
}

/// The prompt, spelled as the session holds it already, unless it would no longer fit.
fn as_held(session: &Session, asked: &[u32]) -> Vec<u32> {
    let model = session.model();
    let respelled = model.tokenizer().map(|tokenizer| tokenizer.respell(session.tokens(), asked));
    respelled.filter(|tokens| tokens.len() < model.options().context_length).unwrap_or_else(|| asked.to_vec())
}

fn tokens(
    session: &mut Session,
    request: &GenerateRequest,
    sink: &mut GenerateSink,
    stop: &Stop,
    asked_at: Instant,
    stats: &mut GenerateStats,
) -> Result<EndReason, EngineError> {
    let started = Instant::now();
    let mut tokens = as_held(session, &request.tokens);
    stats.n_prompt = tokens.len();
    let mut n_reported = None;
    let fed = session.feed(&tokens, &mut |progress| {
        stats.n_reused = progress.n_reused;
        match stop.flow() {
            Flow::Continue if n_reported != Some(progress.n_done) => {
                n_reported = Some(progress.n_done);
                sink(GenerateEvent::Prompt(progress))
            }
            flow => flow,
        }
    })?;
    stats.n_reused = fed.n_reused;
    stats.prompt_ms = ms_since(started);

    if request.max_new_tokens == Some(0) {
        return Ok(EndReason::MaxTokens);
    }
    let model = Arc::clone(session.model());
    let mut sampler = Sampler::new(request.sampler);
    let mut logits: Vec<f32> = zeroed("logits", 1, model.n_vocab())?;
    let mut first_token_at = None;
    loop {
        go_on(stop.flow())?;
        logits.copy_from_slice(session.logits());
        let id = sampler.sample(&mut logits, &tokens)?;
        let tokenizer = model.tokenizer();
        if request.at_end == AtEnd::Stop && tokenizer.is_some_and(|tokenizer| tokenizer.is_end_of_generation(id)) {
            return Ok(EndReason::EndOfGeneration);
        }
        stats.n_generated += 1;
        match first_token_at {
            None => {
                stats.first_token_ms = ms_since(asked_at);
                first_token_at = Some(Instant::now());
            }
            Some(first_token_at) => stats.generation_ms = ms_since(first_token_at),
        }
        let bytes = tokenizer.map(|tokenizer| tokenizer.token_bytes(id)).unwrap_or_default();
        go_on(sink(GenerateEvent::Token { id, bytes }))?;
        if request.max_new_tokens == Some(stats.n_generated) {
            return Ok(EndReason::MaxTokens);
        }
        tokens.push(id);
        if tokens.len() > model.options().context_length {
            return Ok(EndReason::ContextFull);
        }
        session.feed(&tokens, &mut |_| stop.flow())?;
    }
}

/// Runs something and makes a panic in it an error.
fn caught<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned());
        tracing::error!(message, "the engine panicked");
        Err(EngineError::Panicked { message })
    })
}

/// Hands an error to a sink, which may be what panicked.
fn reported<T>(result: Result<T, EngineError>, failed: impl FnOnce(EngineError) -> Flow) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            // The command has ended whatever the sink says.
            let _ = catch_unwind(AssertUnwindSafe(|| failed(error)));
            None
        }
    }
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

impl Stop {
    fn flow(&self) -> Flow {
        let is_revoked = self.number < self.n_revoked.load(Ordering::Relaxed);
        if is_revoked || self.token.0.load(Ordering::Relaxed) { Flow::Break } else { Flow::Continue }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Load { .. } => "Load",
            Command::SetExpertPolicy(_) => "SetExpertPolicy",
            Command::Generate { .. } => "Generate",
            Command::Unload { .. } => "Unload",
        })
    }
}
