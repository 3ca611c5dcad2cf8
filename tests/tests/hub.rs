//! The hub client against the test hub: search, listing, headers by range, and every refusal by its right name.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tandem_core::error::Explain;
use tandem_core::hub::{Hub, HubError, HubOptions, Missing, NetworkFault, Oddity, TokenUse, versions};
use tandem_core::wire::{ErrorCode, HashWord, Reading, RepoFile, SearchRequest};
use tandem_engine::gguf::{TensorType, Writer};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub, TestHubOptions, demo_repos};

const REPO: &str = "tandem-demo/Tiny-Sharded-GGUF";
const GATED: &str = "tandem-demo/Tiny-Gated-GGUF";

#[tokio::test]
async fn search_finds_gguf_repos_page_by_page() {
    let mut repos = demo_repos();
    repos.extend((0..65).map(|n| Repo::new(&format!("many/Model-{n:02}")).file("a.gguf", "x").popularity(1000 - n, 0)));
    let test_hub = TestHub::start(repos);
    let hub = client(&test_hub, None);
    let mut request = SearchRequest { query: " model ".into(), cursor: None };
    let mut found = Vec::new();
    loop {
        let page = hub.search(&request).await.unwrap();
        found.extend(page.models.into_iter().map(|model| model.id));
        request.cursor = page.next;
        if request.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, (0..65).map(|n| format!("many/Model-{n:02}")).collect::<Vec<_>>());
    let page = hub.search(&SearchRequest { query: "tiny".into(), cursor: None }).await.unwrap();
    assert!(page.models.iter().all(|model| model.id != "tandem-demo/Tiny-Safetensors"), "no GGUF, no result");
    let first = &page.models[0];
    assert_eq!((first.id.as_str(), first.downloads, first.gated), (REPO, 300, false));
    assert_eq!((first.architecture.as_deref(), first.license.as_deref()), (Some("llama"), Some("apache-2.0")));
    assert_eq!(
        page.models.iter().filter(|model| model.gated).map(|model| model.id.as_str()).collect::<Vec<_>>(),
        [GATED]
    );
}

#[tokio::test]
async fn a_cursor_of_another_origin_is_refused() {
    let test_hub = TestHub::start(demo_repos());
    let hub = client(&test_hub, Some("hf_accepted"));
    for cursor in [test_hub.cdn_url(), "https://example.com/api/models?cursor=1", "nonsense"] {
        let request = SearchRequest { query: String::new(), cursor: Some(cursor.to_owned()) };
        assert!(matches!(hub.search(&request).await, Err(HubError::BadCursor)), "{cursor}");
    }
    assert!(test_hub.seen().is_empty());
}

#[tokio::test]
async fn a_listing_is_pinned_and_has_sizes_and_hashes() {
    let test_hub = TestHub::start(demo_repos());
    let listing = client(&test_hub, None).model(REPO).await.unwrap();
    assert_eq!(listing.commit, test_hub.commit(REPO));
    assert_eq!(listing.files.len(), 4);
    let found = versions(&listing.files);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].quant.as_str(), found[0].files.len()), ("Q4_K_M", 3));
    for file in &found[0].files {
        assert_eq!(file.sha256.as_deref(), Some(test_hub.sha256(REPO, &file.path).as_str()));
        assert!(file.size_bytes > 0 && file.commit == listing.commit && file.repo == REPO);
    }
    let readme = listing.files.iter().find(|file| file.path == "README.md").unwrap();
    assert_eq!(readme.sha256, None, "the hub tells none for small files");
}

#[tokio::test]
async fn an_old_name_leads_to_the_new_repo() {
    let test_hub = hub_with(vec![("old/Name".to_owned(), REPO.to_owned())]);
    let listing = client(&test_hub, None).model("old/Name").await.unwrap();
    assert_eq!(listing.model.id, REPO);
    assert!(listing.files.iter().all(|file| file.repo == REPO));
}

#[tokio::test]
async fn resolving_tells_size_hash_and_place() {
    let test_hub =
        TestHub::start(vec![Repo::new("测试/模型").file("子 目录/模型 é#?%.gguf", "weights").file("a.txt", "small")]);
    let hub = client(&test_hub, None);
    let listing = hub.model("测试/模型").await.unwrap();
    for file in &listing.files {
        let resolved = hub.resolve(file).await.unwrap();
        assert_eq!((resolved.size_bytes, &resolved.commit), (file.size_bytes, &listing.commit), "{}", file.path);
        assert_eq!(resolved.sha256, file.sha256);
        let is_elsewhere = resolved.url.as_str().starts_with(test_hub.cdn_url());
        assert_eq!(is_elsewhere, file.path.ends_with(".gguf"), "large files lie on the second host");
    }
}

#[tokio::test]
async fn refusals_have_their_right_names() {
    let test_hub = hub_with(Vec::new());
    let file = |repo: &str, path: &str| RepoFile {
        repo: repo.into(),
        commit: "main".into(),
        path: path.into(),
        size_bytes: 1,
        sha256: None,
        hash_word: HashWord::Unknown,
    };
    let gated = file(GATED, "Tiny-Gated-Q8_0.gguf");
    let resolve = |token, file| {
        let hub = client(&test_hub, token);
        async move { hub.resolve(&file).await }
    };
    let error = resolve(None, gated.clone()).await.unwrap_err();
    assert!(
        matches!(&error, HubError::Gated { token: TokenUse::None, page, .. } if page.ends_with(GATED)),
        "{error:?}"
    );
    let error = resolve(Some("hf_other"), gated.clone()).await.unwrap_err();
    assert!(matches!(error, HubError::Gated { token: TokenUse::Sent, .. }), "{error:?}");
    assert!(matches!(resolve(Some("hf_wrong"), gated.clone()).await, Err(HubError::WrongToken)));
    assert!(resolve(Some("hf_accepted"), gated).await.is_ok());
    let missing = [
        (file("nobody/nothing", "a.gguf"), Missing::Repo),
        (RepoFile { commit: "no-branch".into(), ..file(REPO, "a.gguf") }, Missing::Revision),
        (file(REPO, "none.gguf"), Missing::File { path: "none.gguf".into() }),
    ];
    for (file, expected) in missing {
        match resolve(None, file).await {
            Err(HubError::NotFound { what, .. }) => assert_eq!(what, expected),
            other => panic!("{expected:?}: {other:?}"),
        }
    }
    let hub = client(&test_hub, None);
    assert!(matches!(hub.model("nobody/nothing").await, Err(HubError::NotFound { what: Missing::Repo, .. })));
    assert!(matches!(hub.model("../etc").await, Err(HubError::BadRepoName { .. })));
}

/// What the hub may answer to a listing and to HEAD of a file, and the code that a program sees.
#[tokio::test]
async fn faulty_answers_are_told_apart() {
    let cases: [(Fault, ErrorCode); 7] = [
        (Fault::Html, ErrorCode::HubAnswerInvalid),
        (Fault::RedirectLoop, ErrorCode::HubAnswerInvalid),
        (Fault::rate_limited(17), ErrorCode::RateLimited),
        (Fault::status(500), ErrorCode::HubRefused),
        (Fault::status(503), ErrorCode::HubRefused),
        (Fault::status(403), ErrorCode::HubRefused),
        (Fault::status(511), ErrorCode::HubAnswerInvalid),
    ];
    let test_hub = TestHub::start(demo_repos());
    let hub = client(&test_hub, None);
    let file = hub.model(REPO).await.unwrap().files.remove(1);
    for (fault, code) in cases {
        test_hub.fault(Rule::new(Side::Hub, REPO, fault.clone()));
        for failure in [hub.model(REPO).await.unwrap_err().explain(), hub.resolve(&file).await.unwrap_err().explain()] {
            assert_eq!(failure.code, code, "{fault:?}");
            let words = [&failure.message.en, &failure.message.zh, &failure.hint.en, &failure.hint.zh];
            assert!(words.iter().all(|text| !text.is_empty()), "{fault:?}");
        }
        test_hub.heal();
    }
    test_hub.fault(Rule::new(Side::Hub, "resolve", Fault::rate_limited(17)));
    match hub.resolve(&file).await {
        Err(HubError::RateLimited { wait: Some(wait) }) => assert_eq!(wait.as_secs(), 17),
        other => panic!("{other:?}"),
    }
    test_hub.heal();
    for name in ["x-repo-commit", "x-linked-size"] {
        test_hub.fault(Rule::new(Side::Hub, "resolve", Fault::WithoutHeader { name }));
        let error = hub.resolve(&file).await.unwrap_err();
        assert!(matches!(error, HubError::NotAHub { .. }), "{name}: {error:?}");
        test_hub.heal();
    }
}

#[tokio::test]
async fn no_network_is_told_with_the_host() {
    // The port is free again when the hub is gone.
    let gone = TestHub::start(Vec::new()).url().to_owned();
    let hub = Hub::new(HubOptions { base_url: gone, ..HubOptions::default() }).unwrap();
    let error = hub.model(REPO).await.unwrap_err();
    assert!(
        matches!(&error, HubError::Network { fault: NetworkFault::CannotConnect, host, .. } if host == "localhost")
    );
    let hub = Hub::new(HubOptions { base_url: "http://no-such-host.invalid".into(), ..HubOptions::default() }).unwrap();
    let failure = hub.model(REPO).await.unwrap_err().explain();
    assert_eq!(failure.code, ErrorCode::NoNetwork);
    assert!(failure.message.en.contains("no-such-host.invalid"));
}

#[tokio::test]
async fn the_token_stays_with_the_hub() {
    let test_hub = hub_with(Vec::new());
    let hub = client(&test_hub, Some("hf_accepted"));
    let file = hub.model(GATED).await.unwrap().files.into_iter().find(|file| file.path.ends_with(".gguf")).unwrap();
    hub.header(std::slice::from_ref(&file), Reading::Kept).await.unwrap();
    let seen = test_hub.seen();
    let (on_hub, elsewhere): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| seen.side == Side::Hub);
    assert!(on_hub.len() >= 2 && on_hub.iter().all(|seen| seen.authorization.as_deref() == Some("Bearer hf_accepted")));
    assert!(!elsewhere.is_empty() && elsewhere.iter().all(|seen| seen.authorization.is_none()));
    // Nor does it follow where the hub's own redirect leads.
    let away = format!("{}/some/where/else", test_hub.cdn_url());
    let redirect = Fault::Status { status: 302, headers: vec![("location", away)] };
    test_hub.fault(Rule::new(Side::Hub, "/api/models", redirect));
    assert!(hub.model(GATED).await.is_err());
    let last = test_hub.seen().pop().map(|seen| (seen.side, seen.authorization.clone()));
    assert_eq!(last, Some((Side::Cdn, None)));
}

#[tokio::test]
async fn headers_are_read_by_range_and_kept() {
    let cache = tempfile::tempdir().unwrap();
    let weights = vec![7; 4 << 20];
    // A header of some 2.5 MB: one read of a megabyte does not do.
    let filler = "x".repeat(2_500_000);
    let writer = Writer::new("llama").meta("tandem.filler", filler.as_str());
    let bytes = writer.tensor("big.weight", &[1 << 20], TensorType::F32, weights).to_bytes().unwrap();
    let size_bytes = bytes.len() as u64;
    let test_hub = TestHub::start(vec![Repo::new("a/b").file("m-Q8_0.gguf", bytes)]);
    let hub = cached_client(&test_hub, cache.path());
    let files = hub.model("a/b").await.unwrap().files;
    let facts = hub.header(&files, Reading::Kept).await.unwrap();
    assert_eq!((facts.architecture().unwrap(), facts.tensors.len(), facts.file_bytes), ("llama", 1, size_bytes));
    assert_eq!(facts.files[0].name, "m-Q8_0.gguf");
    let fetches = test_hub.fetches("m-Q8_0.gguf");
    let asked: Vec<u64> = fetches.iter().map(|seen| seen.first_byte()).collect();
    assert!(asked.len() > 1 && asked.is_sorted(), "it goes on where it stopped: {asked:?}");
    let sent: u64 = fetches.iter().map(|seen| seen.sent_bytes()).sum();
    assert!(sent < size_bytes, "the weights stay where they are: {sent} of {size_bytes}");
    hub.header(&files, Reading::Kept).await.unwrap();
    assert_eq!(test_hub.fetches("m-Q8_0.gguf").len(), fetches.len(), "the second time it comes from disk");
}

/// A file whose header says `TRUE_CONTEXT`, and where the number stands.
fn honest_file() -> (Vec<u8>, u64) {
    let writer = Writer::new("llama").meta("llama.context_length", TRUE_CONTEXT);
    let bytes = writer.tensor("some.weight", &[32], TensorType::F32, vec![7; 128]).to_bytes().unwrap();
    let key = b"llama.context_length";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    // The name of the key, then its type.
    let value = at + key.len() + 4;
    assert_eq!(bytes[value..value + 4], TRUE_CONTEXT.to_le_bytes());
    (bytes, value as u64)
}

const TRUE_CONTEXT: u32 = 8192;

/// What a hub said falsely once ends: when somebody asks again, with the day, and with another source; and the hub that is
/// out of reach leaves what it said.
#[tokio::test]
async fn a_damaged_header_does_not_stay() {
    let cache = tempfile::tempdir().unwrap();
    let (bytes, at) = honest_file();
    let repo = || Repo::new("a/b").file("m-Q8_0.gguf", bytes.clone());
    let test_hub = TestHub::start(vec![repo()]);
    let hub = cached_client(&test_hub, cache.path());
    let files = hub.model("a/b").await.unwrap().files;
    let context = async |hub: &Hub, files: &[RepoFile], reading| {
        hub.header(files, reading).await.map(|facts| facts.context_length().unwrap())
    };
    let lie = async |reading| {
        test_hub.fault(Rule::new(Side::Cdn, "", Fault::FlipBit { at }));
        assert_ne!(context(&hub, &files, reading).await.unwrap(), TRUE_CONTEXT);
        test_hub.heal();
    };

    lie(Reading::Kept).await;
    assert_ne!(context(&hub, &files, Reading::Kept).await.unwrap(), TRUE_CONTEXT, "it is believed for a day");
    assert_eq!(context(&hub, &files, Reading::Again).await.unwrap(), TRUE_CONTEXT);
    assert_eq!(context(&hub, &files, Reading::Kept).await.unwrap(), TRUE_CONTEXT, "what came last is kept");

    lie(Reading::Again).await;
    let second = TestHub::start(vec![repo()]);
    let other = cached_client(&second, cache.path());
    let from_other = other.model("a/b").await.unwrap().files;
    assert_eq!(from_other[0].sha256, files[0].sha256);
    assert_eq!(context(&other, &from_other, Reading::Kept).await.unwrap(), TRUE_CONTEXT, "each source for itself");

    for entry in std::fs::read_dir(cache.path().join("headers")).unwrap() {
        let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(25 * 3600)).unwrap();
    }
    test_hub.fault(Rule::new(Side::Cdn, "", Fault::Cut { after_bytes: 0 }));
    assert_ne!(context(&hub, &files, Reading::Kept).await.unwrap(), TRUE_CONTEXT, "better than nothing");
    assert!(context(&hub, &files, Reading::Again).await.is_err());
    test_hub.heal();
    assert_eq!(context(&hub, &files, Reading::Kept).await.unwrap(), TRUE_CONTEXT, "another day");
}

#[tokio::test]
async fn headers_of_shards_are_joined() {
    let test_hub = TestHub::start(demo_repos());
    let hub = client(&test_hub, None);
    let files = versions(&hub.model(REPO).await.unwrap().files).remove(0).files;
    let facts = hub.header(&files, Reading::Kept).await.unwrap();
    assert_eq!((facts.files.len(), facts.tensors.len()), (3, 3));
    assert_eq!(facts.tensors.iter().map(|tensor| tensor.file).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn bad_headers_are_told_apart() {
    let cut = tandem_tests::hub::tiny_gguf("llama")[..300].to_vec();
    let page = "<!DOCTYPE html><html><body>nothing to see</body></html>";
    let repo = Repo::new("a/b").file("cut.gguf", cut).file("page.gguf", page).file("empty.gguf", "");
    let mut repos = demo_repos();
    repos.push(repo);
    let test_hub = TestHub::start(repos);
    let hub = client(&test_hub, None);
    let cases = [
        ("a/b", "cut.gguf", ErrorCode::GgufTruncated),
        ("a/b", "page.gguf", ErrorCode::NotGguf),
        ("a/b", "empty.gguf", ErrorCode::NotGguf),
        ("tandem-demo/Tiny-Damaged-GGUF", "Tiny-Damaged-Q8_0.gguf", ErrorCode::GgufDamaged),
    ];
    for (repo, path, code) in cases {
        let files = hub.model(repo).await.unwrap().files;
        let file = files.into_iter().find(|file| file.path == path).unwrap();
        let failure = hub.header(&[file], Reading::Kept).await.unwrap_err().explain();
        assert_eq!(failure.code, code, "{path}: {}", failure.message.en);
    }
}

#[tokio::test]
async fn a_hub_that_ignores_ranges_still_gives_headers() {
    let test_hub = TestHub::start(demo_repos());
    test_hub.fault(Rule::new(Side::Cdn, "", Fault::IgnoreRange));
    let hub = client(&test_hub, None);
    let files = versions(&hub.model(REPO).await.unwrap().files).remove(0).files;
    assert_eq!(hub.header(&files, Reading::Kept).await.unwrap().tensors.len(), 3);
    test_hub.heal();
    test_hub.fault(Rule::new(Side::Cdn, "", Fault::ShiftRange { by: 1 }));
    let error = hub.header(&files, Reading::Kept).await.unwrap_err();
    assert!(matches!(error, HubError::NotAHub { oddity: Oddity::WrongRange, .. }), "{error:?}");
}

fn hub_with(renamed: Vec<(String, String)>) -> TestHub {
    let tokens = ["hf_accepted", "hf_other"].map(str::to_owned).to_vec();
    TestHub::with(TestHubOptions { repos: demo_repos(), renamed, tokens, ..TestHubOptions::default() })
        .expect("a test hub on loopback")
}

fn client(test_hub: &TestHub, token: Option<&str>) -> Arc<Hub> {
    let options =
        HubOptions { base_url: test_hub.url().into(), token: token.map(str::to_owned), ..HubOptions::default() };
    Arc::new(Hub::new(options).expect("a test hub on loopback"))
}

fn cached_client(test_hub: &TestHub, cache_dir: &Path) -> Hub {
    let cache_dir = Some(cache_dir.to_owned());
    Hub::new(HubOptions { base_url: test_hub.url().into(), cache_dir, ..HubOptions::default() })
        .expect("a test hub on loopback")
}
