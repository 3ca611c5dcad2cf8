//! The thread that owns the loaded model and its session. Commands go in by channel, events come out through each command's
//! sink, on this thread. Whatever runs can be stopped: by its sink, by its token, by unloading, by dropping the worker. A
//! panic becomes an event and the thread lives on.

mod events;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::error::EngineError;
use crate::model::LoadOptions;
use crate::session::ExpertPolicy;
pub use events::{
    AtEnd, EndReason, GenerateEvent, GenerateRequest, GenerateSink, GenerateStats, LoadEvent, LoadSink, Ready,
};
use thread::{Command, Stop};

/// Stops what it was given out for, from any thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Stops it at the next half of a layer, token, or step of the load.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The handle of the thread. Dropping it stops everything, frees everything and joins the thread.
#[derive(Debug)]
pub struct Worker {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    n_issued: AtomicU64,
    n_revoked: Arc<AtomicU64>,
}

impl Worker {
    /// Starts the thread; nothing is loaded.
    pub fn spawn() -> Result<Self, EngineError> {
        let (commands, received) = channel();
        let thread = std::thread::Builder::new()
            .name("tandem-engine".to_owned())
            .spawn(move || thread::serve(received))
            .map_err(EngineError::Thread)?;
        let (n_issued, n_revoked) = Default::default();
        Ok(Self { commands: Some(commands), thread: Some(thread), n_issued, n_revoked })
    }

    /// Loads a model in place of the present one; after what was asked before.
    ///
    /// sink     `Break` cancels the load, also as the answer to `Ready`
    pub fn load(&self, path: &Path, options: LoadOptions, sink: LoadSink) -> CancelToken {
        let (token, stop) = self.issue();
        self.send(Command::Load { path: path.to_owned(), options, sink, stop });
        token
    }

    /// Generates tokens; after what was asked before.
    ///
    /// sink     `Break` stops the generation
    pub fn generate(&self, request: GenerateRequest, sink: GenerateSink) -> CancelToken {
        let (token, stop) = self.issue();
        self.send(Command::Generate { request, sink, stop, asked_at: Instant::now() });
        token
    }

    /// Says what is done with copies of experts on cards, by the model that is loaded and by later ones; after what was asked
    /// before.
    pub fn set_expert_policy(&self, policy: ExpertPolicy) {
        self.send(Command::SetExpertPolicy(policy));
    }

    /// Stops all that was asked before, frees the model, and returns when that is done. Not to be called from a sink.
    pub fn unload(&self) {
        self.revoke();
        let (done, is_done) = sync_channel(1);
        self.send(Command::Unload { done });
        is_done.recv().expect("the thread answers every command");
    }

    fn issue(&self) -> (CancelToken, Stop) {
        let token = CancelToken::default();
        let number = self.n_issued.fetch_add(1, Ordering::Relaxed);
        (token.clone(), Stop { token, number, n_revoked: Arc::clone(&self.n_revoked) })
    }

    fn revoke(&self) {
        self.n_revoked.store(self.n_issued.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn send(&self, command: Command) {
        let commands = self.commands.as_ref().expect("taken only when dropped");
        commands.send(command).expect("the thread lives until the channel closes");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.revoke();
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread catches panics");
        }
    }
}
