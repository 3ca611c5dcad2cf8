//! llama.cpp's own cache, flat: `{publisher}_{repo}_{path}` with `_` for `/`, beside each `.json` or `.etag`, and
//! `manifest={publisher}={repo}={tag}.json` with the hub's answer. Newer versions keep Hugging Face's layout in the same
//! folder.
//!
//! The etag there is that of whatever server sent the bytes, not a hash of them: only the manifest's SHA256 counts.
//! Source: `common/download.cpp` and `common/hf-cache.cpp` of llama.cpp.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::plain::{file_name, grouped, is_gguf};
use super::walk::Walk;
use super::{Seen, hugging_face, sha256_in, small_text};
use crate::wire::{HashWord, Program, RepoFile};

pub(super) fn look(root: &Path) -> Seen {
    let walk = Walk::below(root, 0, is_gguf);
    let origins = Origins::read(root, &walk.files);
    let names: Vec<String> = walk.files.iter().map(|file| origins.name(&file_name(file))).collect();
    let mut seen = hugging_face::look(root, Program::LlamaCpp);
    seen.problems.extend(walk.problems);
    seen.found.extend(grouped(Program::LlamaCpp, root, &walk.files, &names).into_iter().map(|mut found| {
        let mut notes = Vec::new();
        for file in found.parts.iter_mut().chain(&mut found.companions) {
            file.expected_sha256 = origins.hashes.get(&origins.name(&file_name(&file.path))).cloned();
            notes.extend(NOTES.iter().map(|ending| with_ending(&file.path, ending)).filter(|path| path.is_file()));
        }
        let name = origins.name(&file_name(found.first()));
        found.file_name = name.rsplit('/').next().map(str::to_owned);
        found.source = source_of(&name, &found.parts[0].expected_sha256, found.first());
        found.extras = notes;
        found
    }));
    seen
}

/// What manifests and notes tell about where files came from.
#[derive(Default)]
struct Origins {
    /// `publisher/repo`, by how the names of its files begin.
    repos: HashMap<String, String>,
    /// SHA256 by `publisher/repo/path`.
    hashes: HashMap<String, String>,
}

impl Origins {
    fn read(root: &Path, files: &[PathBuf]) -> Self {
        let mut origins = Self::default();
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let parts: Vec<&str> = name.split('=').collect();
            let ["manifest", publisher, repo, _] = parts.as_slice() else { continue };
            origins.add_manifest(&format!("{publisher}/{repo}"), &entry.path());
        }
        for file in files {
            let note =
                small_text(&with_ending(file, ".json")).and_then(|text| serde_json::from_str::<Note>(&text).ok());
            if let Some(repo) = note.and_then(|note| repo_of_url(&note.url)) {
                origins.add_repo(&repo);
            }
        }
        origins
    }

    fn add_repo(&mut self, repo: &str) {
        self.repos.insert(format!("{}_", repo.replace('/', "_")), repo.to_owned());
    }

    fn add_manifest(&mut self, repo: &str, path: &Path) {
        self.add_repo(repo);
        let Some(manifest) = small_text(path).and_then(|text| serde_json::from_str::<Manifest>(&text).ok()) else {
            return;
        };
        for file in [manifest.gguf_file, manifest.mmproj_file].into_iter().flatten() {
            if let Some(sha256) = file.lfs.and_then(|lfs| sha256_in(lfs.sha256.as_deref()?)) {
                // Files of folders lose their slashes: the name on the disk is what both have in common.
                self.hashes.insert(format!("{repo}/{}", file.path.replace('/', "_")), sha256);
            }
        }
    }

    /// `publisher/repo/name` where the repo is known, else the name. Of two beginnings that fit the longer is meant.
    fn name(&self, file_name: &str) -> String {
        let fitting = self.repos.iter().filter(|(start, _)| file_name.starts_with(start.as_str()));
        match fitting.max_by_key(|(start, _)| start.len()) {
            Some((start, repo)) => format!("{repo}/{}", &file_name[start.len()..]),
            None => file_name.to_owned(),
        }
    }
}

fn source_of(name: &str, sha256: &Option<String>, path: &Path) -> Option<RepoFile> {
    let parts: Vec<&str> = name.splitn(3, '/').collect();
    let [publisher, repo, file] = parts.as_slice() else { return None };
    let size_bytes = fs::metadata(path).ok()?.len();
    let (repo, path) = (format!("{publisher}/{repo}"), (*file).to_owned());
    Some(RepoFile {
        repo,
        commit: String::new(),
        path,
        size_bytes,
        sha256: sha256.clone(),
        hash_word: HashWord::Unknown,
    })
}

/// `publisher/repo` of `https://host/publisher/repo/resolve/revision/path`.
fn repo_of_url(url: &str) -> Option<String> {
    let (before, _) = url.split_once("/resolve/")?;
    let (_, path) = before.split_once("://")?.1.split_once('/')?;
    (path.split('/').count() == 2).then(|| path.to_owned())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[derive(Deserialize)]
struct Note {
    url: String,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "ggufFile")]
    gguf_file: Option<ManifestFile>,
    #[serde(rename = "mmprojFile")]
    mmproj_file: Option<ManifestFile>,
}

#[derive(Deserialize)]
struct ManifestFile {
    #[serde(rename = "rfilename")]
    path: String,
    #[serde(default)]
    lfs: Option<ManifestLfs>,
}

#[derive(Deserialize)]
struct ManifestLfs {
    #[serde(default)]
    sha256: Option<String>,
}

const NOTES: &[&str] = &[".json", ".etag"];
