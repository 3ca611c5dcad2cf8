//! What a look into a folder yields: models as files, before anything is opened.

use std::path::{Path, PathBuf};

use crate::wire::{FileRole, Program, RepoFile};

/// A model as its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The model itself: one file, or the shards that are there, in order.
    pub(super) parts: Vec<FoundFile>,
    /// Projector and draft.
    pub(super) companions: Vec<FoundFile>,
    /// Names of shards that are not there.
    pub(super) missing: Vec<String>,
    /// Files that its program keeps beside it: manifests, notes, blobs behind links.
    pub(super) extras: Vec<PathBuf>,
    /// Name by which label and display name are found, where the file's own says nothing.
    pub(super) file_name: Option<String>,
    /// What its program calls it.
    pub(super) title: Option<String>,
    /// Where it came from, as far as the layout tells.
    pub(super) source: Option<RepoFile>,
    /// Whose it is.
    pub(super) program: Program,
    /// The folder in use that holds it.
    pub(super) folder: Option<PathBuf>,
}

/// One file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) role: FileRole,
    /// SHA256 that its program or the hub promises.
    pub(super) expected_sha256: Option<String>,
    /// SHA256 of its bytes, where somebody has just computed it.
    pub(super) sha256: Option<String>,
}

impl Found {
    pub(super) fn new(program: Program, folder: Option<&Path>, parts: Vec<FoundFile>) -> Self {
        Self {
            parts,
            companions: Vec::new(),
            missing: Vec::new(),
            extras: Vec::new(),
            file_name: None,
            title: None,
            source: None,
            program,
            folder: folder.map(Path::to_owned),
        }
    }

    /// The file by which it is opened.
    pub(super) fn first(&self) -> &Path {
        &self.parts[0].path
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &FoundFile> {
        self.parts.iter().chain(&self.companions)
    }

    /// Every path that belongs to it.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files().map(|file| file.path.as_path()).chain(self.extras.iter().map(PathBuf::as_path))
    }
}

impl FoundFile {
    pub(super) fn new(path: PathBuf, role: FileRole) -> Self {
        Self { path, role, expected_sha256: None, sha256: None }
    }

    pub(super) fn expecting(mut self, sha256: Option<String>) -> Self {
        self.expected_sha256 = sha256;
        self
    }
}
