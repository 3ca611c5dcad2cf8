//! The queue's task: takes one download after the other and brings its files home.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Shared;
use super::error::DownloadError;
use super::journal::{JournalFile, Record, Standing};
use super::part::{PartFile, Progress, hash_file};
use super::place::place;
use super::table::{End, Job, Wanted};
use crate::error::Explain;
use crate::hub::HubError;
use crate::wire::DownloadState;

/// Runs downloads until the queue is closed.
pub(super) async fn run_queue(shared: Arc<Shared>) {
    loop {
        let job = shared.table().next();
        match job {
            Some(job) => run_one(&shared, job).await,
            None if shared.table().is_closing() => return,
            None => shared.bell.notified().await,
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
}

async fn run_one(shared: &Arc<Shared>, job: Job) {
    let Job { id, mut record, wanted } = job;
    let mut run = Run { shared, id: &id, wanted };
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
        let here = Arc::clone(shared);
        let removed = spawn_blocking(move || here.remove_files(&record)).await;
        removed.expect("removing does not panic");
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
        let mut paths = Vec::new();
        for n in 0..record.journal.files.len() {
            let target = place(&self.shared.models_dir, &record.journal.files[n].file)?;
            let progress = Arc::new(Progress::default());
            let before_bytes = record.journal.files[..n].iter().map(|entry| entry.file.size_bytes).sum();
            self.shared.table().set_live(self.id, before_bytes, Arc::clone(&progress));
            if !self.is_home(record, n, &target, &progress).await? {
                self.bring_home(record, n, &target, &progress).await?;
            }
            paths.push(target);
        }
        // If it stays, the next start finds every file at home and removes it then.
        let _ = fs::remove_file(&record.path);
        Ok(paths)
    }

    /// Whether the file lies under its final name already, and is the right one.
    async fn is_home(
        &mut self,
        record: &mut Record,
        n: usize,
        target: &Path,
        progress: &Arc<Progress>,
    ) -> Result<bool, Stop> {
        let JournalFile { file, standing, .. } = &record.journal.files[n];
        let is_there = fs::metadata(target).is_ok_and(|about| about.is_file() && about.len() == file.size_bytes);
        let Some(expected) = file.sha256.clone().filter(|_| is_there) else { return Ok(false) };
        if *standing != Standing::Wanted {
            return Ok(true);
        }
        self.set_state(DownloadState::Verifying);
        let (wanted, target, progress) = (self.wanted.clone(), target.to_owned(), Arc::clone(progress));
        let hashed = spawn_blocking(move || hash_file(&target, &progress, &|| *wanted.borrow() == Wanted::Run));
        let got = hashed.await.expect("hashing does not panic")?.ok_or(Stop::Asked)?;
        self.set_state(DownloadState::Running);
        if got == expected {
            record.journal.files[n].standing = Standing::Found;
            record.write()?;
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
        self.shared.require_space(record.journal.missing_bytes())?;
        let part = self.open_part(record, n, target, progress).await?;
        let file = record.journal.files[n].file.clone();
        let (part, fetched) = self.fetch(part, file).await;
        let home = match fetched {
            Ok(sha256) => {
                self.set_state(DownloadState::Verifying);
                let finished = spawn_blocking(move || part.finish(&sha256)).await;
                let (back, home) = finished.expect("finishing does not panic");
                *record = back;
                home.map_err(Stop::from)
            }
            Err(stop) => {
                let saved = spawn_blocking(move || {
                    let mut part = part;
                    // On a full disk this fails, and the journal vouches for a little less than there is.
                    let _ = part.save();
                    part.record
                });
                *record = saved.await.expect("saving does not panic");
                Err(stop)
            }
        };
        self.set_state(DownloadState::Running);
        home
    }

    async fn open_part(
        &mut self,
        record: &Record,
        n: usize,
        target: &Path,
        progress: &Arc<Progress>,
    ) -> Result<PartFile, Stop> {
        let (disk, wanted) = (Arc::clone(&self.shared.options.disk), self.wanted.clone());
        let (record, target, progress) = (record.clone(), target.to_owned(), Arc::clone(progress));
        let opened = spawn_blocking(move || {
            let go_on = || *wanted.borrow() == Wanted::Run;
            PartFile::open(&*disk, target, record, n, progress, &go_on)
        });
        opened.await.expect("opening does not panic")?.ok_or(Stop::Asked)
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
