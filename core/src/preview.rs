//! Repos of the hub, read ahead: their versions, and of each what a plan needs of its header. Kept in memory for a while, so that
//! another wish is answered without asking the hub again.
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, watch};

use crate::hub::{self, Hub, RepoListing, Version};
use crate::plan::Outline;
use crate::wire::Failure;

/// Repos that are kept: the one that is looked at, and a few that one comes back to.
const MAX_REPOS: usize = 8;

/// Repos that were looked at lately.
#[derive(Default)]
pub(crate) struct Previews {
    repos: Mutex<Vec<Arc<Preview>>>,
    /// How often the page that is looked at was left.
    n_left: watch::Sender<u64>,
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
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// A repo's versions, as they were listed last; asks the hub only if they never were.
    pub(crate) async fn of(&self, hub: &Hub, repo: &str) -> Result<Arc<Preview>, Failure> {
        let known = {
            let repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
            repos.iter().find(|preview| preview.is(hub, repo)).cloned()
        };
        match known {
            Some(preview) => Ok(preview),
            None => Ok(self.keep(hub, repo, &hub.model(repo).await?)),
        }
    }
}

impl Preview {
    fn is(&self, hub: &Hub, repo: &str) -> bool {
        self.hub_url == hub.base_url() && self.repo == repo
    }

    /// What a plan needs of one version. A failure is not kept: the next try asks again.
    pub(crate) async fn outline(&self, hub: &Hub, index: usize) -> Result<Arc<Outline>, Failure> {
        let version = &self.versions[index];
        let read = async || {
            if let Some(refusal) = version.refusal() {
                return Err(refusal);
            }
            let facts = hub.header(&version.files).await?;
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
