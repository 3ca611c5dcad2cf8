//! Chats: a question is stored, answered by the loaded model, and the answer stored as it is written.
//!
//! Both messages exist before the first token, and what is written is kept about once a second: a crash in mid-answer
//! loses at most that.

mod answer;
mod flow;
mod title;

pub use answer::{Answer, Progress, Question, answer};

use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_engine::Flow;

use crate::error::{Explain, bad_request};
use crate::runtime::{Answering, Runtime};
use crate::store::{NewTurn, Store, StoreError, Turn};
use crate::wire::{ChatEvent, EndReason, Failure, Message, Role, SendRequest, Settings};

/// How often what is written so far is kept.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Shorter answers measure nothing but chance.
const MIN_MEASURED_TOKENS: u32 = 16;

/// Where the events of an answer go; `Break` stops it.
pub type ChatSink = Box<dyn FnMut(ChatEvent) -> Flow + Send>;

/// Chats over a store, answered by a runtime.
pub struct Chats {
    store: Arc<Store>,
    runtime: Arc<Runtime>,
}

impl Chats {
    /// Ends the answers that a dying app left open.
    pub fn open(store: Arc<Store>, runtime: Arc<Runtime>) -> Self {
        match store.close_interrupted() {
            Ok(0) => {}
            Ok(n) => tracing::info!(n, "answers were cut off when the app ended"),
            Err(error) => tracing::warn!(%error, "answers that were cut off cannot be ended"),
        }
        Self { store, runtime }
    }

    /// Stores a question and its answer, as it is written. Blocks until the answer has ended.
    ///
    /// sink     `Started` first, `Done` or `Failed` last
    /// Errors   only before anything is stored; later ones are told by `Failed`, and what was written is kept
    pub fn send(&self, request: &SendRequest, sink: &mut ChatSink) -> Result<(), Failure> {
        if request.text.trim().is_empty() && request.parent.is_none() {
            return Err(bad_request("the message is empty", "消息为空"));
        }
        let engine = self.runtime.begin()?;
        let settings = self.store.settings().unwrap_or_default();
        let turn = self.store.begin_turn(&NewTurn {
            chat_id: request.chat_id,
            parent: request.parent,
            text: request.text.trim().to_owned(),
            title: title::title(&request.text),
            system: settings.system_prompt.trim().to_owned(),
            model: engine.loaded().model.name.clone(),
        })?;
        let Turn { chat, user, assistant } = turn.clone();
        let is_watched = sink(ChatEvent::Started { chat, user, assistant }) == Flow::Continue;
        let last = self.write(&engine, turn, &settings, is_watched, sink);
        drop(engine);
        // It has ended whatever the watcher says.
        let _ = sink(last);
        Ok(())
    }

    /// Stops the answer that is being written; what is written stays.
    pub fn stop(&self) {
        self.runtime.stop_answer();
    }

    /// Writes the answer of a turn, keeps it, and gives the last event.
    fn write(
        &self,
        engine: &Answering<'_>,
        turn: Turn,
        settings: &Settings,
        is_watched: bool,
        sink: &mut ChatSink,
    ) -> ChatEvent {
        let mut message = turn.assistant;
        let mut failure = None;
        if is_watched {
            match self.answered(engine, &turn.chat.id, &turn.user, message.id, settings, sink) {
                Ok(answer) => {
                    self.measure(engine, &answer);
                    message = Message {
                        text: answer.text,
                        reasoning: answer.reasoning,
                        end: Some(answer.end),
                        stats: Some(answer.stats),
                        ..message
                    };
                    failure = answer.failure;
                }
                Err(error) => {
                    message.end = Some(EndReason::Failed);
                    failure = Some(error.explain());
                }
            }
        } else {
            message.end = Some(EndReason::Stopped);
        }
        if let Err(error) = self.store.finish(&message) {
            tracing::warn!(%error, "an answer cannot be kept");
            failure = failure.or(Some(error.explain()));
        }
        match failure {
            None => ChatEvent::Done { message },
            Some(failure) => ChatEvent::Failed { message: Some(message), failure },
        }
    }

    fn answered(
        &self,
        engine: &Answering<'_>,
        chat_id: &i64,
        user: &Message,
        answer_id: i64,
        settings: &Settings,
        sink: &mut ChatSink,
    ) -> Result<Answer, StoreError> {
        let path = self.store.path(*chat_id, user.id)?;
        let messages: Vec<(Role, &str)> = path.iter().map(|message| (message.role, message.text.as_str())).collect();
        let question = Question { messages: &messages, sampling: &[&settings.sampling], stops: &[] };
        let mut saved = Instant::now();
        Ok(answer(engine, &question, &mut |progress| {
            if saved.elapsed() >= SAVE_EVERY {
                saved = Instant::now();
                if let Err(error) = self.store.save_part(answer_id, progress.text, progress.reasoning) {
                    tracing::warn!(%error, "what is written so far cannot be kept");
                }
            }
            sink(progress.event)
        }))
    }

    fn measure(&self, engine: &Answering<'_>, answer: &Answer) {
        if answer.stats.n_generated_tokens < MIN_MEASURED_TOKENS {
            return;
        }
        if let Err(error) = self.store.add_measurement(&engine.loaded().model.id, &answer.stats) {
            tracing::debug!(%error, "a measurement cannot be kept");
        }
    }
}
