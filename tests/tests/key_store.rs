//! The access token in a real key store: the Secret Service of a session made for the test; and where there is none.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::log;
use tandem_core::paths::Paths;
use tandem_core::wire::{ErrorCode, TokenKeep, TokenPlace, TokenRequest};
use tandem_tests::hub::{Repo, TestHub, TestHubOptions, tiny_gguf};
use tracing::level_filters::LevelFilter;

const TOKEN: &str = "hf_0123456789abcdefNobodyMayReadThis";
/// Set for the process inside the session, to the folder that it may use.
const INSIDE: &str = "TANDEM_TEST_SESSION";
/// Unlocks a new key ring with a password, then runs the rest.
const WITH_KEY_RING: &str =
    r#"printf 'password\n' | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1; exec "$@""#;

#[test]
fn a_real_key_store_keeps_the_token_and_nothing_else_does() {
    if let Some(root) = std::env::var_os(INSIDE) {
        return block_on(kept(Path::new(&root)));
    }
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !["dbus-run-session", "gnome-keyring-daemon"].into_iter().all(is_there) {
        eprintln!("SKIPPED a_real_key_store_keeps_the_token_and_nothing_else_does: no D-Bus session or key ring here");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let output = inside("a_real_key_store_keeps_the_token_and_nothing_else_does", root.path(), |command| {
        let mut session = Command::new("dbus-run-session");
        session.args(["--", "sh", "-c", WITH_KEY_RING, "sh"]).arg(command.get_program()).args(command.get_args());
        session
    });
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(!holds(&said), "what is said on the way shows no token");
    assert!(files_that_hold_it(root.path()).is_empty(), "{:?}", files_that_hold_it(root.path()));
}

#[test]
fn without_a_key_store_a_person_is_asked_where_the_token_goes() {
    if let Some(root) = std::env::var_os(INSIDE) {
        return block_on(homeless(Path::new(&root)));
    }
    let root = tempfile::tempdir().unwrap();
    let test = "without_a_key_store_a_person_is_asked_where_the_token_goes";
    let output = inside(test, root.path(), |command| command);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(!holds(&said), "what is said on the way shows no token");
    let private = root.path().join("data/access-token");
    assert_eq!(files_that_hold_it(root.path()), std::slice::from_ref(&private));
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Kept, used, found by the next start, removed.
async fn kept(root: &Path) {
    let _log = log::start(&root.join("data/logs"), LevelFilter::TRACE);
    let test_hub = test_hub();
    let app = open(root, &test_hub);
    let set = api::set_token(&app, request(TokenKeep::KeyStore)).await.expect("the key store takes it");
    assert_eq!(set.place, Some(TokenPlace::KeyStore));
    api::search_models(&app, Default::default()).await.unwrap();
    close(app).await;

    let app = open(root, &test_hub);
    // It is fetched on a thread of its own; this waits for the key store as that does.
    while api::token(&app).await.unwrap().place.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(api::token(&app).await.unwrap().hint, "hf_••••This");
    assert_eq!(api::check_token(&app).await.unwrap().failure, None);
    api::remove_token(&app).await.unwrap();
    close(app).await;

    let n_sent = test_hub.seen().iter().filter(|seen| seen.authorization.is_some()).count();
    assert!(n_sent > 0, "it was of use");
    let app = open(root, &test_hub);
    api::search_models(&app, Default::default()).await.unwrap();
    assert_eq!(api::token(&app).await.unwrap().place, None);
    let n_sent_now = test_hub.seen().iter().filter(|seen| seen.authorization.is_some()).count();
    assert_eq!(n_sent_now, n_sent, "nothing is left of it");
    close(app).await;
}

/// Refused by the key store, kept where the person says instead.
async fn homeless(root: &Path) {
    let _log = log::start(&root.join("data/logs"), LevelFilter::TRACE);
    let test_hub = test_hub();
    let app = open(root, &test_hub);
    let refused = api::set_token(&app, request(TokenKeep::KeyStore)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NoKeyStore);
    assert_eq!(api::token(&app).await.unwrap().place, None, "not kept anywhere else unasked");
    let set = api::set_token(&app, request(TokenKeep::Session)).await.unwrap();
    assert_eq!(set.place, Some(TokenPlace::Session));
    close(app).await;
    let app = open(root, &test_hub);
    assert_eq!(api::token(&app).await.unwrap().place, None, "until the app is closed");
    let set = api::set_token(&app, request(TokenKeep::PrivateFile)).await.unwrap();
    assert!(matches!(set.place, Some(TokenPlace::PrivateFile { .. })));
    close(app).await;
    let app = open(root, &test_hub);
    assert!(matches!(api::token(&app).await.unwrap().place, Some(TokenPlace::PrivateFile { .. })));
    api::search_models(&app, Default::default()).await.unwrap();
    assert!(test_hub.seen().iter().any(|seen| seen.authorization.is_some()));
    close(app).await;
}

/// Runs one test of this program again, alone, without this machine's own session.
fn inside(test: &str, root: &Path, wrap: impl FnOnce(Command) -> Command) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    let mut command = wrap(command);
    command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    for variable in ["HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env(variable, root.join("home"));
    }
    fs::create_dir_all(root.join("home")).unwrap();
    command.env(INSIDE, root).output().expect("the program runs")
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

fn open(root: &Path, test_hub: &TestHub) -> Arc<App> {
    let options = AppOptions {
        paths: Some(Paths::under(&root.join("data"))),
        sources: Some(vec![tandem_core::wire::HubSource {
            name: "test".into(),
            url: test_hub.url().to_owned(),
            kind: Default::default(),
            is_origin: true,
        }]),
        nvml_path: Some(root.join("no-nvml")),
        ..AppOptions::default()
    };
    App::open(options).expect("the app opens")
}

async fn close(app: Arc<App>) {
    app.close().await;
}

fn test_hub() -> TestHub {
    let repos = vec![Repo::new("a/b").file("m-Q8_0.gguf", tiny_gguf("llama"))];
    TestHub::with(TestHubOptions { repos, tokens: vec![TOKEN.to_owned()], ..TestHubOptions::default() }).unwrap()
}

fn request(keep: TokenKeep) -> TokenRequest {
    TokenRequest { token: TOKEN.to_owned(), keep }
}

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes())
}

/// Files below a folder in which the token can be read: logs, databases, whatever was left behind.
fn files_that_hold_it(root: &Path) -> Vec<std::path::PathBuf> {
    let files = tandem_tests::downloads::files_below(root);
    let holds_it = |path: &std::path::PathBuf| fs::read(path).is_ok_and(|bytes| holds(&bytes));
    files.into_iter().map(|name| root.join(name)).filter(holds_it).collect()
}
