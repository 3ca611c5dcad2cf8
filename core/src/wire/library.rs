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
    /// Every file of it: the model's own in order, then those that go with it.
    #[serde(default)]
    pub files: Vec<LibraryFile>,
    /// Every place where it lies; the first is the one in use.
    #[serde(default)]
    pub places: Vec<LibraryPlace>,
    /// What the hub has in its stead by now, as far as anybody has looked.
    #[serde(default)]
    pub newer: Option<RepoFile>,
    /// What is known of its files in the places that are not in use; for the library alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(skip)]
    pub elsewhere: Vec<LibraryFile>,
}

/// One file of a model on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct LibraryFile {
    /// Full path.
    pub path: String,
    /// What it is to the model.
    pub role: FileRole,
    /// Size.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// When it was last changed.
    #[ts(type = "number")]
    pub modified_ms: i64,
    /// SHA256 in hex that the hub, or the program that fetched it, promises.
    pub expected_sha256: Option<String>,
    /// SHA256 in hex of the bytes on the disk, once computed.
    pub sha256: Option<String>,
}

/// A place where a model lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct LibraryPlace {
    /// Path of its first file there.
    pub path: String,
    /// Whose place it is.
    pub program: Program,
    /// The folder in use that holds it; absent for a file that was added by itself.
    pub folder: Option<String>,
    /// What its program calls it there, if it has names of its own.
    #[serde(default)]
    pub title: Option<String>,
    /// Size and time of that file when it was last found to be the same as the others; for the library alone.
    #[serde(default)]
    #[ts(skip)]
    pub stamp: Option<(u64, i64)>,
}

/// A program that keeps models on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// This one.
    Tandem,
    /// LM Studio.
    LmStudio,
    /// Ollama.
    Ollama,
    /// The cache that Hugging Face's tools share.
    HuggingFace,
    /// Jan.
    Jan,
    /// llama.cpp's own cache.
    LlamaCpp,
    /// None: a folder or file that a person chose.
    Other,
}

impl Program {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tandem => "Tandem",
            Self::LmStudio => "LM Studio",
            Self::Ollama => "Ollama",
            Self::HuggingFace => "Hugging Face",
            Self::Jan => "Jan",
            Self::LlamaCpp => "llama.cpp",
            Self::Other => "other",
        }
    }
}

/// A folder with models that is used in place, or could be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LibraryFolder {
    /// Full path.
    pub path: String,
    /// Whose folder it is.
    pub program: Program,
    /// Whether its models are in the library.
    pub is_used: bool,
    /// Models in it.
    #[ts(type = "number")]
    pub n_models: usize,
    /// Of all their files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// What in it could not be read.
    pub problems: Vec<Failure>,
}

/// What became of files and folders that were added together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct AddedPaths {
    /// Models of the files.
    pub models: Vec<LibraryModel>,
    /// Folders, now used in place.
    pub folders: Vec<LibraryFolder>,
    /// Why the others were not added.
    pub failures: Vec<Failure>,
}

/// Asks for a model to be removed, or what that would mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RemoveRequest {
    /// The model.
    pub model_id: String,
    /// Other programs whose files may go too; the app's own always do.
    pub of_programs: Vec<Program>,
}

/// What removing a model does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Removal {
    /// Files that go to the trash.
    pub files: Vec<String>,
    /// Space that this frees once the trash is empty; less than the files where others share their bytes.
    #[ts(type = "number")]
    pub freed_bytes: u64,
    /// Places where the model stays.
    pub stays: Vec<LibraryPlace>,
}

/// How far a check of a model's files is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct VerifyProgress {
    /// Read so far.
    #[ts(type = "number")]
    pub done_bytes: u64,
    /// Of all files.
    #[ts(type = "number")]
    pub total_bytes: u64,
}

/// What a look for newer versions found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct UpdatesFound {
    /// Models whose repos were asked.
    #[ts(type = "number")]
    pub n_checked: usize,
    /// Models of which the hub has another version by now.
    #[ts(type = "number")]
    pub n_newer: usize,
    /// Why some repos did not answer.
    pub failures: Vec<Failure>,
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
