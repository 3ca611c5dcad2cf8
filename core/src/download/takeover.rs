//! Going on with what another process has begun, where no lock says that it has ended: it may still write into its file,
//! so ours is another one, with a copy of what the journal vouches for. Damage to the copy is found as any other is.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::Shared;
use super::disk::PartIo;
use super::error::DownloadError;
use super::journal::{JournalFile, Record, Standing, sync_folder};
use super::place::{part_path, place, unfinished_part_path};
use crate::error::{FileAction, FileError};

impl Shared {
    /// Puts this process's name to a journal, whose files it may write from then on. Whoever wrote them before finds that
    /// out before he vouches for anything more.
    ///
    /// go_on    `false` ends the copying
    /// Errors   the journal is not what it was when it was read
    pub(super) fn take_over(&self, record: &mut Record, go_on: &dyn Fn() -> bool) -> Result<(), DownloadError> {
        let is_of_another = record.journal.writer.as_ref().is_some_and(|writer| *writer != self.writer);
        if is_of_another && !self.is_locked() {
            for entry in record.journal.files.iter().filter(|entry| entry.standing == Standing::Wanted) {
                let part = part_path(&place(&self.models_dir, &entry.file)?);
                if part.exists() {
                    copy_part(entry, &part, go_on).map_err(FileError::at(FileAction::Write, &part))?;
                }
            }
        }
        if record.path.exists() {
            return record.sign(Some(self.writer.clone()));
        }
        // Somebody has tidied up; nothing is there that it could have vouched for.
        if let Some(folder) = record.path.parent() {
            fs::create_dir_all(folder).map_err(FileError::at(FileAction::Write, folder))?;
        }
        record.journal.writer = Some(self.writer.clone());
        Ok(record.write()?)
    }
}

/// Replaces a part by a copy of what is known of it.
fn copy_part(entry: &JournalFile, part: &Path, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let unfinished = unfinished_part_path(part);
    let (from, to) = (File::open(part)?, File::create(&unfinished)?);
    to.set_len(entry.file.size_bytes)?;
    let pieces = entry.pieces(from.metadata()?.len());
    let mut buffer = vec![0; STEP_BYTES];
    for saved in pieces.saved() {
        let mut at = pieces.span(saved.n).start;
        let end = at + saved.arrived_bytes;
        while at < end {
            if !go_on() {
                return fs::remove_file(&unfinished).and(Err(io::ErrorKind::Interrupted.into()));
            }
            let most = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = PartIo::read_at(&from, &mut buffer[..most], at)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut written = 0;
            while written < n {
                written += PartIo::write_at(&to, &buffer[written..n], at + written as u64)?;
            }
            at += n as u64;
        }
    }
    to.sync_all()?;
    fs::rename(&unfinished, part)?;
    sync_folder(part)
}

/// A few milliseconds of copying.
const STEP_BYTES: usize = 4 << 20;
