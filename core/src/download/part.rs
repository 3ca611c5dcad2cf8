//! A file under way: its pieces on disk, and its line in the journal. Everything here blocks, and runs on threads made
//! for that; connections, the hashing thread and whoever saves share it.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use sha2::Sha256;
use tokio::sync::Notify;

use super::disk::{Disk, PartIo};
use super::error::DownloadError;
use super::home::Home;
use super::journal::{Record, Standing, sync_folder};
use super::ledger::PlacedFile;
use super::lock;
use super::pieces::{PieceHasher, Pieces};
use super::place::{part_path, placing_path};
use crate::error::{FileAction, FileError};

/// How far the file under way is; read by whoever reports.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes on disk.
    pub(super) arrived: AtomicU64,
    /// Bytes hashed.
    pub(super) hashed: AtomicU64,
    /// While damage is looked for: bytes compared with what comes a second time.
    pub(super) compared: AtomicU64,
    /// Pieces found damaged and fetched again.
    pub(super) n_repaired: AtomicU32,
}

/// A file under way.
pub(super) struct PartFile {
    pub(super) io: Box<dyn PartIo>,
    part: PathBuf,
    target: PathBuf,
    /// Which file of the record.
    n: usize,
    pub(super) size_bytes: u64,
    save_every_bytes: u64,
    state: Mutex<State>,
    /// Rung when a piece is whole, and when it is over.
    pub(super) changed: Condvar,
    /// Rung for whoever gives out the work: a piece is to be fetched again, or there is enough to save.
    pub(super) news: Notify,
    record: Mutex<Record>,
    pub(super) progress: Arc<Progress>,
}

pub(super) struct State {
    pub(super) pieces: Pieces,
    /// States of the SHA256 before each piece that was hashed, and after the last.
    pub(super) hashed: Vec<Sha256>,
    /// Of all bytes ever written.
    saved_bytes: u64,
    pub(super) is_closing: bool,
}

impl PartFile {
    /// Opens what is there of the record's file `n` and takes the space for the rest.
    pub(super) fn open(
        disk: &dyn Disk,
        target: PathBuf,
        record: Record,
        n: usize,
        save_every_bytes: u64,
        progress: Arc<Progress>,
    ) -> Result<Self, DownloadError> {
        let part = part_path(&target);
        let placing = placing_path(&target);
        if placing.exists() && !part.exists() {
            // The process ended between its two names.
            fs::rename(&placing, &part).map_err(FileError::at(FileAction::Move, &placing))?;
        }
        let io = disk.open_part(&part).map_err(FileError::at(FileAction::Write, &part))?;
        let on_disk = io.n_bytes().map_err(FileError::at(FileAction::Read, &part))?;
        let entry = &record.journal.files[n];
        let size_bytes = entry.file.size_bytes;
        let pieces = entry.pieces(on_disk);
        progress.hashed.store(0, Ordering::Release);
        progress.arrived.store(pieces.arrived_bytes(), Ordering::Release);
        io.reserve(size_bytes).map_err(FileError::at(FileAction::Write, &part))?;
        let state = State { pieces, hashed: vec![Sha256::default()], saved_bytes: 0, is_closing: false };
        Ok(Self {
            io,
            part,
            target,
            n,
            size_bytes,
            save_every_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            news: Notify::new(),
            record: Mutex::new(record),
            progress,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Gives the first pieces that nobody fetches to a connection, at most so many.
    pub(super) fn claim(self: &Arc<Self>, most: usize) -> Option<Claim> {
        let mut state = self.state();
        let pieces = state.pieces.claim(most)?;
        let at = state.pieces.frontier(pieces.start);
        drop(state);
        Some(Claim { part: Arc::clone(self), pieces, at })
    }

    /// Takes over what a damaged file under the final name still has right, piece by piece.
    ///
    /// go_on    `false` ends it
    pub(super) fn fill_from(&self, placed: &PlacedFile, go_on: &dyn Fn() -> bool) -> Result<(), DownloadError> {
        // What cannot be read there is fetched.
        let Ok(file) = File::open(&self.target) else { return Ok(()) };
        for saved in placed.pieces.iter().filter(|saved| saved.hash.is_some()) {
            let span = {
                let state = self.state();
                if !go_on() || state.pieces.piece_bytes() != placed.piece_bytes || saved.n >= state.pieces.count() {
                    return Ok(());
                }
                state.pieces.span(saved.n)
            };
            if saved.arrived_bytes != span.end - span.start || self.state().pieces.frontier(saved.n) != span.start {
                continue;
            }
            self.copy(&file, saved.n, span)?;
            if self.state().pieces.hash(saved.n) != saved.hash {
                self.progress.n_repaired.fetch_add(1, Ordering::AcqRel);
                self.reject(saved.n);
            }
        }
        Ok(())
    }

    /// Copies a piece from another file, as far as that can be read.
    fn copy(&self, file: &File, n: usize, span: Range<u64>) -> Result<(), DownloadError> {
        let mut buffer = vec![0; STEP_BYTES.min(span.end - span.start) as usize];
        let mut at = span.start;
        while at < span.end {
            let most = buffer.len().min(usize::try_from(span.end - at).unwrap_or(usize::MAX));
            match PartIo::read_at(file, &mut buffer[..most], at) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(n_read) => {
                    self.write(n, &buffer[..n_read], at)?;
                    at += n_read as u64;
                }
            }
        }
        Ok(())
    }

    /// Whether there is enough that the journal does not vouch for yet.
    pub(super) fn should_save(&self) -> bool {
        let state = self.state();
        state.pieces.written_bytes() - state.saved_bytes >= self.save_every_bytes
    }

    /// Flushes what is here, and lets the journal vouch for it.
    pub(super) fn save(&self) -> Result<(), DownloadError> {
        // One at a time; what arrives meanwhile waits for the next.
        let mut record = lock(&self.record);
        let (saved, written_bytes) = {
            let state = self.state();
            (state.pieces.saved(), state.pieces.written_bytes())
        };
        self.io.sync().map_err(self.at(FileAction::Write))?;
        self.require_at(&self.part)?;
        record.journal.files[self.n].pieces = saved;
        record.rewrite()?;
        self.state().saved_bytes = written_bytes;
        Ok(())
    }

    /// Lets whoever hashes end at its next step.
    pub(super) fn close(&self) {
        self.state().is_closing = true;
        self.changed.notify_all();
    }

    /// Gives the checked file its final name, and tells the ledger. What lies there and is not ours goes to the trash:
    /// then its path comes back.
    ///
    /// sha256   of the file, as it was read back
    /// Errors   what lies under our name is not what was written and hashed; what is in the way cannot be moved
    pub(super) fn place(&self, sha256: &str, home: &Home) -> Result<Option<PathBuf>, DownloadError> {
        self.save()?;
        let placing = placing_path(&self.target);
        let renamed = |from: &Path, to: &Path| fs::rename(from, to).map_err(FileError::at(FileAction::Move, from));
        // By a name between the two it can be told whether it is this file that is renamed, and not one in its place.
        renamed(&self.part, &placing)?;
        let at_home = self.require_at(&placing).and_then(|()| {
            let cleared = home.clear(&self.target, sha256, self.size_bytes)?;
            renamed(&placing, &self.target)?;
            Ok(cleared)
        });
        let cleared = at_home.inspect_err(|_| {
            // If it cannot even be given back its name, the next start does that.
            let _ = fs::rename(&placing, &self.part);
        })?;
        sync_folder(&self.target).map_err(FileError::at(FileAction::Write, &self.target))?;
        let mut record = lock(&self.record);
        let entry = &mut record.journal.files[self.n];
        entry.settle(Standing::Placed, &self.target);
        home.ledger.note(&self.target, sha256, self.size_bytes, entry.piece_bytes, entry.pieces.clone());
        record.rewrite()?;
        Ok(cleared)
    }

    /// Makes sure that it is this file that lies there.
    fn require_at(&self, path: &Path) -> Result<(), DownloadError> {
        match self.io.is_at(path).map_err(FileError::at(FileAction::Read, path))? {
            true => Ok(()),
            false => Err(DownloadError::Displaced { path: path.to_owned() }),
        }
    }

    /// The record as the disk has it.
    pub(super) fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.part
    }

    pub(super) fn at(&self, action: FileAction) -> impl FnOnce(io::Error) -> FileError {
        FileError::at(action, &self.part)
    }

    /// Throws a piece away, to be fetched again; how often that has happened to it.
    pub(super) fn reject(&self, n: usize) -> u32 {
        let mut state = self.state();
        let n_rejected = state.pieces.reject(n);
        state.hashed.truncate(n + 1);
        self.tell(&state);
        drop(state);
        self.news.notify_one();
        n_rejected
    }

    /// Reads a range again, piece by step.
    ///
    /// on       gets what was read; `false` ends the reading
    /// Errors   a file that is shorter is one too
    pub(super) fn read(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DownloadError> {
        let mut buffer = vec![0; STEP_BYTES.min(range.end.saturating_sub(range.start)) as usize];
        let mut at = range.start;
        while at < range.end {
            let most = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            match self.io.read_at(&mut buffer[..most], at) {
                Ok(0) => return Err(self.at(FileAction::Read)(io::ErrorKind::UnexpectedEof.into()).into()),
                Ok(n) => {
                    at += n as u64;
                    if !on(&buffer[..n]) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.at(FileAction::Read)(error).into()),
            }
        }
        Ok(())
    }

    /// Reads the beginning of a piece that an earlier run left behind; if it is not what arrived, it is thrown away.
    fn prepare(&self, n: usize) -> Result<(), DownloadError> {
        let (expected, range) = {
            let state = self.state();
            match state.pieces.unproven(n) {
                Some(expected) => (expected, state.pieces.span(n).start..state.pieces.frontier(n)),
                None => return Ok(()),
            }
        };
        let mut hasher = PieceHasher::default();
        self.read(range, &mut |bytes| {
            hasher.update(bytes);
            true
        })?;
        if expected.is_none_or(|expected| expected == hasher.finish()) {
            self.state().pieces.prove(n, hasher);
        } else {
            self.progress.n_repaired.fetch_add(1, Ordering::AcqRel);
            self.reject(n);
        }
        Ok(())
    }

    /// Writes at the frontier of a piece; what was written before an error counts.
    fn write(&self, n: usize, mut bytes: &[u8], mut at: u64) -> Result<(), DownloadError> {
        while !bytes.is_empty() {
            match self.io.write_at(bytes, at) {
                Ok(0) => return Err(self.at(FileAction::Write)(io::ErrorKind::WriteZero.into()).into()),
                Ok(n_written) => {
                    self.note(n, &bytes[..n_written]);
                    bytes = &bytes[n_written..];
                    at += n_written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.at(FileAction::Write)(error).into()),
            }
        }
        Ok(())
    }

    fn note(&self, n: usize, bytes: &[u8]) {
        let mut state = self.state();
        state.pieces.note(n, bytes);
        self.tell(&state);
        let is_whole = state.pieces.is_whole(n);
        let is_much = state.pieces.written_bytes() - state.saved_bytes >= self.save_every_bytes;
        drop(state);
        if is_whole {
            self.changed.notify_all();
        }
        if is_much {
            self.news.notify_one();
        }
    }

    fn tell(&self, state: &State) {
        self.progress.arrived.store(state.pieces.arrived_bytes(), Ordering::Release);
    }
}

/// Pieces that one connection fetches; let go of when dropped.
pub(super) struct Claim {
    part: Arc<PartFile>,
    pieces: Range<usize>,
    /// Where in the file the next byte of the answer belongs.
    at: u64,
}

impl Claim {
    /// The first of the pieces.
    pub(super) fn first(&self) -> usize {
        self.pieces.start
    }

    /// Makes sure of what an earlier run left behind; the bytes to ask for.
    pub(super) fn prepare(&mut self) -> Result<Range<u64>, DownloadError> {
        self.part.prepare(self.pieces.start)?;
        let state = self.part.state();
        self.at = state.pieces.frontier(self.pieces.start);
        Ok(self.at..state.pieces.span(self.pieces.end - 1).end)
    }

    /// The answer begins elsewhere: what is not wanted of it is passed over.
    pub(super) fn begin_at(&mut self, at: u64) {
        self.at = at;
    }

    /// Writes what comes next; whether there is a use for more.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<bool, DownloadError> {
        while !bytes.is_empty() {
            if self.at == self.part.size_bytes || !self.reaches()? {
                return Ok(false);
            }
            let (n, frontier, end) = {
                let state = self.part.state();
                let n = state.pieces.at(self.at).max(self.pieces.start);
                (n, state.pieces.frontier(n), state.pieces.span(n).end)
            };
            let is_wanted = self.at == frontier && frontier < end;
            let until = if self.at < frontier { frontier } else { end };
            let n_bytes = bytes.len().min(usize::try_from(until - self.at).unwrap_or(usize::MAX));
            if is_wanted {
                self.part.write(n, &bytes[..n_bytes], self.at)?;
            }
            self.at += n_bytes as u64;
            bytes = &bytes[n_bytes..];
        }
        Ok(true)
    }

    /// Whether the piece that the next byte belongs to is ours, or can be had too.
    fn reaches(&mut self) -> Result<bool, DownloadError> {
        let n = {
            let mut state = self.part.state();
            let n = state.pieces.at(self.at);
            if n < self.pieces.end {
                return Ok(true);
            }
            if !state.pieces.claim_also(n) {
                return Ok(false);
            }
            n
        };
        self.pieces.end = n + 1;
        self.part.prepare(n)?;
        Ok(true)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.part.state().pieces.release(self.pieces.clone());
    }
}

/// Some hundred microseconds of hashing.
const STEP_BYTES: u64 = 1 << 20;
