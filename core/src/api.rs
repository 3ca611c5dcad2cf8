//! Every command of the app, once: what the window, the command line and tests call. Thin, and async throughout: what
//! blocks runs on blocking threads.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tandem_engine::Flow;

use crate::app::{App, AppSink};
use crate::chat::ChatSink;
use crate::error::{Explain, cancelled};
use crate::hub::{self, Hub, foreign_model};
use crate::plan::{self, Candidate, Engine, Pick};
use crate::wire::{
    AddedPaths, Aim, AppInfo, Chat, ChatSummary, Download, DownloadRequest, DownloadState, ErrorCode, Failure,
    Hardware, HubModel, HubSource, Integrity, LeafRequest, LibraryFolder, LibraryModel, LoadEvent, LoadRequest,
    ModelPage, ModelVersion, MoveDownloadRequest, Plan, PlanVersionsRequest, PlannedVersion, PlannedVersions,
    Predictions, Presence, Removal, RemoveRequest, RenameRequest, RepoFile, SearchPage, SearchRequest, SendRequest,
    Settings, SourceProbe, Text, TokenRequest, TokenState, TuneEvent, Tuning, UpdatesFound, VerifyProgress,
};

/// All commands by name, in the order of this file.
pub static COMMANDS: &[&str] = &[
    "app_info",
    "set_settings",
    "hardware",
    "predictions",
    "start_calibration",
    "skip_calibration",
    "probe_sources",
    "confirm_hashes",
    "token",
    "check_token",
    "set_token",
    "remove_token",
    "search_models",
    "gguf_versions",
    "model_page",
    "plan_versions",
    "stop_planning",
    "plan_model",
    "downloads",
    "start_download",
    "pause_download",
    "resume_download",
    "move_download",
    "cancel_download",
    "library",
    "rescan_library",
    "add_model",
    "add_paths",
    "library_folders",
    "use_folder",
    "drop_folder",
    "verify_model",
    "stop_verify",
    "check_updates",
    "plan_removal",
    "remove_model",
    "load_model",
    "unload_model",
    "tuning",
    "tune_model",
    "stop_tuning",
    "forget_tuning",
    "chats",
    "chat",
    "rename_chat",
    "delete_chat",
    "restore_chat",
    "set_leaf",
    "send_message",
    "stop_answer",
    "subscribe",
];

/// Headers that are read at a time.
const N_HEADERS_AT_ONCE: usize = 6;

/// Where versions go as they are planned; `Break` ends the reading.
pub type PlanSink = Box<dyn FnMut(PlannedVersion) -> Flow + Send>;

/// Steps in which the progress of a check is told.
const N_STEPS: u64 = 200;

/// Where the progress of a check goes; `Break` stops it.
pub type VerifySink = Box<dyn FnMut(VerifyProgress) -> Flow + Send>;

/// Where the events of a load go; `Break` cancels it.
pub type LoadSink = Box<dyn FnMut(LoadEvent) -> Flow + Send>;

/// Where the events of auto-tune go; `Break` stops it.
pub type TuneSink = Box<dyn FnMut(TuneEvent) -> Flow + Send>;

/// What the window needs at start.
pub async fn app_info(app: &App) -> Result<AppInfo, Failure> {
    let app = app.handle();
    blocking(move || app.info()).await
}

/// Keeps the settings and acts on them.
pub async fn set_settings(app: &App, request: Settings) -> Result<AppInfo, Failure> {
    let app = app.handle();
    blocking(move || {
        app.set_settings(&request)?;
        app.info()
    })
    .await
}

/// Measures the machine.
pub async fn hardware(app: &App) -> Result<Hardware, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.prober.hardware(&app.remote().models_dir))).await
}

/// What is known of this machine's speed, and what came of predictions.
pub async fn predictions(app: &App) -> Result<Predictions, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.calibrator.predictions())).await
}

/// Measures this machine's speed in the background, as soon as nothing else computes; events tell how far it is.
pub async fn start_calibration(app: &App) -> Result<(), Failure> {
    Ok(app.calibrator.begin()?)
}

/// Stops that; what was known before still holds.
pub async fn skip_calibration(app: &App) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || {
        app.calibrator.skip();
        Ok(())
    })
    .await
}

/// Tries all sources at once, for a few seconds.
pub async fn probe_sources(app: &App) -> Result<Vec<SourceProbe>, Failure> {
    let probe = |(source, hub): (HubSource, Arc<Hub>)| async move { SourceProbe { source, reach: hub.probe().await } };
    Ok(join_all(app.hubs()?.into_iter().map(probe)).await)
}

/// Asks other sources for their word on the hashes of files of one repo; the same files with what is known then.
pub async fn confirm_hashes(app: &App, request: Vec<RepoFile>) -> Result<Vec<RepoFile>, Failure> {
    Ok(hub::confirm(request, &app.other_hubs()?).await)
}

/// What is known of the access token.
pub async fn token(app: &App) -> Result<TokenState, Failure> {
    Ok(app.tokens.state())
}

/// The same after the hub was asked whose token it is.
pub async fn check_token(app: &App) -> Result<TokenState, Failure> {
    let state = app.tokens.state();
    let hub = app.hubs()?.into_iter().find(|(source, _)| source.is_origin);
    let (Some(_), Some((_, hub))) = (&state.place, hub) else { return Ok(state) };
    Ok(match hub.account().await {
        Ok(account) => TokenState { account: Some(account), ..state },
        Err(error) => TokenState { failure: Some(error.explain()), ..state },
    })
}

/// Keeps an access token and uses it from now on.
pub async fn set_token(app: &App, request: TokenRequest) -> Result<TokenState, Failure> {
    let app = app.handle();
    blocking(move || {
        app.set_token(&request)?;
        Ok(app.tokens.state())
    })
    .await
}

/// Forgets the access token that was entered; one from the environment stays.
pub async fn remove_token(app: &App) -> Result<TokenState, Failure> {
    let app = app.handle();
    blocking(move || {
        app.remove_token()?;
        Ok(app.tokens.state())
    })
    .await
}

/// Searches the hub for models.
pub async fn search_models(app: &App, request: SearchRequest) -> Result<SearchPage, Failure> {
    Ok(app.remote().hub.search(&request).await?)
}

/// GGUF versions of a model whose own repo holds none.
pub async fn gguf_versions(app: &App, repo: String) -> Result<Vec<HubModel>, Failure> {
    let hub = app.remote().hub;
    let listing = hub.model(&repo).await?;
    Ok(hub.gguf_versions(&listing.model).await?)
}

/// A repo's versions, and where each stands on this machine.
pub async fn model_page(app: &App, repo: String) -> Result<ModelPage, Failure> {
    let hub = app.remote().hub;
    let listing = hub.model(&repo).await?;
    app.previews.keep(&hub, &repo, &listing);
    let downloads = app.remote().downloads.list();
    let versions: Vec<ModelVersion> = hub::versions(&listing.files)
        .into_iter()
        .map(|version| ModelVersion {
            presence: presence(app, &version, &downloads),
            refusal: version.refusal(),
            quant: version.quant,
            files: version.files,
            size_bytes: version.size_bytes,
            companions: version.companions,
        })
        .collect();
    let refusal = match &listing.model.architecture {
        _ if versions.is_empty() => Some(no_gguf(&repo)),
        Some(architecture) => architecture_refusal(architecture),
        None => None,
    };
    let paths: Vec<&str> = listing.files.iter().map(|file| file.path.as_str()).collect();
    let foreign = if versions.is_empty() { foreign_model(&repo, &listing.model.tags, &paths) } else { None };
    Ok(ModelPage { model: listing.model, commit: listing.commit, versions, refusal, foreign })
}

/// How each version of a repo would run here, from its header alone.
///
/// events   gets each version as its header has come, in any order; `Break` ends the reading
pub async fn plan_versions(
    app: &App,
    request: PlanVersionsRequest,
    mut events: PlanSink,
) -> Result<PlannedVersions, Failure> {
    let PlanVersionsRequest { repo, wishes, machine, card_computes, headers } = request;
    let left = app.previews.left();
    tokio::pin!(left);
    let hub = app.remote().hub;
    let preview = tokio::select! {
        preview = app.previews.of(&hub, &repo, headers) => preview?,
        () = &mut left => return Err(cancelled()),
    };
    let hardware = match machine {
        Some(machine) => *machine,
        None => hardware(app).await?,
    };
    let engine = if card_computes { Engine::WithGpu } else { Engine::of(&hardware) };
    // Futures first, stream after: a closure over references inside a stream is not general enough to be sent.
    let plans: Vec<_> = (0..preview.versions.len())
        .map(|index| {
            let (hub, preview, hardware, wishes) = (&hub, &preview, &hardware, &wishes);
            async move {
                let planned = async {
                    let outline = preview.outline(hub, index, headers).await?;
                    Ok(plan::plan_outline(&outline, hardware, wishes, engine)?)
                };
                (index, planned_version(&preview.versions[index], planned.await))
            }
        })
        .collect();
    let mut arriving = stream::iter(plans).buffer_unordered(N_HEADERS_AT_ONCE);
    let mut planned = Vec::new();
    loop {
        // What is dropped here ends its requests.
        let (index, version) = tokio::select! {
            arrived = arriving.next() => match arrived {
                Some(arrived) => arrived,
                None => break,
            },
            () = &mut left => return Err(cancelled()),
        };
        if events(version.clone()) == Flow::Break {
            return Err(cancelled());
        }
        planned.push((index, version));
    }
    planned.sort_by_key(|(index, _)| *index);
    let planned: Vec<PlannedVersion> = planned.into_iter().map(|(_, version)| version).collect();
    let pick = pick_version(&preview.versions, &planned, wishes.aim);
    Ok(PlannedVersions { versions: planned, recommended: pick.index, reason: pick.reason })
}

/// Ends the reading of headers: the page of a model was left.
pub async fn stop_planning(app: &App) -> Result<(), Failure> {
    app.previews.leave();
    Ok(())
}

/// How a library model would run here now.
pub async fn plan_model(app: &App, request: LoadRequest) -> Result<Plan, Failure> {
    let app = app.handle();
    blocking(move || app.runtime.plan(&app.tuned(request))).await
}

/// All downloads that are not done with.
pub async fn downloads(app: &App) -> Result<Vec<Download>, Failure> {
    Ok(app.remote().downloads.list())
}

/// Starts the download of a version.
pub async fn start_download(app: &App, request: DownloadRequest) -> Result<Download, Failure> {
    // The page may not have waited for a second word.
    let files = hub::confirm(request.files, &app.other_hubs()?).await;
    Ok(app.remote().downloads.start(files).await?)
}

/// Stops a download; what has arrived is kept.
pub async fn pause_download(app: &App, id: String) -> Result<(), Failure> {
    Ok(app.remote().downloads.pause(&id)?)
}

/// Goes on with a download.
pub async fn resume_download(app: &App, id: String) -> Result<(), Failure> {
    Ok(app.remote().downloads.resume(&id)?)
}

/// Moves a download within the queue; all downloads in their new order.
pub async fn move_download(app: &App, request: MoveDownloadRequest) -> Result<Vec<Download>, Failure> {
    Ok(app.remote().downloads.shift(&request.id, request.to).await?)
}

/// Ends a download and removes what has arrived.
pub async fn cancel_download(app: &App, id: String) -> Result<(), Failure> {
    Ok(app.remote().downloads.cancel(&id).await?)
}

/// All models on this machine.
pub async fn library(app: &App) -> Result<Vec<LibraryModel>, Failure> {
    Ok(app.library.list())
}

/// Looks at all models again, and for new ones in the folders in use.
pub async fn rescan_library(app: &App) -> Result<Vec<LibraryModel>, Failure> {
    let app = app.handle();
    blocking(move || {
        app.library.rescan();
        Ok(app.library.list())
    })
    .await
}

/// Takes a model file in where it lies.
pub async fn add_model(app: &App, path: String) -> Result<LibraryModel, Failure> {
    let app = app.handle();
    blocking(move || app.library.add(&PathBuf::from(path))).await
}

/// Takes files and folders in where they lie.
pub async fn add_paths(app: &App, paths: Vec<String>) -> Result<AddedPaths, Failure> {
    let app = app.handle();
    let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
    blocking(move || Ok(app.library.add_paths(&paths))).await
}

/// Folders with models that are used in place, and those of other programs that could be.
pub async fn library_folders(app: &App) -> Result<Vec<LibraryFolder>, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.library.folders())).await
}

/// Uses the models of a folder in place.
pub async fn use_folder(app: &App, path: String) -> Result<LibraryFolder, Failure> {
    let app = app.handle();
    blocking(move || app.library.use_folder(&PathBuf::from(path))).await
}

/// No longer uses a folder; its files stay as they are.
pub async fn drop_folder(app: &App, path: String) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || app.library.drop_folder(&PathBuf::from(path))).await
}

/// Computes the SHA256 of a model's files and compares it with what was promised; where that is nothing or something else,
/// with the files of its repo, which may have them under another commit.
pub async fn verify_model(app: &App, model_id: String, mut events: VerifySink) -> Result<LibraryModel, Failure> {
    let (here, id) = (app.handle(), model_id.clone());
    let model = blocking(move || {
        let mut told = 0;
        Ok(here.library.verify(&id, &mut |progress| {
            let step = progress.done_bytes * N_STEPS / progress.total_bytes.max(1);
            if step != told && events(progress) == Flow::Break {
                here.library.stop_verify(&id);
            }
            told = step;
        })?)
    })
    .await?;
    let Some(repo) = model.source.as_ref().map(|source| source.repo.clone()) else { return Ok(model) };
    if model.integrity != Integrity::Verified
        // Without an answer the hash is kept all the same.
        && let Ok(listing) = app.remote().hub.model(&repo).await
    {
        let here = app.handle();
        blocking(move || Ok(here.library.compare_with(&repo, &listing.files)?)).await?;
    }
    Ok(app.library.get(&model_id)?)
}

/// Stops the check of a model.
pub async fn stop_verify(app: &App, model_id: String) -> Result<(), Failure> {
    app.library.stop_verify(&model_id);
    Ok(())
}

/// Asks the hub whether it has other versions of the models that are here.
pub async fn check_updates(app: &App) -> Result<UpdatesFound, Failure> {
    let hub = app.remote().hub;
    let asked: Vec<_> = app.library.repos().into_iter().map(|repo| async { (hub.model(&repo).await, repo) }).collect();
    let answers: Vec<_> = stream::iter(asked).buffered(N_HEADERS_AT_ONCE).collect().await;
    let here = app.handle();
    blocking(move || {
        let mut found = UpdatesFound::default();
        for (answer, repo) in answers {
            match answer {
                Ok(listing) => {
                    let (n_checked, n_newer) = here.library.compare_with(&repo, &listing.files)?;
                    found.n_checked += n_checked;
                    found.n_newer += n_newer;
                }
                Err(error) => found.failures.push(error.into()),
            }
        }
        Ok(found)
    })
    .await
}

/// What removing a model would do.
pub async fn plan_removal(app: &App, request: RemoveRequest) -> Result<Removal, Failure> {
    let app = app.handle();
    blocking(move || app.library.plan_removal(&request)).await
}

/// Takes a model out of the library; the app's own files, and those of programs that are named, go to the trash. Unloads
/// it first.
pub async fn remove_model(app: &App, request: RemoveRequest) -> Result<Removal, Failure> {
    let app = app.handle();
    blocking(move || {
        app.runtime.unload_if(&request.model_id);
        app.library.remove(&request)
    })
    .await
}

/// Loads a model; returns when it is loaded, has failed or was cancelled, which the last event tells.
pub async fn load_model(app: &App, request: LoadRequest, mut events: LoadSink) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || {
        app.runtime.load(&app.tuned(request), &mut events);
        Ok(())
    })
    .await
}

/// Frees the model; also stops a load or an answer that is under way.
pub async fn unload_model(app: &App) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || {
        app.runtime.unload();
        Ok(())
    })
    .await
}

/// The fastest plan that auto-tune found for a request, if it was ever made here.
pub async fn tuning(app: &App, request: LoadRequest) -> Result<Option<Tuning>, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.tuning(&request))).await
}

/// Tries plans near the best one on the real engine and keeps the fastest; the last event tells how it ended.
pub async fn tune_model(app: &App, request: LoadRequest, mut events: TuneSink) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || {
        let last = match app.tuner.tune(&app.bench(), &request, &mut events) {
            Ok(tuning) => TuneEvent::Done { tuning },
            Err(failure) => TuneEvent::Failed { failure },
        };
        // It has ended whatever the caller says.
        let _ = events(last);
        Ok(())
    })
    .await
}

/// Stops that; what was known before still holds.
pub async fn stop_tuning(app: &App) -> Result<(), Failure> {
    app.tuner.stop();
    Ok(())
}

/// Forgets what auto-tune found for a model.
pub async fn forget_tuning(app: &App, model_id: String) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.forget_tunings(&model_id)?)).await
}

/// All chats, last changed first.
pub async fn chats(app: &App) -> Result<Vec<ChatSummary>, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.chats()?)).await
}

/// A chat with all its messages.
pub async fn chat(app: &App, chat_id: i64) -> Result<Chat, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.chat(chat_id)?)).await
}

/// Gives a chat another title.
pub async fn rename_chat(app: &App, request: RenameRequest) -> Result<ChatSummary, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.rename_chat(request.chat_id, request.title.trim())?)).await
}

/// Hides a chat.
pub async fn delete_chat(app: &App, chat_id: i64) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.delete_chat(chat_id)?)).await
}

/// Shows a hidden chat again.
pub async fn restore_chat(app: &App, chat_id: i64) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.restore_chat(chat_id)?)).await
}

/// Shows another path of a chat.
pub async fn set_leaf(app: &App, request: LeafRequest) -> Result<Chat, Failure> {
    let app = app.handle();
    blocking(move || Ok(app.store.set_leaf(request.chat_id, request.message_id)?)).await
}

/// Asks the loaded model; returns when the answer has ended. Fails by itself only before anything is stored.
pub async fn send_message(app: &App, request: SendRequest, mut events: ChatSink) -> Result<(), Failure> {
    let app = app.handle();
    blocking(move || app.chats.send(&request, &mut events)).await
}

/// Stops the answer that is being written; what is written stays.
pub async fn stop_answer(app: &App) -> Result<(), Failure> {
    app.chats.stop();
    Ok(())
}

/// Tells from now on what changes in the app.
pub async fn subscribe(app: &App, events: AppSink) -> Result<(), Failure> {
    app.subscribe(events);
    Ok(())
}

async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a command did not end");
        Err(Failure::new(
            ErrorCode::EngineFailed,
            Text::new("the app ran into a fault of its own", "应用内部出错"),
            Text::new("try again; if it happens again, restart the app", "重试；如果再次发生，重启应用"),
        ))
    })
}

fn planned_version(version: &hub::Version, planned: Result<Plan, Failure>) -> PlannedVersion {
    let path = version.files[0].path.clone();
    match planned {
        Ok(plan) => PlannedVersion { path, plan: Some(plan), refusal: None },
        Err(refusal) => PlannedVersion { path, plan: None, refusal: Some(refusal) },
    }
}

/// Whether a failure tells of the way to the hub, not of the model.
fn is_of_the_way(failure: &Failure) -> bool {
    use ErrorCode::{
        Cancelled, HubAnswerInvalid, HubRefused, LicenceNotAccepted, NoNetwork, RateLimited, TokenMissing,
        TokenWithheld, TokenWrong,
    };
    let of_the_way = [
        Cancelled,
        HubAnswerInvalid,
        HubRefused,
        LicenceNotAccepted,
        NoNetwork,
        RateLimited,
        TokenMissing,
        TokenWithheld,
        TokenWrong,
    ];
    of_the_way.contains(&failure.code)
}

fn pick_version(versions: &[hub::Version], planned: &[PlannedVersion], aim: Aim) -> Pick {
    let candidates: Vec<Candidate<'_>> = versions
        .iter()
        .zip(planned)
        .map(|(version, planned)| Candidate {
            quant: &version.quant,
            size_bytes: version.size_bytes,
            plan: planned.plan.as_ref(),
            is_unread: planned.refusal.as_ref().is_some_and(is_of_the_way),
        })
        .collect();
    plan::pick(&candidates, aim)
}

fn presence(app: &App, version: &hub::Version, downloads: &[Download]) -> Presence {
    let first = &version.files[0];
    let is_whole = |model: &LibraryModel| {
        let lacks = [ErrorCode::GgufTruncated, ErrorCode::ModelMissing];
        model.refusal.as_ref().is_none_or(|refusal| !lacks.contains(&refusal.code))
    };
    if let Some(model) = app.library.find(first).filter(is_whole) {
        return Presence::Here { model_id: model.id };
    }
    let is_same = |download: &&Download| {
        download.state != DownloadState::Done
            && download.files.first().is_some_and(|file| file.repo == first.repo && file.path == first.path)
    };
    match downloads.iter().find(is_same) {
        Some(download) => Presence::Downloading { download_id: download.id.clone() },
        None => Presence::Absent,
    }
}

fn architecture_refusal(architecture: &str) -> Option<Failure> {
    use tandem_engine::{arch, gguf::Refusal};
    let is_known = arch::supports(architecture);
    (!is_known).then(|| Refusal::UnknownArchitecture { architecture: architecture.to_owned() }.into())
}

fn no_gguf(repo: &str) -> Failure {
    Failure::new(
        ErrorCode::NoGgufInRepo,
        Text::new(format!("`{repo}` has no GGUF file"), format!("`{repo}` 中没有 GGUF 文件")),
        Text::new(
            "look for a repo of the same model whose name ends in `GGUF`",
            "查找同一模型中名称以 `GGUF` 结尾的仓库",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window runs them on threads of its own.
    #[test]
    fn what_asks_several_hubs_can_be_sent() {
        fn is_sent<F: Future + Send>(_: impl FnOnce(&'static App) -> F) {}
        is_sent(probe_sources);
        is_sent(|app| confirm_hashes(app, Vec::new()));
        is_sent(|app| start_download(app, DownloadRequest { files: Vec::new() }));
        is_sent(check_token);
        is_sent(|app| gguf_versions(app, String::new()));
    }

    #[test]
    fn the_list_names_every_command_in_order() {
        let source = include_str!("api.rs");
        let commands: Vec<&str> =
            source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next()).collect();
        assert_eq!(commands, COMMANDS);
    }
}
