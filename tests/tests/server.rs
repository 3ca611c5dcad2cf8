//! The HTTP server as OpenAI's clients use it, on a real model.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::server::Server;
use tandem_core::wire::{LoadRequest, Wishes};
use tandem_engine::Flow;
use tandem_tests::models::smollm2;

fn open(root: &Path) -> Arc<App> {
    let options = AppOptions {
        paths: Some(Paths::under(root)),
        hub_url: Some("http://127.0.0.1:1".to_owned()),
        nvml_path: Some(root.join("no-nvml")),
        trash: Some(root.join("trash")),
        ..AppOptions::default()
    };
    App::open(options).expect("the app opens")
}

async fn load(app: &App) {
    let path = smollm2().to_str().expect("a path in Unicode").to_owned();
    let model = api::add_model(app, path).await.expect("SmolLM2 is a model");
    let wishes = Wishes { context_length: Some(2048), ..Wishes::default() };
    let request = LoadRequest { model_id: model.id, wishes };
    api::load_model(app, request, Box::new(|_| Flow::Continue)).await.expect("loads");
}

fn client() -> reqwest::Client {
    // Built without a provider of its own; another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn post(server: &Server, body: Value) -> reqwest::Response {
    let url = format!("http://{}/v1/chat/completions", server.address());
    let request = client().post(url).header("content-type", "application/json");
    request.body(body.to_string()).send().await.expect("the server answers")
}

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.expect("a body")).expect("JSON")
}

fn france() -> Value {
    json!([{ "role": "user", "content": "what is the capital of france" }])
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_whole_and_in_pieces_as_clients_expect() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    let server = Server::start(Arc::clone(&app), 0).await.unwrap();
    let base = format!("http://{}", server.address());

    let response = post(&server, json!({ "messages": france() })).await;
    assert_eq!(response.status(), 503);
    assert_eq!(json_of(response).await["error"]["code"], "no_model_loaded");

    load(&app).await;
    let models = json_of(client().get(format!("{base}/v1/models")).send().await.unwrap()).await;
    assert_eq!(models["data"][0]["id"], "SmolLM2-135M-Instruct.Q4_1");
    assert_eq!(json_of(client().get(format!("{base}/health")).send().await.unwrap()).await["status"], "ok");

    let ask = json!({ "model": "any", "messages": france(), "temperature": 0 });
    let whole = json_of(post(&server, ask.clone()).await).await;
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("The capital of France is Paris"), "{text}");
    assert_eq!((&whole["object"], &whole["choices"][0]["finish_reason"]), (&json!("chat.completion"), &json!("stop")));
    let usage = &whole["usage"];
    let sum = usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);

    let mut streamed = ask;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let response = post(&server, streamed).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = response.text().await.unwrap();
    let lines: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(lines.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> = lines[..lines.len() - 1].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), text);
    let [.., last, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(usage["choices"].as_array().unwrap().is_empty());
    assert!(usage["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0, "{usage}");
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
    assert!(api::chats(&app).await.unwrap().is_empty(), "nothing is kept");
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_stops_and_errors_are_openais() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    let server = Server::start(Arc::clone(&app), 0).await.unwrap();
    load(&app).await;

    let short = json_of(post(&server, json!({ "messages": france(), "temperature": 0, "max_tokens": 3 })).await).await;
    assert_eq!(short["choices"][0]["finish_reason"], "length");
    assert_eq!(short["usage"]["completion_tokens"], 3);
    let cut = json_of(post(&server, json!({ "messages": france(), "temperature": 0, "stop": [" Paris"] })).await).await;
    assert_eq!(cut["choices"][0]["message"]["content"], "The capital of France is");
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");

    let long = "a river and a boat ".repeat(1000);
    let cases = [
        (json!({ "messages": [{ "role": "user", "content": long }] }), 400, "context_length_exceeded"),
        (json!({ "messages": [{ "role": "user", "content": long }], "stream": true }), 400, "context_length_exceeded"),
        (json!({ "messages": [] }), 400, ""),
        (json!({ "messages": [{ "role": "wizard", "content": "x" }] }), 400, ""),
        (json!({ "messages": france(), "n": 2 }), 400, ""),
        (json!({ "messages": 7 }), 422, ""),
    ];
    for (body, status, code) in cases {
        let response = post(&server, body).await;
        assert_eq!(response.status(), status);
        let error = &json_of(response).await["error"];
        assert_eq!(error["code"].as_str().unwrap_or_default(), code);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let url = format!("http://{}/v1/models", server.address());
    let foreign = client().get(&url).header("host", "evil.example").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
    let unknown = client().get(format!("http://{}/v1/nothing", server.address())).send().await.unwrap();
    assert_eq!(
        (unknown.status().as_u16(), json_of(unknown).await["error"]["type"].clone()),
        (404, json!("not_found_error"))
    );
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_answer() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    let server = Server::start(Arc::clone(&app), 0).await.unwrap();
    load(&app).await;
    let story = json!([{ "role": "user", "content": "Write a very long story about a river and a boat." }]);
    let body = json!({ "messages": story, "temperature": 0, "stream": true });
    let mut pieces = post(&server, body).await.bytes_stream();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    let next = post(&server, json!({ "messages": france(), "temperature": 0, "max_tokens": 2 })).await;
    assert_eq!(next.status(), 200, "the next one has its turn");
    assert_eq!(server.n_abandoned(), 1);
    app.close().await;
}
