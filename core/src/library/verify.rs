//! Computes the SHA256 of a model's files and compares it with what was promised.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use super::{Library, LibraryError, item, lock};
use crate::error::{FileAction, FileError};
use crate::wire::{LibraryFile, LibraryModel, VerifyProgress};

impl Library {
    /// Reads all files of a model and keeps their hashes. What there is to compare with decides about its integrity.
    ///
    /// on       hears how far it is, every few megabytes
    /// Errors   a file is gone, unreadable or changes meanwhile; the check was stopped, or is under way already
    /// Cost     one pass over the files, 4 MB of memory
    pub fn verify(&self, id: &str, on: &mut dyn FnMut(VerifyProgress)) -> Result<LibraryModel, LibraryError> {
        let model = self.get(id)?;
        let check = Check::begin(self, id)?;
        let total_bytes = model.files.iter().map(|file| file.size_bytes).sum();
        let mut done_bytes = 0;
        let mut checked: Vec<LibraryFile> = Vec::new();
        for file in &model.files {
            let mut step = |n_bytes: u64| {
                done_bytes += n_bytes;
                on(VerifyProgress { done_bytes, total_bytes });
            };
            let sha256 = hash(file, &check.stop, &mut step)?;
            checked.push(LibraryFile { sha256: Some(sha256), ..file.clone() });
        }
        let model = self.update(id, |model| {
            for file in &mut model.files {
                let is_same = |other: &&LibraryFile| {
                    (&other.path, other.size_bytes, other.modified_ms)
                        == (&file.path, file.size_bytes, file.modified_ms)
                };
                if let Some(known) = checked.iter().find(is_same) {
                    file.sha256.clone_from(&known.sha256);
                }
            }
            model.integrity = item::integrity(&model.files);
        })?;
        self.changed();
        Ok(model)
    }

    /// Stops the check of a model, if one is under way.
    pub fn stop_verify(&self, id: &str) {
        if let Some(stop) = lock(&self.checks).get(id) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A check under way; no second one of the same model may begin meanwhile.
struct Check<'a> {
    library: &'a Library,
    id: String,
    stop: Arc<AtomicBool>,
}

impl<'a> Check<'a> {
    fn begin(library: &'a Library, id: &str) -> Result<Self, LibraryError> {
        let mut checks = lock(&library.checks);
        if checks.contains_key(id) {
            return Err(LibraryError::Busy);
        }
        let stop = Arc::<AtomicBool>::default();
        checks.insert(id.to_owned(), Arc::clone(&stop));
        Ok(Self { library, id: id.to_owned(), stop })
    }
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        lock(&self.library.checks).remove(&self.id);
    }
}

/// SHA256 of a file in hex, if it is the one that was looked at, from the first byte to the last.
fn hash(file: &LibraryFile, stop: &AtomicBool, step: &mut dyn FnMut(u64)) -> Result<String, LibraryError> {
    let path = Path::new(&file.path);
    let at = |error| FileError::at(FileAction::Read, path)(error);
    let mut input = File::open(path).map_err(at)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; STEP_BYTES];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(LibraryError::Cancelled);
        }
        let n = input.read(&mut buffer).map_err(|error| FileError::at(FileAction::Read, path)(error))?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        step(n as u64);
    }
    let now = item::stamp(path).map_err(|error| FileError::at(FileAction::Read, path)(error))?;
    if now != (file.size_bytes, file.modified_ms) {
        return Err(LibraryError::Changed { path: path.to_owned() });
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A few milliseconds of hashing.
const STEP_BYTES: usize = 4 << 20;
