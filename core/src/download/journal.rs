//! The journal of a download: what is wanted and how much of it is safely on disk. Written atomically beside the files,
//! so that a download outlives the app, however the app ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::place::{is_journal, unfinished_journal_path};
use crate::error::{FileAction, FileError};
use crate::wire::RepoFile;

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    pub(super) files: Vec<JournalFile>,
}

/// One file of a download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalFile {
    pub(super) file: RepoFile,
    /// The first so many bytes were written and flushed to the disk before this was.
    pub(super) synced_bytes: u64,
    pub(super) standing: Standing,
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
}

impl Journal {
    pub(super) fn new(files: Vec<RepoFile>) -> Self {
        let files =
            files.into_iter().map(|file| JournalFile { file, synced_bytes: 0, standing: Standing::Wanted }).collect();
        Self { format: FORMAT, files }
    }

    /// The files wanted.
    pub(super) fn repo_files(&self) -> Vec<RepoFile> {
        self.files.iter().map(|entry| entry.file.clone()).collect()
    }

    /// Bytes safely on disk.
    pub(super) fn arrived_bytes(&self) -> u64 {
        self.files.iter().map(JournalFile::arrived_bytes).sum()
    }

    /// Bytes still to come.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.file.size_bytes.saturating_sub(entry.arrived_bytes())).sum()
    }
}

impl JournalFile {
    /// Bytes safely on disk.
    pub(super) fn arrived_bytes(&self) -> u64 {
        match self.standing {
            Standing::Wanted => self.synced_bytes,
            Standing::Placed | Standing::Found => self.file.size_bytes,
        }
    }
}

impl Record {
    /// Puts the journal on disk: whole or not at all.
    pub(super) fn write(&self) -> Result<(), FileError> {
        let json = serde_json::to_vec_pretty(&self.journal).expect("a journal has no maps with odd keys");
        let unfinished = unfinished_journal_path(&self.path);
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()
        });
        let placed = written.and_then(|()| fs::rename(&unfinished, &self.path)).inspect_err(|_| {
            // The old journal still holds; a half-written new one is of no use.
            let _ = fs::remove_file(&unfinished);
        });
        placed.and_then(|()| sync_folder(&self.path)).map_err(FileError::at(FileAction::Write, &self.path))
    }

    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let json = read_bounded(path)?;
        let journal: Journal = serde_json::from_slice(&json)?;
        let is_sane = journal.format == FORMAT
            && !journal.files.is_empty()
            && journal.files.iter().all(|entry| entry.synced_bytes <= entry.file.size_bytes);
        if !is_sane {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a journal of another kind"));
        }
        Ok(Self { path: path.to_owned(), journal })
    }

    /// All journals below the models folder; those that cannot be read are left alone.
    pub(super) fn find_all(models_dir: &Path) -> Vec<Self> {
        let mut found = Vec::new();
        let mut folders = vec![(models_dir.to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => folders.push((path, depth + 1)),
                    Ok(kind) if kind.is_file() && is_journal(&path) => match Self::read(&path) {
                        Ok(record) => found.push(record),
                        Err(error) => tracing::warn!(path = %path.display(), %error, "journal left alone"),
                    },
                    _ => {}
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }
}

/// Makes a rename in the folder of `path` outlast a power cut, where the system allows it.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large for a journal"));
    }
    fs::read(path)
}

const FORMAT: u32 = 1;
/// A thousand shards take half of it.
const MAX_BYTES: u64 = 1 << 20;
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
        Record { path, journal: Journal::new(vec![file]) }
    }

    #[test]
    fn journals_are_found_again_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("测试/b");
        fs::create_dir_all(&folder).unwrap();
        let mut record = record(folder.join("x y.gguf.journal"));
        record.journal.files[0].synced_bytes = 40;
        record.write().unwrap();
        let found = Record::find_all(dir.path());
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].path, &found[0].journal), (&record.path, &record.journal));
        assert_eq!(found[0].journal.arrived_bytes(), 40);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing half-written is left");
    }

    #[test]
    fn what_is_no_journal_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut newer = serde_json::to_value(&record(PathBuf::new()).journal).unwrap();
        newer["format"] = 2.into();
        let mut lying = serde_json::to_value(&record(PathBuf::new()).journal).unwrap();
        lying["files"][0]["synced_bytes"] = 101.into();
        let texts = [String::new(), "{".into(), "[]".into(), newer.to_string(), lying.to_string(), "x".repeat(2 << 20)];
        for (n, text) in texts.iter().enumerate() {
            fs::write(dir.path().join(format!("{n}.journal")), text).unwrap();
        }
        assert!(Record::find_all(dir.path()).is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), texts.len());
    }
}
