//! Where removed files go.

use std::fs;
use std::path::{Path, PathBuf};

use super::LibraryError;
use crate::error::{FileAction, FileError};

/// Where removed models go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trash {
    /// The system's trash, from which a person can take them back.
    System,
    /// A folder.
    Folder(PathBuf),
}

impl Trash {
    /// Moves a file there; a link goes itself, not what it leads to.
    pub(crate) fn take(&self, file: &Path) -> Result<(), LibraryError> {
        match self {
            Self::System => trash::delete(file).map_err(|source| LibraryError::Trash { path: file.to_owned(), source }),
            Self::Folder(folder) => {
                fs::create_dir_all(folder).map_err(FileError::at(FileAction::Write, folder))?;
                Ok(fs::rename(file, free_name(folder, file)).map_err(FileError::at(FileAction::Move, file))?)
            }
        }
    }
}

/// The file's own name if that is free, else with a number behind it: files of one name must not replace each other.
fn free_name(folder: &Path, file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or(file.as_os_str());
    let numbered = (2..).map(|number: u32| {
        let mut name = name.to_owned();
        name.push(format!(" ({number})"));
        folder.join(name)
    });
    let mut names = std::iter::once(folder.join(name)).chain(numbered);
    names.find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}
