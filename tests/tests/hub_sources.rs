//! Sources other than the hub itself, over real HTTP: ModelScope, mirrors, proxies, a second word on a hash, and who sees
//! the token.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::hub::{Hub, HubError, HubOptions, NetworkFault, confirm, versions};
use tandem_core::paths::Paths;
use tandem_core::token::KeyStore;
use tandem_core::wire::{
    AppEvent, DownloadRequest, DownloadState, ErrorCode, HashWord, HubKind, HubSource, Integrity, ModelFormat,
    PlanVersionsRequest, ProxyKind, ProxySettings, Reach, Reading, SearchRequest, Settings, TokenKeep, TokenPlace,
    TokenRequest,
};
use tandem_engine::Flow;
use tandem_tests::downloads::weights;
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub, TestHubOptions, demo_repos, tiny_gguf};
use tandem_tests::proxy::TestProxy;

const REPO: &str = "tandem-demo/Tiny-Sharded-GGUF";
const GATED: &str = "tandem-demo/Tiny-Gated-GGUF";

#[tokio::test]
async fn modelscope_lists_hashes_and_gives_files() {
    let mut repos = demo_repos();
    repos.extend(
        (0..40).map(|n| Repo::new(&format!("many/Model-{n:02}-GGUF")).file("a.gguf", "x").popularity(90 - n, 0)),
    );
    let test_hub = TestHub::start(repos);
    let hub = client(&test_hub, HubKind::ModelScope, None);
    let mut request = SearchRequest { query: "many model".into(), cursor: None };
    let mut found = Vec::new();
    loop {
        let page = hub.search(&request).await.unwrap();
        found.extend(page.models.into_iter().map(|model| model.id));
        request.cursor = page.next;
        if request.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, (0..40).map(|n| format!("many/Model-{n:02}-GGUF")).collect::<Vec<_>>());

    let listing = hub.model(REPO).await.unwrap();
    assert_eq!((listing.model.id.as_str(), listing.model.license.as_deref()), (REPO, Some("apache-2.0")));
    assert_eq!(listing.files.len(), 4, "folders are no files");
    let version = versions(&listing.files).remove(0);
    for file in &version.files {
        assert_eq!(file.sha256.as_deref(), Some(test_hub.sha256(REPO, &file.path).as_str()));
        assert_eq!(file.hash_word, HashWord::Mirrors { hosts: vec!["localhost".into()] });
        let resolved = hub.resolve(file).await.unwrap();
        assert_eq!((resolved.sha256, resolved.size_bytes), (file.sha256.clone(), file.size_bytes));
        assert!(resolved.url.as_str().starts_with(test_hub.cdn_url()));
    }
    assert_eq!(hub.header(&version.files, Reading::Kept).await.unwrap().tensors.len(), 3);
    assert!(matches!(hub.model("nobody/nothing").await, Err(HubError::NotFound { .. })));
    assert_eq!(hub.page_url(REPO), format!("{}/models/{REPO}", test_hub.url()));
}

#[tokio::test]
async fn every_request_goes_through_the_proxy_and_it_looks_up_names() {
    let names = Some(("hub.test".to_owned(), "cdn.test".to_owned()));
    let test_hub = TestHub::with(TestHubOptions { repos: demo_repos(), names, ..TestHubOptions::default() }).unwrap();
    let [hub_at, cdn_at] = test_hub.addresses();
    let hosts = [("hub.test:80".to_owned(), hub_at), ("cdn.test:80".to_owned(), cdn_at)];
    for (kind, how) in [(ProxyKind::Http, "HTTP"), (ProxyKind::Socks5, "SOCKS5")] {
        let proxy = TestProxy::start(hosts.clone());
        let proxied = |address: String| {
            let proxy = ProxySettings { kind, address };
            Hub::new(HubOptions { base_url: test_hub.url().into(), proxy, ..HubOptions::default() }).unwrap()
        };
        let hub = proxied(proxy.address());
        let files = versions(&hub.model(REPO).await.unwrap().files).remove(0).files;
        assert_eq!(hub.header(&files, Reading::Kept).await.unwrap().tensors.len(), 3);
        let seen = proxy.seen();
        for host in ["hub.test:80", "cdn.test:80"] {
            assert!(seen.contains(&format!("{how} {host}")), "{host} in {seen:?}");
        }

        let nowhere = TestProxy::start([]);
        let unreachable = proxied(nowhere.address()).model(REPO).await.unwrap_err();
        let is_told = match kind {
            // An HTTP proxy answers for the host it does not reach.
            ProxyKind::Http => matches!(unreachable, HubError::Refused { status: 502, .. }),
            _ => matches!(unreachable, HubError::Network { fault: NetworkFault::Proxy, .. }),
        };
        assert!(is_told, "{unreachable:?}");
        let dead = proxied("127.0.0.1:1".into()).model(REPO).await.unwrap_err();
        assert!(matches!(dead, HubError::Network { fault: NetworkFault::Proxy, .. }), "{dead:?}");
    }
    let secure = TestProxy::start([("hub.test:443".to_owned(), hub_at)]);
    let proxy = ProxySettings { kind: ProxyKind::Http, address: secure.address() };
    let hub = Hub::new(HubOptions { base_url: "https://hub.test".into(), proxy, ..HubOptions::default() }).unwrap();
    assert!(hub.model(REPO).await.is_err(), "the test hub speaks no TLS");
    assert_eq!(secure.seen(), ["CONNECT hub.test:443"]);
}

#[tokio::test]
async fn this_machine_is_reached_without_the_proxy() {
    let (test_hub, proxy) = (TestHub::start(demo_repos()), TestProxy::start([]));
    for kind in [ProxyKind::Http, ProxyKind::Socks5, ProxyKind::None, ProxyKind::System] {
        let proxy = ProxySettings { kind, address: proxy.address() };
        let hub = Hub::new(HubOptions { base_url: test_hub.url().into(), proxy, ..HubOptions::default() }).unwrap();
        assert!(hub.model(REPO).await.is_ok(), "{kind:?}");
    }
    assert!(proxy.seen().is_empty());
}

#[tokio::test]
async fn the_hubs_word_on_a_hash_settles_it() {
    let (origin, mirror) = (TestHub::start(demo_repos()), TestHub::start(demo_repos()));
    let mirrored = || async {
        let listing = client(&mirror, HubKind::HuggingFace, None).model(REPO).await.unwrap();
        versions(&listing.files).remove(0).files
    };
    let others = [hub_itself(&origin)];
    let word = HashWord::Hub { host: "localhost".into() };
    let confirmed = confirm(mirrored().await, &others).await;
    assert!(confirmed.iter().all(|file| file.hash_word == word), "{confirmed:?}");

    // A mirror that has altered a file, and says so nowhere.
    let path = confirmed[0].path.clone();
    mirror.replace(REPO, &path, tiny_gguf("llama"));
    let altered = mirrored().await;
    assert_ne!(altered[0].sha256, confirmed[0].sha256);
    let corrected = confirm(altered.clone(), &others).await;
    assert_eq!((&corrected[0].sha256, &corrected[0].hash_word), (&confirmed[0].sha256, &word));

    // Where the hub does not answer, the mirror's word is all there is, and it says so.
    drop(origin);
    let alone = confirm(altered, &others).await;
    assert_eq!(alone[0].hash_word, HashWord::Mirrors { hosts: vec!["localhost".into()] });
}

#[tokio::test]
async fn a_second_mirror_that_agrees_raises_the_word() {
    let test_hub = TestHub::start(demo_repos());
    let listing = client(&test_hub, HubKind::HuggingFace, None).model(REPO).await.unwrap();
    let second = HubOptions {
        base_url: test_hub.url().replace("localhost", "127.0.0.1"),
        kind: HubKind::ModelScope,
        ..HubOptions::default()
    };
    let confirmed = confirm(versions(&listing.files).remove(0).files, &[Arc::new(Hub::new(second).unwrap())]).await;
    let both = HashWord::Mirrors { hosts: vec!["localhost".into(), "127.0.0.1".into()] };
    assert!(confirmed.iter().all(|file| file.hash_word == both), "{confirmed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_finds_what_works_from_here() {
    let root = tempfile::tempdir().unwrap();
    let [dead, fileless, working] = [0; 3].map(|_| TestHub::start(demo_repos()));
    dead.fault(Rule::new(Side::Hub, "", Fault::status(503)));
    fileless.fault(Rule::new(Side::Cdn, "", Fault::status(503)));
    let app = open(root.path(), &[&dead, &fileless], &[&working]);
    let probes = api::probe_sources(&app).await.unwrap();
    let works: Vec<bool> = probes.iter().map(|probe| matches!(probe.reach, Reach::Works { .. })).collect();
    assert_eq!(works, [false, false, true], "one that lists but gives no files is of no use: {probes:?}");
    assert!(matches!(&probes[2].reach, Reach::Works { bytes_per_s: Some(rate), .. } if *rate > 0.0));
    assert!(matches!(&probes[0].reach, Reach::Fails { failure } if failure.code == ErrorCode::HubRefused));

    // One click: the source that works is used from now on.
    let source = probes[2].source.clone();
    let settings = Settings { hub_url: source.url, hub_kind: source.kind, ..Settings::default() };
    let info = api::set_settings(&app, settings).await.unwrap();
    assert_eq!((info.source.kind, info.hub_url.as_str()), (HubKind::ModelScope, working.url()));
    let page = api::model_page(&app, REPO.to_owned()).await.unwrap();
    let files = page.versions[0].files.clone();
    let download = api::start_download(&app, DownloadRequest { files }).await.unwrap();
    assert!(download.files.iter().all(|file| matches!(file.hash_word, HashWord::Mirrors { .. })), "the hub is dead");
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_from_a_mirror_is_held_to_the_hubs_hash() {
    let root = tempfile::tempdir().unwrap();
    let (origin, mirror) = (TestHub::start(demo_repos()), TestHub::start(demo_repos()));
    let app = open(root.path(), &[&origin, &mirror], &[]);
    use_source(&app, &mirror, &[]).await;
    let files = api::model_page(&app, REPO.to_owned()).await.unwrap().versions[0].files.clone();
    assert!(files.iter().all(|file| matches!(file.hash_word, HashWord::Mirrors { .. })));
    let confirmed = api::confirm_hashes(&app, files.clone()).await.unwrap();
    assert!(confirmed.iter().all(|file| matches!(file.hash_word, HashWord::Hub { .. })));
    let download = api::start_download(&app, DownloadRequest { files }).await.unwrap();
    assert_eq!(download.files, confirmed, "whoever did not wait for the second word gets it here");
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_sees_the_token_only_when_allowed() {
    let root = tempfile::tempdir().unwrap();
    let tokens = vec!["hf_accepted".to_owned(), "hf_other".to_owned()];
    let start = || {
        let options = TestHubOptions { repos: demo_repos(), tokens: tokens.clone(), ..TestHubOptions::default() };
        TestHub::with(options).unwrap()
    };
    let (origin, mirror) = (start(), start());
    let app = open(root.path(), &[&origin, &mirror], &[]);
    let plan = |app: Arc<App>| async move {
        let request = PlanVersionsRequest { repo: GATED.into(), ..PlanVersionsRequest::default() };
        match api::plan_versions(&app, request, Box::new(|_| Flow::Continue)).await {
            Ok(planned) => planned.versions[0].refusal.as_ref().map(|refusal| refusal.code),
            // A wrong token is refused before anything is listed.
            Err(failure) => Some(failure.code),
        }
    };
    let page = api::model_page(&app, GATED.to_owned()).await.unwrap();
    assert_eq!(page.versions.len(), 1, "the files are listed to everybody");
    assert_eq!(plan(Arc::clone(&app)).await, Some(ErrorCode::TokenMissing));
    set_token(&app, "hf_nobody").await;
    assert_eq!(plan(Arc::clone(&app)).await, Some(ErrorCode::TokenWrong));
    assert_eq!(api::check_token(&app).await.unwrap().failure.map(|failure| failure.code), Some(ErrorCode::TokenWrong));
    set_token(&app, "hf_other").await;
    assert_eq!(plan(Arc::clone(&app)).await, Some(ErrorCode::LicenceNotAccepted));
    set_token(&app, "hf_accepted").await;
    assert_ne!(plan(Arc::clone(&app)).await, Some(ErrorCode::LicenceNotAccepted));
    assert_eq!(api::check_token(&app).await.unwrap().account.as_deref(), Some("owner-of-hf_accepted"));

    // Another file than the one whose header is known by now.
    mirror.replace(GATED, "Tiny-Gated-Q8_0.gguf", tiny_gguf("pangolin"));
    use_source(&app, &mirror, &[]).await;
    assert_eq!(plan(Arc::clone(&app)).await, Some(ErrorCode::TokenWithheld));
    assert!(mirror.seen().iter().all(|seen| seen.authorization.is_none()), "not even once");
    use_source(&app, &mirror, &[mirror.url()]).await;
    assert_ne!(plan(Arc::clone(&app)).await, Some(ErrorCode::TokenWithheld));
    assert!(mirror.seen().iter().any(|seen| seen.authorization.as_deref() == Some("Bearer hf_accepted")));
    let elsewhere = mirror.seen().into_iter().chain(origin.seen()).filter(|seen| seen.side == Side::Cdn);
    assert!(elsewhere.into_iter().all(|seen| seen.authorization.is_none()), "and nowhere else");
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirrors_own_words_for_a_wrong_token_are_understood() {
    for status in [401, 403] {
        let root = tempfile::tempdir().unwrap();
        let test_hub = TestHub::start(demo_repos());
        test_hub.fault(Rule::new(Side::Hub, "", Fault::status(status)).with_token());
        let app = open(root.path(), &[&test_hub], &[]);
        let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
        app.subscribe(Box::new(move |event| {
            let is_heard = !matches!(&event, AppEvent::Notice { .. }) || sender.send(event).is_ok();
            if is_heard { Flow::Continue } else { Flow::Break }
        }));
        set_token(&app, "hf_mistyped").await;
        assert!(!api::model_page(&app, REPO.to_owned()).await.unwrap().versions.is_empty(), "{status}");
        let Some(AppEvent::Notice { notice }) = notices.recv().await else { panic!("a person hears of it") };
        assert_eq!(notice.code, ErrorCode::TokenWrong);
        app.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_keeps_nobody_from_public_models() {
    let root = tempfile::tempdir().unwrap();
    let options = TestHubOptions { repos: demo_repos(), tokens: vec!["hf_right".into()], ..TestHubOptions::default() };
    let test_hub = TestHub::with(options).unwrap();
    let app = open(root.path(), &[&test_hub], &[]);
    let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
    app.subscribe(Box::new(move |event| {
        let is_heard = !matches!(&event, AppEvent::Notice { .. }) || sender.send(event).is_ok();
        if is_heard { Flow::Continue } else { Flow::Break }
    }));
    set_token(&app, "hf_mistyped").await;
    let request = SearchRequest { query: "tiny".into(), cursor: None };
    assert!(!api::search_models(&app, request).await.unwrap().models.is_empty());
    let files = api::model_page(&app, REPO.to_owned()).await.unwrap().versions[0].files.clone();
    let n_sent = || test_hub.seen().iter().filter(|seen| seen.authorization.is_some()).count();
    let n_sent_before = n_sent();
    let (sender, mut rests) = tokio::sync::mpsc::unbounded_channel();
    app.subscribe(Box::new(move |event| {
        if let AppEvent::Download { download } = event {
            // Nobody listens any more when the test ends.
            let _ = sender.send(download.state);
        }
        Flow::Continue
    }));
    api::start_download(&app, DownloadRequest { files }).await.unwrap();
    while rests.recv().await.expect("the download is told") != DownloadState::Done {}

    let Some(AppEvent::Notice { notice }) = notices.recv().await else { panic!("a person hears of it") };
    assert_eq!(notice.code, ErrorCode::TokenWrong);
    assert!(notice.hint.en.contains("public models are fetched without it"), "{notice:?}");
    assert!(notices.try_recv().is_err(), "once");
    assert_eq!(n_sent(), n_sent_before, "not sent again");
    let page = api::model_page(&app, GATED.to_owned()).await.unwrap();
    let refused = api::start_download(&app, DownloadRequest { files: page.versions[0].files.clone() }).await.unwrap();
    assert_eq!(refused.state, DownloadState::Queued);
    while rests.recv().await.expect("the download is told") != DownloadState::Failed {}
    let failed = api::downloads(&app).await.unwrap().into_iter().find(|other| other.id == refused.id).unwrap();
    assert_eq!(
        failed.failure.map(|failure| failure.code),
        Some(ErrorCode::TokenWrong),
        "where one is needed it is told"
    );
    set_token(&app, "hf_right").await;
    assert_eq!(api::check_token(&app).await.unwrap().failure, None);
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_from_the_hub_is_repaired_from_the_mirror_that_the_app_knows() {
    const FILE_BYTES: usize = 5 << 20;
    for knows_mirror in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let repos = || vec![Repo::new("a/b").file("m-Q8_0.gguf", padded_gguf(FILE_BYTES))];
        let (origin, mirror) = (TestHub::start(repos()), TestHub::start(repos()));
        // One bit is wrong each time that the hub gives it.
        origin.fault(Rule::new(Side::Cdn, "m-Q8_0.gguf", Fault::FlipBit { at: 3 << 20 }));
        let hubs = [&origin, &mirror];
        let app = open(root.path(), if knows_mirror { &hubs } else { &hubs[..1] }, &[]);
        let (sender, mut ends) = tokio::sync::mpsc::unbounded_channel();
        app.subscribe(Box::new(move |event| {
            if let AppEvent::Download { download } = event
                && matches!(download.state, DownloadState::Done | DownloadState::Failed)
            {
                // Nobody listens any more when the test ends.
                let _ = sender.send(download);
            }
            Flow::Continue
        }));
        let files = api::model_page(&app, "a/b".into()).await.unwrap().versions[0].files.clone();
        api::start_download(&app, DownloadRequest { files }).await.unwrap();
        let end = ends.recv().await.expect("the download ends");
        let library = api::library(&app).await.unwrap();
        if knows_mirror {
            assert_eq!((end.state, end.n_repaired), (DownloadState::Done, 1), "{:?}", end.failure);
            assert_eq!(library[0].integrity, Integrity::Verified);
            assert!(!mirror.fetches("m-Q8_0.gguf").is_empty());
            let landed = std::fs::read(Paths::under(root.path()).models_dir.join("a/b/m-Q8_0.gguf")).unwrap();
            assert!(landed == padded_gguf(FILE_BYTES), "byte-identical");
        } else {
            assert_eq!(end.failure.map(|failure| failure.code), Some(ErrorCode::ChecksumMismatch), "{:?}", end.state);
            assert!(library.is_empty());
        }
        app.close().await;
    }
}

/// A model with something behind it, so that it takes several requests.
fn padded_gguf(n_bytes: usize) -> Vec<u8> {
    let mut bytes = tiny_gguf("llama");
    bytes.extend(weights(n_bytes, 11));
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_outlives_the_app_in_the_key_store() {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let with_store = |store: &Arc<MemoryStore>| AppOptions {
        paths: Some(Paths::under(root.path())),
        key_store: Some(Arc::clone(store) as Arc<dyn KeyStore>),
        hub_url: Some("http://localhost:9".into()),
        nvml_path: Some(root.path().join("none")),
        ..AppOptions::default()
    };
    let app = App::open(with_store(&store)).unwrap();
    let request = TokenRequest { token: "hf_kept".into(), keep: TokenKeep::KeyStore };
    assert_eq!(api::set_token(&app, request).await.unwrap().place, Some(TokenPlace::KeyStore));
    app.close().await;
    drop(app);
    assert_eq!(store.read().unwrap().as_deref(), Some("hf_kept"));
    let app = App::open(with_store(&store)).unwrap();
    let state = api::remove_token(&app).await.unwrap();
    assert_eq!((state.place, store.read().unwrap()), (None, None));
    app.close().await;
}

#[tokio::test]
async fn a_repo_without_gguf_says_what_it_is_and_leads_to_gguf() {
    let base = Repo::new("maker/Model-8B").file("model.safetensors", "x").file("config.json", "{}");
    let packed = Repo::new("other/Model-8B-AWQ")
        .file("model.safetensors", "x")
        .tag("awq")
        .tag("base_model:maker/Model-8B")
        .tag("base_model:quantized:maker/Model-8B");
    let gguf = |id: &str, downloads| {
        Repo::new(id).file("m-Q4_K_M.gguf", "x").tag("base_model:quantized:maker/Model-8B").popularity(downloads, 0)
    };
    let unrelated = Repo::new("third/Else-GGUF").file("e.gguf", "x").popularity(999, 0);
    let repos = vec![base, packed, gguf("a/Model-8B-GGUF", 5), gguf("b/Model-8B-i1-GGUF", 9), unrelated];
    let test_hub = TestHub::start(repos);
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path(), &[&test_hub], &[]);
    for (repo, main) in [("maker/Model-8B", ModelFormat::Safetensors), ("other/Model-8B-AWQ", ModelFormat::Awq)] {
        let page = api::model_page(&app, repo.to_owned()).await.unwrap();
        let foreign = page.foreign.expect("recognised");
        assert_eq!((foreign.formats[0], page.refusal.map(|r| r.code)), (main, Some(ErrorCode::NoGgufInRepo)));
        assert!(foreign.engines.iter().any(|engine| engine.name == "vLLM"));
        let found = api::gguf_versions(&app, repo.to_owned()).await.unwrap();
        let found: Vec<&str> = found.iter().map(|model| model.id.as_str()).collect();
        assert_eq!(found, ["b/Model-8B-i1-GGUF", "a/Model-8B-GGUF"], "{repo}");
    }
    // An address leads to the repo, whatever it holds.
    let pasted = SearchRequest { query: "https://huggingface.co/maker/Model-8B".into(), cursor: None };
    assert_eq!(api::search_models(&app, pasted).await.unwrap().models[0].id, "maker/Model-8B");
    app.close().await;
}

/// A key store in memory.
#[derive(Debug, Default)]
struct MemoryStore(Mutex<Option<String>>);

impl KeyStore for MemoryStore {
    fn read(&self) -> Result<Option<String>, String> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn write(&self, text: &str) -> Result<(), String> {
        *self.0.lock().expect("no panic") = Some(text.to_owned());
        Ok(())
    }

    fn remove(&self) -> Result<(), String> {
        *self.0.lock().expect("no panic") = None;
        Ok(())
    }
}

/// An app that knows these hubs, the first of which is the hub itself, then these as ModelScope.
fn open(root: &Path, hubs: &[&TestHub], modelscopes: &[&TestHub]) -> Arc<App> {
    let source =
        |hub: &TestHub, kind, is_origin| HubSource { name: "test".into(), url: hub.url().to_owned(), kind, is_origin };
    let of_hubs = hubs.iter().enumerate().map(|(n, hub)| source(hub, HubKind::HuggingFace, n == 0));
    let of_modelscopes = modelscopes.iter().map(|hub| source(hub, HubKind::ModelScope, false));
    App::open(AppOptions {
        paths: Some(Paths::under(root)),
        sources: Some(of_hubs.chain(of_modelscopes).collect()),
        key_store: Some(Arc::new(MemoryStore::default())),
        nvml_path: Some(root.join("no-nvml")),
        ..AppOptions::default()
    })
    .expect("the app opens")
}

async fn use_source(app: &App, hub: &TestHub, token_mirrors: &[&str]) {
    let token_mirrors = token_mirrors.iter().map(|&url| url.to_owned()).collect();
    let settings = Settings { hub_url: hub.url().to_owned(), token_mirrors, ..Settings::default() };
    api::set_settings(app, settings).await.expect("settings are kept");
}

async fn set_token(app: &App, token: &str) {
    let request = TokenRequest { token: token.to_owned(), keep: TokenKeep::Session };
    api::set_token(app, request).await.expect("a token is taken");
}

fn client(test_hub: &TestHub, kind: HubKind, token: Option<&str>) -> Arc<Hub> {
    let token = token.map(str::to_owned);
    let options = HubOptions { base_url: test_hub.url().into(), kind, token, ..HubOptions::default() };
    Arc::new(Hub::new(options).expect("a client of a test hub"))
}

fn hub_itself(test_hub: &TestHub) -> Arc<Hub> {
    let options = HubOptions { base_url: test_hub.url().into(), is_origin: true, ..HubOptions::default() };
    Arc::new(Hub::new(options).expect("a client of a test hub"))
}
