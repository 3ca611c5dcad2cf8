//! Where a repo's file lies on this machine, and the names beside it while it is not whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::DownloadError;
use crate::wire::RepoFile;

/// The final path of a file: `publisher/repo/path in the repo` below the models folder. Whatever could lead elsewhere,
/// or collide with our own names, is refused.
pub fn place(models_dir: &Path, file: &RepoFile) -> Result<PathBuf, DownloadError> {
    let bad = || DownloadError::BadPath { repo: file.repo.clone(), path: file.path.clone() };
    let parts: Vec<&str> = file.repo.split('/').chain(file.path.split('/')).collect();
    let has_two_names = file.repo.split('/').count() == 2;
    let is_ours = [PART, JOURNAL, UNFINISHED_JOURNAL].iter().any(|ending| file.path.ends_with(ending));
    if !has_two_names || is_ours || !parts.iter().all(|part| is_plain_name(part)) {
        return Err(bad());
    }
    Ok(parts.iter().fold(models_dir.to_owned(), |path, part| path.join(part)))
}

/// Where the bytes gather until all are there and right.
pub(super) fn part_path(path: &Path) -> PathBuf {
    with_ending(path, PART)
}

/// The journal of a download, named after its first file.
pub(super) fn journal_path(path: &Path) -> PathBuf {
    with_ending(path, JOURNAL)
}

/// A journal while it is written.
pub(super) fn unfinished_journal_path(journal: &Path) -> PathBuf {
    with_ending(journal, ".new")
}

/// Whether a file is a journal, by its name.
pub(super) fn is_journal(path: &Path) -> bool {
    path.as_os_str().to_string_lossy().ends_with(JOURNAL)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(ending);
    name.into()
}

/// Whether one part of a path names a file or folder and nothing else, on every system.
fn is_plain_name(part: &str) -> bool {
    let is_forbidden = |c: char| c.is_control() || matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    let stem = part.split('.').next().unwrap_or_default().to_ascii_uppercase();
    !part.is_empty()
        && !part.ends_with(['.', ' '])
        && !part.contains(is_forbidden)
        && !RESERVED.contains(&stem.as_str())
}

const PART: &str = ".part";
const JOURNAL: &str = ".journal";
const UNFINISHED_JOURNAL: &str = ".journal.new";
/// Devices, in the eyes of Windows.
const RESERVED: &[&str] = &["CON", "PRN", "AUX", "NUL", "COM1", "COM2", "COM3", "COM4", "LPT1", "LPT2", "LPT3"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HashWord;

    fn file(repo: &str, path: &str) -> RepoFile {
        RepoFile {
            repo: repo.into(),
            commit: "c".into(),
            path: path.into(),
            size_bytes: 1,
            sha256: None,
            hash_word: HashWord::Unknown,
        }
    }

    #[test]
    fn files_keep_their_names_below_the_models_folder() {
        let models = Path::new("/m");
        let cases = [
            ("a/b", "x.gguf", "/m/a/b/x.gguf"),
            ("a/b", "Q4_K_M/x y.gguf", "/m/a/b/Q4_K_M/x y.gguf"),
            ("测试/模型", "目录/é ✓.gguf", "/m/测试/模型/目录/é ✓.gguf"),
            ("a/b", "..x.gguf", "/m/a/b/..x.gguf"),
        ];
        for (repo, path, expected) in cases {
            assert_eq!(place(models, &file(repo, path)).unwrap(), Path::new(expected));
        }
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        let cases = [
            ("a/b", "../x.gguf"),
            ("a/b", "x/../../y.gguf"),
            ("a/b", "/etc/passwd"),
            ("a/b", "x//y.gguf"),
            ("a/b", "./x.gguf"),
            ("a/b", ""),
            ("a/b", "x\\..\\y.gguf"),
            ("a/b", "C:x.gguf"),
            ("a/b", "x\0.gguf"),
            ("a/b", "x.gguf."),
            ("a/b", "nul.gguf"),
            ("a/b", "x.gguf.part"),
            ("a/b", "x.gguf.journal"),
            ("../b", "x.gguf"),
            ("a/..", "x.gguf"),
            ("a", "x.gguf"),
            ("a/b/c", "x.gguf"),
        ];
        for (repo, path) in cases {
            assert!(place(Path::new("/m"), &file(repo, path)).is_err(), "{repo} {path:?}");
        }
    }
}
