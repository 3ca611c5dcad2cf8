//! Where a file's bytes are, and what they must be: the hub's answer to HEAD, as the official client reads it.

use std::ops::Range;

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};

use super::Hub;
use super::error::{HubError, Oddity};
use super::http::{About, Pointers, REPO_COMMIT, is_html, redirect_target};
use super::listing::{is_sha256, split_name};
use crate::wire::{HubKind, RepoFile};

/// A file on the hub, located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where to fetch it; a signed URL expires within the hour and is never stored.
    pub url: Url,
    /// Commit it belongs to.
    pub commit: String,
    /// The hub's name for the content.
    pub etag: String,
    /// SHA256 in hex, if the hub's name for the content is one.
    pub sha256: Option<String>,
    /// Size.
    pub size_bytes: u64,
}

impl Hub {
    /// Asks where a file is and what it must be. An answer without commit, etag or size is not a hub's.
    pub async fn resolve(&self, file: &RepoFile) -> Result<Resolved, HubError> {
        match self.kind {
            HubKind::HuggingFace => self.hugging_face_resolve(file).await,
            HubKind::ModelScope => self.modelscope_resolve(file).await,
        }
    }

    async fn hugging_face_resolve(&self, file: &RepoFile) -> Result<Resolved, HubError> {
        let (publisher, name) = split_name(&file.repo)?;
        let mut parts = vec![publisher, name, "resolve", file.commit.as_str()];
        parts.extend(file.path.split('/'));
        let mut response = self.follow(Method::HEAD, self.url(&parts), &HeaderMap::new(), Pointers::Stop).await?;
        if matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            // Some mirrors know no HEAD: the first byte comes with the same headers.
            let headers = [asking_for(0..1)].into_iter().collect();
            response = self.follow(Method::GET, self.url(&parts), &headers, Pointers::Stop).await?;
        }
        let elsewhere = redirect_target(&response);
        if elsewhere.is_none() && !response.status().is_success() {
            return Err(self.refusal(&response, About { repo: &file.repo, path: Some(&file.path) }));
        }
        let odd = |oddity| HubError::odd(response.url(), oddity);
        if is_html(response.headers()) && !response.headers().contains_key(REPO_COMMIT) {
            return Err(odd(Oddity::Html));
        }
        let head =
            Head::read(response.headers(), elsewhere.is_some()).map_err(|name| odd(Oddity::NoHeader { name }))?;
        let url = elsewhere.unwrap_or_else(|| response.url().clone());
        let sha256 = is_sha256(&head.etag).then(|| head.etag.to_ascii_lowercase());
        Ok(Resolved { url, commit: head.commit, etag: head.etag, sha256, size_bytes: head.size_bytes })
    }

    /// Asks for a range of a located file; of the whole file, if its etag is not `etag` any more. The answer may have any
    /// status: whoever stores the bytes judges it.
    pub(crate) async fn open(
        &self,
        url: &Url,
        range: Range<u64>,
        etag: Option<&HeaderValue>,
    ) -> Result<Response, HubError> {
        let headers = [asking_for(range)].into_iter().chain(etag.map(|etag| (IF_RANGE, etag.clone()))).collect();
        // Some mirrors answer HEAD themselves and point elsewhere only when they are asked for bytes.
        self.follow(Method::GET, url.clone(), &headers, Pointers::Follow).await
    }

    /// What an answer to `open` says that is no success, if it came from the hub itself.
    pub(crate) fn file_refusal(&self, response: &Response, file: &RepoFile) -> HubError {
        self.refusal(response, About { repo: &file.repo, path: Some(&file.path) })
    }

    /// Whether a URL is the hub's own, not that of a host it points to.
    pub(crate) fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    commit: String,
    etag: String,
    size_bytes: u64,
}

impl Head {
    /// Reads the headers, or says which is missing. Of a redirect, `Content-Length` is its own and not the file's.
    fn read(headers: &HeaderMap, is_redirect: bool) -> Result<Self, &'static str> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let commit = text(REPO_COMMIT).filter(|commit| !commit.is_empty()).ok_or(REPO_COMMIT)?;
        let etag = text(LINKED_ETAG).or_else(|| text(ETAG.as_str())).map(bare_etag);
        let total = text(CONTENT_RANGE.as_str()).and_then(|range| range.rsplit_once('/')).map(|(_, total)| total);
        let length = || total.or(text(CONTENT_LENGTH.as_str())).filter(|_| !is_redirect);
        let size = text(LINKED_SIZE).or_else(length).and_then(|size| size.parse().ok());
        Ok(Self {
            commit: commit.to_owned(),
            etag: etag.filter(|etag| !etag.is_empty()).ok_or(LINKED_ETAG)?.to_owned(),
            size_bytes: size.ok_or(LINKED_SIZE)?,
        })
    }
}

/// The header that asks for some bytes only.
pub(super) fn asking_for(range: Range<u64>) -> (HeaderName, HeaderValue) {
    let asked = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    (RANGE, HeaderValue::from_str(&asked).expect("digits in a header"))
}

pub(super) fn bare_etag(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

const LINKED_ETAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_the_official_client_does() {
        let head = |headers: &[(&str, &str)], is_redirect| {
            let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            Head::read(&map, is_redirect).map(|head| (head.commit, head.etag, head.size_bytes))
        };
        let ok = |etag: &str, size| Ok(("c".to_owned(), etag.to_owned(), size));
        let commit = ("x-repo-commit", "c");
        let linked = [
            commit,
            ("x-linked-etag", "\"abc\""),
            ("x-linked-size", "7"),
            ("etag", "\"other\""),
            ("content-length", "99"),
        ];
        assert_eq!(head(&linked, true), ok("abc", 7));
        assert_eq!(head(&[commit, ("etag", "W/\"abc\""), ("content-length", "9")], false), ok("abc", 9));
        let first_byte = [commit, ("etag", "\"abc\""), ("content-range", "bytes 0-0/9"), ("content-length", "1")];
        assert_eq!(head(&first_byte, false), ok("abc", 9));
        assert_eq!(head(&[commit, ("etag", "\"abc\""), ("content-length", "9")], true), Err(LINKED_SIZE));
        assert_eq!(head(&[commit, ("content-length", "9")], false), Err(LINKED_ETAG));
        assert_eq!(head(&[commit, ("etag", "\"\""), ("content-length", "9")], false), Err(LINKED_ETAG));
        assert_eq!(head(&[commit, ("etag", "a"), ("x-linked-size", "-1")], false), Err(LINKED_SIZE));
        assert_eq!(head(&[("etag", "a"), ("content-length", "9")], false), Err(REPO_COMMIT));
    }
}
