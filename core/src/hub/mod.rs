//! The Hugging Face hub, or a mirror of it: search, a repo's files, GGUF headers by range, and where a file's bytes are.
//!
//! Everything a repo tells is pinned to a commit. The token goes to the hub's own origin and nowhere else: redirects are
//! followed by hand. Storing files is not done here but in `download`.

mod error;
mod grouping;
mod header;
mod http;
mod listing;
mod resolve;
mod search;
mod versions;

use std::path::PathBuf;

use reqwest::{Client, Url};

use crate::wire::{HubModel, RepoFile};
use header::HeaderCache;

pub use error::{HubError, Missing, NetworkFault, Oddity};
pub use grouping::{Group, group, role_of};
pub(crate) use http::{ByteRange, is_html};
pub use resolve::Resolved;
pub use versions::{Version, versions};

/// The hub that is used where no other is chosen.
pub const DEFAULT_HUB_URL: &str = "https://huggingface.co";

/// Which hub to talk to, and as whom.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Scheme, host and port, possibly a path; `DEFAULT_HUB_URL` if empty.
    pub base_url: String,
    /// Access token, sent to that origin only.
    pub token: Option<String>,
    /// What this program calls itself.
    pub user_agent: String,
    /// Folder for headers read ahead; `None`: nothing is kept.
    pub cache_dir: Option<PathBuf>,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            base_url: DEFAULT_HUB_URL.to_owned(),
            token: None,
            user_agent: concat!("tandem/", env!("CARGO_PKG_VERSION")).to_owned(),
            cache_dir: None,
        }
    }
}

/// A client of one hub.
#[derive(Debug)]
pub struct Hub {
    client: Client,
    base: Url,
    token: Option<String>,
    header_cache: Option<HeaderCache>,
}

/// A repo's page and files at one commit.
#[derive(Clone, Debug)]
pub struct RepoListing {
    /// The repo, by its present name.
    pub model: HubModel,
    /// Commit that the files belong to.
    pub commit: String,
    /// All files, in the hub's order.
    pub files: Vec<RepoFile>,
}

impl Hub {
    /// Prepares a client; nothing is sent yet.
    pub fn new(options: HubOptions) -> Result<Self, HubError> {
        let base = http::parse_base(&options.base_url)?;
        Ok(Self {
            client: http::client(&base, &options.user_agent)?,
            base,
            token: options.token.filter(|token| !token.trim().is_empty()),
            header_cache: options.cache_dir.map(HeaderCache::new),
        })
    }

    /// Base URL in use, without a slash at its end.
    pub fn base_url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Page of a repo for a browser, where a licence can be accepted.
    pub fn page_url(&self, repo: &str) -> String {
        format!("{}/{repo}", self.base_url())
    }
}
