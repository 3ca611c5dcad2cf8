//! What was given its final name here, and what its pieces hashed to: so that a file of ours is told from a person's own,
//! and damage to it costs the damaged pieces. Kept in the database; without one, no file is known to be ours.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::journal::changed_ns;
use super::pieces::SavedPiece;
use crate::store::Store;
use crate::wire::RepoFile;

/// Where it is kept.
#[derive(Clone, Default)]
pub struct Ledger(Option<Arc<Store>>);

/// A file as it was when it got its final name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlacedFile {
    pub(super) sha256: String,
    pub(super) size_bytes: u64,
    changed_ns: Option<u64>,
    pub(super) piece_bytes: u64,
    pub(super) pieces: Vec<SavedPiece>,
}

impl Ledger {
    /// Keeps it in this database.
    pub fn new(store: Arc<Store>) -> Self {
        Self(Some(store))
    }

    /// Takes note of a file that has just got its final name, or was found right under it. What cannot be kept is not
    /// known to be ours later, which is the safe side.
    pub(super) fn note(&self, target: &Path, sha256: &str, size_bytes: u64, piece_bytes: u64, pieces: Vec<SavedPiece>) {
        let Some(store) = &self.0 else { return };
        let placed =
            PlacedFile { sha256: sha256.to_owned(), size_bytes, changed_ns: changed_ns(target), piece_bytes, pieces };
        let json = serde_json::to_string(&placed).expect("hashes and numbers can be written");
        if let Err(error) = store.keep_placed_file(target, &json) {
            tracing::warn!(%error, "a finished download cannot be noted");
        }
    }

    /// What was placed there last.
    pub(super) fn at(&self, target: &Path) -> Option<PlacedFile> {
        let json = self.0.as_ref()?.placed_file(target).ok()??;
        serde_json::from_str(&json).ok()
    }

    /// Whether what lies there is what was placed there, and nobody has written to it since. A disk that damages it does
    /// not change its time.
    pub(super) fn is_ours(&self, target: &Path) -> bool {
        self.at(target).is_some_and(|placed| {
            let is_as_long = fs::metadata(target).is_ok_and(|about| about.len() == placed.size_bytes);
            is_as_long && placed.changed_ns.is_some() && placed.changed_ns == changed_ns(target)
        })
    }
}

impl PlacedFile {
    /// Whether it is the file that the hub means.
    pub(super) fn is_of(&self, file: &RepoFile) -> bool {
        file.sha256.as_ref() == Some(&self.sha256) && file.size_bytes == self.size_bytes && self.piece_bytes > 0
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger").field(&self.0.is_some()).finish()
    }
}
