//! Full disks: checked before, met in the middle, simulated and real. What has arrived is kept.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tandem_core::download::{Disk, DownloadError, DownloadOptions, PartIo, RealDisk};
use tandem_core::error::Explain;
use tandem_core::wire::{DownloadState, ErrorCode};
use tandem_tests::downloads::{Downloader, quick_options, weights};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub};
use tandem_tests::small_disk::SmallDisk;

const SIZE: u64 = 2 << 20;

#[tokio::test]
async fn what_cannot_fit_is_not_begun() {
    let (test_hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let disk = Arc::new(TightDisk::new(SIZE + SIZE / 2));
    let downloader = open(&test_hub, folder.path(), Arc::clone(&disk));
    // The first one stays in the queue: it is never whole while the second one asks.
    test_hub.fault(stall());
    downloader.downloads.start(downloader.files("a/first").await).await.unwrap();
    let refused = downloader.downloads.start(downloader.files("a/second").await).await;
    match refused {
        Err(error @ DownloadError::NoSpace { needed_bytes, .. }) => {
            assert!(error.explain().message.en.contains("left to the system"), "{}", error.explain().message.en);
            assert!(needed_bytes > SIZE && needed_bytes <= 2 * SIZE, "what waits is counted: {needed_bytes}");
            assert!(error.is_disk_full());
        }
        other => panic!("{other:?}"),
    }
    assert!(!folder.path().join("a/second").exists());
}

#[tokio::test]
async fn a_disk_that_fills_up_pauses_and_keeps_what_is_there() {
    let (test_hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let disk = Arc::new(TightDisk::new(SIZE / 2));
    // It says that there is room, until there is none.
    disk.claimed_free.store(u64::MAX, Ordering::Release);
    let mut downloader = open(&test_hub, folder.path(), Arc::clone(&disk));
    let id = downloader.start("a/first").await.id;
    let paused = downloader.until_rest(&id).await;
    assert_eq!(paused.state, DownloadState::Paused);
    assert_eq!(paused.failure.map(|failure| failure.code), Some(ErrorCode::DiskFull));
    assert!(paused.arrived_bytes >= SIZE / 2 - (256 << 10), "{}", paused.arrived_bytes);
    let before = test_hub.fetches("m.gguf").len();
    assert!(downloader.downloads.list()[0].failure.is_some());
    disk.capacity.store(u64::MAX, Ordering::Release);
    downloader.downloads.resume(&id).unwrap();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches("m.gguf")[before].first_byte(), paused.arrived_bytes);
    assert_eq!(fs::read(folder.path().join("a/first/m.gguf")).unwrap(), weights(SIZE as usize, 1));
}

/// The same with a real file system of 64 MiB, which takes root.
#[tokio::test]
async fn a_real_small_file_system_fills_up_and_nothing_is_lost() {
    const FILE_BYTES: usize = 40 << 20;
    let Some(folder) = SmallDisk::mount("a_real_small_file_system_fills_up_and_nothing_is_lost") else { return };
    let bytes = weights(FILE_BYTES, 3);
    let test_hub = TestHub::start(vec![Repo::new("a/b").file("m.gguf", bytes.clone())]);
    // Another program fills the disk while we look away: the check beforehand has passed, and space is not taken.
    let options = DownloadOptions { disk: Arc::new(TrustingDisk), save_every_bytes: 4 << 20, ..quick_options() };
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, options);
    let filler = folder.path().join("filler");
    fs::write(&filler, vec![0; 40 << 20]).unwrap();
    let id = downloader.start("a/b").await.id;
    let paused = downloader.until_rest(&id).await;
    assert_eq!(paused.failure.map(|failure| failure.code), Some(ErrorCode::DiskFull));
    assert_eq!(paused.state, DownloadState::Paused);
    // The app starts on the full disk, finds the download, and what is there.
    drop(downloader);
    let options = DownloadOptions { save_every_bytes: 4 << 20, ..quick_options() };
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, options);
    let found = downloader.downloads.list();
    assert_eq!(found.len(), 1);
    assert!(found[0].arrived_bytes >= 12 << 20, "{}", found[0].arrived_bytes);
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    let still_full = downloader.until_rest(&id).await;
    assert_eq!(
        still_full.failure.map(|failure| failure.code),
        Some(ErrorCode::DiskFull),
        "told before a byte is asked for"
    );
    fs::remove_file(filler).unwrap();
    downloader.downloads.resume(&id).unwrap();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert!(fs::read(folder.path().join("a/b/m.gguf")).unwrap() == bytes);
}

#[tokio::test]
async fn space_is_taken_before_a_byte_is_fetched() {
    let Some(folder) = SmallDisk::mount("space_is_taken_before_a_byte_is_fetched") else { return };
    let repos = [("a/first", 40 << 20), ("a/second", 30 << 20)];
    let test_hub = TestHub::start(repos.map(|(id, n_bytes)| Repo::new(id).file("m.gguf", weights(n_bytes, 3))).into());
    test_hub.fault(stall());
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, quick_options());
    let id = downloader.start("a/first").await.id;
    downloader.until(&id, |download| download.arrived_bytes > 0).await;
    assert!(RealDisk.free_bytes(folder.path()).unwrap() < 26 << 20, "all 40 MiB are taken");
    let refused = downloader.downloads.start(downloader.files("a/second").await).await;
    match refused {
        Err(DownloadError::NoSpace { needed_bytes, .. }) => {
            assert!((30 << 20..31 << 20).contains(&needed_bytes), "what is taken is not counted twice: {needed_bytes}");
        }
        other => panic!("{other:?}"),
    }
    test_hub.heal();
    downloader.downloads.pause(&id).unwrap();
    downloader.until_rest(&id).await;
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
}

#[tokio::test]
async fn shards_that_are_home_take_no_more_space() {
    let Some(folder) = SmallDisk::mount("shards_that_are_home_take_no_more_space") else { return };
    let shard = |n: usize, n_bytes: usize| (format!("m-Q8_0-0000{n}-of-00002.gguf"), weights(n_bytes, n as u64));
    let [(first, large), (second, small)] = [shard(1, 24 << 20), shard(2, 8 << 20)];
    let sharded = Repo::new("a/sharded").file(&first, large).file(&second, small);
    let test_hub = TestHub::start(vec![sharded, Repo::new("a/other").file("m.gguf", weights(16 << 20, 3))]);
    test_hub.fault(Rule::new(Side::Cdn, &second, Fault::Stall { after_bytes: 1 << 20 }));
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, quick_options());
    let id = downloader.start("a/sharded").await.id;
    downloader.until(&id, |download| download.arrived_bytes > 24 << 20).await;
    let files = downloader.files("a/other").await;
    assert!(downloader.downloads.start(files).await.is_ok(), "8 and 16 MiB are needed, 32 are free");
}

#[tokio::test]
async fn what_is_between_its_two_names_counts_as_taken() {
    let (test_hub, folder) = (hub(), tempfile::tempdir().unwrap());
    test_hub.fault(stall());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let id = downloader.start("a/first").await.id;
    downloader.until(&id, |download| download.arrived_bytes > 0).await;
    downloader.downloads.close().await;
    drop(downloader);
    test_hub.heal();
    let landed = folder.path().join("a/first/m.gguf");
    let beside = |ending: &str| landed.with_file_name(format!("m.gguf{ending}"));
    fs::rename(beside(".part"), beside(".placing")).unwrap();
    let options = DownloadOptions { disk: Arc::new(NoMoreRoom), ..quick_options() };
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, options);
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    let done = downloader.until_rest(&id).await;
    assert_eq!((done.state, done.failure), (DownloadState::Done, None));
    assert_eq!(fs::read(landed).unwrap(), weights(SIZE as usize, 1));
}

fn hub() -> TestHub {
    let repo = |id| Repo::new(id).file("m.gguf", weights(SIZE as usize, 1));
    TestHub::start(vec![repo("a/first"), repo("a/second")])
}

fn stall() -> Rule {
    Rule::new(Side::Cdn, "a/first", Fault::Stall { after_bytes: SIZE / 4 })
}

fn open(test_hub: &TestHub, folder: &Path, disk: Arc<TightDisk>) -> Downloader {
    Downloader::with(test_hub, folder, None, DownloadOptions { disk, ..quick_options() })
}

/// A disk with room for so many bytes of downloads.
#[derive(Debug)]
struct TightDisk {
    capacity: Arc<AtomicU64>,
    claimed_free: AtomicU64,
}

impl TightDisk {
    fn new(n_bytes: u64) -> Self {
        Self { capacity: Arc::new(AtomicU64::new(n_bytes)), claimed_free: AtomicU64::new(n_bytes) }
    }
}

impl Disk for TightDisk {
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.claimed_free.load(Ordering::Acquire))
    }

    fn taken_bytes(&self, _path: &Path) -> u64 {
        0
    }

    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>> {
        Ok(Box::new(SmallFile { io: RealDisk.open_part(path)?, capacity: Arc::clone(&self.capacity) }))
    }
}

/// A file that cannot grow beyond the disk.
struct SmallFile {
    io: Box<dyn PartIo>,
    capacity: Arc<AtomicU64>,
}

impl PartIo for SmallFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.io.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let room = self.capacity.load(Ordering::Acquire).saturating_sub(at);
        let n = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { self.io.write_at(&bytes[..n], at) }
    }

    fn n_bytes(&self) -> io::Result<u64> {
        self.io.n_bytes()
    }

    /// As on a file system that cannot take space beforehand.
    fn reserve(&self, _n_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.io.sync()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.io.is_at(path)
    }
}

/// The real disk, whose free space nobody asked for in time.
#[derive(Debug)]
struct TrustingDisk;

impl Disk for TrustingDisk {
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn taken_bytes(&self, path: &Path) -> u64 {
        RealDisk.taken_bytes(path)
    }

    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>> {
        Ok(Box::new(SmallFile { io: RealDisk.open_part(path)?, capacity: Arc::new(AtomicU64::new(u64::MAX)) }))
    }
}

/// The real disk without room for anything that has not taken its space.
#[derive(Debug)]
struct NoMoreRoom;

impl Disk for NoMoreRoom {
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(0)
    }

    fn taken_bytes(&self, path: &Path) -> u64 {
        RealDisk.taken_bytes(path)
    }

    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>> {
        RealDisk.open_part(path)
    }
}
