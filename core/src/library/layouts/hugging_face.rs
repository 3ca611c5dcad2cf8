//! The cache that Hugging Face's tools and llama.cpp share: `models--publisher--name/snapshots/<commit>/<path>` are links to
//! `blobs/<etag>`, and the etag of a large file is its SHA256. Where links are not allowed the file itself lies in the
//! snapshot; then `trees/<commit>.json` knows its hash.
//!
//! Source: `file_download.py` and `_tree_cache.py` of huggingface_hub, `common/hf-cache.cpp` of llama.cpp.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::plain::{below, grouped, is_gguf};
use super::walk::Walk;
use super::{Seen, sha256_in, small_text};
use crate::error::{Explain, FileAction, FileError};
use crate::library::found::Found;
use crate::wire::{HashWord, Program, RepoFile};

pub(super) fn look(root: &Path, program: Program) -> Seen {
    let mut seen = Seen::default();
    for folder in folders_in(root, &mut seen) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(repo) = name.strip_prefix(REPO_START).map(|name| name.replacen("--", "/", 1)) else { continue };
        if !folder.join("snapshots").is_dir() {
            continue;
        }
        let mut snapshots = folders_in(&folder.join("snapshots"), &mut seen);
        let current = small_text(&folder.join("refs/main")).unwrap_or_default();
        snapshots.sort_by_key(|snapshot| !snapshot.ends_with(current.trim()));
        for snapshot in snapshots {
            look_into(root, &folder, &repo, &snapshot, program, &mut seen);
        }
    }
    seen
}

fn look_into(root: &Path, repo_folder: &Path, repo: &str, snapshot: &Path, program: Program, seen: &mut Seen) {
    let commit = snapshot.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let walk = Walk::below(snapshot, MAX_DEPTH, is_gguf);
    let names: Vec<String> = walk.files.iter().map(|file| below(snapshot, file)).collect();
    let tree = Tree::read(repo_folder, &commit);
    seen.problems.extend(walk.problems);
    seen.found.extend(grouped(program, root, &walk.files, &names).into_iter().map(|mut found| {
        let mut blobs = Vec::new();
        for file in found.parts.iter_mut().chain(&mut found.companions) {
            let blob = blob_of(&file.path);
            let etag = blob.as_ref().and_then(|blob| sha256_in(&blob.file_name()?.to_string_lossy()));
            file.expected_sha256 = etag.or_else(|| tree.sha256(&below(snapshot, &file.path)));
            blobs.extend(blob);
        }
        found.extras = blobs;
        found.source = source_of(repo, &commit, snapshot, &found);
        found
    }));
}

fn source_of(repo: &str, commit: &str, snapshot: &Path, found: &Found) -> Option<RepoFile> {
    Some(RepoFile {
        repo: repo.to_owned(),
        commit: commit.to_owned(),
        path: below(snapshot, found.first()),
        size_bytes: fs::metadata(found.first()).ok()?.len(),
        sha256: found.parts[0].expected_sha256.clone(),
        hash_word: HashWord::Unknown,
    })
}

/// Where a link of a snapshot leads, one step: a blob may itself be a link into a store that repos share, and that one is
/// named by another hash.
fn blob_of(path: &Path) -> Option<PathBuf> {
    let blob = path.parent()?.join(fs::read_link(path).ok()?);
    let folder = dunce::canonicalize(blob.parent()?).ok()?;
    folder.ends_with("blobs").then(|| folder.join(blob.file_name().unwrap_or_default()))
}

fn folders_in(folder: &Path, seen: &mut Seen) -> Vec<PathBuf> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let mut folders: Vec<PathBuf> =
                entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            folders.sort();
            folders
        }
        Err(error) => {
            seen.problems.push(FileError::at(FileAction::Read, folder)(error).explain());
            Vec::new()
        }
    }
}

/// What newer tools note about all files of a commit.
#[derive(Default, Deserialize)]
struct Tree {
    files: HashMap<String, TreeFile>,
}

#[derive(Deserialize)]
struct TreeFile {
    #[serde(default)]
    lfs_sha256: Option<String>,
}

impl Tree {
    fn read(repo_folder: &Path, commit: &str) -> Self {
        let text = small_text(&repo_folder.join("trees").join(format!("{commit}.json")));
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    fn sha256(&self, path: &str) -> Option<String> {
        sha256_in(self.files.get(path)?.lfs_sha256.as_deref()?)
    }
}

/// How the folder of a model's repo begins.
pub(super) const REPO_START: &str = "models--";
const MAX_DEPTH: usize = 5;
