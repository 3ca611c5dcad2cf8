//! The core's commands, as the page calls them: one line each, arguments `request` and `events`, errors as `Failure`.

use std::sync::Arc;

use serde::Serialize;
use tandem_core::api;
use tandem_core::app::App;
use tandem_core::wire::{
    AddedPaths, AppEvent, AppInfo, Chat, ChatEvent, ChatSummary, Download, DownloadRequest, Failure, Hardware,
    HubModel, LeafRequest, LibraryFolder, LibraryModel, LoadEvent, LoadRequest, ModelPage, MoveDownloadRequest, Plan,
    PlanVersionsRequest, PlannedVersion, PlannedVersions, Predictions, Removal, RemoveRequest, RenameRequest, RepoFile,
    SearchPage, SearchRequest, SendRequest, Settings, SourceProbe, TokenRequest, TokenState, TuneEvent, Tuning,
    UpdatesFound, VerifyProgress,
};
use tandem_engine::Flow;
use tauri::ipc::{Channel, Invoke};
use tauri::{Runtime, State, command, generate_handler};

type Tandem<'a> = State<'a, Arc<App>>;
type Answer<T> = Result<T, Failure>;

/// Every command of `api::COMMANDS`; a test holds that none is missing.
pub(crate) fn handler<R: Runtime>() -> impl Fn(Invoke<R>) -> bool + Send + Sync + 'static {
    generate_handler![
        app_info,
        set_settings,
        hardware,
        predictions,
        start_calibration,
        skip_calibration,
        probe_sources,
        confirm_hashes,
        token,
        check_token,
        set_token,
        remove_token,
        search_models,
        gguf_versions,
        model_page,
        plan_versions,
        stop_planning,
        plan_model,
        downloads,
        start_download,
        pause_download,
        resume_download,
        cancel_download,
        move_download,
        library,
        rescan_library,
        add_model,
        add_paths,
        library_folders,
        use_folder,
        drop_folder,
        verify_model,
        stop_verify,
        check_updates,
        plan_removal,
        remove_model,
        load_model,
        unload_model,
        tuning,
        tune_model,
        stop_tuning,
        forget_tuning,
        chats,
        chat,
        rename_chat,
        delete_chat,
        restore_chat,
        set_leaf,
        send_message,
        stop_answer,
        subscribe,
    ]
}

#[command]
async fn app_info(app: Tandem<'_>) -> Answer<AppInfo> {
    api::app_info(&app).await
}

#[command]
async fn set_settings(app: Tandem<'_>, request: Settings) -> Answer<AppInfo> {
    api::set_settings(&app, request).await
}

#[command]
async fn hardware(app: Tandem<'_>) -> Answer<Hardware> {
    api::hardware(&app).await
}

#[command]
async fn predictions(app: Tandem<'_>) -> Answer<Predictions> {
    api::predictions(&app).await
}

#[command]
async fn start_calibration(app: Tandem<'_>) -> Answer<()> {
    api::start_calibration(&app).await
}

#[command]
async fn skip_calibration(app: Tandem<'_>) -> Answer<()> {
    api::skip_calibration(&app).await
}

#[command]
async fn probe_sources(app: Tandem<'_>) -> Answer<Vec<SourceProbe>> {
    api::probe_sources(&app).await
}

#[command]
async fn confirm_hashes(app: Tandem<'_>, request: Vec<RepoFile>) -> Answer<Vec<RepoFile>> {
    api::confirm_hashes(&app, request).await
}

#[command]
async fn token(app: Tandem<'_>) -> Answer<TokenState> {
    api::token(&app).await
}

#[command]
async fn check_token(app: Tandem<'_>) -> Answer<TokenState> {
    api::check_token(&app).await
}

#[command]
async fn set_token(app: Tandem<'_>, request: TokenRequest) -> Answer<TokenState> {
    api::set_token(&app, request).await
}

#[command]
async fn remove_token(app: Tandem<'_>) -> Answer<TokenState> {
    api::remove_token(&app).await
}

#[command]
async fn search_models(app: Tandem<'_>, request: SearchRequest) -> Answer<SearchPage> {
    api::search_models(&app, request).await
}

#[command]
async fn gguf_versions(app: Tandem<'_>, request: String) -> Answer<Vec<HubModel>> {
    api::gguf_versions(&app, request).await
}

#[command]
async fn model_page(app: Tandem<'_>, request: String) -> Answer<ModelPage> {
    api::model_page(&app, request).await
}

#[command]
async fn plan_versions(
    app: Tandem<'_>,
    request: PlanVersionsRequest,
    events: Channel<PlannedVersion>,
) -> Answer<PlannedVersions> {
    api::plan_versions(&app, request, into(events)).await
}

#[command]
async fn stop_planning(app: Tandem<'_>) -> Answer<()> {
    api::stop_planning(&app).await
}

#[command]
async fn plan_model(app: Tandem<'_>, request: LoadRequest) -> Answer<Plan> {
    api::plan_model(&app, request).await
}

#[command]
async fn downloads(app: Tandem<'_>) -> Answer<Vec<Download>> {
    api::downloads(&app).await
}

#[command]
async fn start_download(app: Tandem<'_>, request: DownloadRequest) -> Answer<Download> {
    api::start_download(&app, request).await
}

#[command]
async fn pause_download(app: Tandem<'_>, request: String) -> Answer<()> {
    api::pause_download(&app, request).await
}

#[command]
async fn resume_download(app: Tandem<'_>, request: String) -> Answer<()> {
    api::resume_download(&app, request).await
}

#[command]
async fn cancel_download(app: Tandem<'_>, request: String) -> Answer<()> {
    api::cancel_download(&app, request).await
}

#[command]
async fn move_download(app: Tandem<'_>, request: MoveDownloadRequest) -> Answer<Vec<Download>> {
    api::move_download(&app, request).await
}

#[command]
async fn library(app: Tandem<'_>) -> Answer<Vec<LibraryModel>> {
    api::library(&app).await
}

#[command]
async fn rescan_library(app: Tandem<'_>) -> Answer<Vec<LibraryModel>> {
    api::rescan_library(&app).await
}

#[command]
async fn add_model(app: Tandem<'_>, request: String) -> Answer<LibraryModel> {
    api::add_model(&app, request).await
}

#[command]
async fn add_paths(app: Tandem<'_>, request: Vec<String>) -> Answer<AddedPaths> {
    api::add_paths(&app, request).await
}

#[command]
async fn library_folders(app: Tandem<'_>) -> Answer<Vec<LibraryFolder>> {
    api::library_folders(&app).await
}

#[command]
async fn use_folder(app: Tandem<'_>, request: String) -> Answer<LibraryFolder> {
    api::use_folder(&app, request).await
}

#[command]
async fn drop_folder(app: Tandem<'_>, request: String) -> Answer<()> {
    api::drop_folder(&app, request).await
}

#[command]
async fn verify_model(app: Tandem<'_>, request: String, events: Channel<VerifyProgress>) -> Answer<LibraryModel> {
    api::verify_model(&app, request, into(events)).await
}

#[command]
async fn stop_verify(app: Tandem<'_>, request: String) -> Answer<()> {
    api::stop_verify(&app, request).await
}

#[command]
async fn check_updates(app: Tandem<'_>) -> Answer<UpdatesFound> {
    api::check_updates(&app).await
}

#[command]
async fn plan_removal(app: Tandem<'_>, request: RemoveRequest) -> Answer<Removal> {
    api::plan_removal(&app, request).await
}

#[command]
async fn remove_model(app: Tandem<'_>, request: RemoveRequest) -> Answer<Removal> {
    api::remove_model(&app, request).await
}

#[command]
async fn load_model(app: Tandem<'_>, request: LoadRequest, events: Channel<LoadEvent>) -> Answer<()> {
    api::load_model(&app, request, into(events)).await
}

#[command]
async fn unload_model(app: Tandem<'_>) -> Answer<()> {
    api::unload_model(&app).await
}

#[command]
async fn tuning(app: Tandem<'_>, request: LoadRequest) -> Answer<Option<Tuning>> {
    api::tuning(&app, request).await
}

#[command]
async fn tune_model(app: Tandem<'_>, request: LoadRequest, events: Channel<TuneEvent>) -> Answer<()> {
    api::tune_model(&app, request, into(events)).await
}

#[command]
async fn stop_tuning(app: Tandem<'_>) -> Answer<()> {
    api::stop_tuning(&app).await
}

#[command]
async fn forget_tuning(app: Tandem<'_>, request: String) -> Answer<()> {
    api::forget_tuning(&app, request).await
}

#[command]
async fn chats(app: Tandem<'_>) -> Answer<Vec<ChatSummary>> {
    api::chats(&app).await
}

#[command]
async fn chat(app: Tandem<'_>, request: i64) -> Answer<Chat> {
    api::chat(&app, request).await
}

#[command]
async fn rename_chat(app: Tandem<'_>, request: RenameRequest) -> Answer<ChatSummary> {
    api::rename_chat(&app, request).await
}

#[command]
async fn delete_chat(app: Tandem<'_>, request: i64) -> Answer<()> {
    api::delete_chat(&app, request).await
}

#[command]
async fn restore_chat(app: Tandem<'_>, request: i64) -> Answer<()> {
    api::restore_chat(&app, request).await
}

#[command]
async fn set_leaf(app: Tandem<'_>, request: LeafRequest) -> Answer<Chat> {
    api::set_leaf(&app, request).await
}

#[command]
async fn send_message(app: Tandem<'_>, request: SendRequest, events: Channel<ChatEvent>) -> Answer<()> {
    api::send_message(&app, request, into(events)).await
}

#[command]
async fn stop_answer(app: Tandem<'_>) -> Answer<()> {
    api::stop_answer(&app).await
}

#[command]
async fn subscribe(app: Tandem<'_>, events: Channel<AppEvent>) -> Answer<()> {
    api::subscribe(&app, into(events)).await
}

/// A sink that the page hears; once the page is gone, work for it ends.
fn into<T: Serialize + Clone + Send + 'static>(channel: Channel<T>) -> Box<dyn FnMut(T) -> Flow + Send> {
    Box::new(move |event| match channel.send(event) {
        Ok(()) => Flow::Continue,
        Err(_) => Flow::Break,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tandem_core::app::AppOptions;
    use tandem_core::paths::Paths;
    use tauri::ipc::{CallbackFn, InvokeBody};
    use tauri::test::{INVOKE_KEY, MockRuntime, get_ipc_response, mock_builder, mock_context, noop_assets};
    use tauri::webview::InvokeRequest;
    use tauri::{WebviewWindow, WebviewWindowBuilder};

    use super::*;

    /// A page without a display, and the app behind it with a folder of its own.
    struct Page {
        window: WebviewWindow<MockRuntime>,
        app: Arc<App>,
        _folder: tempfile::TempDir,
    }

    impl Page {
        fn open() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let options = AppOptions { paths: Some(Paths::under(folder.path())), ..AppOptions::default() };
            let app = tauri::async_runtime::block_on(async { App::open(options) }).unwrap();
            let builder = mock_builder().manage(Arc::clone(&app)).invoke_handler(handler());
            let tauri = builder.build(mock_context(noop_assets())).unwrap();
            let window = WebviewWindowBuilder::new(&tauri, "main", Default::default()).build().unwrap();
            Self { window, app, _folder: folder }
        }

        fn call(&self, command: &str, args: Value) -> Result<Value, Value> {
            let request = InvokeRequest {
                cmd: command.into(),
                callback: CallbackFn(0),
                error: CallbackFn(1),
                url: if cfg!(windows) { "http://tauri.localhost" } else { "tauri://localhost" }.parse().unwrap(),
                body: InvokeBody::Json(args),
                headers: Default::default(),
                invoke_key: INVOKE_KEY.to_owned(),
            };
            get_ipc_response(&self.window, request).map(|body| body.deserialize().unwrap())
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            self.app.shutdown();
        }
    }

    #[test]
    fn every_command_of_the_core_is_there() {
        let page = Page::open();
        for command in api::COMMANDS {
            // Those with arguments refuse to run without; only one that is not registered is not found.
            if let Err(error) = page.call(command, json!({})) {
                let words = error.to_string();
                assert!(words.contains("invalid args"), "{command}: {words}");
            }
        }
        let unknown = page.call("no_such_command", json!({})).unwrap_err().to_string();
        assert!(unknown.contains("not found"), "{unknown}");
    }

    #[test]
    fn an_answer_is_the_wire_type() {
        let page = Page::open();
        let info: AppInfo = serde_json::from_value(page.call("app_info", json!({})).unwrap()).unwrap();
        assert!(info.hardware.cpu.n_physical_cores > 0);
        let changed = Settings { theme: tandem_core::wire::Theme::Dark, ..info.settings };
        let after = page.call("set_settings", json!({ "request": changed })).unwrap();
        assert_eq!(after["settings"]["theme"], "dark");
    }

    #[test]
    fn an_error_is_a_failure_in_both_languages() {
        let page = Page::open();
        let error = page.call("chat", json!({ "request": 4711 })).unwrap_err();
        let failure: Failure = serde_json::from_value(error).unwrap();
        assert!(!failure.message.en.is_empty() && !failure.message.zh.is_empty(), "{failure:?}");
        assert!(!failure.hint.en.is_empty() && !failure.hint.zh.is_empty(), "{failure:?}");
    }
}
