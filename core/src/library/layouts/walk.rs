//! Goes through folders and lists files by name. Links are followed, each folder is entered once, and what cannot be read
//! is named and passed over.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Explain, FileAction, FileError};
use crate::library::LibraryError;
use crate::wire::{ErrorCode, Failure, Text};

/// What a walk has found.
#[derive(Debug)]
pub(super) struct Walk {
    /// Wanted files, in order of their paths.
    pub(super) files: Vec<PathBuf>,
    pub(super) problems: Vec<Failure>,
    wanted: fn(&str) -> bool,
    entered: HashSet<PathBuf>,
    n_left: usize,
}

impl Walk {
    /// Lists the files below a folder whose names are wanted. Hidden ones are left out.
    pub(super) fn below(folder: &Path, depth: usize, wanted: fn(&str) -> bool) -> Self {
        let mut walk =
            Self { files: Vec::new(), problems: Vec::new(), wanted, entered: HashSet::new(), n_left: MAX_ENTRIES };
        walk.enter(folder, depth);
        if walk.n_left == 0 {
            walk.problems.push(too_many(folder));
        }
        walk.files.sort();
        walk
    }

    fn enter(&mut self, folder: &Path, depth: usize) {
        let entries = dunce::canonicalize(folder).and_then(|real| Ok((fs::read_dir(folder)?, real)));
        let entries = match entries {
            Ok((entries, real)) if self.entered.insert(real.clone()) => entries,
            Ok(_) => return,
            Err(error) => return self.problems.push(FileError::at(FileAction::Read, folder)(error).explain()),
        };
        for entry in entries.flatten() {
            if self.n_left == 0 {
                return;
            }
            self.n_left -= 1;
            self.visit(&entry.path(), depth);
        }
    }

    fn visit(&mut self, path: &Path, depth: usize) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            return;
        }
        let is_wanted = (self.wanted)(&name);
        match fs::metadata(path) {
            Ok(about) if about.is_dir() && depth > 0 => self.enter(path, depth - 1),
            Ok(about) if about.is_dir() => {}
            Ok(_) if is_wanted && path.to_str().is_none() => {
                self.problems.push(LibraryError::PathNotUnicode { path: path.to_owned() }.explain());
            }
            Ok(_) if is_wanted => self.files.push(path.to_owned()),
            Err(error) if is_wanted => self.problems.push(unreadable(path, error)),
            _ => {}
        }
    }
}

/// Why a name leads to no file.
pub(super) fn unreadable(path: &Path, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound && path.is_symlink() {
        let path = path.display();
        return Failure::new(
            ErrorCode::NotFound,
            Text::new(
                format!("`{path}` is a link to a file that is not there"),
                format!("`{path}` 是一个链接，指向的文件不存在"),
            ),
            Text::new(
                "connect the drive it leads to, or fetch the model again",
                "连接其所在的磁盘，或者重新下载该模型",
            ),
        );
    }
    FileError::at(FileAction::Read, path)(error).explain()
}

fn too_many(folder: &Path) -> Failure {
    let folder = folder.display();
    Failure::new(
        ErrorCode::BadRequest,
        Text::new(
            format!("`{folder}` holds more than {MAX_ENTRIES} files; not all were looked at"),
            format!("`{folder}` 中的文件超过 {MAX_ENTRIES} 个，没有全部查看"),
        ),
        Text::new("choose the folder that holds the models alone", "请选择只存放模型的文件夹"),
    )
}

/// More than any model folder has; a home folder may have more.
const MAX_ENTRIES: usize = 200_000;
