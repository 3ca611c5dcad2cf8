//! Whose word a hash is, raised where other sources can be asked: the hub's own word settles it, mirrors that agree count
//! more than one alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Hub;
use super::listing::is_commit;
use crate::wire::{HashWord, HubKind, RepoFile};

/// Asks other sources, at once and for a short time, what they say of files of one repo. Where the hub itself names
/// another hash for the same commit, its hash takes the place of the mirror's: what was altered will not pass for the file.
pub async fn confirm(mut files: Vec<RepoFile>, others: &[Arc<Hub>]) -> Vec<RepoFile> {
    let Some(first) = files.first() else { return files };
    let (repo, commit) = (first.repo.clone(), first.commit.clone());
    if files.iter().all(|file| matches!(file.hash_word, HashWord::Hub { .. })) {
        return files;
    }
    let asked = others.iter().map(|hub| {
        let (repo, commit) = (&repo, &commit);
        async move {
            let listing = tokio::time::timeout(PATIENCE, hub.model_at(repo, commit)).await.ok()?.ok()?;
            Some((hub, listing))
        }
    });
    for (hub, listing) in join_all(asked).await.into_iter().flatten() {
        let told: HashMap<String, RepoFile> = listing.files.into_iter().map(|file| (file.path.clone(), file)).collect();
        // Only a commit names the same content everywhere; branches may differ in time.
        let is_same_commit = is_commit(&commit) && hub.kind == HubKind::HuggingFace;
        for file in &mut files {
            if let Some(other) = told.get(&file.path) {
                weigh(file, other, is_same_commit);
            }
        }
    }
    files
}

/// What another source's word on a file is worth.
fn weigh(file: &mut RepoFile, other: &RepoFile, is_same_commit: bool) {
    let (Some(sha256), HashWord::Mirrors { hosts }) = (&other.sha256, &mut file.hash_word) else { return };
    let agrees = file.sha256.as_ref() == Some(sha256) && file.size_bytes == other.size_bytes;
    match &other.hash_word {
        HashWord::Hub { .. } if agrees => file.hash_word = other.hash_word.clone(),
        HashWord::Hub { .. } if is_same_commit => {
            tracing::warn!(repo = %file.repo, path = %file.path, ?hosts, "a mirror contradicts the hub");
            (file.sha256, file.size_bytes) = (other.sha256.clone(), other.size_bytes);
            file.hash_word = other.hash_word.clone();
        }
        HashWord::Mirrors { hosts: others } if agrees => {
            let new: Vec<String> = others.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            hosts.extend(new);
        }
        _ => {}
    }
}

/// How long a page or a download may wait for a second word.
const PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sha256: &str, hash_word: HashWord) -> RepoFile {
        let [repo, commit, path] = ["a/b", "c", "m.gguf"].map(str::to_owned);
        RepoFile { repo, commit, path, size_bytes: 1, sha256: Some(sha256.to_owned()), hash_word }
    }

    #[test]
    fn the_hubs_word_settles_it_and_mirrors_that_agree_add_up() {
        let hub = || HashWord::Hub { host: "hub".into() };
        let mirrors = |hosts: &[&str]| HashWord::Mirrors { hosts: hosts.iter().map(|&host| host.to_owned()).collect() };
        let cases = [
            ("agrees", file("x", hub()), false, ("x", hub())),
            ("contradicts at the same commit", file("y", hub()), true, ("y", hub())),
            ("another version", file("y", hub()), false, ("x", mirrors(&["m"]))),
            ("a mirror agrees", file("x", mirrors(&["n"])), true, ("x", mirrors(&["m", "n"]))),
            ("the same mirror", file("x", mirrors(&["m"])), true, ("x", mirrors(&["m"]))),
            ("a mirror differs", file("y", mirrors(&["n"])), true, ("x", mirrors(&["m"]))),
        ];
        for (name, other, is_same_commit, (sha256, word)) in cases {
            let mut own = file("x", mirrors(&["m"]));
            weigh(&mut own, &other, is_same_commit);
            assert_eq!((own.sha256.as_deref(), own.hash_word), (Some(sha256), word), "{name}");
        }
        let mut settled = file("x", hub());
        weigh(&mut settled, &file("y", hub()), true);
        assert_eq!(settled.sha256.as_deref(), Some("x"), "what the hub said is not said again");
    }
}
