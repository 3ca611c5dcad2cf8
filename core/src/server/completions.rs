//! `POST /v1/chat/completions`: one answer, whole or streamed, over the same path as the window's.
//!
//! What fails before the first piece is an HTTP status; what fails later is an `error` in the stream. When the client
//! goes away its receiver is dropped, and the next piece stops the engine.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::StatusCode};
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use tandem_engine::Flow;
use tokio::sync::mpsc;

use super::Shared;
use super::openai::{ApiError, ChatRequest, Envelope, OneOrMany, finish_reason, model_name};
use crate::chat::{Answer, Question, answer};
use crate::store::now_ms;
use crate::wire::{ChatEvent, EndReason, Failure, Role};

/// Pieces that wait for a slow client before the engine waits too.
const N_PIECES_HELD: usize = 64;

/// What the thread that answers sends.
enum Piece {
    Begun(Envelope),
    Event(ChatEvent),
    End(Answer),
    Refused(Failure),
}

pub(super) async fn chat_completions(
    State(shared): State<Arc<Shared>>,
    body: Result<Json<ChatRequest>, JsonRejection>,
) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(rejection) => {
            let error = ApiError::new(rejection.status(), "invalid_request_error", None, rejection.body_text());
            return error.into_response();
        }
    };
    match respond(shared, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn respond(shared: Arc<Shared>, request: ChatRequest) -> Result<Response, ApiError> {
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("n", "one answer at a time"));
    }
    let conversation = request.conversation()?;
    let is_streamed = request.stream.unwrap_or(false);
    let with_usage = request.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false);

    let mut pieces = start(shared, conversation, request).await;
    let envelope = match pieces.recv().await {
        Some(Piece::Begun(envelope)) => envelope,
        Some(Piece::Refused(failure)) => return Err(ApiError::from(&failure)),
        _ => return Err(ended_early()),
    };
    // The first event or the end tells whether there is an answer at all.
    let first = pieces.recv().await.ok_or_else(ended_early)?;
    if let Piece::End(Answer { failure: Some(failure), .. }) = &first {
        return Err(ApiError::from(failure));
    }
    if is_streamed {
        let stream = Streaming::new(envelope, pieces, first, with_usage);
        return Ok(Sse::new(stream.into_stream()).keep_alive(KeepAlive::default()).into_response());
    }
    let mut piece = first;
    loop {
        match piece {
            Piece::End(Answer { failure: Some(failure), .. }) => return Err(ApiError::from(&failure)),
            Piece::End(answer) => {
                let whole = envelope.completion(&answer.text, &answer.reasoning, answer.end, &answer.stats);
                return Ok(Json(whole).into_response());
            }
            _ => piece = pieces.recv().await.ok_or_else(ended_early)?,
        }
    }
}

/// Waits for its turn, then answers on a blocking thread.
async fn start(shared: Arc<Shared>, conversation: Vec<(Role, String)>, request: ChatRequest) -> mpsc::Receiver<Piece> {
    let turn = Arc::clone(&shared.queue).lock_owned().await;
    let (sender, pieces) = mpsc::channel(N_PIECES_HELD);
    tokio::task::spawn_blocking(move || {
        run(&shared, &conversation, request, &sender);
        drop(turn);
    });
    pieces
}

fn run(shared: &Shared, conversation: &[(Role, String)], request: ChatRequest, sender: &mpsc::Sender<Piece>) {
    let send = |piece| if sender.blocking_send(piece).is_ok() { Flow::Continue } else { Flow::Break };
    let engine = match shared.app.runtime.begin() {
        Ok(engine) => engine,
        Err(failure) => {
            // Nobody listens any more if this fails.
            let _ = send(Piece::Refused(failure));
            return;
        }
    };
    let now_ms = now_ms();
    let number = shared.n_answers.fetch_add(1, Ordering::Relaxed);
    let envelope = Envelope {
        id: format!("chatcmpl-{now_ms:x}-{number}"),
        created: now_ms / 1000,
        model: model_name(engine.loaded()),
    };
    if send(Piece::Begun(envelope)) == Flow::Break {
        return;
    }
    let settings = shared.app.store.settings().unwrap_or_default();
    let messages: Vec<(Role, &str)> = conversation.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let sampling = request.sampling();
    let stops = request.stop.map(OneOrMany::into_vec).unwrap_or_default();
    let question = Question { messages: &messages, sampling: &[&sampling, &settings.sampling], stops: &stops };
    let answer = answer(&engine, &question, &mut |progress| send(Piece::Event(progress.event)));
    if answer.end == EndReason::Stopped && sender.is_closed() {
        shared.n_abandoned.fetch_add(1, Ordering::Relaxed);
    }
    drop(engine);
    // Nobody listens any more if this fails.
    let _ = send(Piece::End(answer));
}

/// A streamed answer on its way.
struct Streaming {
    envelope: Envelope,
    pieces: mpsc::Receiver<Piece>,
    /// Lines that wait to be sent.
    ready: VecDeque<String>,
    with_usage: bool,
}

impl Streaming {
    fn new(envelope: Envelope, pieces: mpsc::Receiver<Piece>, first: Piece, with_usage: bool) -> Self {
        let role = envelope.chunk(json!({ "role": "assistant", "content": "" }), None);
        let mut this = Self { envelope, pieces, ready: VecDeque::from([role.to_string()]), with_usage };
        this.take(first);
        this
    }

    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut this| async move {
            loop {
                if let Some(line) = this.ready.pop_front() {
                    return Some((Ok(Event::default().data(line)), this));
                }
                let piece = this.pieces.recv().await?;
                this.take(piece);
            }
        })
    }

    /// Puts a piece into the lines that clients read; some are none of their business.
    fn take(&mut self, piece: Piece) {
        let mut say = |value: Value| self.ready.push_back(value.to_string());
        match piece {
            Piece::Event(ChatEvent::Delta { text }) => say(self.envelope.chunk(json!({ "content": text }), None)),
            Piece::Event(ChatEvent::Reasoning { text }) => {
                say(self.envelope.chunk(json!({ "reasoning_content": text }), None));
            }
            Piece::End(Answer { failure: Some(failure), .. }) => say(ApiError::from(&failure).body()),
            Piece::End(answer) => {
                say(self.envelope.chunk(json!({}), Some(finish_reason(answer.end))));
                if self.with_usage {
                    say(self.envelope.usage_chunk(&answer.stats));
                }
                self.ready.push_back("[DONE]".to_owned());
            }
            Piece::Event(_) | Piece::Begun(_) | Piece::Refused(_) => {}
        }
    }
}

fn ended_early() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, "the answer ended without a reason")
}
