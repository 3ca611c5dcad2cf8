//! The list of downloads, what is wanted of each, and what was reported of it. Every change is made and reported under
//! one lock, so that reports come in order; nobody waits while holding it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tandem_engine::gguf::quant_label_from_name;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::DownloadUpdate;
use super::error::DownloadError;
use super::journal::Record;
use super::pace::Rate;
use super::part::Progress;
use crate::wire::{Download, DownloadState, Failure, Move, RepoFile};

/// What a person wants of a running download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Run,
    Pause,
    Cancel,
}

/// A download whose turn it is.
pub(super) struct Job {
    pub(super) id: String,
    pub(super) record: Record,
    pub(super) wanted: watch::Receiver<Wanted>,
    pub(super) nudge: Arc<Notify>,
}

/// How a run of a download ended.
pub(super) enum End {
    /// Whole; its files.
    Done(Vec<PathBuf>),
    /// A person wanted it so.
    Asked,
    /// For a reason that passes.
    Interrupted(Failure),
    /// For a reason that a person must look at.
    Failed(Failure),
}

/// What is to be done about a request to start.
pub(super) enum Admitted {
    New,
    /// It is here already, and goes on.
    Known(Download),
    /// Another version of the same files was here; of its bytes only those of unchanged files are of use.
    Replaces(Record),
}

pub(super) struct Table {
    entries: Vec<Entry>,
    updates: mpsc::UnboundedSender<DownloadUpdate>,
    is_closing: bool,
    began: Instant,
}

struct Entry {
    id: String,
    record: Record,
    state: DownloadState,
    failure: Option<Failure>,
    wanted: watch::Sender<Wanted>,
    /// Rung when it is to wait no longer before it tries again.
    nudge: Arc<Notify>,
    is_being_removed: bool,
    /// Bytes of files before the one under way, and how far that is.
    live: Option<(u64, Arc<Progress>)>,
    /// Where it stood when it last ran.
    resting_bytes: u64,
    /// Pieces repaired before what is under way.
    n_repaired: u32,
    rate: Rate,
    reported: Option<Download>,
}

impl Table {
    pub(super) fn new(updates: mpsc::UnboundedSender<DownloadUpdate>) -> Self {
        Self { entries: Vec::new(), updates, is_closing: false, began: Instant::now() }
    }

    pub(super) fn downloads(&self) -> Vec<Download> {
        self.entries.iter().map(Entry::download).collect()
    }

    /// Adds a download at the end.
    pub(super) fn insert(&mut self, id: String, record: Record, state: DownloadState) -> Download {
        let resting_bytes = record.journal.arrived_bytes();
        let (wanted, _) = watch::channel(Wanted::Run);
        self.entries.retain(|entry| entry.id != id);
        self.entries.push(Entry {
            id: id.clone(),
            record,
            state,
            failure: None,
            wanted,
            nudge: Arc::default(),
            is_being_removed: false,
            live: None,
            resting_bytes,
            n_repaired: 0,
            rate: Rate::default(),
            reported: None,
        });
        self.number();
        self.report(&id);
        self.entries.last().map(Entry::download).expect("one was pushed")
    }

    /// Decides about a request for files that pass under this name.
    pub(super) fn admit(&mut self, id: &str, files: &[RepoFile]) -> Result<Admitted, DownloadError> {
        let shares_path = |entry: &&Entry| {
            entry.id != id
                && entry.state != DownloadState::Done
                && entry.files().any(|one| files.iter().any(|other| one.repo == other.repo && one.path == other.path))
        };
        let in_use = || DownloadError::InUse { path: files[0].path.clone() };
        if self.entries.iter().any(|entry| shares_path(&entry)) {
            return Err(in_use());
        }
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) else { return Ok(Admitted::New) };
        let is_same_file = |(one, other): (&RepoFile, &RepoFile)| {
            (&one.path, one.size_bytes, &one.sha256) == (&other.path, other.size_bytes, &other.sha256)
        };
        let is_same = entry.record.journal.files.len() == files.len() && entry.files().zip(files).all(is_same_file);
        match entry.state {
            _ if entry.is_being_removed => Err(in_use()),
            // What it put into the library stays until something newer is whole.
            DownloadState::Done => Ok(Admitted::New),
            _ if is_same => {
                self.requeue(id)?;
                self.entry(id).map(|entry| Admitted::Known(entry.download()))
            }
            DownloadState::Paused | DownloadState::Failed | DownloadState::Queued => {
                // Its turn must not come while its files are removed.
                entry.is_being_removed = true;
                Ok(Admitted::Replaces(entry.record.clone()))
            }
            DownloadState::Running | DownloadState::Retrying | DownloadState::Verifying | DownloadState::Repairing => {
                Err(in_use())
            }
        }
    }

    /// Records of all downloads that wait or run, but this one.
    pub(super) fn active(&self, but: &str) -> Vec<Record> {
        self.records(but, |entry| entry.is_running() || entry.state == DownloadState::Queued)
    }

    /// Records of all downloads that run, but this one.
    pub(super) fn running(&self, but: &str) -> Vec<Record> {
        self.records(but, Entry::is_running)
    }

    fn records(&self, but: &str, is_meant: impl Fn(&Entry) -> bool) -> Vec<Record> {
        let others = self.entries.iter().filter(|entry| entry.id != but && is_meant(entry));
        others.map(|entry| entry.record.clone()).collect()
    }

    /// Moves an unfinished download among the others. The records that are to be written because of it.
    pub(super) fn shift(&mut self, id: &str, to: Move) -> Result<Vec<Record>, DownloadError> {
        self.entry(id)?;
        let unfinished = |(_, entry): &(usize, &Entry)| entry.state != DownloadState::Done;
        let order: Vec<usize> = self.entries.iter().enumerate().filter(unfinished).map(|(at, _)| at).collect();
        let Some(place) = order.iter().position(|&at| self.entries[at].id == id) else { return Ok(Vec::new()) };
        let other = match to {
            Move::Up => place.checked_sub(1),
            Move::Down => Some(place + 1).filter(|&other| other < order.len()),
        };
        let Some(other) = other else { return Ok(Vec::new()) };
        self.entries.swap(order[place], order[other]);
        self.number();
        // What runs is written before long anyway, with what has arrived since.
        let moved = [order[place], order[other]].map(|at| &self.entries[at]);
        Ok(moved.into_iter().filter(|entry| !entry.is_running()).map(|entry| entry.record.clone()).collect())
    }

    /// Lets the records know their places in the queue.
    fn number(&self) {
        for (rank, entry) in self.entries.iter().enumerate() {
            entry.record.rank.store(rank as u64, Ordering::Release);
        }
    }

    /// Asks a download to pause or to go away.
    pub(super) fn ask(&mut self, id: &str, wanted: Wanted) -> Result<(), DownloadError> {
        let entry = self.entry(id)?;
        if entry.is_running() {
            entry.wanted.send_replace(wanted);
        } else if entry.state == DownloadState::Queued {
            entry.state = DownloadState::Paused;
        }
        self.report(id);
        Ok(())
    }

    /// Lets a download wait for its turn again, if it does not already.
    pub(super) fn requeue(&mut self, id: &str) -> Result<(), DownloadError> {
        let entry = self.entry(id)?;
        if entry.is_running() {
            // It may have been asked to pause a moment ago.
            entry.change_wish(Wanted::Pause, Wanted::Run);
            if entry.state == DownloadState::Retrying {
                entry.nudge.notify_one();
            }
        } else if entry.state != DownloadState::Done && !entry.is_being_removed {
            (entry.state, entry.failure) = (DownloadState::Queued, None);
        }
        self.report(id);
        Ok(())
    }

    /// Takes a download out of reach. The record of what is to be removed from disk; `None` if whoever runs it will do
    /// that, or nothing is to be removed.
    pub(super) fn begin_removal(&mut self, id: &str) -> Result<Option<Record>, DownloadError> {
        let entry = self.entry(id)?;
        if entry.is_being_removed {
            return Ok(None);
        }
        if entry.is_running() {
            entry.wanted.send_replace(Wanted::Cancel);
            return Ok(None);
        }
        if entry.state == DownloadState::Done {
            self.remove(id);
            return Ok(None);
        }
        entry.is_being_removed = true;
        Ok(Some(entry.record.clone()))
    }

    /// A download that was to be replaced stays as it is.
    pub(super) fn keep(&mut self, id: &str) {
        if let Ok(entry) = self.entry(id) {
            entry.is_being_removed = false;
        }
    }

    /// Something else lay under a final name.
    pub(super) fn tell_cleared(&self, path: PathBuf) {
        self.send(DownloadUpdate::Cleared { path });
    }

    /// A finished download turned out to be of no use.
    pub(super) fn fail(&mut self, id: &str, failure: Failure) {
        self.set_state(id, DownloadState::Failed, Some(failure));
    }

    /// Takes a download off the list.
    pub(super) fn remove(&mut self, id: &str) {
        self.entries.retain(|entry| entry.id != id);
        self.send(DownloadUpdate::Gone { id: id.to_owned() });
    }

    /// The first download that waits, now running.
    pub(super) fn next(&mut self) -> Option<Job> {
        let is_waiting = |entry: &&mut Entry| entry.state == DownloadState::Queued && !entry.is_being_removed;
        let entry = self.entries.iter_mut().find(is_waiting).filter(|_| !self.is_closing)?;
        entry.state = DownloadState::Running;
        entry.wanted.send_replace(Wanted::Run);
        let job = Job {
            id: entry.id.clone(),
            record: entry.record.clone(),
            wanted: entry.wanted.subscribe(),
            nudge: Arc::clone(&entry.nudge),
        };
        self.report(&job.id);
        Some(job)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Starts nothing more, and asks what runs to pause.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
        let running = self.entries.iter().filter(|entry| entry.is_running());
        running.for_each(|entry| entry.change_wish(Wanted::Run, Wanted::Pause));
    }

    /// The next file of a running download is under way.
    pub(super) fn set_live(&mut self, id: &str, before_bytes: u64, progress: Arc<Progress>) {
        if let Ok(entry) = self.entry(id) {
            entry.end_live();
            entry.live = Some((before_bytes, progress));
        }
    }

    /// A running download has a file more at home.
    pub(super) fn set_record(&mut self, id: &str, record: &Record) {
        if let Ok(entry) = self.entry(id) {
            entry.record = record.clone();
        }
    }

    /// A running download changes state.
    pub(super) fn set_state(&mut self, id: &str, state: DownloadState, failure: Option<Failure>) {
        if let Ok(entry) = self.entry(id) {
            if state != DownloadState::Running {
                entry.rate.clear();
            }
            (entry.state, entry.failure) = (state, failure);
        }
        self.report(id);
    }

    /// Measures a running download and reports it.
    pub(super) fn measure(&mut self, id: &str) {
        let at = self.began.elapsed();
        if let Ok(entry) = self.entry(id) {
            let arrived_bytes = entry.arrived_bytes();
            entry.rate.note(at, arrived_bytes);
        }
        self.report(id);
    }

    /// A download does not run any more. If it is to be cancelled, the record of what is to be removed from disk.
    pub(super) fn settle(&mut self, id: &str, record: Record, end: End) -> Option<Record> {
        let entry = self.entry(id).ok()?;
        entry.end_live();
        entry.resting_bytes = record.journal.arrived_bytes();
        entry.record = record;
        if *entry.wanted.borrow() == Wanted::Cancel {
            entry.is_being_removed = true;
            entry.state = DownloadState::Paused;
            return Some(entry.record.clone());
        }
        let wants_on = *entry.wanted.borrow() == Wanted::Run;
        let (state, failure, paths) = match end {
            End::Done(paths) => (DownloadState::Done, None, Some(paths)),
            // Asked to pause, and to go on again before it had stopped.
            End::Asked if wants_on => (DownloadState::Queued, None, None),
            End::Asked => (DownloadState::Paused, None, None),
            End::Interrupted(failure) => (DownloadState::Paused, Some(failure), None),
            End::Failed(failure) => (DownloadState::Failed, Some(failure), None),
        };
        self.set_state(id, state, failure);
        let download = self.entry(id).ok()?.download();
        if let Some(paths) = paths {
            self.send(DownloadUpdate::Finished { download, paths });
        }
        None
    }

    fn entry(&mut self, id: &str) -> Result<&mut Entry, DownloadError> {
        let entry = self.entries.iter_mut().find(|entry| entry.id == id);
        entry.ok_or_else(|| DownloadError::Unknown { id: id.to_owned() })
    }

    /// Reports a download, if it is not as it was reported last.
    fn report(&mut self, id: &str) {
        let Ok(entry) = self.entry(id) else { return };
        let download = entry.download();
        if entry.reported.as_ref() != Some(&download) {
            entry.reported = Some(download.clone());
            self.send(DownloadUpdate::Changed(download));
        }
    }

    fn send(&self, update: DownloadUpdate) {
        // Nobody listens any more when the runtime is shutting down.
        let _ = self.updates.send(update);
    }
}

impl Entry {
    fn end_live(&mut self) {
        self.n_repaired = self.n_repaired();
        self.live = None;
    }

    fn n_repaired(&self) -> u32 {
        let live = self.live.as_ref().map_or(0, |(_, progress)| progress.n_repaired.load(Ordering::Acquire));
        self.n_repaired + live
    }

    fn download(&self) -> Download {
        let (size_bytes, arrived_bytes) = (self.size_bytes(), self.arrived_bytes());
        let path = self.files().next().map_or("", |file| &file.path);
        let is_running = self.state == DownloadState::Running;
        Download {
            id: self.id.clone(),
            files: self.record.journal.repo_files(),
            quant: quant_label_from_name(path).unwrap_or_else(|| "GGUF".to_owned()),
            size_bytes,
            arrived_bytes,
            verified_bytes: self.verified_bytes(),
            n_repaired: self.n_repaired(),
            state: self.state,
            bytes_per_s: if is_running { self.rate.bytes_per_s() } else { 0.0 },
            seconds_left: self.rate.seconds_left(size_bytes.saturating_sub(arrived_bytes)).filter(|_| is_running),
            failure: self.failure.clone(),
        }
    }

    fn files(&self) -> impl Iterator<Item = &RepoFile> {
        self.record.journal.files.iter().map(|entry| &entry.file)
    }

    fn size_bytes(&self) -> u64 {
        self.files().map(|file| file.size_bytes).sum()
    }

    fn arrived_bytes(&self) -> u64 {
        match &self.live {
            Some((before, progress)) => before + progress.arrived.load(Ordering::Acquire),
            None => self.resting_bytes,
        }
    }

    fn verified_bytes(&self) -> u64 {
        match &self.live {
            Some((before, progress)) if self.state == DownloadState::Repairing => {
                before + progress.compared.load(Ordering::Acquire)
            }
            Some((before, progress)) => before + progress.hashed.load(Ordering::Acquire),
            None => self.resting_bytes,
        }
    }

    fn change_wish(&self, from: Wanted, to: Wanted) {
        self.wanted.send_if_modified(|wanted| {
            let is_meant = *wanted == from;
            if is_meant {
                *wanted = to;
            }
            is_meant
        });
    }

    fn is_running(&self) -> bool {
        use DownloadState::{Repairing, Retrying, Running, Verifying};
        matches!(self.state, Running | Retrying | Verifying | Repairing)
    }
}
