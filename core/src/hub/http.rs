//! Requests to the hub: TLS, proxies, redirects by hand, bounded bodies, and refusals turned into errors.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use rustls::crypto::ring;
use rustls_platform_verifier::Verifier;
use serde::de::DeserializeOwned;

use super::error::{HubError, Missing, NetworkFault, Oddity};
use super::{DEFAULT_HUB_URL, Hub, proxy};
use crate::wire::{HubKind, ProxySettings};

/// What to do at the hub's pointer to a file that another host keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointers {
    /// It is the answer.
    Stop,
    /// Go there, without the token.
    Follow,
}

/// What a request was about, for its errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) repo: &'a str,
    pub(super) path: Option<&'a str>,
}

impl Hub {
    /// A URL of the hub whose path has these parts; a `/` within a part is encoded.
    pub(super) fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// Asks for JSON, following redirects; with it the `Link` to the next page on this hub.
    pub(super) async fn get_json<T: DeserializeOwned>(
        &self,
        url: Url,
        about: About<'_>,
    ) -> Result<(T, Option<Url>), HubError> {
        let asked = url.clone();
        let answer = async {
            let response = self.follow(Method::GET, url, &HeaderMap::new(), Pointers::Stop).await?;
            if !response.status().is_success() {
                return Err(self.refusal(&response, about));
            }
            let next = next_page(response.headers()).and_then(|next| response.url().join(&next).ok());
            let next = next.filter(|next| next.origin() == self.base.origin());
            let body = read_json_body(response).await?;
            match serde_json::from_slice(&body) {
                Ok(value) => Ok((value, next)),
                Err(error) => Err(HubError::odd(&asked, Oddity::BadJson { detail: error.to_string() })),
            }
        };
        match tokio::time::timeout(JSON_TIMEOUT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(HubError::network(&asked, NetworkFault::TimedOut, "no answer in time")),
        }
    }

    /// Sends a request and follows redirects by hand, until an answer that is none or that is the hub's pointer to a
    /// file kept elsewhere. The token goes to the hub's origin only, and no more once the hub has said that it does not
    /// know it; a fall from HTTPS to HTTP is refused.
    pub(super) async fn follow(
        &self,
        method: Method,
        url: Url,
        headers: &HeaderMap,
        pointers: Pointers,
    ) -> Result<Response, HubError> {
        let mut url = url;
        for _ in 0..MAX_HOPS {
            let token = self.token.as_deref().filter(|_| self.is_own(&url) && !self.is_token_wrong());
            let mut response = self.send(&method, &url, headers, token).await?;
            if token.is_some() && is_wrong_token(&response) {
                // Whatever is public is given without one.
                self.disown_token();
                continue;
            }
            if token.is_some() && may_mean_the_token(&response) {
                // Mirrors have words of their own for it: what is given without the token shows what they mean.
                let without = self.send(&method, &url, headers, None).await?;
                if without.status().is_success() || without.status().is_redirection() {
                    self.disown_token();
                    response = without;
                }
            }
            let Some(target) = redirect_target(&response) else { return Ok(response) };
            if pointers == Pointers::Stop && self.is_pointer_to_file(&response, &target) {
                return Ok(response);
            }
            if url.scheme() == "https" && target.scheme() != "https" {
                return Err(HubError::odd(&url, Oddity::InsecureRedirect));
            }
            url = target;
        }
        Err(HubError::odd(&url, Oddity::RedirectLoop))
    }

    /// Sends one request; its answer, whatever it is.
    async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        token: Option<&str>,
    ) -> Result<Response, HubError> {
        let mut request = self.client.request(method.clone(), url.clone()).headers(headers.clone());
        request = request.header(ACCEPT_ENCODING, "identity");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, secret_header(token)?);
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await {
            Ok(answer) => answer.map_err(|error| self.no_answer(url, &error)),
            Err(_) => Err(HubError::network(url, NetworkFault::TimedOut, "no answer in time")),
        }
    }

    /// Whether a redirect is the hub's pointer to a file that another host keeps.
    fn is_pointer_to_file(&self, response: &Response, target: &Url) -> bool {
        let is_for_file = match self.kind {
            HubKind::HuggingFace => response.headers().contains_key(REPO_COMMIT),
            HubKind::ModelScope => self.is_own(response.url()) && response.url().path().ends_with("/repo"),
        };
        is_for_file && !self.is_own(target)
    }

    fn no_answer(&self, url: &Url, error: &reqwest::Error) -> HubError {
        if error.is_connect() && self.proxy.is_some() && !is_loopback(url) {
            return HubError::network(url, NetworkFault::Proxy, root_cause(error));
        }
        HubError::from_reqwest(url, error)
    }

    /// What an answer that is no success says.
    pub(super) fn refusal(&self, response: &Response, about: About<'_>) -> HubError {
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (code, message) = (text("x-error-code"), text("x-error-message"));
        let repo = about.repo.to_owned();
        let missing = |what: Missing| HubError::NotFound { repo: repo.clone(), what };
        let file = || about.path.map_or(Missing::Repo, |path| Missing::File { path: path.to_owned() });
        match (response.status().as_u16(), code) {
            (401, _) | (403, "GatedRepo") if self.is_token_wrong() => HubError::WrongToken,
            (401 | 403, "GatedRepo") => {
                HubError::Gated { page: self.page_url(about.repo), repo, token: self.token_use() }
            }
            (401, _) if message.starts_with(WRONG_TOKEN) => HubError::WrongToken,
            (401, _) | (_, "RepoNotFound") => missing(Missing::Repo),
            (_, "RevisionNotFound") => missing(Missing::Revision),
            (404, _) => missing(file()),
            (429, _) => HubError::RateLimited { wait: wait_of(response.headers(), SystemTime::now()) },
            (511, _) => HubError::odd(response.url(), Oddity::Html),
            (status, _) => HubError::Refused { status, message: message.chars().take(200).collect() },
        }
    }
}

/// Reads a base URL as a person may have typed it.
pub(super) fn parse_base(text: &str) -> Result<Url, HubError> {
    let text = text.trim();
    let full = match text {
        "" => DEFAULT_HUB_URL.to_owned(),
        _ if text.contains("://") => text.to_owned(),
        _ => format!("https://{text}"),
    };
    let bad = || HubError::BadBaseUrl { url: text.to_owned() };
    let mut url = Url::parse(&full).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || !url.username().is_empty() {
        return Err(bad());
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// A client that trusts the system's certificates and, where the system has none, Mozilla's; that goes through the
/// proxy that is set; and that follows no redirect by itself.
pub(super) fn client(base: &Url, user_agent: &str, proxy: &ProxySettings) -> Result<Client, HubError> {
    let not_set_up = |detail: String| HubError::ClientNotSetUp { detail };
    let provider = Arc::new(ring::default_provider());
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned();
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider));
    let verifier = verifier.map_err(|error| not_set_up(error.to_string()))?;
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| not_set_up(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(user_agent)
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT);
    let builder = proxy::apply(builder, proxy, base)?;
    builder.build().map_err(|error| not_set_up(root_cause(&error)))
}

/// Reads a body of JSON, of bounded size.
async fn read_json_body(mut response: Response) -> Result<Vec<u8>, HubError> {
    let url = response.url().clone();
    if is_html(response.headers()) {
        return Err(HubError::odd(&url, Oddity::Html));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| HubError::from_reqwest(&url, &error))? {
        if body.len() + chunk.len() > MAX_JSON_BYTES {
            return Err(HubError::odd(&url, Oddity::TooLarge { limit_bytes: MAX_JSON_BYTES as u64 }));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Whether an answer is a web page: a captive portal or a proxy speaks, not the hub.
pub(crate) fn is_html(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.trim_start().to_ascii_lowercase().starts_with("text/html")
}

/// How long a 429 asks to wait: `Retry-After` in seconds or as a date, else the reset time in `RateLimit`.
pub(crate) fn wait_of(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
    // A date that has passed asks for no wait.
    let until = |date: &str| Some(httpdate::parse_http_date(date).ok()?.duration_since(now).unwrap_or_default());
    let retry_after = text(RETRY_AFTER.as_str()).and_then(|value| seconds(value).or_else(|| until(value)));
    let reset = || text("ratelimit")?.split(';').find_map(|part| seconds(part.trim().strip_prefix("t=")?));
    retry_after.or_else(reset)
}

/// Whether a hub says that it does not know the token. It says so even where none is needed.
fn is_wrong_token(response: &Response) -> bool {
    let said = response.headers().get("x-error-message").and_then(|value| value.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::UNAUTHORIZED && said.starts_with(WRONG_TOKEN)
}

/// Whether a refusal may be about the token: a gated repo says that it is about the licence.
fn may_mean_the_token(response: &Response) -> bool {
    let code = response.headers().get("x-error-code").and_then(|value| value.to_str().ok());
    matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && code != Some("GatedRepo")
}

pub(super) fn redirect_target(response: &Response) -> Option<Url> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    response.url().join(location.to_str().ok()?).ok()
}

/// The target of `Link: <…>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(reqwest::header::LINK);
    let mut links = links.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let target = |link: &str| Some(link.split_once('<')?.1.split_once('>')?.0.to_owned());
    links.find(|link| link.contains("rel=\"next\"")).and_then(target)
}

fn secret_header(token: &str) -> Result<HeaderValue, HubError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| HubError::WrongToken)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether a URL leads to this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
        None => false,
    }
}

/// The innermost message of an error, without URLs (signed ones are secrets).
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: Option<&dyn std::error::Error> = error.source();
    let mut text = None;
    while let Some(error) = cause {
        text = Some(error.to_string());
        cause = error.source();
    }
    text.unwrap_or_else(|| "the connection failed".to_owned())
}

pub(super) const REPO_COMMIT: &str = "x-repo-commit";
/// Source: `hf_raise_for_status` of huggingface_hub.
const WRONG_TOKEN: &str = "Invalid credentials";
const MAX_HOPS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From a request to the head of its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// From a request to the end of its JSON.
const JSON_TIMEOUT: Duration = Duration::from_secs(40);
/// Listings of the largest repos are a few megabytes.
const MAX_JSON_BYTES: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_read_as_people_type_them() {
        let cases = [
            ("", Some("https://huggingface.co/")),
            (" https://huggingface.co/ ", Some("https://huggingface.co/")),
            ("hf-mirror.com", Some("https://hf-mirror.com/")),
            ("http://localhost:8080/hub?x=1#y", Some("http://localhost:8080/hub")),
            ("ftp://huggingface.co", None),
            ("https://user@huggingface.co", None),
            ("https://", None),
            ("not a host", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse_base(typed).ok().as_ref().map(Url::as_str), expected, "`{typed}`");
        }
    }

    #[test]
    fn a_wait_is_read_from_either_header() {
        let cases = [
            (&[("retry-after", "7")][..], Some(7)),
            (&[("ratelimit", "\"api\";r=0;t=213")][..], Some(213)),
            (&[("retry-after", "1"), ("ratelimit", "\"api\";r=0;t=213")][..], Some(1)),
            (&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")][..], Some(480)),
            (&[("retry-after", "Wed, 21 Oct 2015 07:19:59 GMT")][..], Some(0)),
            (&[("retry-after", "soon")][..], None),
            (&[][..], None),
        ];
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:20:00 GMT").unwrap();
        for (headers, seconds) in cases {
            let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(wait_of(&map, now), seconds.map(Duration::from_secs), "{headers:?}");
        }
    }

    #[test]
    fn only_the_next_page_is_followed() {
        let link = |value: &str| {
            let map = [(reqwest::header::LINK, value.parse().unwrap())].into_iter().collect();
            next_page(&map)
        };
        assert_eq!(link("<https://a/x?cursor=1>; rel=\"next\"").as_deref(), Some("https://a/x?cursor=1"));
        assert_eq!(link("<https://a/p>; rel=\"prev\", <https://a/n>; rel=\"next\"").as_deref(), Some("https://a/n"));
        assert_eq!(link("<https://a/p>; rel=\"prev\""), None);
        assert_eq!(link("no brackets; rel=\"next\""), None);
    }
}
