//! An HTTP server on loopback that speaks the part of OpenAI's API that chat clients need. Keeps no chats.
//!
//! It answers with the loaded model, whatever name a client asks for. Requests wait for each other; an answer for the
//! window is not waited for. A client that goes away ends its answer. Only requests that name this machine as their
//! host are answered: a page of another site cannot reach the model by a name of its own.

mod completions;
mod openai;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::error::Explain;
use crate::wire::{ErrorCode, Failure, RuntimeState, Text};
use openai::ApiError;

/// Largest request; long conversations stay far below.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on port {port}: {source}")]
pub struct ServerError {
    /// The port that was asked for.
    pub port: u16,
    /// What the system said.
    pub source: io::Error,
}

/// A running server. Dropping it stops it.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What every request sees.
struct Shared {
    app: Arc<App>,
    /// Held by the request that is being answered.
    queue: Arc<tokio::sync::Mutex<()>>,
    n_answers: AtomicU64,
    n_abandoned: AtomicU64,
}

impl Server {
    /// Listens on this port of the loopback interface; 0 takes a free one.
    pub async fn start(app: Arc<App>, port: u16) -> Result<Self, ServerError> {
        let failed = |source| ServerError { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let (queue, n_answers, n_abandoned) = Default::default();
        let shared = Arc::new(Shared { app, queue, n_answers, n_abandoned });
        let serving = axum::serve(listener, routes(Arc::clone(&shared))).with_graceful_shutdown(async {
            // A dropped sender says the same as a message.
            let _ = stopped.await;
        });
        let task = tokio::spawn(async {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the server ended");
            }
        });
        Ok(Self { address, stop: Some(stop), task, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers whose client went away before their end.
    pub fn n_abandoned(&self) -> u64 {
        self.shared.n_abandoned.load(Ordering::Relaxed)
    }

    /// Waits until it ends by itself.
    pub async fn join(mut self) {
        // The task catches its own errors; only a panic is left, which the log has.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Ended already if this fails.
            let _ = stop.send(());
        }
    }
}

impl Explain for ServerError {
    fn explain(&self) -> Failure {
        Failure::new(
            ErrorCode::Io,
            Text::new(
                format!("cannot listen on port {}: {}", self.port, self.source),
                format!("无法监听端口 {}：{}", self.port, self.source),
            ),
            Text::new("choose another port", "换一个端口"),
        )
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for prefix in ["", "/v1"] {
        router = router
            .route(&format!("{prefix}/health"), get(health))
            .route(&format!("{prefix}/models"), get(models))
            .route(&format!("{prefix}/chat/completions"), post(completions::chat_completions));
    }
    router
        .fallback(|| async { ApiError::not_found("no such route") })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(from_this_machine))
        .with_state(shared)
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match shared.app.runtime.state() {
        RuntimeState::Loading { .. } => ApiError::loading().into_response(),
        _ => axum::Json(serde_json::json!({ "status": "ok" })).into_response(),
    }
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let loaded = shared.app.runtime.loaded();
    axum::Json(openai::model_list(loaded.as_deref())).into_response()
}

/// Refuses names that a foreign page may have given to this machine.
async fn from_this_machine(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_loopback(host) {
        next.run(request).await
    } else {
        ApiError::new(StatusCode::FORBIDDEN, "permission_error", None, "only requests to localhost are answered")
            .into_response()
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil:1", "::1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
