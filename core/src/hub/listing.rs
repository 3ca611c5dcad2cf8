//! A repo's page and files, pinned to a commit.

use serde::Deserialize;

use super::error::{HubError, Missing, Oddity};
use super::http::About;
use super::search::{ModelJson, is_repo_name};
use super::{Hub, RepoListing};
use crate::wire::{HashWord, HubKind, RepoFile};

impl Hub {
    /// Lists a repo's files with sizes and SHA256 as they are now. An old name leads to the new one.
    pub async fn model(&self, repo: &str) -> Result<RepoListing, HubError> {
        match self.kind {
            HubKind::HuggingFace => self.hugging_face_model(repo, None).await,
            HubKind::ModelScope => self.modelscope_model(repo).await,
        }
    }

    /// The same at a commit, where this hub has commits; else as they are now.
    pub async fn model_at(&self, repo: &str, commit: &str) -> Result<RepoListing, HubError> {
        match self.kind {
            HubKind::HuggingFace if is_commit(commit) => self.hugging_face_model(repo, Some(commit)).await,
            _ => self.model(repo).await,
        }
    }

    async fn hugging_face_model(&self, repo: &str, commit: Option<&str>) -> Result<RepoListing, HubError> {
        let (publisher, name) = split_name(repo)?;
        let mut parts = vec!["api", "models", publisher, name];
        parts.extend(commit.iter().flat_map(|commit| ["revision", *commit]));
        let mut url = self.url(&parts);
        url.query_pairs_mut().append_pair("blobs", "true");
        let about = About { repo, path: None };
        let (mut page, _): (ModelJson, _) = self.get_json(url, about).await?;
        let commit = page.sha.take().filter(|sha| is_commit(sha));
        let Some(commit) = commit else {
            return Err(HubError::odd(&self.base, Oddity::BadJson { detail: "no commit".to_owned() }));
        };
        let siblings = page.siblings.take().unwrap_or_default();
        let is_sized = siblings.iter().all(|sibling| sibling.size.is_some() || sibling.lfs.is_some());
        let not_found = || HubError::NotFound { repo: repo.to_owned(), what: Missing::Repo };
        let model = page.into_model().ok_or_else(not_found)?;
        let files = if is_sized {
            let file = |sibling: super::search::SiblingJson| {
                let (size, sha256) = match sibling.lfs {
                    Some(lfs) => (Some(lfs.size), Some(lfs.sha256)),
                    None => (sibling.size, None),
                };
                self.repo_file(&model.id, &commit, sibling.rfilename, size.unwrap_or(0), sha256)
            };
            siblings.into_iter().map(file).collect()
        } else {
            self.tree(&model.id, &commit).await?
        };
        Ok(RepoListing { model, commit, files })
    }

    /// Name of the account that the token belongs to.
    pub async fn account(&self) -> Result<String, HubError> {
        let url = self.url(&["api", "whoami-v2"]);
        match self.get_json::<AccountJson>(url, About { repo: "", path: None }).await {
            Ok((account, _)) => Ok(account.name),
            Err(HubError::NotFound { what: Missing::Repo, .. }) => Err(HubError::WrongToken),
            Err(error) => Err(error),
        }
    }

    /// All files of a commit by the tree, for hubs whose page tells no sizes.
    async fn tree(&self, repo: &str, commit: &str) -> Result<Vec<RepoFile>, HubError> {
        let (publisher, name) = split_name(repo)?;
        let mut url = self.url(&["api", "models", publisher, name, "tree", commit]);
        url.query_pairs_mut().append_pair("recursive", "true");
        let mut files = Vec::new();
        let mut next = Some(url);
        for _ in 0..MAX_TREE_PAGES {
            let Some(url) = next else { return Ok(files) };
            let (entries, further): (Vec<TreeJson>, _) = self.get_json(url, About { repo, path: None }).await?;
            let entries = entries.into_iter().filter(|entry| entry.kind == "file");
            files.extend(entries.map(|entry| {
                let sha256 = entry.lfs.map(|lfs| lfs.oid);
                self.repo_file(repo, commit, entry.path, entry.size, sha256)
            }));
            next = further;
        }
        Ok(files)
    }

    /// A file as this hub tells of it.
    pub(super) fn repo_file(
        &self,
        repo: &str,
        commit: &str,
        path: String,
        size_bytes: u64,
        sha256: Option<String>,
    ) -> RepoFile {
        let sha256 = sha256.map(|sha256| sha256.to_ascii_lowercase()).filter(|sha256| is_sha256(sha256));
        let hash_word = if sha256.is_some() { self.word() } else { HashWord::Unknown };
        RepoFile { repo: repo.to_owned(), commit: commit.to_owned(), path, size_bytes, sha256, hash_word }
    }
}

#[derive(Debug, Deserialize)]
struct AccountJson {
    name: String,
}

#[derive(Debug, Deserialize)]
struct TreeJson {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<TreeLfsJson>,
}

#[derive(Debug, Deserialize)]
struct TreeLfsJson {
    oid: String,
}

/// Most pages of a tree that are read, of a thousand files each.
const MAX_TREE_PAGES: usize = 20;

pub(super) fn split_name(repo: &str) -> Result<(&str, &str), HubError> {
    let bad = || HubError::BadRepoName { repo: repo.to_owned() };
    if !is_repo_name(repo) {
        return Err(bad());
    }
    repo.split_once('/').ok_or_else(bad)
}

pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a text is a SHA256 in hex.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
