//! Files: `resolve` on the hub, with its redirects, and the second host that large files come from.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{any, get};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::body::file_answer;
use super::fault::{Fault, Side};
use super::repo::{Access, Blob, Repo, hex, is_large_file};
use super::{State, faulty_answer, finish};

/// What stays as it is within a path.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(super) fn hub_router() -> Router<Arc<State>> {
    Router::new()
        .route("/{org}/{name}/resolve/{rev}/{*path}", get(resolve))
        .route("/api/resolve-cache/models/{org}/{name}/{rev}/{*path}", get(small_file))
}

pub(super) fn cdn_router() -> Router<Arc<State>> {
    Router::new().route("/{org}/{name}/{*path}", any(large_file))
}

/// `publisher/name` and the file, of a path on either host.
pub(super) fn repo_and_file(path: &str) -> Option<(String, String)> {
    let mut parts = path.trim_start_matches('/').splitn(3, '/');
    let (org, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let file = match rest.strip_prefix("resolve/") {
        Some(rest) => rest.split_once('/')?.1,
        None => rest,
    };
    Some((format!("{org}/{name}"), file.to_owned()))
}

type FilePath = Path<(String, String, String, String)>;

async fn resolve(
    Shared(state): Shared<Arc<State>>,
    Path((org, name, rev, path)): FilePath,
    request: Request,
) -> Response<Body> {
    let (_, faults) = state.admit(Side::Hub, request.method().as_str(), request.uri(), request.headers());
    if let Some(answer) = faulty_answer(&faults, request.uri()) {
        return answer;
    }
    let id = format!("{org}/{name}");
    let answer = match find(&state, &id, &rev, &path, request.headers()) {
        Ok((repo, blob)) => {
            let commit = repo.commit();
            let answer = Response::builder()
                .header("x-repo-commit", &commit)
                .header("x-linked-size", blob.size_bytes)
                .header(header::ACCEPT_RANGES, "bytes");
            if is_large_file(&path) {
                let etag = format!("\"{}\"", blob.sha256());
                let link = signed_link(&state, &id, &path, blob.sha256());
                let answer = answer.header("x-linked-etag", &etag).header(header::ETAG, &etag);
                let is_answered = faults.iter().any(|fault| matches!(fault, Fault::AnswerHead));
                if is_answered && request.method() == "HEAD" {
                    answer.header(header::CONTENT_LENGTH, blob.size_bytes).body(Body::empty())
                } else {
                    answer.status(StatusCode::FOUND).header(header::LOCATION, link).body(Body::empty())
                }
            } else {
                let etag = format!("\"{}\"", blob.git_oid(&path));
                let [id, encoded] = [&id, &path].map(|part| utf8_percent_encode(part, IN_PATH));
                let oid = blob.git_oid(&path);
                let link = format!("/api/resolve-cache/models/{id}/{commit}/{encoded}?etag={oid}");
                let answer = answer.header("x-linked-etag", &etag).header(header::ETAG, &etag);
                answer.status(StatusCode::TEMPORARY_REDIRECT).header(header::LOCATION, link).body(Body::empty())
            }
            .expect("plain headers")
        }
        Err(refusal) => refusal.answer(request.uri().path(), &id),
    };
    finish(answer, &faults)
}

async fn small_file(
    Shared(state): Shared<Arc<State>>,
    Path((org, name, rev, path)): FilePath,
    request: Request,
) -> Response<Body> {
    let (seen, faults) = state.admit(Side::Hub, request.method().as_str(), request.uri(), request.headers());
    let id = format!("{org}/{name}");
    match find(&state, &id, &rev, &path, request.headers()) {
        Ok((repo, blob)) => {
            let etag = format!("\"{}\"", blob.git_oid(&path));
            let is_head = request.method() == "HEAD";
            let mut answer = file_answer(blob, request.headers(), is_head, &faults, state.bytes_per_s, seen);
            for (name, value) in [("etag", etag), ("x-repo-commit", repo.commit())] {
                answer.headers_mut().insert(name, value.parse().expect("hex in a header"));
            }
            finish(answer, &faults)
        }
        Err(refusal) => refusal.answer(request.uri().path(), &id),
    }
}

async fn large_file(
    Shared(state): Shared<Arc<State>>,
    Path((org, name, path)): Path<(String, String, String)>,
    request: Request,
) -> Response<Body> {
    let (seen, faults) = state.admit(Side::Cdn, request.method().as_str(), request.uri(), request.headers());
    if let Some(answer) = faulty_answer(&faults, request.uri()) {
        return answer;
    }
    let refused = |status: StatusCode, code: &str| {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "application/xml");
        answer.body(Body::from(body)).expect("plain headers")
    };
    if request.headers().contains_key(header::AUTHORIZATION) {
        return refused(StatusCode::BAD_REQUEST, "InvalidArgument");
    }
    let id = format!("{org}/{name}");
    let blob = state.repo(&id).and_then(|repo| repo.files.get(&path).cloned());
    let Some(blob) = blob else {
        return refused(StatusCode::NOT_FOUND, "NoSuchKey");
    };
    let signature = signature(&id, &path, state.link_era.load(Ordering::Acquire));
    if !request.uri().query().unwrap_or_default().contains(&signature) {
        return refused(StatusCode::FORBIDDEN, "AccessDenied");
    }
    let is_head = request.method() == "HEAD";
    finish(file_answer(blob, request.headers(), is_head, &faults, state.bytes_per_s, seen), &faults)
}

pub(super) fn signed_link(state: &State, id: &str, path: &str, sha256: &str) -> String {
    let signature = signature(id, path, state.link_era.load(Ordering::Acquire));
    let (id, path) = (utf8_percent_encode(id, IN_PATH), utf8_percent_encode(path, IN_PATH));
    format!("{}/{id}/{path}?X-Amz-Expires=3600&etag={sha256}&X-Amz-Signature={signature}", state.cdn_url)
}

fn signature(id: &str, path: &str, era: u64) -> String {
    hex(&Sha256::digest(format!("loopback only\0{id}\0{path}\0{era}")))
}

/// Why a file or a repo is not given.
pub(super) enum Refusal {
    Renamed { to: String },
    NoRepo { anonymous: bool },
    NoRevision,
    NoFile,
    Gated { anonymous: bool },
    BadToken,
}

impl Refusal {
    pub(super) fn answer(&self, path: &str, id: &str) -> Response<Body> {
        let refuse = |status: u16, code: &str, message: &str| {
            let body = format!("{{\"error\":\"{message}\"}}");
            let answer = Response::builder().status(status).header("x-error-message", message);
            let answer = if code.is_empty() { answer } else { answer.header("x-error-code", code) };
            json_body(answer, body)
        };
        match self {
            Self::Renamed { to } => {
                let [id, to] = [id, to].map(|id| utf8_percent_encode(id, IN_PATH).to_string());
                let location = path.replacen(&id, &to, 1);
                let answer = Response::builder().status(StatusCode::TEMPORARY_REDIRECT);
                json_body(answer.header(header::LOCATION, location), String::new())
            }
            Self::NoRepo { anonymous } => {
                let status = if *anonymous { 401 } else { 404 };
                refuse(status, "RepoNotFound", "Repository not found")
            }
            Self::NoRevision => refuse(404, "RevisionNotFound", "Invalid rev id"),
            Self::NoFile => refuse(404, "EntryNotFound", "Entry not found"),
            Self::Gated { anonymous } => {
                let status = if *anonymous { 401 } else { 403 };
                refuse(status, "GatedRepo", "Access to this model is restricted")
            }
            Self::BadToken => refuse(401, "", "Invalid credentials in Authorization header"),
        }
    }
}

fn json_body(answer: Builder, body: String) -> Response<Body> {
    answer.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).expect("plain headers")
}

/// The token, if the hub knows it.
pub(super) fn token_of(state: &State, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
    let known = token.filter(|&token| state.tokens.iter().any(|known| known == token));
    known.map(|token| Some(token.to_owned())).ok_or(Refusal::BadToken)
}

/// A repo at a revision, if this token may see it.
pub(super) fn find_repo(state: &State, id: &str, rev: &str, headers: &HeaderMap) -> Result<Repo, Refusal> {
    let token = token_of(state, headers)?;
    if let Some(to) = state.renamed.get(id) {
        return Err(Refusal::Renamed { to: to.clone() });
    }
    let repo = state.repo(id).ok_or(Refusal::NoRepo { anonymous: token.is_none() })?;
    // A full commit is taken as it is: a hub keeps its history, and a bad mirror gives what it has.
    let is_commit = rev.len() == 40 && rev.bytes().all(|byte| byte.is_ascii_hexdigit());
    if rev == "main" || is_commit { Ok(repo) } else { Err(Refusal::NoRevision) }
}

fn find(state: &State, id: &str, rev: &str, path: &str, headers: &HeaderMap) -> Result<(Repo, Arc<Blob>), Refusal> {
    let repo = find_repo(state, id, rev, headers)?;
    if let Access::Gated { accepted } = &repo.access {
        let token = token_of(state, headers)?;
        if !token.as_ref().is_some_and(|token| accepted.contains(token)) {
            return Err(Refusal::Gated { anonymous: token.is_none() });
        }
    }
    let blob = repo.files.get(path).cloned().ok_or(Refusal::NoFile)?;
    Ok((repo, blob))
}
