//! Which proxy requests go through: the system's, none, or one that a person has set. This machine is always reached directly.

use reqwest::{ClientBuilder, NoProxy, Proxy, Url};

use super::desktop_proxy::{DesktopProxy, desktop_proxy};
use super::error::HubError;
use super::http::is_loopback;
use crate::wire::{ProxyKind, ProxySettings};

/// Sets a client up for a hub at `base`.
pub(super) fn apply(builder: ClientBuilder, settings: &ProxySettings, base: &Url) -> Result<ClientBuilder, HubError> {
    match settings.kind {
        ProxyKind::System if is_loopback(base) => Ok(builder.no_proxy()),
        ProxyKind::System => Ok(match desktop_proxy() {
            Some(DesktopProxy { url, direct }) => match Proxy::all(&url) {
                Ok(proxy) => builder.proxy(proxy.no_proxy(NoProxy::from_string(&direct))),
                Err(error) => {
                    tracing::warn!(%error, "the desktop names a proxy that is none");
                    builder
                }
            },
            None => builder,
        }),
        ProxyKind::None => Ok(builder.no_proxy()),
        ProxyKind::Http | ProxyKind::Socks5 => {
            let bad = || HubError::BadProxy { address: without_user(bare(&settings.address)).to_owned() };
            let url = proxy_url(settings).ok_or_else(bad)?;
            let proxy = Proxy::all(url).map_err(|_| bad())?;
            Ok(builder.no_proxy().proxy(proxy.no_proxy(NoProxy::from_string(THIS_MACHINE))))
        }
    }
}

/// The proxy a person has set, as it may be shown: without its password.
pub(super) fn shown(settings: &ProxySettings) -> Option<String> {
    proxy_url(settings).map(|_| without_user(bare(&settings.address)).to_owned())
}

/// `None` if no address is needed, or the one given is none.
fn proxy_url(settings: &ProxySettings) -> Option<String> {
    // With `socks5h` the proxy looks up names: where names are falsified, that is what a proxy is for.
    let scheme = match settings.kind {
        ProxyKind::Http => "http",
        ProxyKind::Socks5 => "socks5h",
        ProxyKind::System | ProxyKind::None => return None,
    };
    let address = bare(&settings.address);
    // Read as HTTP, which has strict rules about hosts.
    let read = Url::parse(&format!("http://{address}")).ok()?;
    let has_port = without_user(address).trim_end_matches(']').rsplit_once(':').is_some();
    let is_address = read.path() == "/" && read.query().is_none() && read.fragment().is_none() && has_port;
    is_address.then(|| format!("{scheme}://{address}"))
}

/// An address without scheme and slash, as people paste them.
fn bare(address: &str) -> &str {
    let address = address.trim();
    address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/')
}

fn without_user(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, host)| host)
}

const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_as_people_type_them_and_shown_without_passwords() {
        let cases = [
            (ProxyKind::Http, "127.0.0.1:7890", Some("http://127.0.0.1:7890"), Some("127.0.0.1:7890")),
            (ProxyKind::Socks5, " socks5://127.0.0.1:1080/ ", Some("socks5h://127.0.0.1:1080"), Some("127.0.0.1:1080")),
            (
                ProxyKind::Http,
                "me:secret@proxy.corp:3128",
                Some("http://me:secret@proxy.corp:3128"),
                Some("proxy.corp:3128"),
            ),
            (ProxyKind::Http, "[::1]:8080", Some("http://[::1]:8080"), Some("[::1]:8080")),
            (ProxyKind::Http, "proxy.corp", None, None),
            (ProxyKind::Http, "", None, None),
            (ProxyKind::Socks5, "a b:1", None, None),
            (ProxyKind::Http, "host:1/path", None, None),
            (ProxyKind::System, "127.0.0.1:7890", None, None),
        ];
        for (kind, address, url, visible) in cases {
            let settings = ProxySettings { kind, address: address.to_owned() };
            assert_eq!(proxy_url(&settings).as_deref(), url, "`{address}`");
            assert_eq!(shown(&settings).as_deref(), visible, "`{address}`");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        let settings = ProxySettings { kind: ProxyKind::Http, address: "me:secret@nowhere".into() };
        let base = "https://example.com".parse().unwrap();
        let error = apply(reqwest::Client::builder(), &settings, &base).unwrap_err();
        assert!(matches!(error, HubError::BadProxy { .. }));
        assert!(!format!("{error:?}").contains("secret"), "a password is nobody's business");
    }
}
