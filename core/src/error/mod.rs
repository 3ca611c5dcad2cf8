//! Turns errors into what a person reads: what happened and what to do, in both languages.
//!
//! Each error enum of this crate implements [`Explain`] where it is declared. Here are the trait, the explanation of
//! file errors that all share, and the explanations of the engine's errors: the engine has no words for people.

mod cuda;
mod engine;

pub(crate) use cuda::spoiled_card;
pub use engine::{cancelled, context_full};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::wire::{ErrorCode, Failure, Text};

/// An error that can tell a person what happened and what to do.
pub trait Explain {
    /// The same error in words.
    fn explain(&self) -> Failure;
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        error.explain()
    }
}

/// What was being done to a file when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Opening or reading.
    Read,
    /// Creating or writing.
    Write,
    /// Renaming, or moving to the trash.
    Move,
}

/// A file or folder that could not be read, written or moved.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`: {source}", path.display())]
pub struct FileError {
    /// What was tried.
    pub action: FileAction,
    /// On which file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl FileError {
    /// Names file and action of a system error, for `map_err`.
    pub fn at(action: FileAction, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.to_owned(), source }
    }
}

impl fmt::Display for FileAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Move => "move",
        })
    }
}

impl Explain for FileError {
    fn explain(&self) -> Failure {
        let path = self.path.display();
        let (action, action_zh) = match self.action {
            FileAction::Read => ("read", "读取"),
            FileAction::Write => ("written", "写入"),
            FileAction::Move => ("moved", "移动"),
        };
        match self.source.kind() {
            _ if is_disk_full(&self.source) => disk_full(&self.path),
            io::ErrorKind::NotFound => Failure::new(
                ErrorCode::NotFound,
                Text::new(format!("`{path}` is not there"), format!("`{path}` 不存在")),
                Text::new("check the path, or whether the drive is connected", "检查路径，或者磁盘是否已连接"),
            ),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("`{path}` cannot be {action}: access is denied"),
                    format!("无法{action_zh} `{path}`：没有权限"),
                ),
                Text::new(
                    "change the folder's permissions, or choose another folder",
                    "修改文件夹权限，或者换一个文件夹",
                ),
            ),
            io::ErrorKind::OutOfMemory => Failure::new(
                ErrorCode::OutOfMemory,
                Text::new(
                    format!("`{path}` cannot be {action}: the system gave no memory for it"),
                    format!("无法{action_zh} `{path}`：系统没有为其分配内存"),
                ),
                Text::new(
                    "close other programs, or raise the memory limit of this one",
                    "关闭其他程序，或者提高本程序的内存限制",
                ),
            ),
            _ if is_out_of_handles(&self.source) => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("`{path}` cannot be {action}: too many files are open"),
                    format!("无法{action_zh} `{path}`：打开的文件过多"),
                ),
                Text::new(
                    "close other programs, or raise the limit of open files",
                    "关闭其他程序，或者提高打开文件数的上限",
                ),
            ),
            _ => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("`{path}` cannot be {action}: {}", self.source),
                    format!("无法{action_zh} `{path}`{}", detail(&self.source)),
                ),
                Text::new("check that the drive is connected and healthy", "检查磁盘是否已连接、是否正常"),
            ),
        }
    }
}

/// Whether the system says that the volume, or this user's share of it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the process or the system has as many files open as it may: `EMFILE` and `ENFILE`, or `ERROR_TOO_MANY_OPEN_FILES`.
fn is_out_of_handles(error: &io::Error) -> bool {
    let numbers: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

/// The volume of `path` is full.
pub fn disk_full(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        ErrorCode::DiskFull,
        Text::new(format!("the disk that holds `{path}` is full"), format!("`{path}` 所在的磁盘已满")),
        Text::new("free some space on it; what is already there is kept", "在该磁盘上腾出空间；已有的内容会保留"),
    )
}

/// A request that makes no sense: a fault of the caller, not of the person.
pub fn bad_request(en: impl Into<String>, zh: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::BadRequest, Text::new(en, zh), Text::new("go back and try again", "返回后重试"))
}

/// What the engine, a library or the system said in English, to stand behind a Chinese sentence.
pub fn detail(said: &(impl std::fmt::Display + ?Sized)) -> String {
    format!("（英文详情：{said}）")
}

/// A size as people read it: binary, one decimal, number and unit kept together.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1}\u{a0}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = FileError::at(FileAction::Write, Path::new("/模型/a.gguf"))(kind.into());
            let failure = error.explain();
            assert_eq!(failure.code, ErrorCode::DiskFull);
            assert!(failure.message.en.contains("/模型/a.gguf") && failure.message.zh.contains("/模型/a.gguf"));
        }
        assert!(is_disk_full(&io::Error::from_raw_os_error(28)), "ENOSPC");
    }

    #[test]
    fn file_errors_name_file_and_action() {
        let cases = [
            (FileAction::Read, io::ErrorKind::NotFound, ErrorCode::NotFound, "`/x` is not there"),
            (
                FileAction::Write,
                io::ErrorKind::PermissionDenied,
                ErrorCode::Io,
                "`/x` cannot be written: access is denied",
            ),
            (FileAction::Move, io::ErrorKind::TimedOut, ErrorCode::Io, "`/x` cannot be moved: timed out"),
        ];
        for (action, kind, code, message) in cases {
            let failure = FileError::at(action, Path::new("/x"))(kind.into()).explain();
            assert_eq!((failure.code, failure.message.en.as_str()), (code, message));
            assert!(!failure.message.zh.is_empty() && !failure.hint.en.is_empty() && !failure.hint.zh.is_empty());
        }
    }

    #[test]
    #[cfg(unix)]
    fn what_the_system_lacks_is_not_blamed_on_the_drive() {
        let explain =
            |number| FileError::at(FileAction::Read, Path::new("/a"))(io::Error::from_raw_os_error(number)).explain();
        for (number, code, message) in [
            (12, ErrorCode::OutOfMemory, "`/a` cannot be read: the system gave no memory for it"),
            (23, ErrorCode::Io, "`/a` cannot be read: too many files are open"),
            (24, ErrorCode::Io, "`/a` cannot be read: too many files are open"),
        ] {
            let failure = explain(number);
            assert_eq!((failure.code, failure.message.en.as_str()), (code, message));
            assert!(!failure.hint.en.contains("drive"), "{}", failure.hint.en);
        }
    }

    #[test]
    fn sizes_are_binary_with_one_decimal() {
        let cases = [
            (0, "0.0\u{a0}KB"),
            (1536, "1.5\u{a0}KB"),
            (1024 * 1024 - 1, "1.0\u{a0}MB"),
            (91_730_000, "87.5\u{a0}MB"),
            (20 << 30, "20.0\u{a0}GB"),
            (5000 << 40, "5000.0\u{a0}TB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }
}
