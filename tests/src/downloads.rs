//! A downloader against a test hub, for tests: its updates are awaited, never slept for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::download::{Backoff, DownloadOptions, DownloadUpdate, Downloads};
use tandem_core::hub::{Hub, HubOptions, versions};
use tandem_core::library::Trash;
use tandem_core::wire::{Download, DownloadState, RepoFile};
use tokio::sync::mpsc;

use crate::hub::TestHub;

/// Downloads into one folder, and what they report.
pub struct Downloader {
    /// The downloads.
    pub downloads: Downloads,
    /// The client they use.
    pub hub: Arc<Hub>,
    /// Where files land.
    pub models_dir: PathBuf,
    /// Where files go that were in the way, unless the options name another folder.
    pub trash: tempfile::TempDir,
    updates: mpsc::UnboundedReceiver<DownloadUpdate>,
    seen: Vec<DownloadUpdate>,
}

impl Downloader {
    /// Opens a models folder with options fit for tests.
    pub fn open(test_hub: &TestHub, models_dir: &Path) -> Self {
        Self::with(test_hub, models_dir, None, quick_options())
    }

    /// Opens a models folder.
    pub fn with(test_hub: &TestHub, models_dir: &Path, token: Option<&str>, options: DownloadOptions) -> Self {
        let token = token.map(str::to_owned);
        let hub = Hub::new(HubOptions { base_url: test_hub.url().to_owned(), token, ..HubOptions::default() });
        let hub = Arc::new(hub.expect("a client of a test hub"));
        let trash = tempfile::tempdir().expect("a temporary folder");
        let options = match options.trash {
            Trash::System => DownloadOptions { trash: Trash::Folder(trash.path().to_owned()), ..options },
            Trash::Folder(_) => options,
        };
        let (sink, updates) = mpsc::unbounded_channel();
        // Nobody listens any more when the test ends.
        let sink = Arc::new(move |update| drop(sink.send(update)));
        let downloads = Downloads::open_with(Arc::clone(&hub), models_dir.to_owned(), options, sink);
        Self { downloads, hub, models_dir: models_dir.to_owned(), trash, updates, seen: Vec::new() }
    }

    /// Files of a repo's smallest version.
    pub async fn files(&self, repo: &str) -> Vec<RepoFile> {
        let listing = self.hub.model(repo).await.expect("the repo is listed");
        versions(&listing.files).remove(0).files
    }

    /// Starts the smallest version of a repo.
    pub async fn start(&self, repo: &str) -> Download {
        let files = self.files(repo).await;
        self.downloads.start(files).await.expect("the download is accepted")
    }

    /// The next update.
    pub async fn next(&mut self) -> DownloadUpdate {
        let update = tokio::time::timeout(PATIENCE, self.updates.recv()).await;
        let update = update.unwrap_or_else(|_| panic!("no update any more after {:#?}", self.seen.last()));
        let update = update.expect("the downloads report as long as they are open");
        self.seen.push(update.clone());
        update
    }

    /// Waits until a download is as wished.
    pub async fn until(&mut self, id: &str, is_wished: impl Fn(&Download) -> bool) -> Download {
        loop {
            match self.next().await {
                DownloadUpdate::Changed(download) if download.id == id && is_wished(&download) => return download,
                _ => {}
            }
        }
    }

    /// Waits until a download rests: done, paused or failed.
    pub async fn until_rest(&mut self, id: &str) -> Download {
        let rests = [DownloadState::Done, DownloadState::Paused, DownloadState::Failed];
        self.until(id, |download| rests.contains(&download.state)).await
    }

    /// All updates that were awaited so far.
    pub fn seen(&self) -> &[DownloadUpdate] {
        &self.seen
    }
}

/// Options without long waits; nothing counts as stalled before the test gives up.
pub fn quick_options() -> DownloadOptions {
    DownloadOptions {
        backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(2), attempts: 4 },
        network_attempts: 4,
        stall: PATIENCE,
        report_every: Duration::from_millis(1),
        save_every_bytes: 256 << 10,
        reserve_bytes: 0,
        ..DownloadOptions::default()
    }
}

/// Bytes that look like weights: no two places are alike.
pub fn weights(n_bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..n_bytes.div_ceil(8)).flat_map(step).collect();
    bytes.truncate(n_bytes);
    bytes
}

/// Files below a folder, relative, sorted.
pub fn files_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned()),
            }
        }
    }
    found.sort();
    found
}

/// Far beyond what anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
