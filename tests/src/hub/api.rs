//! The JSON side of the hub: search, a repo's page, its tree, chosen paths.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{Response, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Map, Value, json};

use super::fault::{Fault, Side};
use super::repo::{Access, Blob, Repo, is_large_file};
use super::resolve::find_repo;
use super::{State, faulty_answer, finish};

/// Entries per page of a tree.
const TREE_PAGE: usize = 1000;

pub(super) fn router() -> Router<Arc<State>> {
    Router::new()
        .route("/api/whoami-v2", get(whoami))
        .route("/api/models", get(search))
        .route("/api/models/{org}/{name}", get(model))
        .route("/api/models/{org}/{name}/revision/{rev}", get(model_at))
        .route("/api/models/{org}/{name}/refs", get(refs))
        .route("/api/models/{org}/{name}/tree/{rev}", get(tree))
        .route("/api/models/{org}/{name}/tree/{rev}/{*dir}", get(tree_below))
        .route("/api/models/{org}/{name}/paths-info/{rev}", post(paths_info))
}

/// A request after it was recorded, with what may befall it.
pub(super) struct Asked {
    parts: Parts,
    faults: Vec<Fault>,
}

impl Asked {
    pub(super) fn new(state: &State, parts: Parts) -> Result<Self, Refused> {
        let (_, faults) = state.admit(Side::Hub, parts.method.as_str(), &parts.uri, &parts.headers);
        match faulty_answer(&faults, &parts.uri) {
            Some(answer) => Err(Refused(Box::new(answer))),
            None => Ok(Self { parts, faults }),
        }
    }

    /// All values of a query parameter; `name[]` is the same as `name`.
    pub(super) fn query(&self, name: &str) -> Vec<String> {
        let query = self.parts.uri.query().unwrap_or_default();
        form(query.as_bytes())
            .into_iter()
            .filter(|(key, _)| key.trim_end_matches("[]") == name)
            .map(|(_, v)| v)
            .collect()
    }

    fn is_set(&self, name: &str) -> bool {
        self.query(name).iter().any(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    pub(super) fn answer(&self, value: &Value, next: Option<String>) -> Response<Body> {
        let mut answer = Response::builder().header(header::CONTENT_TYPE, "application/json; charset=utf-8");
        if let Some(next) = next {
            answer = answer.header(header::LINK, format!("<{next}>; rel=\"next\""));
        }
        finish(answer.body(Body::from(value.to_string())).expect("plain headers"), &self.faults)
    }

    fn find(&self, state: &State, id: &str, rev: &str) -> Result<Repo, Refused> {
        let found = find_repo(state, id, rev, &self.parts.headers);
        found.map_err(|refusal| Refused(Box::new(refusal.answer(self.parts.uri.path(), id))))
    }
}

pub(super) type Answer = Result<Response<Body>, Refused>;

/// An answer that says no.
pub(super) struct Refused(Box<Response<Body>>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        *self.0
    }
}

async fn whoami(Shared(state): Shared<Arc<State>>, request: Request) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let token = super::resolve::token_of(&state, &asked.parts.headers).ok().flatten();
    Ok(match token {
        Some(token) => asked.answer(&json!({ "type": "user", "name": format!("owner-of-{token}") }), None),
        None => {
            let body = json!({ "error": "Invalid username or password." }).to_string();
            Response::builder().status(401).body(Body::from(body)).expect("plain headers")
        }
    })
}

async fn search(Shared(state): Shared<Arc<State>>, request: Request) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let words: Vec<String> = asked
        .query("search")
        .iter()
        .flat_map(|text| text.to_lowercase().split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let (tags, authors) = (asked.query("filter"), asked.query("author"));
    let mut repos: Vec<Repo> = super::lock(&state.repos).values().cloned().collect();
    repos.retain(|repo| {
        let id = repo.id.to_lowercase();
        let has = repo.all_tags();
        words.iter().all(|word| id.contains(word))
            && tags.iter().all(|tag| has.contains(tag))
            && authors.iter().all(|author| repo.id.starts_with(&format!("{author}/")))
    });
    match asked.query("sort").first().map(String::as_str) {
        Some("likes") => repos.sort_by_key(|repo| std::cmp::Reverse(repo.likes)),
        Some("lastModified" | "createdAt") => repos.sort_by(|a, b| b.last_modified.cmp(&a.last_modified)),
        _ => repos.sort_by_key(|repo| std::cmp::Reverse(repo.downloads)),
    }
    let number = |name: &str| asked.query(name).first().and_then(|value| value.parse::<usize>().ok());
    let (limit, from) = (number("limit").unwrap_or(1000).clamp(1, 1000), number("cursor").unwrap_or(0));
    let expand = asked.query("expand");
    let page: Vec<Value> = repos.iter().skip(from).take(limit).map(|repo| list_entry(repo, &expand, &asked)).collect();
    let next = (from + limit < repos.len()).then(|| next_page(&state, &asked, from + limit));
    Ok(asked.answer(&Value::Array(page), next))
}

/// The same request, further on.
fn next_page(state: &State, asked: &Asked, cursor: usize) -> String {
    let query = asked.parts.uri.query().unwrap_or_default();
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor=")).collect();
    format!("{}{}?{}&cursor={cursor}", state.hub_url, asked.parts.uri.path(), kept.join("&"))
}

fn list_entry(repo: &Repo, expand: &[String], asked: &Asked) -> Value {
    let mut all = fields(repo);
    if !expand.is_empty() {
        all.retain(|key, _| matches!(key.as_str(), "_id" | "id") || expand.iter().any(|wanted| wanted == key));
        return Value::Object(all);
    }
    let is_full = asked.is_set("full") || !asked.query("filter").is_empty();
    all.retain(|key, _| is_full || !matches!(key.as_str(), "siblings" | "sha" | "lastModified" | "gated"));
    all.remove("gguf");
    Value::Object(all)
}

fn fields(repo: &Repo) -> Map<String, Value> {
    let author = repo.id.split('/').next().unwrap_or_default();
    let siblings: Vec<Value> = repo.files.keys().map(|path| json!({ "rfilename": path })).collect();
    let gated = matches!(repo.access, Access::Gated { .. });
    let mut value = json!({
        "_id": &repo.commit()[..24],
        "id": repo.id,
        "modelId": repo.id,
        "author": author,
        "sha": repo.commit(),
        "createdAt": repo.last_modified,
        "lastModified": repo.last_modified,
        "private": false,
        "disabled": false,
        "gated": if gated { json!("auto") } else { json!(false) },
        "downloads": repo.downloads,
        "likes": repo.likes,
        "tags": repo.all_tags(),
        "pipeline_tag": "text-generation",
        "siblings": siblings,
    });
    if let Some(card) = &repo.gguf {
        value["gguf"] = json!({
            "architecture": card.architecture,
            "total": card.n_params,
            "context_length": card.context_length,
        });
    }
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

async fn model(
    Shared(state): Shared<Arc<State>>,
    Path((org, name)): Path<(String, String)>,
    request: Request,
) -> Answer {
    model_page(&state, &format!("{org}/{name}"), "main", request)
}

async fn model_at(
    Shared(state): Shared<Arc<State>>,
    Path((org, name, rev)): Path<(String, String, String)>,
    request: Request,
) -> Answer {
    model_page(&state, &format!("{org}/{name}"), &rev, request)
}

fn model_page(state: &State, id: &str, rev: &str, request: Request) -> Answer {
    let asked = Asked::new(state, request.into_parts().0)?;
    let repo = asked.find(state, id, rev)?;
    let mut page = fields(&repo);
    let expand = asked.query("expand");
    if !expand.is_empty() {
        page.retain(|key, _| matches!(key.as_str(), "_id" | "id") || expand.iter().any(|wanted| wanted == key));
    }
    if asked.is_set("blobs") {
        let siblings: Vec<Value> = repo.files.iter().map(|(path, blob)| sibling(path, blob)).collect();
        page.insert("siblings".to_owned(), Value::Array(siblings));
    }
    Ok(asked.answer(&Value::Object(page), None))
}

fn sibling(path: &str, blob: &Blob) -> Value {
    let mut entry = json!({ "rfilename": path, "size": blob.size_bytes, "blobId": blob.git_oid(path) });
    if is_large_file(path) {
        entry["lfs"] = json!({ "sha256": blob.sha256(), "size": blob.size_bytes, "pointerSize": blob.pointer().len() });
    }
    entry
}

async fn refs(
    Shared(state): Shared<Arc<State>>,
    Path((org, name)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let repo = asked.find(&state, &format!("{org}/{name}"), "main")?;
    let branch = json!({ "name": "main", "ref": "refs/heads/main", "targetCommit": repo.commit() });
    Ok(asked.answer(&json!({ "branches": [branch], "tags": [], "converts": [] }), None))
}

type TreePath = Path<(String, String, String)>;

async fn tree(state: Shared<Arc<State>>, Path((org, name, rev)): TreePath, request: Request) -> Answer {
    tree_page(&state.0, &format!("{org}/{name}"), &rev, "", request)
}

async fn tree_below(
    state: Shared<Arc<State>>,
    Path((org, name, rev, dir)): Path<(String, String, String, String)>,
    request: Request,
) -> Answer {
    tree_page(&state.0, &format!("{org}/{name}"), &rev, &format!("{dir}/"), request)
}

fn tree_page(state: &State, id: &str, rev: &str, below: &str, request: Request) -> Answer {
    let asked = Asked::new(state, request.into_parts().0)?;
    let repo = asked.find(state, id, rev)?;
    let is_recursive = asked.is_set("recursive");
    let mut entries: Vec<Value> = Vec::new();
    let mut folders: Vec<String> = Vec::new();
    for (path, blob) in repo.files.iter().filter(|(path, _)| path.starts_with(below)) {
        let parts: Vec<&str> = path[below.len()..].split('/').collect();
        let depth = if is_recursive { parts.len() - 1 } else { (parts.len() - 1).min(1) };
        for n in 1..=depth {
            let folder = format!("{below}{}", parts[..n].join("/"));
            if !folders.contains(&folder) {
                entries.push(json!({ "type": "directory", "path": folder, "size": 0, "oid": &repo.commit() }));
                folders.push(folder);
            }
        }
        if is_recursive || parts.len() == 1 {
            entries.push(tree_entry(path, blob));
        }
    }
    let from = asked.query("cursor").first().and_then(|cursor| cursor.parse::<usize>().ok()).unwrap_or(0);
    let limit = asked.query("limit").first().and_then(|limit| limit.parse().ok()).unwrap_or(TREE_PAGE);
    let next = (from + limit < entries.len()).then(|| next_page(state, &asked, from + limit));
    let page = entries.into_iter().skip(from).take(limit).collect();
    Ok(asked.answer(&Value::Array(page), next))
}

fn tree_entry(path: &str, blob: &Blob) -> Value {
    let mut entry = json!({ "type": "file", "path": path, "size": blob.size_bytes, "oid": blob.git_oid(path) });
    if is_large_file(path) {
        entry["lfs"] = json!({ "oid": blob.sha256(), "size": blob.size_bytes, "pointerSize": blob.pointer().len() });
    }
    entry
}

async fn paths_info(Shared(state): Shared<Arc<State>>, Path((org, name, rev)): TreePath, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let asked = Asked::new(&state, parts)?;
    let repo = asked.find(&state, &format!("{org}/{name}"), &rev)?;
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let known = |path: &String| repo.files.get(path).map(|blob| tree_entry(path, blob));
    let entries: Vec<Value> = wanted_paths(&body).iter().filter_map(known).collect();
    Ok(asked.answer(&Value::Array(entries), None))
}

/// The paths of a form, or of its JSON equivalent.
fn wanted_paths(body: &Bytes) -> Vec<String> {
    if let Ok(Value::Object(map)) = serde_json::from_slice(body) {
        let paths = map.get("paths").and_then(Value::as_array).into_iter().flatten();
        return paths.filter_map(Value::as_str).map(str::to_owned).collect();
    }
    form(body).into_iter().filter(|(key, _)| key == "paths").map(|(_, path)| path).collect()
}

fn form(text: &[u8]) -> Vec<(String, String)> {
    let pairs = text.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    let decode = |text: &[u8]| {
        let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        percent_encoding::percent_decode(&spaced).decode_utf8_lossy().into_owned()
    };
    let split = |pair: &[u8]| {
        let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        (decode(&pair[..at]), decode(pair.get(at + 1..).unwrap_or_default()))
    };
    pairs.map(split).collect()
}
