//! Downloads: from the hub into the models folder, in order, over several connections, and never wrong.
//!
//! Bytes gather in `<file>.part`, piece by piece; a journal beside it says what is wanted, which pieces are safely there
//! and what each hashed to. The final name appears only when the SHA256 is the promised one. Whatever ends a download
//! early (a person, the network, a full disk, the power) it goes on later from what the journal vouches for; damage costs
//! the damaged piece.

mod answer;
mod connection;
mod disk;
mod error;
mod fault;
mod fetch;
mod folder;
mod home;
mod journal;
mod ledger;
mod pace;
mod part;
mod pieces;
mod place;
mod repair;
mod run;
mod table;
mod takeover;
mod whole;
mod width;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::error::{FileAction, FileError};
use crate::hub::Hub;
use crate::library::Trash;
use crate::wire::{Download, DownloadState, Failure, Move, RepoFile};
use connection::blocking;
use folder::{FolderClaim, writer_name};
use home::Home;
use journal::{Journal, JournalFile, Record};
use pace::Throttle;
use table::{Table, Wanted};

pub use disk::{Disk, PartIo, RealDisk};
pub use error::DownloadError;
pub use ledger::Ledger;
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
    /// A file that was not ours lay under a final name, and went to the trash for what was downloaded.
    Cleared {
        /// Where it lay.
        path: PathBuf,
    },
}

/// Takes updates; called on one thread at a time.
pub type DownloadSink = Arc<dyn Fn(DownloadUpdate) + Send + Sync>;

/// What a person may limit, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadLimits {
    /// Connections per file, at most.
    pub connections: u32,
    /// Downloads that run at the same time.
    pub at_once: u32,
    /// Of all downloads together; 0: as fast as it goes.
    pub bytes_per_s: u64,
}

impl Default for DownloadLimits {
    fn default() -> Self {
        Self { connections: 8, at_once: 1, bytes_per_s: 0 }
    }
}

/// What tests set otherwise than the app.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Attempts without a new byte while there is no network.
    pub network_attempts: u32,
    /// A connection that gives nothing for so long is given up.
    pub stall: Duration,
    /// A connection that gives less over that time is given up too.
    pub slowest_bytes_per_s: f64,
    /// Time between looks at how fast the connections are.
    pub measure_every: Duration,
    /// Time between reports of progress.
    pub report_every: Duration,
    /// A crash costs no more than this, and what arrives while the disk flushes.
    pub save_every_bytes: u64,
    /// Bytes of a piece of new downloads.
    pub piece_bytes: u64,
    /// Limits to begin with.
    pub limits: DownloadLimits,
    /// Space that downloads leave to the app and the system.
    pub reserve_bytes: u64,
    /// Where files are written.
    pub disk: Arc<dyn Disk>,
    /// Knows which files are ours.
    pub ledger: Ledger,
    /// Where files go that are not ours and lie under a final name, and finished ones that are cancelled with the rest.
    pub trash: Trash,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            // Whoever downloads overnight is not there when the line comes back.
            network_attempts: u32::MAX,
            stall: Duration::from_secs(30),
            slowest_bytes_per_s: 2048.0,
            measure_every: Duration::from_secs(1),
            report_every: Duration::from_millis(250),
            save_every_bytes: 8 << 20,
            piece_bytes: journal::PIECE_BYTES,
            limits: DownloadLimits::default(),
            reserve_bytes: 64 << 20,
            disk: Arc::new(RealDisk),
            ledger: Ledger::default(),
            trash: Trash::System,
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
    mirrors: Mutex<Vec<Arc<Hub>>>,
    models_dir: PathBuf,
    /// `None` while another process has the folder.
    claim: Mutex<Option<FolderClaim>>,
    /// This process, in journals.
    writer: String,
    home: Home,
    options: DownloadOptions,
    limits: Mutex<DownloadLimits>,
    throttle: Throttle,
    /// Bytes between network and disk.
    memory: Arc<Semaphore>,
    table: Mutex<Table>,
    /// Rung when there may be work, or when it is time to close.
    bell: Notify,
}

impl Downloads {
    /// Finds unfinished downloads, which are paused, and begins to serve; where another process has the models folder, as
    /// soon as that ends. Must be called within a tokio runtime.
    pub fn open(hub: Arc<Hub>, models_dir: PathBuf, sink: DownloadSink) -> Self {
        Self::open_with(hub, models_dir, DownloadOptions::default(), sink)
    }

    /// The same with other options.
    pub fn open_with(hub: Arc<Hub>, models_dir: PathBuf, options: DownloadOptions, sink: DownloadSink) -> Self {
        let (updates, mut to_deliver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            hub: Mutex::new(hub),
            mirrors: Mutex::default(),
            models_dir,
            claim: Mutex::default(),
            writer: writer_name(),
            home: Home { ledger: options.ledger.clone(), trash: options.trash.clone() },
            limits: Mutex::new(options.limits),
            throttle: Throttle::new(options.limits.bytes_per_s),
            memory: Arc::new(Semaphore::new(connection::MEMORY_BYTES as usize)),
            options,
            table: Mutex::new(Table::new(updates)),
            bell: Notify::new(),
        });
        if let Err(error) = shared.claim_folder() {
            tracing::warn!(%error, "nothing can be downloaded yet");
        }
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

    /// Asks these too where what the hub gave turns out damaged: they have the same files under the same names.
    pub fn set_mirrors(&self, mirrors: Vec<Arc<Hub>>) {
        *lock(&self.shared.mirrors) = mirrors;
    }

    /// Changes the limits, for what runs too.
    pub fn set_limits(&self, limits: DownloadLimits) {
        *lock(&self.shared.limits) = limits;
        self.shared.throttle.set(limits.bytes_per_s);
        self.shared.bell.notify_one();
    }

    /// Puts files at the end of the queue as one download: one file, or all shards of a version. If it is there already
    /// it goes on. Refused if it and what waits do not fit on the disk.
    pub async fn start(&self, files: Vec<RepoFile>) -> Result<Download, DownloadError> {
        self.shared.claim_folder()?;
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
        let (shared, rank) = (Arc::clone(&self.shared), self.shared.table().downloads().len() as u64);
        let prepared = blocking(move || shared.prepare(journal, files, old, rank)).await;
        let record = prepared.inspect_err(|_| self.shared.table().keep(&id))?;
        let download = self.shared.table().insert(id, record, DownloadState::Queued);
        self.shared.bell.notify_one();
        Ok(download)
    }

    /// Stops a download; what arrived is kept.
    pub fn pause(&self, id: &str) -> Result<(), DownloadError> {
        self.shared.table().ask(id, Wanted::Pause)
    }

    /// Lets a paused or failed download go on, at its old place in the order. One that waits before it tries again tries
    /// now.
    pub fn resume(&self, id: &str) -> Result<(), DownloadError> {
        self.shared.table().requeue(id)?;
        self.shared.bell.notify_one();
        Ok(())
    }

    /// Moves a download within the queue; all downloads in their new order.
    pub async fn shift(&self, id: &str, to: Move) -> Result<Vec<Download>, DownloadError> {
        let records = self.shared.table().shift(id, to)?;
        // A place that is not written is forgotten with the app, no more.
        blocking(move || records.iter().for_each(|record| drop(record.rewrite()))).await;
        Ok(self.list())
    }

    /// Stops a download and removes what arrived. A finished one is only taken off the list.
    pub async fn cancel(&self, id: &str) -> Result<(), DownloadError> {
        let Some(record) = self.shared.table().begin_removal(id)? else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.remove_files(&record)).await;
        self.shared.table().remove(id);
        Ok(())
    }

    /// A finished download turned out to be of no use: it stays on the list, and says so.
    pub fn fail(&self, id: &str, failure: Failure) {
        self.shared.table().fail(id, failure);
    }

    /// All downloads, in order.
    pub fn list(&self) -> Vec<Download> {
        // Of a folder that another process has, there is none to be told of.
        let _ = self.shared.claim_folder();
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
        self.shared.leave_folder();
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        self.shared.table().close();
        self.shared.bell.notify_one();
        self.shared.leave_folder();
    }
}

impl Shared {
    /// Makes sure that no other process writes into the models folder; with it come the downloads found there.
    fn claim_folder(&self) -> Result<(), DownloadError> {
        let mut claim = lock(&self.claim);
        if claim.is_some() || self.table().is_closing() {
            return Ok(());
        }
        let taken = FolderClaim::take(&*self.options.disk, &self.models_dir);
        let taken = taken.ok_or_else(|| DownloadError::FolderInUse { dir: self.models_dir.clone() })?;
        let is_locked = taken.is_locked();
        *claim = Some(taken);
        for record in Record::find_all(&self.models_dir, is_locked) {
            // Of one whose files are all home, the process ended before it could say so.
            let state = if self.is_home(&record) { DownloadState::Queued } else { DownloadState::Paused };
            self.table().insert(id_of(&record.journal.repo_files()), record, state);
        }
        self.bell.notify_one();
        Ok(())
    }

    /// Whether no other process can write into the folder.
    fn is_locked(&self) -> bool {
        lock(&self.claim).as_ref().is_some_and(FolderClaim::is_locked)
    }

    fn is_home(&self, record: &Record) -> bool {
        let is_settled =
            |entry: &JournalFile| place(&self.models_dir, &entry.file).is_ok_and(|target| entry.is_settled(&target));
        record.journal.files.iter().all(is_settled)
    }

    fn leave_folder(&self) {
        *lock(&self.claim) = None;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn hub(&self) -> Arc<Hub> {
        Arc::clone(&lock(&self.hub))
    }

    /// The hub, then its mirrors.
    fn sources(&self) -> Vec<Arc<Hub>> {
        [self.hub()].into_iter().chain(lock(&self.mirrors).iter().cloned()).collect()
    }

    fn limits(&self) -> DownloadLimits {
        *lock(&self.limits)
    }

    /// Puts the journal of a new download on the disk. What of an older version of it is the same is kept; if it does not
    /// fit, all of that is.
    fn prepare(
        &self,
        journal: PathBuf,
        files: Vec<RepoFile>,
        old: Option<Record>,
        rank: u64,
    ) -> Result<Record, DownloadError> {
        // Where there are no locks, another process may have begun the same.
        let old = old.or_else(|| Record::read(&journal).ok()).map(|record| record.journal);
        let record = Record::new(journal, Journal::after(old.as_ref(), files, self.options.piece_bytes.max(1)));
        record.rank.store(rank, Ordering::Release);
        self.check_space(&record)?;
        let of_old = || old.iter().flat_map(|old| &old.files);
        let outdated = of_old().filter(|entry| !record.journal.has_pieces_of(entry));
        for target in outdated.filter_map(|entry| place(&self.models_dir, &entry.file).ok()) {
            self.remove_parts(&target);
        }
        let is_new = |entry: &&journal::JournalFile| of_old().all(|old| old.file.path != entry.file.path);
        for entry in record.journal.files.iter().filter(is_new) {
            self.clear_parts(&place(&self.models_dir, &entry.file)?)?;
        }
        if let Some(folder) = record.path.parent() {
            fs::create_dir_all(folder).map_err(FileError::at(FileAction::Write, folder))?;
        }
        record.write()?;
        Ok(record)
    }

    /// Whether a download and all that wait or run fit on the disk.
    fn check_space(&self, record: &Record) -> Result<(), DownloadError> {
        let others = self.table().active(&id_of(&record.journal.repo_files()));
        self.require_space(others.iter().chain([record]))
    }

    /// Whether what these downloads have not taken up yet is to be had.
    fn require_space<'a>(&self, records: impl Iterator<Item = &'a Record>) -> Result<(), DownloadError> {
        let wanted = records.flat_map(|record| &record.journal.files);
        let wanted = wanted.filter(|entry| entry.standing == journal::Standing::Wanted);
        let to_take = |entry: &journal::JournalFile| {
            let target = place(&self.models_dir, &entry.file).ok();
            let taken = |path: &Path| self.options.disk.taken_bytes(path);
            let taken = target.map_or(0, |target| {
                // One of them is there: all bytes, if the process ended between its two names.
                taken(&place::part_path(&target)).max(taken(&place::placing_path(&target)))
            });
            entry.file.size_bytes.saturating_sub(taken)
        };
        let needed_bytes: u64 = wanted.map(to_take).fold(0, u64::saturating_add);
        // A disk that cannot say how much is free is tried.
        let free_bytes = self.options.disk.free_bytes(&self.models_dir).unwrap_or(u64::MAX);
        let free_bytes = free_bytes.saturating_sub(self.options.reserve_bytes);
        if needed_bytes > free_bytes {
            let reserve_bytes = self.options.reserve_bytes;
            return Err(DownloadError::NoSpace {
                dir: self.models_dir.clone(),
                needed_bytes,
                free_bytes,
                reserve_bytes,
            });
        }
        Ok(())
    }

    /// Removes what a download has put on disk, and folders left empty. Whole files go to the trash, if nobody has written
    /// to them since.
    fn remove_files(&self, record: &Record) {
        for entry in &record.journal.files {
            let Ok(target) = place(&self.models_dir, &entry.file) else { continue };
            self.remove_parts(&target);
            if entry.standing == journal::Standing::Placed && entry.is_settled(&target) {
                match self.home.trash.take(&target) {
                    Ok(()) => remove_empty_folders(&target, &self.models_dir),
                    Err(error) => tracing::warn!(path = %target.display(), %error, "left behind by a download"),
                }
            }
        }
        self.remove_file(&record.path);
    }

    /// Removes what is not whole of a file.
    fn remove_parts(&self, target: &Path) {
        [place::part_path(target), place::placing_path(target)].iter().for_each(|path| self.remove_file(path));
    }

    /// Puts what lies under the names that a file will have on its way, and no journal of ours knows, into the trash: other
    /// programs call their downloads so too.
    fn clear_parts(&self, target: &Path) -> Result<(), DownloadError> {
        let paths = [place::part_path(target), place::placing_path(target)];
        for path in paths.into_iter().filter(|path| path.symlink_metadata().is_ok()) {
            self.home.make_way(&path)?;
            self.table().tell_cleared(path);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "left behind by a download");
            }
            _ => remove_empty_folders(path, &self.models_dir),
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
