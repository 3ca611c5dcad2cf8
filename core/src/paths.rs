//! Where everything lies on disk. Plain paths; nothing here is ever turned into a `str`.

use std::fs;
use std::path::{Path, PathBuf};

use directories::ProjectDirs;

use crate::error::{FileAction, FileError};

/// The app's folders and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// What must not be lost: the database, and the lock of the running app.
    pub data_dir: PathBuf,
    /// Downloaded models, as `publisher/repo/path in the repo`.
    pub models_dir: PathBuf,
    /// What can be fetched again.
    pub cache_dir: PathBuf,
    /// Log files.
    pub logs_dir: PathBuf,
    /// Chats, library and settings.
    pub database: PathBuf,
}

impl Paths {
    /// The platform's usual places; `None` if the system knows no home folder.
    pub fn standard() -> Option<Self> {
        let dirs = ProjectDirs::from("app", "Tandem", "Tandem")?;
        let data_dir = dirs.data_local_dir().to_owned();
        Some(Self {
            models_dir: data_dir.join("models"),
            cache_dir: dirs.cache_dir().to_owned(),
            logs_dir: data_dir.join("logs"),
            database: data_dir.join(DATABASE),
            data_dir,
        })
    }

    /// Everything under one folder: portable use, tests.
    pub fn under(root: &Path) -> Self {
        let data_dir = root.to_owned();
        Self {
            models_dir: data_dir.join("models"),
            cache_dir: data_dir.join("cache"),
            logs_dir: data_dir.join("logs"),
            database: data_dir.join(DATABASE),
            data_dir,
        }
    }

    /// Makes the folders. What cannot be made (a full disk) is told, not fatal: the app starts all the same.
    pub fn create(&self) -> Vec<FileError> {
        [&self.data_dir, &self.models_dir, &self.cache_dir, &self.logs_dir]
            .into_iter()
            .filter_map(|dir| fs::create_dir_all(dir).map_err(FileError::at(FileAction::Write, dir)).err())
            .collect()
    }
}

const DATABASE: &str = "tandem.db";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_any_name_are_made() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(&root.path().join("模型 テスト é ✓"));
        assert!(paths.create().is_empty());
        assert!(paths.models_dir.is_dir() && paths.cache_dir.is_dir() && paths.logs_dir.is_dir());
        assert!(paths.create().is_empty(), "a second start finds them");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let root = tempfile::tempdir().unwrap();
        let mut paths = Paths::under(root.path());
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        paths.cache_dir = file.join("cache");
        let problems = paths.create();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, paths.cache_dir);
        assert!(paths.models_dir.is_dir(), "the others are made");
    }
}
