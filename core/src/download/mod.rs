//! Downloads: from the hub into the models folder, one at a time, in order, and never wrong.
//!
//! Bytes gather in `<file>.part`; a journal beside it says what is wanted and how much is safely there. The final name
//! appears only when the SHA256 is the promised one. Whatever ends a download early (a person, the network, a full disk,
//! the power) it goes on later from what the journal vouches for.

mod answer;
mod disk;
mod error;
mod fetch;
mod journal;
mod pace;
mod part;
mod place;
mod run;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error::{FileAction, FileError};
use crate::hub::Hub;
use crate::wire::{Download, DownloadState, RepoFile};
use journal::{Journal, Record};
use table::{Table, Wanted};

pub use disk::{Disk, PartIo, RealDisk};
pub use error::DownloadError;
pub use pace::Backoff;
pub use place::place;

/// What the downloads report, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum DownloadUpdate {
    /// One changed; while bytes arrive at most a few times a second.
    Changed(Download),
    /// One is whole and right, under its final names.
    Finished {
        /// The download.
        download: Download,
        /// Its files, in order.
        paths: Vec<PathBuf>,
    },
    /// One was cancelled, or taken off the list.
    Gone {
        /// Its identifier.
        id: String,
    },
}

/// Takes updates; called on one thread at a time.
pub type DownloadSink = Arc<dyn Fn(DownloadUpdate) + Send + Sync>;

/// What tests set otherwise than the app.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// Waits between attempts.
    pub backoff: Backoff,
    /// A connection that gives nothing for so long is given up.
    pub stall: Duration,
    /// Time between reports of progress.
    pub report_every: Duration,
    /// A crash costs no more than this.
    pub save_every_bytes: u64,
    /// Space that downloads leave to the app and the system.
    pub reserve_bytes: u64,
    /// Where files are written.
    pub disk: Arc<dyn Disk>,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            stall: Duration::from_secs(30),
            report_every: Duration::from_millis(250),
            save_every_bytes: 16 << 20,
            reserve_bytes: 64 << 20,
            disk: Arc::new(RealDisk),
        }
    }
}

/// All downloads of a models folder.
pub struct Downloads {
    shared: Arc<Shared>,
    runner: Mutex<Option<JoinHandle<()>>>,
    /// Held while a download is put on the list, so that two requests for the same one make one.
    starting: tokio::sync::Mutex<()>,
}

/// What the queue's task and the callers share.
struct Shared {
    hub: Mutex<Arc<Hub>>,
    models_dir: PathBuf,
    options: DownloadOptions,
    table: Mutex<Table>,
    /// Rung when there may be work, or when it is time to close.
    bell: Notify,
}

impl Downloads {
    /// Finds unfinished downloads, which are paused, and begins to serve. Must be called within a tokio runtime.
    pub fn open(hub: Arc<Hub>, models_dir: PathBuf, sink: DownloadSink) -> Self {
        Self::open_with(hub, models_dir, DownloadOptions::default(), sink)
    }

    /// The same with other options.
    pub fn open_with(hub: Arc<Hub>, models_dir: PathBuf, options: DownloadOptions, sink: DownloadSink) -> Self {
        let (updates, mut to_deliver) = mpsc::unbounded_channel();
        let mut table = Table::new(updates);
        for record in Record::find_all(&models_dir) {
            table.insert(id_of(&record.journal.repo_files()), record, DownloadState::Paused);
        }
        let (hub, table, bell) = (Mutex::new(hub), Mutex::new(table), Notify::new());
        let shared = Arc::new(Shared { hub, models_dir, options, table, bell });
        tokio::spawn(async move {
            while let Some(update) = to_deliver.recv().await {
                sink(update);
            }
        });
        let runner = tokio::spawn(run::run_queue(Arc::clone(&shared)));
        Self { shared, runner: Mutex::new(Some(runner)), starting: tokio::sync::Mutex::default() }
    }

    /// Talks to another hub from the next request on. Files stay what they are: their hashes decide.
    pub fn set_hub(&self, hub: Arc<Hub>) {
        *lock(&self.shared.hub) = hub;
    }

    /// Puts files at the end of the queue as one download: one file, or all shards of a version. If it is there already
    /// it goes on. Refused if it and what waits do not fit on the disk.
    pub async fn start(&self, files: Vec<RepoFile>) -> Result<Download, DownloadError> {
        let first = files.first().ok_or(DownloadError::BadRequest)?;
        if files.iter().any(|file| file.repo != first.repo) {
            return Err(DownloadError::BadRequest);
        }
        let places: Result<Vec<_>, _> = files.iter().map(|file| place(&self.shared.models_dir, file)).collect();
        let journal = place::journal_path(&places?[0]);
        let id = id_of(&files);
        let _one_at_a_time = self.starting.lock().await;
        let old = match self.shared.table().admit(&id, &files)? {
            table::Admitted::Known(download) => {
                self.shared.bell.notify_one();
                return Ok(download);
            }
            table::Admitted::Replaces(record) => Some(record),
            table::Admitted::New => None,
        };
        let (shared, replaces) = (Arc::clone(&self.shared), old.is_some());
        let record = Record { path: journal, journal: Journal::new(files) };
        let prepared = spawn_blocking(move || {
            if let Some(old) = old {
                shared.remove_files(&old);
            }
            shared.check_space(&record)?;
            if let Some(folder) = record.path.parent() {
                fs::create_dir_all(folder).map_err(FileError::at(FileAction::Write, folder))?;
            }
            record.write()?;
            Ok::<_, DownloadError>(record)
        });
        let record = match prepared.await.expect("preparing does not panic") {
            Ok(record) => record,
            Err(error) => {
                if replaces {
                    self.shared.table().remove(&id);
                }
                return Err(error);
            }
        };
        let download = self.shared.table().insert(id, record, DownloadState::Queued);
        self.shared.bell.notify_one();
        Ok(download)
    }

    /// Stops a download; what arrived is kept.
    pub fn pause(&self, id: &str) -> Result<(), DownloadError> {
        self.shared.table().ask(id, Wanted::Pause)
    }

    /// Lets a paused or failed download go on, at its old place in the order.
    pub fn resume(&self, id: &str) -> Result<(), DownloadError> {
        self.shared.table().requeue(id)?;
        self.shared.bell.notify_one();
        Ok(())
    }

    /// Stops a download and removes what arrived. A finished one is only taken off the list.
    pub async fn cancel(&self, id: &str) -> Result<(), DownloadError> {
        let Some(record) = self.shared.table().begin_removal(id)? else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let removed = spawn_blocking(move || shared.remove_files(&record)).await;
        removed.expect("removing does not panic");
        self.shared.table().remove(id);
        Ok(())
    }

    /// All downloads, in order.
    pub fn list(&self) -> Vec<Download> {
        self.shared.table().downloads()
    }

    /// Pauses what runs and returns when its bytes are safe.
    pub async fn close(&self) {
        self.shared.table().close();
        self.shared.bell.notify_one();
        let runner = lock(&self.runner).take();
        if let Some(runner) = runner {
            // The runner ends by itself; a panic of it has been reported already.
            let _ = runner.await;
        }
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        self.shared.table().close();
        self.shared.bell.notify_one();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn hub(&self) -> Arc<Hub> {
        Arc::clone(&lock(&self.hub))
    }

    /// Whether a download and all that wait or run before it fit on the disk.
    fn check_space(&self, record: &Record) -> Result<(), DownloadError> {
        let own = record.journal.missing_bytes();
        let others = self.table().missing_bytes(&id_of(&record.journal.repo_files()));
        self.require_space(own.saturating_add(others))
    }

    fn require_space(&self, needed_bytes: u64) -> Result<(), DownloadError> {
        // A disk that cannot say how much is free is tried.
        let free_bytes = self.options.disk.free_bytes(&self.models_dir).unwrap_or(u64::MAX);
        let free_bytes = free_bytes.saturating_sub(self.options.reserve_bytes);
        if needed_bytes > free_bytes {
            return Err(DownloadError::NoSpace { dir: self.models_dir.clone(), needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// Removes what a download has put on disk, and folders left empty.
    fn remove_files(&self, record: &Record) {
        let mut paths = vec![record.path.clone()];
        for entry in &record.journal.files {
            let Ok(target) = place(&self.models_dir, &entry.file) else { continue };
            paths.push(place::part_path(&target));
            if entry.standing == journal::Standing::Placed {
                paths.push(target);
            }
        }
        for path in paths {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "left behind by a cancelled download");
                }
                _ => remove_empty_folders(&path, &self.models_dir),
            }
        }
    }
}

/// Removes the folders between a file and `below`, from the inside, as long as they are empty.
fn remove_empty_folders(path: &Path, below: &Path) {
    let inner = path.ancestors().skip(1).take_while(|folder| *folder != below && folder.starts_with(below));
    for folder in inner {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

/// Names a download after where it goes, so that it has the same name after a restart.
fn id_of(files: &[RepoFile]) -> String {
    let first = files.first();
    let target = first.map(|file| format!("{}/{}", file.repo, file.path)).unwrap_or_default();
    Sha256::digest(target).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
