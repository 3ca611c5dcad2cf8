//! A file under way: its bytes so far, their SHA256, and its line in the journal. Everything here blocks, and runs on
//! threads made for that.

use std::fs;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::disk::{Disk, PartIo};
use super::error::DownloadError;
use super::journal::{Record, Standing, sync_folder};
use super::place::part_path;
use crate::error::{FileAction, FileError};

/// How far the file under way is; read by whoever reports.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes on disk.
    pub(super) arrived: AtomicU64,
    /// Bytes hashed.
    pub(super) hashed: AtomicU64,
}

/// A file under way.
pub(super) struct PartFile {
    io: Box<dyn PartIo>,
    part: PathBuf,
    target: PathBuf,
    n_bytes: u64,
    hasher: Sha256,
    progress: Arc<Progress>,
    pub(super) record: Record,
    /// Which file of the record.
    n: usize,
}

impl PartFile {
    /// Opens what is there of the record's file `n` and hashes it again, as far as the journal vouches for it; the rest
    /// is cut off. `go_on` is asked now and then; `None` if it said no.
    pub(super) fn open(
        disk: &dyn Disk,
        target: PathBuf,
        mut record: Record,
        n: usize,
        progress: Arc<Progress>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, DownloadError> {
        let part = part_path(&target);
        let mut io = disk.open_part(&part).map_err(FileError::at(FileAction::Write, &part))?;
        let on_disk = io.seek(SeekFrom::End(0)).map_err(FileError::at(FileAction::Read, &part))?;
        let kept = record.journal.files[n].synced_bytes.min(on_disk);
        // Somebody else may have cut the file: the journal vouches for no more than is there.
        record.journal.files[n].synced_bytes = kept;
        if on_disk > kept {
            io.set_len(kept).map_err(FileError::at(FileAction::Write, &part))?;
        }
        progress.hashed.store(0, Ordering::Release);
        progress.arrived.store(kept, Ordering::Release);
        io.rewind().map_err(FileError::at(FileAction::Read, &part))?;
        let hashed = hash_with(&mut *io, kept, &progress.hashed, go_on);
        let Some(hasher) = hashed.map_err(FileError::at(FileAction::Read, &part))? else { return Ok(None) };
        Ok(Some(Self { io, part, target, n_bytes: kept, hasher, progress, record, n }))
    }

    /// Bytes here so far.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Writes chunks as they come, until there are no more. Every so many bytes they are flushed and journalled.
    pub(super) fn write_from(
        &mut self,
        chunks: &mut mpsc::Receiver<Bytes>,
        save_every_bytes: u64,
    ) -> Result<(), DownloadError> {
        while let Some(chunk) = chunks.blocking_recv() {
            self.write(&chunk).map_err(FileError::at(FileAction::Write, &self.part))?;
            if self.n_bytes - self.record.journal.files[self.n].synced_bytes >= save_every_bytes {
                self.save()?;
            }
        }
        Ok(())
    }

    /// Begins again at nothing.
    pub(super) fn start_over(&mut self) -> Result<(), DownloadError> {
        // The journal first: it must never vouch for more than there is.
        self.record.journal.files[self.n].synced_bytes = 0;
        self.record.write()?;
        let emptied = self.io.set_len(0).and_then(|()| self.io.rewind());
        emptied.map_err(FileError::at(FileAction::Write, &self.part))?;
        (self.n_bytes, self.hasher) = (0, Sha256::new());
        self.tell();
        Ok(())
    }

    /// Flushes what is here, and lets the journal vouch for it.
    pub(super) fn save(&mut self) -> Result<(), DownloadError> {
        self.io.sync().map_err(FileError::at(FileAction::Write, &self.part))?;
        self.record.journal.files[self.n].synced_bytes = self.n_bytes;
        Ok(self.record.write()?)
    }

    /// Checks the whole file and gives it its final name; a wrong one is removed and never seen under that name.
    pub(super) fn finish(mut self, expected: &str) -> (Record, Result<(), DownloadError>) {
        let got = hex(&self.hasher.clone().finalize());
        if got == expected {
            let placed = self.place();
            return (self.record, placed);
        }
        let path = self.record.journal.files[self.n].file.path.clone();
        // If it cannot be emptied, the next attempt finds that out.
        let emptied = self.start_over();
        drop(self.io);
        let removed = fs::remove_file(&self.part).map_err(FileError::at(FileAction::Write, &self.part));
        let mismatch = DownloadError::ChecksumMismatch { path, expected: expected.to_owned(), got };
        (self.record, emptied.and(removed.map_err(DownloadError::from)).and(Err(mismatch)))
    }

    fn place(&mut self) -> Result<(), DownloadError> {
        self.io.sync().map_err(FileError::at(FileAction::Write, &self.part))?;
        fs::rename(&self.part, &self.target).map_err(FileError::at(FileAction::Move, &self.part))?;
        sync_folder(&self.target).map_err(FileError::at(FileAction::Write, &self.target))?;
        self.record.journal.files[self.n].standing = Standing::Placed;
        Ok(self.record.write()?)
    }

    /// Writes and hashes; what was written before an error counts.
    fn write(&mut self, mut chunk: &[u8]) -> io::Result<()> {
        while !chunk.is_empty() {
            match self.io.write(chunk) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.hasher.update(&chunk[..n]);
                    self.n_bytes += n as u64;
                    self.tell();
                    chunk = &chunk[n..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell(&self) {
        self.progress.arrived.store(self.n_bytes, Ordering::Release);
        self.progress.hashed.store(self.n_bytes, Ordering::Release);
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
    io: &mut (impl io::Read + ?Sized),
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
