//! Models on this machine.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, RepoFile};

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LibraryModel {
    /// Stable identifier.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Quantisation label.
    pub quant: String,
    /// `general.architecture`.
    pub architecture: String,
    /// First file.
    pub path: String,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// Elements over all tensors.
    #[ts(type = "number")]
    pub n_params: u64,
    /// Trained context length in tokens.
    #[ts(type = "number")]
    pub context_length: u64,
    /// Whether the bytes are what the hub promised.
    pub integrity: Integrity,
    /// Where it came from, if known.
    pub source: Option<RepoFile>,
    /// Why it cannot be used for chat, if so.
    pub refusal: Option<Failure>,
    /// When it was added.
    #[ts(type = "number")]
    pub added_at_ms: i64,
}

/// Whether a model file's bytes are known to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// SHA256 compared and equal.
    Verified,
    /// Nothing to compare with.
    Unverified,
    /// SHA256 differs.
    Mismatched,
}

/// What a file is to its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// The model itself, or a part of it.
    Model,
    /// Turns pictures or sound into what the model reads.
    Projector,
    /// Guesses tokens ahead for the model.
    Draft,
}
