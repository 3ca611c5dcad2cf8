//! The journal of a download: what is wanted, which pieces of it are safely on disk, and what each hashed to as it
//! arrived. Written atomically beside the files, so that a download outlives the app, however the app ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::error::DownloadError;
use super::pieces::{Pieces, SavedPiece};
use super::place::{is_journal, is_unfinished_journal, unfinished_journal_path};
use crate::error::{FileAction, FileError};
use crate::wire::RepoFile;

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    /// Place in the queue: smaller is earlier.
    #[serde(default)]
    rank: u64,
    /// Who writes the files, as long as somebody does.
    #[serde(default)]
    pub(super) writer: Option<String>,
    pub(super) files: Vec<JournalFile>,
}

/// One file of a download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalFile {
    pub(super) file: RepoFile,
    /// The first format vouched for so many bytes from the beginning, and had no pieces.
    #[serde(default, skip_serializing)]
    synced_bytes: u64,
    #[serde(default)]
    pub(super) piece_bytes: u64,
    /// Written and flushed to the disk before this was.
    #[serde(default)]
    pub(super) pieces: Vec<SavedPiece>,
    pub(super) standing: Standing,
    /// When what lies under the final name was last changed, in nanoseconds of the Unix time, as it was when it was checked.
    #[serde(default)]
    changed_ns: Option<u64>,
}

/// Where a file of a download stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// Not whole yet.
    Wanted,
    /// Checked, and put under its final name by us.
    Placed,
    /// Checked; it lay under its final name before.
    Found,
}

/// A journal and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) path: PathBuf,
    pub(super) journal: Journal,
    /// All copies of a record share the place in the queue: it may be moved while it runs.
    pub(super) rank: Arc<AtomicU64>,
}

impl Journal {
    pub(super) fn new(files: Vec<RepoFile>, piece_bytes: u64) -> Self {
        let entry = |file| JournalFile {
            file,
            synced_bytes: 0,
            piece_bytes,
            pieces: Vec::new(),
            standing: Standing::Wanted,
            changed_ns: None,
        };
        Self { format: FORMAT, rank: 0, writer: None, files: files.into_iter().map(entry).collect() }
    }

    /// The same after an older version of it: what is known of files that have not changed stays.
    pub(super) fn after(old: Option<&Self>, files: Vec<RepoFile>, piece_bytes: u64) -> Self {
        let mut journal = Self::new(files, piece_bytes);
        let Some(old) = old else { return journal };
        journal.writer.clone_from(&old.writer);
        for entry in &mut journal.files {
            if let Some(known) = old.files.iter().find(|known| known.is_of_same_file(entry)) {
                *entry = JournalFile { file: entry.file.clone(), ..known.clone() };
            }
        }
        journal
    }

    /// Whether it knows the pieces that this entry has.
    pub(super) fn has_pieces_of(&self, entry: &JournalFile) -> bool {
        self.files.iter().any(|own| own.is_of_same_file(entry) && !own.pieces.is_empty())
    }

    /// The files wanted.
    pub(super) fn repo_files(&self) -> Vec<RepoFile> {
        self.files.iter().map(|entry| entry.file.clone()).collect()
    }

    /// Bytes safely on disk.
    pub(super) fn arrived_bytes(&self) -> u64 {
        self.files.iter().map(JournalFile::arrived_bytes).sum()
    }
}

impl JournalFile {
    /// Whether both are about the same bytes under the same name.
    fn is_of_same_file(&self, other: &Self) -> bool {
        let of = |entry: &Self| (entry.file.path.clone(), entry.file.size_bytes, entry.file.sha256.clone());
        of(self) == of(other) && self.file.sha256.is_some()
    }

    /// What lies under the final name is right.
    pub(super) fn settle(&mut self, standing: Standing, target: &Path) {
        self.standing = standing;
        self.changed_ns = changed_ns(target);
    }

    /// Whether what lies under the final name is what was found right, by its time.
    pub(super) fn is_settled(&self, target: &Path) -> bool {
        self.standing != Standing::Wanted && self.changed_ns.is_some() && self.changed_ns == changed_ns(target)
    }

    /// Bytes safely on disk.
    pub(super) fn arrived_bytes(&self) -> u64 {
        match self.standing {
            Standing::Wanted => self.pieces.iter().map(|piece| piece.arrived_bytes).sum(),
            Standing::Placed | Standing::Found => self.file.size_bytes,
        }
    }

    /// What is here, as far as a part file of this length can hold it.
    pub(super) fn pieces(&self, on_disk_bytes: u64) -> Pieces {
        Pieces::new(self.file.size_bytes, self.piece_bytes, &self.pieces, on_disk_bytes)
    }

    /// Takes over what the first format knew.
    fn upgrade(&mut self) {
        self.piece_bytes = PIECE_BYTES;
        let mut left_bytes = std::mem::take(&mut self.synced_bytes);
        for n in 0.. {
            let arrived_bytes = left_bytes.min(PIECE_BYTES);
            if arrived_bytes == 0 {
                return;
            }
            self.pieces.push(SavedPiece { n, arrived_bytes, hash: None });
            left_bytes -= arrived_bytes;
        }
    }

    fn is_sane(&self) -> bool {
        let count = self.file.size_bytes.checked_div(self.piece_bytes).unwrap_or(u64::MAX);
        self.synced_bytes <= self.file.size_bytes && count <= MAX_PIECES && self.pieces.len() as u64 <= count + 1
    }
}

impl Record {
    pub(super) fn new(path: PathBuf, journal: Journal) -> Self {
        let rank = Arc::new(AtomicU64::new(journal.rank));
        Self { path, journal, rank }
    }

    /// Puts the journal on disk, whatever is there: whole or not at all.
    pub(super) fn write(&self) -> Result<(), FileError> {
        self.put(&|| true).map(drop)
    }

    /// Puts the journal on disk where that still has the one that was written last.
    pub(super) fn rewrite(&self) -> Result<(), DownloadError> {
        self.replace(self.journal.writer.as_ref())
    }

    /// Puts a name to the journal, or takes it off, if it is still ours.
    pub(super) fn sign(&mut self, writer: Option<String>) -> Result<(), DownloadError> {
        let before = std::mem::replace(&mut self.journal.writer, writer);
        self.replace(before.as_ref()).inspect_err(|_| {
            if !self.is_ours() {
                self.journal.writer.clone_from(&before);
            }
        })
    }

    /// Whether the disk still has this journal, and nobody else has put his name to it.
    pub(super) fn is_ours(&self) -> bool {
        is_of(&self.path, self.journal.writer.as_ref())
    }

    fn replace(&self, writer: Option<&String>) -> Result<(), DownloadError> {
        match self.put(&|| is_of(&self.path, writer))? {
            true => Ok(()),
            false => Err(DownloadError::Displaced { path: self.path.clone() }),
        }
    }

    /// Puts the journal on disk if `may` says so at the last moment; whether it did.
    fn put(&self, may: &dyn Fn() -> bool) -> Result<bool, FileError> {
        let mut json = serde_json::to_value(&self.journal).expect("a journal has no maps with odd keys");
        json["rank"] = self.rank.load(Ordering::Acquire).into();
        let json = json.to_string().into_bytes();
        let unfinished = unfinished_journal_path(&self.path, self.journal.writer.as_deref());
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()
        });
        let placed = written.and_then(|()| match may() {
            true => fs::rename(&unfinished, &self.path).and_then(|()| sync_folder(&self.path)).map(|()| true),
            false => fs::remove_file(&unfinished).map(|()| false),
        });
        let placed = placed.inspect_err(|_| {
            // The old journal still holds; a half-written new one is of no use.
            let _ = fs::remove_file(&unfinished);
        });
        placed.map_err(FileError::at(FileAction::Write, &self.path))
    }

    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let json = read_bounded(path)?;
        let mut journal: Journal = serde_json::from_slice(&json)?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "a journal of another kind");
        if !(1..=FORMAT).contains(&journal.format) || journal.files.is_empty() {
            return Err(odd());
        }
        let is_old = journal.format < FORMAT;
        journal.format = FORMAT;
        for entry in &mut journal.files {
            if is_old {
                entry.piece_bytes = PIECE_BYTES;
            }
            if !entry.is_sane() {
                return Err(odd());
            }
            if is_old {
                entry.upgrade();
            }
        }
        Ok(Self::new(path.to_owned(), journal))
    }

    /// All journals below the models folder, in the queue's order; those that cannot be read are left alone.
    ///
    /// is_ours  nobody else writes there: what a crash has left half-written goes
    pub(super) fn find_all(models_dir: &Path, is_ours: bool) -> Vec<Self> {
        let mut found = Vec::new();
        let mut folders = vec![(models_dir.to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => folders.push((path, depth + 1)),
                    Ok(kind) if kind.is_file() && is_ours && is_unfinished_journal(&path) => {
                        // The next start tries again.
                        let _ = fs::remove_file(&path);
                    }
                    Ok(kind) if kind.is_file() && is_journal(&path) => match Self::read(&path) {
                        Ok(record) => found.push(record),
                        Err(error) => tracing::warn!(path = %path.display(), %error, "journal left alone"),
                    },
                    _ => {}
                }
            }
        }
        found.sort_by(|a, b| (a.journal.rank, &a.path).cmp(&(b.journal.rank, &b.path)));
        found
    }
}

/// When a file was last changed, in nanoseconds of the Unix time.
pub(super) fn changed_ns(path: &Path) -> Option<u64> {
    let changed = fs::metadata(path).and_then(|about| about.modified()).ok()?;
    u64::try_from(changed.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// Makes a rename in the folder of `path` outlast a power cut, where the system allows it.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// Whether a journal that can be read is there, with this name put to it.
fn is_of(path: &Path, writer: Option<&String>) -> bool {
    Record::read(path).is_ok_and(|on_disk| on_disk.journal.writer.as_ref() == writer)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large for a journal"));
    }
    fs::read(path)
}

const FORMAT: u32 = 2;
/// Bytes of a piece: what a bit of damage costs, and a request is at least.
pub(super) const PIECE_BYTES: u64 = 16 << 20;
/// A terabyte of the usual pieces.
const MAX_PIECES: u64 = 1 << 16;
/// More than all those pieces take.
const MAX_BYTES: u64 = 16 << 20;
/// Repos have few levels; links are not followed.
const MAX_DEPTH: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HashWord;

    fn record(path: PathBuf) -> Record {
        let file = RepoFile {
            repo: "测试/b".into(),
            commit: "c".into(),
            path: "x y.gguf".into(),
            size_bytes: 100,
            sha256: Some("0".repeat(64)),
            hash_word: HashWord::Unknown,
        };
        Record::new(path, Journal::new(vec![file], 64))
    }

    #[test]
    fn journals_are_found_again_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("测试/b");
        fs::create_dir_all(&folder).unwrap();
        let mut record = record(folder.join("x y.gguf.journal"));
        let hash = "0123456789abcdef".repeat(2).try_into().ok();
        record.journal.files[0].pieces = vec![SavedPiece { n: 1, arrived_bytes: 36, hash }];
        record.rank.store(7, Ordering::Release);
        record.write().unwrap();
        fs::write(unfinished_journal_path(&record.path, Some("0123456789")), "{").unwrap();
        record.journal.rank = 7;
        let found = Record::find_all(dir.path(), true);
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].path, &found[0].journal), (&record.path, &record.journal));
        assert_eq!(found[0].journal.arrived_bytes(), 36);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing half-written is left");
    }

    #[test]
    fn a_journal_that_another_has_signed_is_left_to_him() {
        let dir = tempfile::tempdir().unwrap();
        let mut ours = record(dir.path().join("x.journal"));
        assert!(ours.rewrite().is_err() && !ours.path.exists(), "one that is gone is not made again");
        ours.write().unwrap();
        let mut theirs = Record::read(&ours.path).unwrap();
        ours.sign(Some("we".to_owned())).unwrap();
        ours.rewrite().unwrap();
        assert!(theirs.sign(Some("they".to_owned())).is_err() && theirs.rewrite().is_err());
        let mut theirs = Record::read(&ours.path).unwrap();
        theirs.sign(Some("they".to_owned())).unwrap();
        assert!(!ours.is_ours() && ours.rewrite().is_err() && ours.sign(None).is_err());
        assert_eq!(Record::read(&ours.path).unwrap().journal.writer.as_deref(), Some("they"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written is left");
    }

    /// As the first format was written.
    const OLD: &str = r#"{"format": 1, "files": [{
        "file": {"repo": "a/b", "commit": "c", "path": "x.gguf", "size_bytes": 40000000, "sha256": null},
        "synced_bytes": 20000000, "standing": "wanted"}]}"#;

    #[test]
    fn journals_of_the_first_format_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.gguf.journal");
        fs::write(&path, OLD).unwrap();
        let record = Record::read(&path).unwrap();
        let entry = &record.journal.files[0];
        let piece = |n, arrived_bytes| SavedPiece { n, arrived_bytes, hash: None };
        assert_eq!(entry.pieces, [piece(0, PIECE_BYTES), piece(1, 20_000_000 - PIECE_BYTES)]);
        assert_eq!((entry.arrived_bytes(), entry.pieces(20_000_000).arrived_bytes()), (20_000_000, 20_000_000));
        record.write().unwrap();
        assert_eq!(Record::read(&path).unwrap().journal, record.journal);
    }

    #[test]
    fn what_is_no_journal_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut newer = serde_json::to_value(&record(PathBuf::new()).journal).unwrap();
        newer["format"] = 3.into();
        let mut lying = serde_json::from_str::<serde_json::Value>(OLD).unwrap();
        lying["files"][0]["synced_bytes"] = 40_000_001.into();
        let mut endless = serde_json::to_value(&record(PathBuf::new()).journal).unwrap();
        endless["files"][0]["piece_bytes"] = 0.into();
        let long = "x".repeat(MAX_BYTES as usize + 1);
        let odd = [newer, lying, endless].map(|json| json.to_string());
        let texts: Vec<String> = [String::new(), "{".into(), "[]".into(), long].into_iter().chain(odd).collect();
        for (n, text) in texts.iter().enumerate() {
            fs::write(dir.path().join(format!("{n}.journal")), text).unwrap();
        }
        assert!(Record::find_all(dir.path(), true).is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), texts.len());
    }
}
