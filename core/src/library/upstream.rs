//! What a hub says about models that are here: whose bytes they have, and whether it has others by now. Pure comparison; who
//! asks the hub is not this module's matter.

use super::{Library, LibraryError, item};
use crate::wire::{FileRole, LibraryModel, Program, RepoFile};

impl Library {
    /// Repos that models are known or believed to come from, each once.
    pub fn repos(&self) -> Vec<String> {
        let models = self.list();
        let mut repos: Vec<String> = models.into_iter().filter_map(|model| Some(model.source?.repo)).collect();
        repos.sort();
        repos.dedup();
        repos
    }

    /// Compares all models of a repo with its files as they are now. How many were compared, and of how many the hub has
    /// another version.
    pub fn compare_with(&self, repo: &str, files: &[RepoFile]) -> Result<(usize, usize), LibraryError> {
        let of_repo = |model: &LibraryModel| model.source.as_ref().is_some_and(|source| source.repo == repo);
        let (mut n_checked, mut n_newer) = (0, 0);
        for model in self.list().into_iter().filter(of_repo) {
            let compared = self.update(&model.id, |model| compare(model, files))?;
            n_checked += 1;
            n_newer += usize::from(compared.newer.is_some());
        }
        self.changed();
        Ok((n_checked, n_newer))
    }
}

/// Whether a model has this file's bytes, as far as anybody knows without reading them. Of what lies in the app's own
/// folder they are known: a download of it begins with reading what is there.
pub(super) fn is_of(model: &LibraryModel, file: &RepoFile) -> bool {
    let is_own = model.places.iter().any(|place| place.program == Program::Tandem && place.path == model.path);
    let known = if is_own { computed_sha256(model) } else { known_sha256(model) };
    match (&known, &file.sha256) {
        (Some(known), Some(wanted)) => known == wanted,
        (None, Some(_)) if is_own => false,
        _ => model.source.as_ref().is_some_and(|source| {
            source.repo == file.repo && source.path == file.path && source.size_bytes == file.size_bytes
        }),
    }
}

/// Bytes that the repo has make a promise that is kept; where it has others than those promised under the same name, they
/// are the newer ones.
fn compare(model: &mut LibraryModel, files: &[RepoFile]) {
    model.newer = None;
    for file in &mut model.files {
        if file.sha256.is_some() && files.iter().any(|there| there.sha256 == file.sha256) {
            file.expected_sha256.clone_from(&file.sha256);
        }
    }
    model.integrity = item::integrity(&model.files);
    let known = known_sha256(model);
    if let Some(same) = files.iter().find(|file| file.sha256.is_some() && file.sha256 == known) {
        model.source = Some(same.clone());
        return;
    }
    let Some(source) = &model.source else { return };
    let there = files.iter().find(|file| file.path == source.path);
    let is_other = |there: &&RepoFile| match (&source.sha256, &there.sha256) {
        // What is here may be damaged; what was fetched is what the hub still has.
        (Some(promised), Some(now)) => promised != now,
        _ => known.is_some() || there.size_bytes != source.size_bytes,
    };
    model.newer = there.filter(is_other).cloned();
}

/// SHA256 of a model's first file as it was read.
fn computed_sha256(model: &LibraryModel) -> Option<String> {
    let first = model.files.iter().find(|file| file.role == FileRole::Model);
    first.and_then(|file| file.sha256.clone())
}

/// SHA256 of a model's first file, computed or promised.
fn known_sha256(model: &LibraryModel) -> Option<String> {
    let first = model.files.iter().find(|file| file.role == FileRole::Model);
    let promised = || first.and_then(|file| file.expected_sha256.clone());
    computed_sha256(model).or_else(promised).or_else(|| model.source.as_ref()?.sha256.clone())
}
