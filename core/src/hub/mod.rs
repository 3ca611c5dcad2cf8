//! Hubs that models come from (Hugging Face, its mirrors, ModelScope): search, a repo's files, GGUF headers by range,
//! where a file's bytes are, and whose word its hash is.
//!
//! Everything a repo tells is pinned to a commit where the hub has commits. The token goes to the hub's own origin and
//! nowhere else: redirects are followed by hand. Storing files is not done here but in `download`.

mod desktop_proxy;
mod error;
mod formats;
mod grouping;
mod header;
mod header_cache;
mod http;
mod listing;
mod modelscope;
mod probe;
mod proxy;
mod resolve;
mod search;
mod sources;
mod versions;
mod word;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Client, Url};

use crate::wire::{Failure, HashWord, HubKind, HubModel, ProxySettings, RepoFile};

pub use error::{HubError, Missing, NetworkFault, Oddity, TokenUse};
pub use formats::foreign_model;
pub use grouping::{Group, group, role_of};
pub(crate) use header_cache::HeaderCache;
pub(crate) use http::is_html;
pub use resolve::Resolved;
pub use sources::{is_this_machine, known_sources};
pub use versions::{Version, versions};
pub use word::confirm;

/// The hub that is used where no other is chosen.
pub const DEFAULT_HUB_URL: &str = "https://huggingface.co";

/// Takes the news that a hub does not know the token, in words.
pub type OnWrongToken = Arc<dyn Fn(Failure) + Send + Sync>;

/// Which hub to talk to, and as whom.
#[derive(Clone)]
pub struct HubOptions {
    /// Scheme, host and port, possibly a path; `DEFAULT_HUB_URL` if empty.
    pub base_url: String,
    /// How it answers.
    pub kind: HubKind,
    /// Whether it is the hub that others mirror.
    pub is_origin: bool,
    /// Access token, sent to that origin only.
    pub token: Option<String>,
    /// Whether there is a token that this hub must not see, for its refusals.
    pub is_token_withheld: bool,
    /// Hears, once, that the hub does not know the token.
    pub on_wrong_token: Option<OnWrongToken>,
    /// How to reach it.
    pub proxy: ProxySettings,
    /// What this program calls itself.
    pub user_agent: String,
    /// Folder for headers read ahead; `None`: nothing is kept.
    pub cache_dir: Option<PathBuf>,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            base_url: DEFAULT_HUB_URL.to_owned(),
            kind: HubKind::HuggingFace,
            is_origin: false,
            token: None,
            is_token_withheld: false,
            on_wrong_token: None,
            proxy: ProxySettings::default(),
            user_agent: concat!("tandem/", env!("CARGO_PKG_VERSION")).to_owned(),
            cache_dir: None,
        }
    }
}

/// A client of one hub.
pub struct Hub {
    client: Client,
    base: Url,
    kind: HubKind,
    is_origin: bool,
    token: Option<String>,
    is_token_withheld: bool,
    is_token_wrong: AtomicBool,
    on_wrong_token: Option<OnWrongToken>,
    /// The proxy a person has set, for errors.
    proxy: Option<String>,
    header_cache: Option<HeaderCache>,
}

/// A repo's page and files at one commit.
#[derive(Clone, Debug)]
pub struct RepoListing {
    /// The repo, by its present name.
    pub model: HubModel,
    /// Commit that the files belong to; a branch where the hub tells no commits.
    pub commit: String,
    /// All files, in the hub's order.
    pub files: Vec<RepoFile>,
}

impl Hub {
    /// Prepares a client; nothing is sent yet.
    pub fn new(options: HubOptions) -> Result<Self, HubError> {
        let base = http::parse_base(&options.base_url)?;
        Ok(Self {
            client: http::client(&base, &options.user_agent, &options.proxy)?,
            base,
            kind: options.kind,
            is_origin: options.is_origin,
            token: options.token.filter(|token| !token.trim().is_empty()),
            is_token_withheld: options.is_token_withheld,
            is_token_wrong: AtomicBool::new(false),
            on_wrong_token: options.on_wrong_token,
            proxy: proxy::shown(&options.proxy),
            header_cache: options.cache_dir.as_deref().map(HeaderCache::new),
        })
    }

    /// Base URL in use, without a slash at its end.
    pub fn base_url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Its host.
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or("?")
    }

    /// Page of a repo for a browser, where a licence can be accepted.
    pub fn page_url(&self, repo: &str) -> String {
        let below = if self.kind == HubKind::ModelScope { "models/" } else { "" };
        format!("{}/{below}{repo}", self.base_url())
    }

    /// Whose word a hash is that this hub tells.
    pub(crate) fn word(&self) -> HashWord {
        let host = self.host().to_owned();
        if self.is_origin { HashWord::Hub { host } } else { HashWord::Mirrors { hosts: vec![host] } }
    }

    /// Whether it has said that it does not know the token.
    fn is_token_wrong(&self) -> bool {
        self.is_token_wrong.load(Ordering::Acquire)
    }

    /// From now on does without the token.
    fn disown_token(&self) {
        if !self.is_token_wrong.swap(true, Ordering::AcqRel) {
            tracing::warn!(host = self.host(), "the hub does not know the access token: going on without it");
            if let Some(on_wrong_token) = &self.on_wrong_token {
                on_wrong_token(error::going_on_without_token(self.host()));
            }
        }
    }

    fn token_use(&self) -> TokenUse {
        match &self.token {
            Some(_) => TokenUse::Sent,
            None if self.is_token_withheld => TokenUse::Withheld,
            None => TokenUse::None,
        }
    }
}
