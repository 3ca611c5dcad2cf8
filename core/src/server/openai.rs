//! OpenAI's shapes: requests as clients send them, answers and errors as clients read them. No logic of ours.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::runtime::Loaded;
use crate::wire::{EndReason, ErrorCode, Failure, GenerationStats, Role, Sampling};

/// A request for an answer. Fields that are not listed are ignored; `null` is the same as absent.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    pub(super) messages: Vec<ChatMessage>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) stop: Option<OneOrMany>,
    pub(super) n: Option<u32>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    seed: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatMessage {
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(super) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

impl ChatRequest {
    pub(super) fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            // Clients send -1 for a random one.
            seed: self.seed.filter(|seed| *seed >= 0).map(|seed| seed as u32),
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
        }
    }

    /// The conversation in our terms.
    pub(super) fn conversation(&self) -> Result<Vec<(Role, String)>, ApiError> {
        self.messages.iter().map(ChatMessage::turn).collect()
    }
}

impl ChatMessage {
    fn turn(&self) -> Result<(Role, String), ApiError> {
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => return Err(ApiError::invalid("messages", format!("role `{other}` is not supported"))),
        };
        let text = match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let text = |part: &ContentPart| match part.kind.as_str() {
                    "text" => Ok(part.text.clone().unwrap_or_default()),
                    other => Err(ApiError::invalid("messages", format!("content of type `{other}` is not supported"))),
                };
                parts.iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")
            }
        };
        Ok((role, text))
    }
}

/// An error as OpenAI's clients read it.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        code: Option<&'static str>,
        message: impl Into<String>,
    ) -> Self {
        Self { status, kind, code, param: None, message: message.into() }
    }

    pub(super) fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", None, message) }
    }

    pub(super) fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", None, message)
    }

    pub(super) fn loading() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", None, "the model is being loaded")
    }

    pub(super) fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        } })
    }
}

impl From<&Failure> for ApiError {
    fn from(failure: &Failure) -> Self {
        let (status, kind, code) = match failure.code {
            // Clients look for this code to shorten the conversation by themselves.
            ErrorCode::ContextFull => {
                (StatusCode::BAD_REQUEST, "invalid_request_error", Some("context_length_exceeded"))
            }
            ErrorCode::BadRequest => (StatusCode::BAD_REQUEST, "invalid_request_error", None),
            ErrorCode::NoModelLoaded => (StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", Some("no_model_loaded")),
            ErrorCode::Busy => (StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", Some("busy")),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "server_error", None),
        };
        Self::new(status, kind, code, format!("{}; {}", failure.message.en, failure.hint.en))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = axum::Json(self.body());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            return (self.status, [("retry-after", "1")], body).into_response();
        }
        (self.status, body).into_response()
    }
}

/// What stays the same over all pieces of one answer.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) model: String,
}

impl Envelope {
    /// One piece of a streamed answer.
    pub(super) fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null });
        self.wrap("chat.completion.chunk", json!([choice]))
    }

    /// The last piece, for clients that asked for it.
    pub(super) fn usage_chunk(&self, stats: &GenerationStats) -> Value {
        let mut chunk = self.wrap("chat.completion.chunk", json!([]));
        chunk["usage"] = usage(stats);
        chunk
    }

    /// A whole answer.
    pub(super) fn completion(&self, text: &str, reasoning: &str, end: EndReason, stats: &GenerationStats) -> Value {
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        let choice = json!({ "index": 0, "message": message, "finish_reason": finish_reason(end), "logprobs": null });
        let mut completion = self.wrap("chat.completion", json!([choice]));
        completion["usage"] = usage(stats);
        completion
    }

    fn wrap(&self, object: &str, choices: Value) -> Value {
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices })
    }
}

pub(super) fn finish_reason(end: EndReason) -> &'static str {
    match end {
        EndReason::Length | EndReason::ContextFull => "length",
        EndReason::Complete | EndReason::Stopped | EndReason::Failed => "stop",
    }
}

/// The name that clients see and send.
pub(super) fn model_name(loaded: &Loaded) -> String {
    let path = std::path::Path::new(&loaded.model.path);
    path.file_stem().map_or_else(|| loaded.model.name.clone(), |stem| stem.to_string_lossy().into_owned())
}

pub(super) fn model_list(loaded: Option<&Loaded>) -> Value {
    let entry = |loaded: &Loaded| {
        json!({
            "id": model_name(loaded),
            "object": "model",
            "created": loaded.model.added_at_ms / 1000,
            "owned_by": "tandem",
            "meta": {
                "n_ctx": loaded.context_length,
                "n_ctx_train": loaded.model.context_length,
                "n_params": loaded.model.n_params,
                "size": loaded.model.size_bytes,
            },
        })
    };
    json!({ "object": "list", "data": loaded.map(entry).into_iter().collect::<Vec<_>>() })
}

fn usage(stats: &GenerationStats) -> Value {
    json!({
        "prompt_tokens": stats.n_prompt_tokens,
        "completion_tokens": stats.n_generated_tokens,
        "total_tokens": stats.n_prompt_tokens + stats.n_generated_tokens,
        "prompt_tokens_details": { "cached_tokens": stats.n_reused_tokens },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::context_full;

    fn request(body: Value) -> ChatRequest {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn requests_are_read_as_clients_write_them() {
        let request = request(json!({
            "model": "gpt-4", "unknown": { "x": 1 }, "temperature": null, "seed": -1, "max_completion_tokens": 5,
            "max_tokens": 9, "stop": "x",
            "messages": [
                { "role": "developer", "content": "be brief" },
                { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
                { "role": "assistant", "content": null, "name": "x" },
            ],
        }));
        let sampling = request.sampling();
        assert_eq!((sampling.temperature, sampling.seed, sampling.max_tokens), (None, None, Some(5)));
        let expected =
            [(Role::System, "be brief".to_owned()), (Role::User, "a\nb".into()), (Role::Assistant, String::new())];
        assert_eq!(request.conversation().unwrap(), expected);
        assert_eq!(request.stop.unwrap().into_vec(), ["x"]);
    }

    #[test]
    fn what_cannot_be_answered_is_said_with_its_parameter() {
        for message in [
            json!({ "role": "tool", "content": "1" }),
            json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:" } }] }),
        ] {
            let error = request(json!({ "messages": [message] })).conversation().unwrap_err();
            assert_eq!((error.status, error.param), (StatusCode::BAD_REQUEST, Some("messages")));
        }
    }

    #[test]
    fn a_full_context_has_the_code_that_clients_look_for() {
        let error = ApiError::from(&context_full(600, 512));
        assert_eq!(error.body()["error"]["code"], "context_length_exceeded");
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
    }
}
