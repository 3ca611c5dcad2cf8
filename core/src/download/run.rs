//! The queue's task: takes downloads in their order, as many at once as wanted, and brings their files home.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::Shared;
use super::connection::blocking;
use super::error::DownloadError;
use super::fetch::Fetch;
use super::journal::{JournalFile, Record, Standing};
use super::part::{PartFile, Progress};
use super::place::place;
use super::table::{End, Job, Wanted};
use super::whole::hash_file;
use crate::error::Explain;
use crate::hub::HubError;
use crate::wire::DownloadState;

/// Runs downloads until the queue is closed.
pub(super) async fn run_queue(shared: Arc<Shared>) {
    let mut running = JoinSet::new();
    loop {
        let at_once = shared.limits().at_once as usize;
        let job = if running.len() < at_once.max(1) { shared.table().next() } else { None };
        if let Some(job) = job {
            running.spawn(run_one(Arc::clone(&shared), job));
            continue;
        }
        if running.is_empty() && shared.table().is_closing() {
            return;
        }
        tokio::select! {
            Some(ran) = running.join_next() => ran.expect("a download does not panic"),
            () = shared.bell.notified() => {}
        }
    }
}

/// Why a download stops before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// A person wants it so.
    Asked,
    /// It cannot go on.
    Fault(DownloadError),
}

impl Stop {
    /// Whether whoever has the file is to blame, so that another one may do better.
    pub(super) fn is_of_source(&self) -> bool {
        matches!(self, Self::Fault(DownloadError::Hub(_) | DownloadError::ChangedUpstream { .. }))
    }
}

impl<E: Into<DownloadError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// One download under way.
pub(super) struct Run<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) id: &'a str,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// Rung when a person wants no more waiting.
    pub(super) nudge: Arc<Notify>,
}

async fn run_one(shared: Arc<Shared>, job: Job) {
    let Job { id, mut record, wanted, nudge } = job;
    let mut run = Run { shared: &shared, id: &id, wanted, nudge };
    let reports = async {
        let mut tick = tokio::time::interval(shared.options.report_every);
        loop {
            tick.tick().await;
            shared.table().measure(&id);
        }
    };
    let ended = tokio::select! {
        ended = run.all(&mut record) => ended,
        () = reports => unreachable!("reports go on for ever"),
    };
    let record = blocking(move || {
        // Nobody writes here any more. If the disk does not take that, or the journal is gone, it does no harm.
        if record.journal.writer.is_some() {
            let _ = record.sign(None);
        }
        record
    })
    .await;
    let end = match ended {
        Ok(paths) => End::Done(paths),
        Err(Stop::Asked) => End::Asked,
        Err(Stop::Fault(error)) => {
            tracing::warn!(download = %id, %error, "download stopped");
            if passes(&error) { End::Interrupted(error.explain()) } else { End::Failed(error.explain()) }
        }
    };
    let cancelled = shared.table().settle(&id, record, end);
    if let Some(record) = cancelled {
        let here = Arc::clone(&shared);
        blocking(move || here.remove_files(&record)).await;
        shared.table().remove(&id);
    }
}

/// Whether nothing is wrong with the download itself, so that to resume it is all there is to do.
fn passes(error: &DownloadError) -> bool {
    match error {
        DownloadError::Hub(HubError::Network { .. } | HubError::RateLimited { .. }) => true,
        DownloadError::Hub(HubError::Refused { status, .. }) => *status >= 500,
        _ => error.is_disk_full(),
    }
}

impl Run<'_> {
    /// Brings all files home; their paths. `record` is kept as the disk has it.
    async fn all(&mut self, record: &mut Record) -> Result<Vec<PathBuf>, Stop> {
        self.take_over(record).await?;
        let mut paths = Vec::new();
        for n in 0..record.journal.files.len() {
            let target = place(&self.shared.models_dir, &record.journal.files[n].file)?;
            let progress = Arc::new(Progress::default());
            let before_bytes = record.journal.files[..n].iter().map(|entry| entry.file.size_bytes).sum();
            self.shared.table().set_live(self.id, before_bytes, Arc::clone(&progress));
            if !self.is_home(record, n, &target, &progress).await? {
                self.bring_home(record, n, &target, &progress).await?;
            }
            // What is home takes no more space, and whoever counts must know.
            self.shared.table().set_record(self.id, record);
            paths.push(target);
        }
        if record.is_ours() {
            // If it stays, the next start finds every file at home and removes it then.
            let _ = fs::remove_file(&record.path);
        }
        Ok(paths)
    }

    async fn take_over(&self, record: &mut Record) -> Result<(), Stop> {
        let (shared, wanted, mut taken) = (Arc::clone(self.shared), self.wanted.clone(), record.clone());
        let took_over = blocking(move || {
            let done = shared.take_over(&mut taken, &|| *wanted.borrow() == Wanted::Run);
            done.map(|()| taken)
        });
        match took_over.await {
            Err(_) if *self.wanted.borrow() != Wanted::Run => Err(Stop::Asked),
            taken => {
                *record = taken?;
                Ok(())
            }
        }
    }

    /// Whether the file lies under its final name already, and is the right one.
    async fn is_home(
        &mut self,
        record: &mut Record,
        n: usize,
        target: &Path,
        progress: &Arc<Progress>,
    ) -> Result<bool, Stop> {
        let entry = &record.journal.files[n];
        let file = &entry.file;
        let is_there = fs::metadata(target).is_ok_and(|about| about.is_file() && about.len() == file.size_bytes);
        let Some(expected) = file.sha256.clone().filter(|_| is_there) else { return Ok(false) };
        if entry.is_settled(target) {
            return Ok(true);
        }
        self.set_state(DownloadState::Verifying);
        let found = target.to_owned();
        let (wanted, target, progress) = (self.wanted.clone(), found.clone(), Arc::clone(progress));
        let hashed = blocking(move || hash_file(&target, &progress, &|| *wanted.borrow() == Wanted::Run)).await;
        let got = hashed?.ok_or(Stop::Asked)?;
        self.set_state(DownloadState::Running);
        if got == expected {
            let entry = &mut record.journal.files[n];
            let standing = if entry.standing == Standing::Placed { Standing::Placed } else { Standing::Found };
            entry.settle(standing, &found);
            let JournalFile { file, piece_bytes, pieces, .. } = entry.clone();
            self.shared.home.ledger.note(&found, &got, file.size_bytes, piece_bytes, pieces);
            record.rewrite()?;
        }
        Ok(got == expected)
    }

    async fn bring_home(
        &mut self,
        record: &mut Record,
        n: usize,
        target: &Path,
        progress: &Arc<Progress>,
    ) -> Result<(), Stop> {
        record.journal.files[n].standing = Standing::Wanted;
        let part = self.open_part(record, n, target, progress).await?;
        let file = record.journal.files[n].file.clone();
        let fetched = Fetch::new(self, Arc::clone(&part), file).whole().await;
        let places = self.shared.home.clone();
        let (back, home) = blocking(move || {
            let home = match fetched {
                Ok(sha256) => part.place(&sha256, &places).map_err(Stop::from),
                Err(stop) => {
                    // On a full disk this fails, and the journal vouches for a little less than there is.
                    let _ = part.save();
                    Err(stop)
                }
            };
            (part.record(), home)
        })
        .await;
        *record = back;
        if let Some(path) = home? {
            self.shared.table().tell_cleared(path);
        }
        Ok(())
    }

    async fn open_part(
        &mut self,
        record: &Record,
        n: usize,
        target: &Path,
        progress: &Arc<Progress>,
    ) -> Result<Arc<PartFile>, Stop> {
        let (shared, others) = (Arc::clone(self.shared), self.shared.table().running(self.id));
        let (mut record, target, progress) = (record.clone(), target.to_owned(), Arc::clone(progress));
        let wanted = self.wanted.clone();
        let opened = blocking(move || {
            shared.require_space(others.iter().chain([&record]))?;
            let options = &shared.options;
            let entry = &mut record.journal.files[n];
            // The same file lies there, damaged: most of it may be good.
            let damaged = shared.home.ledger.at(&target).filter(|placed| placed.is_of(&entry.file));
            if let Some(placed) = damaged.as_ref().filter(|_| entry.pieces.is_empty()) {
                entry.piece_bytes = placed.piece_bytes;
            }
            let part = PartFile::open(&*options.disk, target, record, n, options.save_every_bytes, progress)?;
            if let Some(placed) = damaged {
                part.fill_from(&placed, &|| *wanted.borrow() == Wanted::Run)?;
            }
            Ok::<_, DownloadError>(part)
        });
        Ok(Arc::new(opened.await?))
    }

    pub(super) fn set_state(&self, state: DownloadState) {
        self.shared.table().set_state(self.id, state, None);
    }

    /// Waits for something, unless a person wants the download to stop.
    pub(super) async fn unless_asked<T>(&mut self, waited_for: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            // The sender lives in the table as long as the download does.
            _ = self.wanted.wait_for(|wanted| *wanted != Wanted::Run) => Err(Stop::Asked),
            value = waited_for => Ok(value),
        }
    }
}
