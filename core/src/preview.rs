//! Repos of the hub, read ahead: their versions, and of each what a plan needs of its header. Kept in memory for a while, so that
//! another wish is answered without asking the hub again.
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, watch};

use crate::hub::{self, HeaderCache, Hub, RepoListing, Version};
use crate::library;
use crate::plan::Outline;
use crate::wire::{Failure, FileRole, LibraryModel, Reading};

/// Repos that are kept: the one that is looked at, and a few that one comes back to.
const MAX_REPOS: usize = 8;

/// Repos that were looked at lately.
#[derive(Default)]
pub(crate) struct Previews {
    repos: Mutex<Vec<Arc<Preview>>>,
    /// How often the page that is looked at was left.
    n_left: watch::Sender<u64>,
    /// SHA256 of files whose headers were taken from the files themselves.
    proved: Mutex<HashSet<String>>,
}

/// A repo's versions at one commit.
pub(crate) struct Preview {
    hub_url: String,
    repo: String,
    commit: String,
    pub(crate) versions: Vec<Version>,
    outlines: Vec<OnceCell<Arc<Outline>>>,
}

impl Previews {
    /// Takes in what the hub has just said of a repo; what was read of the same commit stays.
    pub(crate) fn keep(&self, hub: &Hub, asked: &str, listing: &RepoListing) -> Arc<Preview> {
        let versions = hub::versions(&listing.files);
        let mut repos = lock(&self.repos);
        let known = repos.iter().position(|preview| preview.is(hub, asked)).map(|i| repos.remove(i));
        let preview = known.filter(|known| known.commit == listing.commit && known.versions == versions);
        let preview = preview.unwrap_or_else(|| {
            Arc::new(Preview {
                hub_url: hub.base_url().to_owned(),
                repo: asked.to_owned(),
                commit: listing.commit.clone(),
                outlines: versions.iter().map(|_| OnceCell::new()).collect(),
                versions,
            })
        });
        repos.push(Arc::clone(&preview));
        if repos.len() > MAX_REPOS {
            repos.remove(0);
        }
        preview
    }

    /// The page was left: what is being read for it ends.
    pub(crate) fn leave(&self) {
        self.n_left.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Ends when the page is left from now on.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<> {
        let mut n_left = self.n_left.subscribe();
        async move {
            // The sender goes with the app: nobody looks at a page then either.
            let _ = n_left.changed().await;
        }
    }

    /// A repo's versions, as they were listed last; asks the hub if they never were, or if everything is to be read again.
    pub(crate) async fn of(&self, hub: &Hub, repo: &str, reading: Reading) -> Result<Arc<Preview>, Failure> {
        let known = {
            let mut repos = lock(&self.repos);
            if reading == Reading::Again {
                repos.retain(|preview| !preview.is(hub, repo));
            }
            repos.iter().find(|preview| preview.is(hub, repo)).cloned()
        };
        match known {
            Some(preview) => Ok(preview),
            None => Ok(self.keep(hub, repo, &hub.model(repo).await?)),
        }
    }

    /// Takes the headers of files that were compared with their SHA256 in the place of what hubs said of them. Blocks.
    pub(crate) fn prove(&self, cache: &HeaderCache, models: &[LibraryModel]) {
        for model in models.iter().filter(|model| self.is_news(model) && library::is_unchanged(model)) {
            for (sha256, path) in verified_files(model) {
                if let Err(error) = cache.keep_verified(sha256, Path::new(path)) {
                    tracing::warn!(%error, path, "the header of a verified file cannot be kept");
                }
                lock(&self.repos).retain(|preview| !preview.has(sha256));
                lock(&self.proved).insert(sha256.to_owned());
            }
        }
    }

    fn is_news(&self, model: &LibraryModel) -> bool {
        let proved = lock(&self.proved);
        verified_files(model).any(|(sha256, _)| !proved.contains(sha256))
    }
}

/// SHA256 and path of what of a model was compared and equal.
fn verified_files(model: &LibraryModel) -> impl Iterator<Item = (&str, &str)> {
    model.files.iter().filter(|file| file.role == FileRole::Model && file.sha256 == file.expected_sha256).filter_map(
        |file| {
            let sha256 = file.sha256.as_deref()?;
            Some((sha256, file.path.as_str()))
        },
    )
}

/// A panic while holding one of these leaves nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Preview {
    fn is(&self, hub: &Hub, repo: &str) -> bool {
        self.hub_url == hub.base_url() && self.repo == repo
    }

    fn has(&self, sha256: &str) -> bool {
        self.versions.iter().flat_map(|version| &version.files).any(|file| file.sha256.as_deref() == Some(sha256))
    }

    /// What a plan needs of one version. A failure is not kept: the next try asks again.
    pub(crate) async fn outline(&self, hub: &Hub, index: usize, reading: Reading) -> Result<Arc<Outline>, Failure> {
        let version = &self.versions[index];
        let read = async || {
            if let Some(refusal) = version.refusal() {
                return Err(refusal);
            }
            let facts = hub.header(&version.files, reading).await?;
            facts.refusal()?;
            Ok(Arc::new(Outline::of(&facts)?))
        };
        self.outlines[index].get_or_try_init(read).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leaving_ends_what_began_before_and_nothing_later() {
        let previews = Previews::default();
        let (before, again) = (previews.left(), previews.left());
        previews.leave();
        before.await;
        again.await;
        let later = previews.left();
        tokio::pin!(later);
        let is_over = tokio::select! {
            biased;
            () = &mut later => true,
            () = std::future::ready(()) => false,
        };
        assert!(!is_over);
    }
}
