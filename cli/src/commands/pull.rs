//! `tandem pull`: a version of a model into the library, with everything that can interrupt a download.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde::Serialize;
use tandem_core::api;
use tandem_core::wire::{
    AppEvent, Download, DownloadRequest, DownloadState, ErrorCode, Failure, Integrity, ModelPage, ModelVersion,
    PlanVersionsRequest, Presence, RepoFile, Text,
};
use tandem_engine::Flow;

use super::library::checked;
use super::plan::version_index;
use crate::args::{self, Args};
use crate::exit::refused;
use crate::open::{self, Opened};
use crate::terminal::{Bar, Terminal};

/// How often an interruption is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The result for a script.
#[derive(Serialize)]
struct Pulled<'a> {
    repo: &'a str,
    quant: &'a str,
    size_bytes: u64,
    model_id: &'a str,
    /// What else a person should know, such as that a file of theirs was in the way.
    notices: Vec<Failure>,
}

pub(crate) fn run(args: &args::Pull, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(global)?;
    let page = opened.wait(api::model_page(&opened.app, args.repo.clone()))?;
    if let Some(refusal) = page.refusal.clone() {
        return Err(refused(refusal));
    }
    let version = match &args.quant {
        Some(quant) => &page.versions[version_index(&page, quant)?],
        None => best_version(&opened, &page, &args.repo, terminal)?,
    };
    if let Some(refusal) = version.refusal.clone() {
        return Err(refused(refusal));
    }
    let notices = match is_here(&opened, version, terminal)? {
        true => Vec::new(),
        false => fetch(&opened, version, terminal)?,
    };
    finish(&opened, &args.repo, version, notices, terminal)
}

/// Whether it is here already, and right. A file of another program that nobody has compared yet is compared now.
fn is_here(opened: &Opened, version: &ModelVersion, terminal: &Terminal) -> anyhow::Result<bool> {
    let Presence::Here { model_id } = &version.presence else { return Ok(false) };
    let models = opened.wait(api::library(&opened.app))?;
    Ok(match models.iter().find(|model| model.id == *model_id) {
        Some(model) if model.integrity == Integrity::Unverified => {
            checked(opened, model, terminal)?.integrity != Integrity::Mismatched
        }
        Some(model) => model.integrity == Integrity::Verified,
        None => false,
    })
}

fn best_version<'a>(
    opened: &Opened,
    page: &'a ModelPage,
    repo: &str,
    terminal: &Terminal,
) -> anyhow::Result<&'a ModelVersion> {
    let request = PlanVersionsRequest { repo: repo.to_owned(), ..PlanVersionsRequest::default() };
    let planned = opened.wait(api::plan_versions(&opened.app, request, Box::new(|_| Flow::Continue)))?;
    match planned.recommended {
        Some(index) => {
            terminal.note(terminal.say(&planned.reason));
            Ok(&page.versions[index])
        }
        None => Err(nothing_runs(planned.versions.into_iter().find_map(|version| version.refusal), planned.reason)),
    }
}

/// One version's own reason, where it has one, says more than that none runs.
fn nothing_runs(refusal: Option<Failure>, reason: Text) -> anyhow::Error {
    refused(refusal.unwrap_or_else(|| {
        let hint = Text::new("`--quant` fetches a version all the same", "用 `--quant` 仍可下载指定版本");
        Failure::new(ErrorCode::OutOfMemory, reason, hint)
    }))
}

/// Downloads and follows it to its end, and says what a person should know meanwhile; an interruption keeps what has
/// arrived.
fn fetch(opened: &Opened, version: &ModelVersion, terminal: &Terminal) -> anyhow::Result<Vec<Failure>> {
    let interrupted = interruption()?;
    let (sender, updates) = mpsc::channel();
    opened.app.subscribe(Box::new(move |event| match event {
        event @ (AppEvent::Download { .. } | AppEvent::Notice { .. }) => flow_if(sender.send(event).is_ok()),
        _ => Flow::Continue,
    }));
    let request = DownloadRequest { files: version.files.clone() };
    let download = opened.wait(api::start_download(&opened.app, request))?;
    let bar = terminal.bar(version.size_bytes, Bar::Bytes);
    bar.set_message(version.quant.clone());
    let mut notices = Vec::new();
    loop {
        if interrupted.load(Ordering::Relaxed) {
            opened.wait(api::pause_download(&opened.app, download.id.clone()))?;
            bar.abandon();
            return Err(refused(kept()));
        }
        match updates.recv_timeout(LOOK_EVERY) {
            Ok(AppEvent::Notice { notice }) => {
                bar.suspend(|| terminal.notice(&notice));
                notices.push(notice);
            }
            Ok(AppEvent::Download { download: update }) if update.id == download.id => {
                show(&update, &bar, terminal);
                match (update.state, update.failure) {
                    (DownloadState::Done, _) => break,
                    (DownloadState::Failed | DownloadState::Paused, Some(failure)) => return Err(refused(failure)),
                    _ => {}
                }
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(refused(kept())),
        }
    }
    bar.finish_and_clear();
    Ok(notices)
}

fn show(download: &Download, bar: &indicatif::ProgressBar, terminal: &Terminal) {
    let text = match download.state {
        DownloadState::Repairing => {
            Some(Text::new("damaged on the way, looking for the damage", "传输中有损坏，正在定位"))
        }
        DownloadState::Verifying => Some(Text::new("verifying", "校验中")),
        DownloadState::Retrying => Some(Text::new("connection lost, trying again", "连接中断，正在重试")),
        _ => None,
    };
    let message = text.as_ref().map_or(download.quant.as_str(), |text| terminal.say(text));
    bar.set_message(message.to_owned());
    let is_verifying = matches!(download.state, DownloadState::Verifying | DownloadState::Repairing);
    bar.set_position(if is_verifying { download.verified_bytes } else { download.arrived_bytes });
}

fn flow_if(goes_on: bool) -> Flow {
    if goes_on { Flow::Continue } else { Flow::Break }
}

/// Set by Ctrl-C.
fn interruption() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
    Ok(interrupted)
}

fn kept() -> Failure {
    Failure::new(
        ErrorCode::Cancelled,
        Text::new("stopped; what has arrived is kept", "已停止；已下载的部分会保留"),
        Text::new("the same command goes on where it was", "再次运行同一命令即可继续"),
    )
}

fn finish(
    opened: &Opened,
    repo: &str,
    version: &ModelVersion,
    notices: Vec<Failure>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let page = opened.wait(api::model_page(&opened.app, repo.to_owned()))?;
    let here = page.versions.iter().find(|other| other.quant == version.quant).map(|version| &version.presence);
    let ModelVersion { quant, size_bytes, .. } = version;
    let Some(Presence::Here { model_id }) = here else {
        let models = opened.wait(api::library(&opened.app))?;
        let path = version.files.first().map(|file| file.path.as_str());
        let is_it = |source: &RepoFile| source.repo == repo && Some(source.path.as_str()) == path;
        let it = models.into_iter().find(|model| model.source.as_ref().is_some_and(is_it));
        return Err(refused(it.and_then(|model| model.refusal).unwrap_or_else(|| not_here(repo, quant))));
    };
    if terminal.is_json() {
        return terminal.print_json(&Pulled { repo, quant, size_bytes: *size_bytes, model_id, notices });
    }
    let text = Text::new(
        format!("{repo} {quant} is here. Try: tandem run {repo}:{quant}"),
        format!("{repo} {quant} 已就绪。试试：tandem run {repo}:{quant}"),
    );
    Ok(terminal.print_line(terminal.say(&text))?)
}

fn not_here(repo: &str, quant: &str) -> Failure {
    Failure::new(
        ErrorCode::ModelMissing,
        Text::new(
            format!("{repo} {quant} was downloaded, but is not in the library"),
            format!("{repo} {quant} 已下载，但不在模型库中"),
        ),
        Text::new("look at `tandem list` for what is wrong with it", "用 `tandem list` 查看原因"),
    )
}
