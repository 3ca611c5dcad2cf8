//! GGUF files in folders: this app's own, LM Studio's (`publisher/repo/file`), and whatever a person chose.
//!
//! Sources: layout of LM Studio, lmstudio.ai/docs/app/advanced/import-model; notes of downloads into a folder,
//! `huggingface_hub/_local_folder.py`.

use std::fs;
use std::path::{Path, PathBuf};

use super::walk::Walk;
use super::{Seen, sha256_in, small_text};
use crate::hub::{Group, group, role_of};
use crate::library::found::{Found, FoundFile};
use crate::wire::{FileRole, HashWord, Program, RepoFile};

pub(super) fn look(program: Program, folder: &Path) -> Seen {
    let walk = Walk::below(folder, MAX_DEPTH, is_gguf);
    let names: Vec<String> = walk.files.iter().map(|file| below(folder, file)).collect();
    let found = grouped(program, folder, &walk.files, &names);
    Seen { found, problems: walk.problems, ..Seen::default() }
}

/// A file that was named by itself, with the shards and companions beside it. One that is no model by its name (a
/// projector, say) stands alone.
pub(in crate::library) fn beside(program: Program, folder: Option<&Path>, file: &Path) -> Found {
    let siblings = file.parent().map(siblings).unwrap_or_default();
    let names: Vec<String> = siblings.iter().map(|path| file_name(path)).collect();
    let wanted = siblings.iter().position(|path| path == file);
    let alone = || Found::new(program, folder, vec![FoundFile::new(file.to_owned(), FileRole::Model)]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(wanted) = wanted else { return alone() };
    match group(&names).into_iter().find(|group| group.parts.contains(&wanted)) {
        Some(group) => assemble(program, folder, &siblings, group),
        None => alone(),
    }
}

/// Puts files together by their names, which may say more than their paths.
pub(super) fn grouped(program: Program, folder: &Path, files: &[PathBuf], names: &[String]) -> Vec<Found> {
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    let one = |group: Group| {
        let first = &names[group.parts[0]];
        let mut found = assemble(program, Some(folder), files, group);
        for file in found.parts.iter_mut().chain(&mut found.companions) {
            file.expected_sha256 = noted_sha256(folder, &file.path);
        }
        if matches!(program, Program::Tandem | Program::LmStudio) {
            found.source = source_of(first, found.first());
        }
        found
    };
    group(&paths).into_iter().map(one).collect()
}

fn assemble(program: Program, folder: Option<&Path>, files: &[PathBuf], group: Group) -> Found {
    let file = |role: FileRole, index: usize| FoundFile::new(files[index].clone(), role);
    let parts = group.parts.iter().map(|index| file(FileRole::Model, *index)).collect();
    let mut found = Found::new(program, folder, parts);
    found.companions = group.companions.iter().map(|(role, index)| file(*role, *index)).collect();
    found.missing = group.missing.iter().map(|path| file_name(Path::new(path))).collect();
    found
}

/// What `publisher/repo/path` says about where a file came from; which bytes it should have, nobody says.
fn source_of(name: &str, path: &Path) -> Option<RepoFile> {
    let (publisher, rest) = name.split_once('/')?;
    let (repo, file) = rest.split_once('/')?;
    let size_bytes = fs::metadata(path).ok()?.len();
    Some(RepoFile {
        repo: format!("{publisher}/{repo}"),
        commit: String::new(),
        path: file.to_owned(),
        size_bytes,
        sha256: None,
        hash_word: HashWord::Unknown,
    })
}

/// The hash that Hugging Face's own tools note beside what they download into a folder: commit, etag and time, a line each.
fn noted_sha256(root: &Path, file: &Path) -> Option<String> {
    let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    let notes = folders.filter_map(|folder| {
        let name = format!("{}.metadata", below(folder, file));
        small_text(&folder.join(".cache/huggingface/download").join(name))
    });
    notes.filter_map(|note| sha256_in(note.lines().nth(1)?)).next()
}

pub(super) fn is_gguf(name: &str) -> bool {
    role_of(name).is_some()
}

/// A path below a folder, `/` between parts.
pub(super) fn below(folder: &Path, path: &Path) -> String {
    let parts = path.strip_prefix(folder).unwrap_or(path).components();
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn siblings(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_gguf(&file_name(path))).collect();
    files.sort();
    files
}

/// `publisher/repo/folder in the repo/file`, and some to spare.
const MAX_DEPTH: usize = 8;
