//! The library beside a hub: versions that are newer there, and models that go to the trash and come back.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::wire::{AppEvent, DownloadRequest, DownloadState, Integrity, LibraryModel, Presence, UpdatesFound};
use tandem_engine::Flow;
use tandem_tests::hub::{Repo, TestHub, tiny_gguf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const REPO: &str = "a/Tiny-GGUF";
const FILE: &str = "Tiny-Q8_0.gguf";

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_on_the_hub_is_found_shown_and_replaces_the_old_one() {
    let (root, test_hub) = (tempfile::tempdir().unwrap(), hub());
    let (app, mut events) = open(root.path(), &test_hub);
    let here = fetch(&app, &mut events).await;
    let found = api::check_updates(&app).await.unwrap();
    assert_eq!(found, UpdatesFound { n_checked: 1, n_newer: 0, failures: Vec::new() });
    assert_eq!(api::library(&app).await.unwrap()[0].newer, None);

    test_hub.replace(REPO, FILE, tiny_gguf("qwen3"));
    let found = api::check_updates(&app).await.unwrap();
    assert_eq!((found.n_checked, found.n_newer), (1, 1));
    let told = library_told(&mut events, |model| model.newer.is_some()).await;
    assert_eq!(told.newer.as_ref().unwrap().sha256.as_deref(), Some(test_hub.sha256(REPO, FILE).as_str()));
    assert_eq!((told.id.as_str(), told.integrity), (here.id.as_str(), Integrity::Verified), "what is here stays right");
    app.close().await;
    drop(app);

    // It is still known after a restart, and fetching it ends it.
    let (app, mut events) = open(root.path(), &test_hub);
    assert!(api::library(&app).await.unwrap()[0].newer.is_some());
    let page = api::model_page(&app, REPO.into()).await.unwrap();
    assert_eq!(page.versions[0].presence, Presence::Absent, "the page offers the new one");
    let newer = fetch(&app, &mut events).await;
    assert_eq!((newer.newer, newer.architecture.as_str(), newer.integrity), (None, "qwen3", Integrity::Verified));
    assert_eq!(api::library(&app).await.unwrap().len(), 1);
    assert!(fs::read(&newer.path).unwrap() == tiny_gguf("qwen3"));
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_cannot_be_asked_says_so_and_changes_nothing() {
    let (root, test_hub) = (tempfile::tempdir().unwrap(), hub());
    let (app, mut events) = open(root.path(), &test_hub);
    let here = fetch(&app, &mut events).await;
    drop(test_hub);
    let found = api::check_updates(&app).await.unwrap();
    assert_eq!((found.n_checked, found.n_newer, found.failures.len()), (0, 0, 1));
    assert_eq!(api::library(&app).await.unwrap(), [here]);
    app.close().await;
}

fn hub() -> TestHub {
    TestHub::start(vec![Repo::new(REPO).file(FILE, tiny_gguf("llama"))])
}

/// An app in a folder of its own, and what it tells.
fn open(root: &Path, test_hub: &TestHub) -> (Arc<App>, UnboundedReceiver<AppEvent>) {
    let options = AppOptions {
        paths: Some(Paths::under(root)),
        hub_url: Some(test_hub.url().to_owned()),
        nvml_path: Some(root.join("no-nvml")),
        ..AppOptions::default()
    };
    let app = App::open(options).expect("the app opens");
    let (sender, events) = unbounded_channel();
    app.subscribe(Box::new(move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Break }));
    (app, events)
}

/// Downloads the version that the hub has now; the model.
async fn fetch(app: &App, events: &mut UnboundedReceiver<AppEvent>) -> LibraryModel {
    let page = api::model_page(app, REPO.into()).await.unwrap();
    let files = page.versions[0].files.clone();
    api::start_download(app, DownloadRequest { files }).await.unwrap();
    loop {
        match events.recv().await.expect("the app tells") {
            AppEvent::Download { download } if download.state == DownloadState::Done => break,
            AppEvent::Download { download } => assert_ne!(download.state, DownloadState::Failed, "{download:?}"),
            _ => {}
        }
    }
    api::library(app).await.unwrap().remove(0)
}

/// The first model of the library, as soon as it is told so.
async fn library_told(events: &mut UnboundedReceiver<AppEvent>, is_so: impl Fn(&LibraryModel) -> bool) -> LibraryModel {
    loop {
        if let AppEvent::Library { mut models } = events.recv().await.expect("the app tells")
            && is_so(&models[0])
        {
            return models.remove(0);
        }
    }
}
