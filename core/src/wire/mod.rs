//! Every type that crosses to the window, the command line or disk as JSON. Types only: no logic beyond small constructors.
//!
//! JSON uses the Rust names unchanged (snake_case); enums with data are tagged by `type`. TypeScript is generated
//! from here into `ui/src/lib/wire.ts`, and a test fails when that copy is stale. Times are milliseconds since the Unix
//! epoch, sizes are bytes; every integer stays below 2^53, so TypeScript sees plain numbers.

mod app;
mod chats;
mod downloads;
mod hardware;
mod hub;
mod library;
mod measured;
mod plan;
mod runtime;
mod settings;
mod sources;

use serde::{Deserialize, Serialize};
use ts_rs::TS;

pub use app::*;
pub use chats::*;
pub use downloads::*;
pub use hardware::*;
pub use hub::*;
pub use library::*;
pub use measured::*;
pub use plan::*;
pub use runtime::*;
pub use settings::*;
pub use sources::*;

/// A sentence in both of the app's languages; the reader picks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Text {
    /// English.
    pub en: String,
    /// Simplified Chinese.
    pub zh: String,
}

impl Text {
    /// The same sentence twice: `Text::new("the disk is full", "磁盘已满")`.
    pub fn new(en: impl Into<String>, zh: impl Into<String>) -> Self {
        Self { en: en.into(), zh: zh.into() }
    }
}

/// What went wrong, for a person: what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Failure {
    /// For programs; nobody matches on message text.
    pub code: ErrorCode,
    /// What happened.
    pub message: Text,
    /// What to do about it.
    pub hint: Text,
}

impl Failure {
    /// Puts the three together.
    pub fn new(code: ErrorCode, message: Text, hint: Text) -> Self {
        Self { code, message, hint }
    }
}

/// Kinds of failure that a program may tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The file is something else (safetensors, HTML, …).
    NotGguf,
    /// The file ends before what its header promises.
    GgufTruncated,
    /// The header contradicts itself or holds absurd values.
    GgufDamaged,
    /// A GGUF architecture this engine does not run.
    UnknownArchitecture,
    /// A tensor type this engine does not run.
    UnknownTensorType,
    /// A vocabulary or pre-tokenizer this engine does not know.
    UnknownTokenizer,
    /// A projector, adapter, draft or embedding file: not a chat model.
    NotAChatModel,
    /// The hub could not be reached.
    NoNetwork,
    /// The hub answered with something that is not a hub's answer.
    HubAnswerInvalid,
    /// The hub refused (5xx, disabled repo).
    HubRefused,
    /// No such repo, revision or file.
    NotFound,
    /// The repo is gated, and there is no access token.
    TokenMissing,
    /// The repo is gated, and the token is not sent to this mirror.
    TokenWithheld,
    /// The hub does not know the access token.
    TokenWrong,
    /// The repo is gated, and the token's owner has not accepted its licence.
    LicenceNotAccepted,
    /// The system has no key store, or it does not open.
    NoKeyStore,
    /// Too many requests.
    RateLimited,
    /// The repo has no GGUF file.
    NoGgufInRepo,
    /// The target volume is full or too small.
    DiskFull,
    /// The finished file is not the file the hub promised.
    ChecksumMismatch,
    /// The file changed upstream between start and resume.
    ChangedUpstream,
    /// The model is not in the library, or its file is gone.
    ModelMissing,
    /// Nothing is loaded.
    NoModelLoaded,
    /// Not enough memory.
    OutOfMemory,
    /// The conversation does not fit the context.
    ContextFull,
    /// Stopped on request.
    Cancelled,
    /// Another copy of the app owns the data folder.
    AlreadyRunning,
    /// A second request while one is being answered.
    Busy,
    /// The chat database cannot be opened.
    StoreDamaged,
    /// The request makes no sense (unknown id, empty text).
    BadRequest,
    /// A file could not be read or written.
    Io,
    /// The engine failed; its worker lives on.
    EngineFailed,
    /// A graphics card cannot be used, or failed; the processor can go on.
    GpuFailed,
}
