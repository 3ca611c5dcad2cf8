//! The same repos as ModelScope tells of them: search and page under `openapi/v1`, files and their content under `api/v1`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::http::{Response, StatusCode, header};
use axum::routing::get;
use serde_json::{Value, json};

use super::State;
use super::api::{Answer, Asked};
use super::repo::{Blob, Repo};
use super::resolve::signed_link;

pub(super) fn router() -> Router<Arc<State>> {
    Router::new()
        .route("/openapi/v1/models", get(search))
        .route("/openapi/v1/models/{org}/{name}", get(model))
        .route("/api/v1/models/{org}/{name}/repo/files", get(files))
        .route("/api/v1/models/{org}/{name}/repo", get(content))
}

async fn search(Shared(state): Shared<Arc<State>>, request: Request) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let words = asked.query("search").join(" ").to_lowercase();
    let mut repos: Vec<Repo> = super::lock(&state.repos).values().cloned().collect();
    repos.retain(|repo| words.split_whitespace().all(|word| repo.id.to_lowercase().contains(word)));
    repos.sort_by_key(|repo| std::cmp::Reverse(repo.downloads));
    let number = |name: &str| asked.query(name).first().and_then(|value| value.parse::<usize>().ok());
    let (page, size) = (number("page_number").unwrap_or(1).max(1), number("page_size").unwrap_or(10));
    let models: Vec<Value> = repos.iter().skip((page - 1) * size).take(size).map(card).collect();
    let data = json!({ "models": models, "total_count": repos.len(), "page_number": page, "page_size": size });
    Ok(asked.answer(&json!({ "success": true, "data": data, "request_id": "r" }), None))
}

async fn model(
    Shared(state): Shared<Arc<State>>,
    Path((org, name)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    Ok(match state.repo(&format!("{org}/{name}")) {
        Some(repo) => asked.answer(&json!({ "success": true, "data": card(&repo) }), None),
        None => not_found(),
    })
}

fn card(repo: &Repo) -> Value {
    json!({
        "id": repo.id,
        "downloads": repo.downloads,
        "likes": repo.likes,
        "license": repo.tags.iter().find_map(|tag| tag.strip_prefix("license:")).unwrap_or_default(),
        "tags": repo.all_tags(),
        "last_modified": repo.last_modified,
        "params": repo.gguf.as_ref().map_or(0, |card| card.n_params),
    })
}

async fn files(
    Shared(state): Shared<Arc<State>>,
    Path((org, name)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let Some(repo) = state.repo(&format!("{org}/{name}")) else { return Ok(not_found()) };
    let mut entries: Vec<Value> = Vec::new();
    for (path, blob) in &repo.files {
        if let Some((folder, _)) = path.rsplit_once('/')
            && !entries.iter().any(|entry| entry["Path"] == folder)
        {
            entries.push(json!({ "Name": folder, "Path": folder, "Type": "tree", "Size": 0, "Sha256": "" }));
        }
        entries.push(entry(path, blob));
    }
    Ok(asked.answer(&json!({ "Code": 200, "Success": true, "Message": "", "Data": { "Files": entries } }), None))
}

fn entry(path: &str, blob: &Blob) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path);
    json!({ "Name": name, "Path": path, "Type": "blob", "Size": blob.size_bytes, "Sha256": blob.sha256() })
}

/// Points to the second host, as for large files.
async fn content(
    Shared(state): Shared<Arc<State>>,
    Path((org, name)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let asked = Asked::new(&state, request.into_parts().0)?;
    let (id, path) = (format!("{org}/{name}"), asked.query("FilePath").join(""));
    let blob = state.repo(&id).and_then(|repo| repo.files.get(&path).cloned());
    let Some(blob) = blob else { return Ok(not_found()) };
    let link = signed_link(&state, &id, &path, blob.sha256());
    let answer = Response::builder().status(StatusCode::FOUND).header(header::LOCATION, link);
    Ok(answer.header("x-linked-etag", format!("\"{}\"", blob.sha256())).body(Body::empty()).expect("plain headers"))
}

fn not_found() -> Response<Body> {
    let body = json!({ "Code": 10_010_205_001_u64, "Success": false, "Message": "record not found", "Data": null });
    let answer = Response::builder().status(StatusCode::NOT_FOUND).header(header::CONTENT_TYPE, "application/json");
    answer.body(Body::from(body.to_string())).expect("plain headers")
}
