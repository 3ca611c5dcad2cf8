//! How programs keep their models: one file per layout, all read and never written. Names and small notes only: no model
//! file is opened here.

mod hugging_face;
mod jan;
mod llama_cpp;
mod ollama;
mod plain;
mod walk;

use std::fs;
use std::path::{Path, PathBuf};

use super::found::Found;
use crate::wire::{Failure, Program};

pub(super) use plain::beside;

/// What lies in a folder, and what in it could not be read.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) found: Vec<Found>,
    pub(super) problems: Vec<Failure>,
    /// Files that models need which cannot be used here.
    pub(super) needed: Vec<PathBuf>,
}

/// Looks into a folder as its program keeps it.
pub(super) fn look(program: Program, folder: &Path) -> Seen {
    match program {
        Program::Ollama => ollama::look(folder),
        Program::HuggingFace => hugging_face::look(folder, Program::HuggingFace),
        Program::Jan => jan::look(folder),
        Program::LlamaCpp => llama_cpp::look(folder),
        Program::Tandem | Program::LmStudio | Program::Other => plain::look(program, folder),
    }
}

/// Whose layout a folder has that nobody is known to own.
pub(super) fn detect(folder: &Path) -> Program {
    if folder.join("manifests").is_dir() && folder.join("blobs").is_dir() {
        return Program::Ollama;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    if names.any(|name| name.starts_with(hugging_face::REPO_START)) { Program::HuggingFace } else { Program::Other }
}

/// The text of a small file; `None` if it cannot be read or is too large to be one.
pub(super) fn small_text(path: &Path) -> Option<String> {
    let size_bytes = fs::metadata(path).ok()?.len();
    if size_bytes > MAX_NOTE_BYTES { None } else { fs::read_to_string(path).ok() }
}

/// A text if it is a SHA256 in hex, in small letters.
pub(super) fn sha256_in(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(text)
}

/// Largest manifest, note or tree that is read.
const MAX_NOTE_BYTES: u64 = 4 << 20;
