//! Chats, messages and answers.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, Text};

/// A chat, as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ChatSummary {
    /// Identifier.
    #[ts(type = "number")]
    pub id: i64,
    /// First words, or what the person wrote.
    pub title: String,
    /// Last change.
    #[ts(type = "number")]
    pub updated_at_ms: i64,
    /// Messages in the tree.
    pub n_messages: u32,
}

/// A chat with all its messages: a tree, of which one path is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Chat {
    /// Summary.
    pub summary: ChatSummary,
    /// Every message, in order of creation. The first is the system message, empty where the model's own is used:
    /// the parent of the first question.
    pub messages: Vec<Message>,
    /// Last message of the path that is shown.
    #[ts(type = "number | null")]
    pub leaf: Option<i64>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Message {
    /// Identifier.
    #[ts(type = "number")]
    pub id: i64,
    /// The message it follows.
    #[ts(type = "number | null")]
    pub parent: Option<i64>,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub text: String,
    /// What was thought before, if the model shows it.
    pub reasoning: String,
    /// When it was written.
    #[ts(type = "number")]
    pub created_at_ms: i64,
    /// Name of the model that wrote it.
    pub model: Option<String>,
    /// How it ended; absent while it is written (or when the app died in mid-answer).
    pub end: Option<EndReason>,
    /// What it cost.
    pub stats: Option<GenerationStats>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model ended it.
    Complete,
    /// The person stopped it.
    Stopped,
    /// `max_tokens` was reached.
    Length,
    /// The context is full.
    ContextFull,
    /// An error; what was written is kept.
    Failed,
}

/// What an answer cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct GenerationStats {
    /// Tokens of the prompt.
    pub n_prompt_tokens: u32,
    /// Prompt tokens taken from the cache.
    pub n_reused_tokens: u32,
    /// Tokens generated.
    pub n_generated_tokens: u32,
    /// Time for the new prompt tokens.
    pub prompt_ms: f64,
    /// Time for the generated tokens.
    pub generation_ms: f64,
    /// New prompt tokens per second.
    pub prompt_tokens_per_s: f64,
    /// Generated tokens per second.
    pub generation_tokens_per_s: f64,
    /// From the request to the first token.
    pub first_token_ms: f64,
}

/// Asks for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SendRequest {
    /// Chat to go on with; absent: a new one.
    #[ts(type = "number | null")]
    pub chat_id: Option<i64>,
    /// Message that the new one follows; absent: the chat's leaf. A user message here with empty `text` is answered anew.
    #[ts(type = "number | null")]
    pub parent: Option<i64>,
    /// What the person says.
    pub text: String,
}

/// Asks for a chat's new title.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct RenameRequest {
    /// Chat.
    #[ts(type = "number")]
    pub chat_id: i64,
    /// New title.
    pub title: String,
}

/// Asks for another path of a chat to be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LeafRequest {
    /// Chat.
    #[ts(type = "number")]
    pub chat_id: i64,
    /// Message whose path is to be shown, down to its newest leaf.
    #[ts(type = "number")]
    pub message_id: i64,
}

/// What an answer reports while it is written: the one enum of all three carriers (window, HTTP, terminal).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChatEvent {
    /// The messages exist.
    Started {
        /// Chat.
        chat: ChatSummary,
        /// The person's message.
        user: Message,
        /// The answer, empty still.
        assistant: Message,
    },
    /// The answer is asked for in another way than the model's makers meant: its template is absent or failed.
    Notice {
        /// What was done instead, and what that may cost.
        notice: Text,
    },
    /// The prompt is being read.
    Prompt {
        /// Tokens done, reused ones included.
        n_done: u32,
        /// Tokens in all.
        n_total: u32,
        /// Tokens taken from the cache.
        n_reused: u32,
    },
    /// More of the answer.
    Delta {
        /// Whole characters.
        text: String,
    },
    /// More of the reasoning before it.
    Reasoning {
        /// Whole characters.
        text: String,
    },
    /// Figures so far, at most a few times a second.
    Stats {
        /// Figures.
        stats: GenerationStats,
    },
    /// Ended, for any reason but an error.
    Done {
        /// As it was stored.
        message: Message,
    },
    /// An error; what was written is kept.
    Failed {
        /// As it was stored, if it was.
        message: Option<Message>,
        /// Why.
        failure: Failure,
    },
}
