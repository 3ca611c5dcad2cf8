//! Which hub the app talks to, which others it can ask, and who may see the token.

use std::path::Path;
use std::sync::Arc;

use super::{App, AppOptions, Watchers, lock_of};
use crate::hub::{Hub, HubError, HubOptions, OnWrongToken, is_this_machine, known_sources};
use crate::paths::Paths;
use crate::token::{TokenError, Tokens};
use crate::wire::{AppEvent, Failure, HubKind, HubSource, Settings, TokenRequest};

impl App {
    /// The sources known by name, each with a client; the one in use sees the token that it may see.
    pub(crate) fn hubs(&self) -> Result<Vec<(HubSource, Arc<Hub>)>, Failure> {
        Ok(self.hubs_of(&self.store.settings()?)?)
    }

    /// Sources that can be asked for a second word on a hash: all that are known but the one in use.
    pub(crate) fn other_hubs(&self) -> Result<Vec<Arc<Hub>>, Failure> {
        Ok(self.others_of(&self.store.settings()?)?)
    }

    /// Talks to the hub of these settings from now on.
    pub(super) fn use_hub(&self, settings: &Settings) -> Result<(), Failure> {
        let hub = hub_of_settings(&self.options, &self.paths, settings, &self.tokens, &self.watchers)?;
        let mut remote = lock_of(&self.remote);
        remote.downloads.set_hub(Arc::clone(&hub));
        remote.hub = hub;
        drop(remote);
        self.use_mirrors(settings)
    }

    /// Lets the downloads ask the other sources where what they got turns out damaged.
    pub(super) fn use_mirrors(&self, settings: &Settings) -> Result<(), Failure> {
        let others = self.others_of(settings)?;
        self.remote().downloads.set_mirrors(others);
        Ok(())
    }

    /// Keeps a token and uses it. Blocks; the key store may ask the person for a password.
    pub(crate) fn set_token(&self, request: &TokenRequest) -> Result<(), Failure> {
        self.tokens.set(request)?;
        self.use_hub(&self.store.settings()?)
    }

    /// Forgets the token that a person entered. Blocks.
    pub(crate) fn remove_token(&self) -> Result<(), Failure> {
        self.tokens.remove()?;
        self.use_hub(&self.store.settings()?)
    }

    /// Fetches the token from the key store, if it is there, without keeping anybody waiting.
    pub(super) fn recall_token(&self) {
        if !self.tokens.is_in_key_store() {
            return;
        }
        let (tokens, app) = (Arc::clone(&self.tokens), self.this.clone());
        let recall = move || {
            if let Err(error) = tokens.recall() {
                tracing::warn!(%error, "the access token stays in the key store");
                return;
            }
            let Some(app) = app.upgrade() else { return };
            let used = app.store.settings().map_err(Failure::from).and_then(|settings| app.use_hub(&settings));
            if let Err(failure) = used {
                tracing::warn!(message = %failure.message.en, "the access token is not used");
            }
        };
        let started = std::thread::Builder::new().name("tandem-token".to_owned()).spawn(recall);
        if let Err(error) = started {
            tracing::warn!(error = %TokenError::NoKeyStore { detail: error.to_string() }, "no access token");
        }
    }

    fn hubs_of(&self, settings: &Settings) -> Result<Vec<(HubSource, Arc<Hub>)>, HubError> {
        let client = |source: HubSource| Ok((source.clone(), self.client(&source, settings)?));
        known(&self.options).into_iter().map(client).collect()
    }

    fn others_of(&self, settings: &Settings) -> Result<Vec<Arc<Hub>>, HubError> {
        let in_use = self.remote().hub;
        let hubs = self.hubs_of(settings)?.into_iter().map(|(_, hub)| hub);
        Ok(hubs.filter(|hub| hub.base_url() != in_use.base_url()).collect())
    }

    fn client(&self, source: &HubSource, settings: &Settings) -> Result<Arc<Hub>, HubError> {
        client(source, &self.paths.cache_dir, settings, &self.tokens, None)
    }
}

/// The sources known by name. Whoever starts the app with a hub on this machine means that one alone.
pub(super) fn known(options: &AppOptions) -> Vec<HubSource> {
    let given = options.forced_hub_url.as_deref().or(options.hub_url.as_deref());
    match (&options.sources, given) {
        (Some(sources), _) => sources.clone(),
        (None, Some(url)) if is_this_machine(url) => Vec::new(),
        (None, _) => known_sources(),
    }
}

/// The source in use: forced, else that of the settings, else the one the app was started with, else the first known.
pub(super) fn chosen(options: &AppOptions, settings: &Settings) -> HubSource {
    let known = known(options);
    let named = |url: &str, kind: HubKind| {
        let url = url.trim().trim_end_matches('/').to_owned();
        let source = known.iter().find(|source| source.url.trim_end_matches('/') == url).cloned();
        source.unwrap_or_else(|| HubSource { name: url.clone(), url, kind, is_origin: false })
    };
    let of_settings = Some(settings.hub_url.trim()).filter(|url| !url.is_empty());
    match (&options.forced_hub_url, of_settings, &options.hub_url) {
        (Some(url), _, _) => named(url, HubKind::HuggingFace),
        (None, Some(url), _) => named(url, settings.hub_kind),
        (None, None, Some(url)) => named(url, HubKind::HuggingFace),
        (None, None, None) => known.into_iter().chain(known_sources()).next().expect("a hub is known"),
    }
}

/// Whether settings that reach the hub differ.
pub(super) fn is_other_network(now: &Settings, before: &Settings) -> bool {
    let of = |settings: &Settings| {
        (settings.hub_url.clone(), settings.hub_kind, settings.proxy.clone(), settings.token_mirrors.clone())
    };
    of(now) != of(before)
}

/// A client of the source that the settings choose.
pub(super) fn hub_of_settings(
    options: &AppOptions,
    paths: &Paths,
    settings: &Settings,
    tokens: &Tokens,
    watchers: &Arc<Watchers>,
) -> Result<Arc<Hub>, HubError> {
    let watchers = Arc::downgrade(watchers);
    let on_wrong_token: OnWrongToken = Arc::new(move |notice| {
        if let Some(watchers) = watchers.upgrade() {
            watchers.tell(&AppEvent::Notice { notice });
        }
    });
    client(&chosen(options, settings), &paths.cache_dir, settings, tokens, Some(on_wrong_token))
}

fn client(
    source: &HubSource,
    cache_dir: &Path,
    settings: &Settings,
    tokens: &Tokens,
    on_wrong_token: Option<OnWrongToken>,
) -> Result<Arc<Hub>, HubError> {
    let token = tokens.current();
    let is_theirs = source.kind == HubKind::HuggingFace;
    let may_see = is_theirs && (source.is_origin || settings.token_mirrors.contains(&source.url));
    Ok(Arc::new(Hub::new(HubOptions {
        base_url: source.url.clone(),
        kind: source.kind,
        is_origin: source.is_origin,
        is_token_withheld: token.is_some() && !may_see,
        on_wrong_token,
        token: token.filter(|_| may_see).map(|token| token.reveal().to_owned()),
        proxy: settings.proxy.clone(),
        cache_dir: Some(cache_dir.to_owned()),
        ..HubOptions::default()
    })?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::DEFAULT_HUB_URL;

    #[test]
    fn the_hub_is_the_one_asked_for_then_that_of_the_settings() {
        let url = |forced: &str, chosen_url: &str, given: &str| {
            let some = |url: &str| Some(url.to_owned()).filter(|url| !url.is_empty());
            let options = AppOptions { forced_hub_url: some(forced), hub_url: some(given), ..AppOptions::default() };
            chosen(&options, &Settings { hub_url: chosen_url.to_owned(), ..Settings::default() }).url
        };
        assert_eq!(url("a", "b", "c"), "a");
        assert_eq!(url("", " b/ ", "c"), "b");
        assert_eq!(url("", "", "c"), "c");
        assert_eq!(url("", "", ""), DEFAULT_HUB_URL);
    }

    #[test]
    fn a_source_known_by_name_is_recognised_by_its_address() {
        let of =
            |url: &str| chosen(&AppOptions::default(), &Settings { hub_url: url.to_owned(), ..Settings::default() });
        assert!(of("").is_origin && of("https://huggingface.co/").is_origin);
        assert_eq!(
            (of("https://modelscope.cn").kind, of("https://hf-mirror.com").is_origin),
            (HubKind::ModelScope, false)
        );
        assert_eq!(of("https://hub.example.com").name, "https://hub.example.com");
    }

    #[test]
    fn a_hub_on_this_machine_is_meant_alone() {
        let options = |url: &str| AppOptions { hub_url: Some(url.to_owned()), ..AppOptions::default() };
        for url in ["http://localhost:8080", "http://127.0.0.1:1", "http://[::1]:2"] {
            assert!(known(&options(url)).is_empty(), "{url}");
        }
        assert_eq!(known(&options("https://hf-mirror.com")).len(), known_sources().len());
    }
}
