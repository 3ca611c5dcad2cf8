//! The SHA256 of the whole: piece after piece as they become whole, read back from the disk while later ones arrive.
//! A piece that is read otherwise than it arrived is damage on the disk: it alone is fetched again.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use sha2::{Digest, Sha256};

use super::error::DownloadError;
use super::part::{PartFile, Progress};
use super::pieces::PieceHasher;
use crate::error::{FileAction, FileError};

impl PartFile {
    /// Hashes until the file is whole; its SHA256 in hex. `None` if it was closed before.
    pub(super) fn hash_whole(&self) -> Result<Option<String>, DownloadError> {
        while let Some((n, sha256)) = self.next_to_hash() {
            if n == self.state().pieces.count() {
                return Ok(Some(hex(&sha256.finalize())));
            }
            self.hash_piece(n, sha256)?;
        }
        Ok(None)
    }

    /// Whether every piece has been hashed, as it is now.
    pub(super) fn is_hashed(&self) -> bool {
        let state = self.state();
        state.hashed.len() > state.pieces.count()
    }

    /// Waits until the next piece is whole; with it, the SHA256 of all before it. `None` if it is over.
    fn next_to_hash(&self) -> Option<(usize, Sha256)> {
        let mut state = self.state();
        loop {
            let n = state.hashed.len() - 1;
            if state.is_closing {
                return None;
            }
            if n == state.pieces.count() || state.pieces.is_whole(n) {
                return Some((n, state.hashed[n].clone()));
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn hash_piece(&self, n: usize, mut sha256: Sha256) -> Result<(), DownloadError> {
        let span = self.state().pieces.span(n);
        let mut hasher = PieceHasher::default();
        let mut at = span.start;
        self.read(span.clone(), &mut |bytes| {
            hasher.update(bytes);
            sha256.update(bytes);
            at += bytes.len() as u64;
            self.progress.hashed.store(at, Ordering::Release);
            !self.state().is_closing
        })?;
        let mut state = self.state();
        let is_still_next = state.hashed.len() == n + 1 && state.pieces.is_whole(n);
        if at < span.end || !is_still_next {
            return Ok(());
        }
        match state.pieces.hash(n) {
            None => state.pieces.prove(n, hasher),
            Some(arrived) if arrived == hasher.finish() => {}
            Some(_) => {
                drop(state);
                return self.blame_disk(n);
            }
        }
        state.hashed.push(sha256);
        Ok(())
    }

    fn blame_disk(&self, n: usize) -> Result<(), DownloadError> {
        tracing::warn!(path = %self.path().display(), piece = n, "the disk gave back other bytes than arrived");
        self.progress.n_repaired.fetch_add(1, Ordering::AcqRel);
        if self.reject(n) > MOST_REJECTED {
            return Err(DownloadError::DiskDamages { path: self.path().to_owned() });
        }
        Ok(())
    }
}

/// SHA256 of a file already under its final name; `None` if `go_on` said no.
pub(super) fn hash_file(
    path: &Path,
    progress: &Progress,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<String>, DownloadError> {
    let hashed = fs::File::open(path).and_then(|mut file| {
        let n_bytes = file.metadata()?.len();
        progress.arrived.store(n_bytes, Ordering::Release);
        hash_with(&mut file, n_bytes, &progress.hashed, go_on)
    });
    let hasher = hashed.map_err(FileError::at(FileAction::Read, path))?;
    Ok(hasher.map(|hasher| hex(&hasher.finalize())))
}

fn hash_with(
    io: &mut impl io::Read,
    n_bytes: u64,
    done: &AtomicU64,
    go_on: &dyn Fn() -> bool,
) -> io::Result<Option<Sha256>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; STEP_BYTES.min(n_bytes as usize)];
    let mut left = n_bytes;
    while left > 0 {
        if !go_on() {
            return Ok(None);
        }
        let n = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        io.read_exact(&mut buffer[..n])?;
        hasher.update(&buffer[..n]);
        left -= n as u64;
        done.store(n_bytes - left, Ordering::Release);
    }
    Ok(Some(hasher))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A few milliseconds of hashing.
const STEP_BYTES: usize = 4 << 20;
/// A disk that damages the same piece so often damages all.
const MOST_REJECTED: u32 = 4;
