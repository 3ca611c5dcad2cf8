//! The places under final names: what of what lies there is ours, and where the rest goes when a download takes its place.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::DownloadError;
use super::ledger::Ledger;
use super::part::Progress;
use super::whole::hash_file;
use crate::library::Trash;

/// What is known of final names.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) ledger: Ledger,
    pub(super) trash: Trash,
}

impl Home {
    /// Makes way for a file. What was placed there by us and left alone since, and what has the same bytes, may be written
    /// over; anything else is somebody's own, and goes to the trash: then its path comes back.
    pub(super) fn clear(&self, target: &Path, sha256: &str, size_bytes: u64) -> Result<Option<PathBuf>, DownloadError> {
        let Ok(about) = fs::symlink_metadata(target) else { return Ok(None) };
        if about.is_file() && (self.ledger.is_ours(target) || has_bytes(target, sha256, size_bytes)) {
            return Ok(None);
        }
        self.make_way(target)?;
        Ok(Some(target.to_owned()))
    }

    /// Puts into the trash what is somebody's own; a folder stays, and is in the way.
    pub(super) fn make_way(&self, path: &Path) -> Result<(), DownloadError> {
        let in_the_way = |detail: String| DownloadError::InTheWay { path: path.to_owned(), detail };
        if path.is_dir() {
            return Err(in_the_way("it is a folder".to_owned()));
        }
        self.trash.take(path).map_err(|error| in_the_way(error.to_string()))
    }
}

/// Whether a file has these bytes; one that cannot be read has others.
fn has_bytes(path: &Path, sha256: &str, size_bytes: u64) -> bool {
    let is_as_long = fs::metadata(path).is_ok_and(|about| about.len() == size_bytes);
    let hash = || hash_file(path, &Progress::default(), &|| true).ok().flatten();
    is_as_long && hash().is_some_and(|hash| hash == sha256)
}
