//! The app on a volume without a free byte: it opens, says so, and what is there can be used. Nothing is lost.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::store::{NewTurn, Store};
use tandem_core::wire::{AppInfo, DownloadRequest, ErrorCode, Integrity, RenameRequest, Settings, Theme};
use tandem_engine::Flow;
use tandem_tests::hub::{Repo, TestHub, tiny_gguf};
use tandem_tests::small_disk::SmallDisk;

const REPO: &str = "a/Tiny-GGUF";

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_on_a_full_disk_opens_and_says_so() {
    let Some(disk) = SmallDisk::mount("the_first_start_on_a_full_disk_opens_and_says_so") else { return };
    let test_hub = TestHub::start(vec![Repo::new(REPO).file("m-Q8_0.gguf", tiny_gguf("llama"))]);
    let filler = disk.fill();
    let app = open(disk.path(), &test_hub);
    assert_full(&api::app_info(&app).await.unwrap());
    assert!(api::library(&app).await.unwrap().is_empty());
    let page = api::model_page(&app, REPO.into()).await.expect("models can be looked at");
    let request = DownloadRequest { files: page.versions[0].files.clone() };
    let refused = api::start_download(&app, request.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::DiskFull);
    assert!(refused.message.en.contains("can be used") && !refused.hint.zh.is_empty(), "{refused:?}");
    close(app).await;

    fs::remove_file(filler).unwrap();
    let app = open(disk.path(), &test_hub);
    assert_eq!(api::app_info(&app).await.unwrap().notices, []);
    close(app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_disk_that_has_filled_up_keeps_everything_and_lets_it_be_used() {
    let test = "a_start_on_a_disk_that_has_filled_up_keeps_everything_and_lets_it_be_used";
    let Some(disk) = SmallDisk::mount(test) else { return };
    let test_hub = TestHub::start(Vec::new());
    let model = disk.path().join("模型 🙂.gguf");
    fs::write(&model, tiny_gguf("llama")).unwrap();
    let chat = write_chat(disk.path(), "before the disk was full");
    let app = open(disk.path(), &test_hub);
    let settings = Settings { theme: Theme::Dark, ..api::app_info(&app).await.unwrap().settings };
    api::set_settings(&app, settings.clone()).await.unwrap();
    let id = api::add_model(&app, model.to_str().unwrap().to_owned()).await.unwrap().id;
    close(app).await;
    let before = fs::read(database(disk.path())).unwrap();

    let filler = disk.fill();
    let app = open(disk.path(), &test_hub);
    let info = api::app_info(&app).await.unwrap();
    assert_full(&info);
    assert_eq!(info.settings, settings);
    let listed = api::rescan_library(&app).await.unwrap();
    assert_eq!(listed.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    assert_eq!(api::chat(&app, chat).await.unwrap().messages[1].text, "before the disk was full");
    // A check needs no disk: what it finds counts as long as the app is open.
    let verified = api::verify_model(&app, id.clone(), Box::new(|_| Flow::Continue)).await;
    assert!(verified.is_ok_and(|model| model.integrity == Integrity::Unverified && model.files[0].sha256.is_some()));
    let writes = [
        api::set_settings(&app, Settings { theme: Theme::Light, ..settings.clone() }).await.err(),
        api::rename_chat(&app, RenameRequest { chat_id: chat, title: "x".repeat(100_000) }).await.err(),
    ];
    for refused in writes {
        assert_eq!(refused.map(|failure| failure.code), Some(ErrorCode::DiskFull));
    }
    close(app).await;
    assert!(fs::read(database(disk.path())).unwrap() == before, "the database is as it was");

    fs::remove_file(filler).unwrap();
    let app = open(disk.path(), &test_hub);
    let info = api::app_info(&app).await.unwrap();
    assert_eq!((info.notices, info.settings), (vec![], settings));
    assert_eq!(api::chat(&app, chat).await.unwrap().messages.len(), 3);
    let renamed = RenameRequest { chat_id: chat, title: "after".into() };
    api::rename_chat(&app, renamed).await.expect("there is room again");
    close(app).await;
}

/// Says that the disk is full, once, and in words.
fn assert_full(info: &AppInfo) {
    let codes: Vec<ErrorCode> = info.notices.iter().map(|notice| notice.code).collect();
    assert_eq!(codes, [ErrorCode::DiskFull], "{:?}", info.notices);
    assert!(info.notices[0].message.zh.contains("已满"), "{:?}", info.notices);
}

fn open(root: &Path, test_hub: &TestHub) -> Arc<App> {
    let options = AppOptions {
        paths: Some(Paths::under(&root.join("data"))),
        hub_url: Some(test_hub.url().to_owned()),
        nvml_path: Some(root.join("no-nvml")),
        ..AppOptions::default()
    };
    App::open(options).expect("the app always opens")
}

async fn close(app: Arc<App>) {
    app.close().await;
}

/// A chat that was there before; its number.
fn write_chat(root: &Path, text: &str) -> i64 {
    let database = database(root);
    fs::create_dir_all(database.parent().unwrap()).unwrap();
    let store = Store::open(&database).unwrap().store;
    store.begin_turn(&NewTurn { text: text.to_owned(), ..NewTurn::default() }).unwrap().chat.id
}

fn database(root: &Path) -> PathBuf {
    Paths::under(&root.join("data")).database
}
