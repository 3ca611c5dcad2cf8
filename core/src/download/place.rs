//! Where a repo's file lies on this machine, and the names beside it while it is not whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::DownloadError;
use crate::wire::RepoFile;

/// The final path of a file: `publisher/repo/path in the repo` below the models folder. Whatever could lead elsewhere,
/// or collide with our own names, is refused.
pub fn place(models_dir: &Path, file: &RepoFile) -> Result<PathBuf, DownloadError> {
    let bad = || DownloadError::BadPath { repo: file.repo.clone(), path: file.path.clone() };
    let parts: Vec<&str> = file.repo.split('/').chain(file.path.split('/')).collect();
    let has_two_names = file.repo.split('/').count() == 2;
    let is_ours = [PART, PLACING, UNFINISHED_PART, JOURNAL].iter().any(|ending| file.path.ends_with(ending))
        || is_unfinished_journal(Path::new(&file.path));
    if !has_two_names || is_ours || !parts.iter().all(|part| is_plain_name(part)) {
        return Err(bad());
    }
    Ok(parts.iter().fold(models_dir.to_owned(), |path, part| path.join(part)))
}

/// Where the bytes gather until all are there and right.
pub(super) fn part_path(path: &Path) -> PathBuf {
    with_ending(path, PART)
}

/// What is whole and right while it goes from there to its final name.
pub(super) fn placing_path(path: &Path) -> PathBuf {
    with_ending(path, PLACING)
}

/// A part while its bytes are copied from one that another process may still write.
pub(super) fn unfinished_part_path(path: &Path) -> PathBuf {
    with_ending(path, UNFINISHED_PART)
}

/// The journal of a download, named after its first file.
pub(super) fn journal_path(path: &Path) -> PathBuf {
    with_ending(path, JOURNAL)
}

/// A journal while somebody writes it.
pub(super) fn unfinished_journal_path(journal: &Path, writer: Option<&str>) -> PathBuf {
    let mut name = OsString::from(journal.as_os_str());
    if let Some(writer) = writer {
        name.push(".");
        name.push(writer.get(..WRITER_BYTES).unwrap_or(writer));
    }
    name.push(UNFINISHED);
    name.into()
}

/// Whether a file is a journal that was not written to its end, by its name.
pub(super) fn is_unfinished_journal(path: &Path) -> bool {
    let name = path.as_os_str().to_string_lossy();
    let Some(name) = name.strip_suffix(UNFINISHED) else { return false };
    let is_writer = |end: &str| end.len() == WRITER_BYTES && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unsigned = name.rsplit_once('.').filter(|(_, end)| is_writer(end)).map_or(name, |(start, _)| start);
    unsigned.ends_with(JOURNAL)
}

/// Whether a file is a journal, by its name.
pub(super) fn is_journal(path: &Path) -> bool {
    path.as_os_str().to_string_lossy().ends_with(JOURNAL)
}

/// The name with an ending. One that would become too long for a file system is cut, and told from others by its hash.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    if name.len() + LONGEST_ENDING_BYTES <= LONGEST_NAME_BYTES {
        let mut name = OsString::from(path.as_os_str());
        name.push(ending);
        return name.into();
    }
    let hash: String =
        Sha256::digest(name.as_encoded_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = name.to_string_lossy();
    let is_kept = |(at, c): &(usize, char)| at + c.len_utf8() <= KEPT_NAME_BYTES;
    let kept: String = name.char_indices().take_while(is_kept).map(|(_, c)| c).collect();
    path.with_file_name(format!("{kept}-{hash}{ending}"))
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

/// Of a name, on most file systems.
const LONGEST_NAME_BYTES: usize = 255;
/// Of a long name, beside hash and ending.
const KEPT_NAME_BYTES: usize = 160;
const PART: &str = ".part";
const PLACING: &str = ".placing";
const UNFINISHED_PART: &str = ".part.new";
const JOURNAL: &str = ".journal";
const UNFINISHED: &str = ".new";
/// Of a writer's name.
const WRITER_BYTES: usize = 8;
const LONGEST_ENDING_BYTES: usize = JOURNAL.len() + 1 + WRITER_BYTES + UNFINISHED.len();
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
    fn names_beside_a_long_one_fit_and_stay_apart() {
        let long = |last: &str| PathBuf::from(format!("/m/{}{last}.gguf", "模".repeat(82)));
        let names = [part_path(&long("a")), journal_path(&long("a")), part_path(&long("b"))];
        let unfinished = unfinished_journal_path(&names[1], Some("0123456789abcdef"));
        for path in names.iter().chain([&unfinished]) {
            assert!(path.file_name().unwrap().len() <= LONGEST_NAME_BYTES && path.parent() == Some(Path::new("/m")));
        }
        assert!(names[0] != names[2] && is_journal(&names[1]) && !is_journal(&unfinished));
        assert!(is_unfinished_journal(&unfinished) && !is_unfinished_journal(Path::new("/m/x.gguf.new")));
        assert_eq!(part_path(Path::new("/m/x.gguf")), Path::new("/m/x.gguf.part"));
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
            ("a/b", "x.gguf.placing"),
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
