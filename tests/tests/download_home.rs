//! What lies under a final name: a person's own file, a damaged one of ours, another process's; none is lost or mixed.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_core::download::{Disk, DownloadOptions, DownloadUpdate, Ledger, PartIo, RealDisk};
use tandem_core::library::Trash;
use tandem_core::store::Store;
use tandem_core::wire::{DownloadState, ErrorCode};
use tandem_tests::downloads::{Downloader, files_below, quick_options, weights};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub};

const REPO: &str = "a/b";
const FILE: &str = "m-Q8_0.gguf";
const LANDED: &str = "a/b/m-Q8_0.gguf";
const PIECE: u64 = 64 << 10;
const SIZE: usize = 10 * PIECE as usize + 77;
const SHARDS: [&str; 2] = ["m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf"];

#[tokio::test]
async fn a_persons_own_file_goes_to_the_trash_and_is_told_of() {
    let bytes = weights(SIZE, 1);
    for own in [weights(SIZE, 2), weights(SIZE + 160, 2), Vec::new()] {
        let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
        let landed = put(folder.path(), &own);
        let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
        let id = downloader.start(REPO).await.id;
        assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
        assert_eq!(fs::read(&landed).unwrap(), bytes);
        assert_eq!(fs::read(downloader.trash.path().join(FILE)).unwrap(), own, "nothing of a person's is lost");
        assert!(downloader.seen().contains(&DownloadUpdate::Cleared { path: landed }));
    }
}

/// Browsers call their downloads so too.
#[tokio::test]
async fn a_part_that_is_not_ours_goes_to_the_trash_and_is_told_of() {
    let (bytes, own) = (weights(SIZE, 1), weights(SIZE / 2, 2));
    for ending in ["part", "placing"] {
        let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
        let part = put(folder.path(), &own).with_added_extension(ending);
        fs::rename(folder.path().join(LANDED), &part).unwrap();
        let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
        let id = downloader.start(REPO).await.id;
        assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
        assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), bytes);
        let kept = downloader.trash.path().join(part.file_name().unwrap());
        assert_eq!(fs::read(kept).unwrap(), own, "nothing of a person's is lost");
        assert!(downloader.seen().contains(&DownloadUpdate::Cleared { path: part }));
    }
}

#[tokio::test]
async fn a_persons_own_copy_of_the_file_is_taken_as_it_is() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
    put(folder.path(), &bytes);
    let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
    let id = downloader.start(REPO).await.id;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!((test_hub.fetches(FILE).len(), files_below(downloader.trash.path()).len()), (0, 0));
}

#[tokio::test]
async fn what_cannot_go_to_the_trash_stays_and_is_named() {
    let (bytes, own) = (weights(SIZE, 1), weights(SIZE, 2));
    let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
    let landed = put(folder.path(), &own);
    // A file cannot be a folder.
    let no_trash = folder.path().join("trash");
    fs::write(&no_trash, "").unwrap();
    let options = DownloadOptions { trash: Trash::Folder(no_trash), ..options(&Ledger::default()) };
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, options);
    let id = downloader.start(REPO).await.id;
    let failed = downloader.until_rest(&id).await;
    assert_eq!(failed.state, DownloadState::Failed);
    assert!(failed.failure.unwrap().message.en.contains(&*landed.to_string_lossy()));
    assert_eq!(fs::read(&landed).unwrap(), own);
    let n_before = test_hub.fetches(FILE).len();
    fs::remove_file(&landed).unwrap();
    downloader.downloads.resume(&id).unwrap();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!((fs::read(&landed).unwrap(), test_hub.fetches(FILE).len()), (bytes, n_before), "nothing comes twice");
}

#[tokio::test]
async fn damage_to_a_finished_file_costs_the_damaged_pieces() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder, ledger) = (hub_with(&bytes), tempfile::tempdir().unwrap(), ledger());
    let mut downloader = open(&test_hub, folder.path(), &ledger);
    let id = downloader.start(REPO).await.id;
    downloader.until_rest(&id).await;
    let landed = folder.path().join(LANDED);
    let sent =
        |n_before: usize| -> u64 { test_hub.fetches(FILE)[n_before..].iter().map(|seen| seen.sent_bytes()).sum() };
    // A disk that damages a file does not touch its time; whoever writes to it does.
    for is_told in [false, true] {
        let n_before = test_hub.fetches(FILE).len();
        let time = fs::metadata(&landed).unwrap().modified().unwrap();
        let mut damaged = bytes.clone();
        damaged[3 * PIECE as usize + 5] ^= 1;
        fs::write(&landed, &damaged).unwrap();
        if !is_told {
            File::options().write(true).open(&landed).unwrap().set_modified(time).unwrap();
        }
        let id = downloader.start(REPO).await.id;
        let done = downloader.until_rest(&id).await;
        assert_eq!((done.state, done.n_repaired, sent(n_before)), (DownloadState::Done, 1, PIECE));
        assert_eq!(fs::read(&landed).unwrap(), bytes);
        let in_trash = fs::read(downloader.trash.path().join(FILE)).ok();
        assert_eq!(in_trash, is_told.then_some(damaged), "what somebody has written is kept");
    }
}

#[tokio::test]
async fn a_newer_version_takes_the_place_of_ours() {
    let (old, new) = (weights(SIZE, 1), weights(SIZE + 9, 2));
    let (test_hub, folder, ledger) = (hub_with(&old), tempfile::tempdir().unwrap(), ledger());
    let mut downloader = open(&test_hub, folder.path(), &ledger);
    let id = downloader.start(REPO).await.id;
    downloader.until_rest(&id).await;
    test_hub.replace(REPO, FILE, new.clone());
    let id = downloader.start(REPO).await.id;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), new);
    assert!(files_below(downloader.trash.path()).is_empty(), "nobody has touched the old one");
}

#[tokio::test]
async fn without_locks_another_process_spoils_nothing() {
    let bytes = weights(SIZE, 1);
    let (damaging, good) = (hub_with(&bytes), hub_with(&bytes));
    damaging.fault(Rule::new(Side::Cdn, FILE, Fault::FlipBit { at: 3 * PIECE }));
    damaging.fault(Rule::new(Side::Cdn, FILE, Fault::Throttle { bytes_per_s: 4 * PIECE }));
    let folder = tempfile::tempdir().unwrap();
    let options = || DownloadOptions { disk: Arc::new(NoLocks), ..options(&Ledger::default()) };
    let mut slow = Downloader::with(&damaging, folder.path(), None, options());
    let slow_id = slow.start(REPO).await.id;
    slow.until(&slow_id, |download| download.arrived_bytes > 4 * PIECE).await;

    let mut fast = Downloader::with(&good, folder.path(), None, options());
    let id = fast.start(REPO).await.id;
    assert_eq!(fast.until_rest(&id).await.state, DownloadState::Paused, "as it was found");
    let done = fast.until_rest(&id).await;
    assert_eq!((done.state, done.failure), (DownloadState::Done, None));
    let landed = folder.path().join(LANDED);
    assert_eq!(fs::read(&landed).unwrap(), bytes);

    let ended = slow.until_rest(&slow_id).await;
    assert_eq!(
        (ended.state, ended.failure.map(|failure| failure.code)),
        (DownloadState::Failed, Some(ErrorCode::Busy))
    );
    assert_eq!(fs::read(&landed).unwrap(), bytes, "whoever lost it wrote elsewhere");
}

#[tokio::test]
async fn a_file_in_the_place_of_ours_never_gets_the_final_name() {
    let bytes = weights(SIZE, 1);
    let (test_hub, root) = (hub_with(&bytes), tempfile::tempdir().unwrap());
    let (folder, moved) = (root.path().join("models"), root.path().join("models-old"));
    test_hub.fault(Rule::new(Side::Cdn, FILE, Fault::Throttle { bytes_per_s: 8 * PIECE }));
    let mut downloader = open(&test_hub, &folder, &Ledger::default());
    let id = downloader.start(REPO).await.id;
    downloader.until(&id, |download| download.arrived_bytes > 2 * PIECE).await;
    // As if somebody moved the folder away, and another process began the same there, with the same journal.
    fs::rename(&folder, &moved).unwrap();
    let part = format!("{LANDED}.part");
    fs::create_dir_all(folder.join(&part).parent().unwrap()).unwrap();
    fs::write(folder.join(&part), vec![0; SIZE]).unwrap();
    let journal = format!("{LANDED}.journal");
    fs::copy(moved.join(&journal), folder.join(&journal)).unwrap();
    let ended = downloader.until_rest(&id).await;
    // Its journal may be looked for just between the two.
    let code = ended.failure.map(|failure| failure.code);
    assert!(matches!(code, Some(ErrorCode::Busy | ErrorCode::NotFound)), "{code:?}");
    assert_eq!(ended.state, DownloadState::Failed);
    assert!(!folder.join(LANDED).exists());
    assert_eq!(fs::read(folder.join(&part)).unwrap(), vec![0; SIZE], "what is another's stays so");
}

#[tokio::test]
async fn a_changed_shard_costs_that_shard_alone() {
    let (shards, newer) = ([weights(SIZE, 1), weights(SIZE, 2)], weights(SIZE, 3));
    let (test_hub, folder) = (sharded(&shards), tempfile::tempdir().unwrap());
    let (mut downloader, id) = with_one_shard_home(&test_hub, folder.path()).await;
    downloader.downloads.pause(&id).unwrap();
    downloader.until_rest(&id).await;
    test_hub.heal();
    test_hub.replace(REPO, SHARDS[1], newer.clone());
    let n_before = test_hub.fetches(SHARDS[0]).len();
    downloader.downloads.start(downloader.files(REPO).await).await.unwrap();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(SHARDS[0]).len(), n_before, "the first one is not fetched again");
    for (name, bytes) in SHARDS.iter().zip([&shards[0], &newer]) {
        assert_eq!(fs::read(folder.path().join(REPO).join(name)).unwrap(), *bytes);
    }
}

#[tokio::test]
async fn what_does_not_fit_costs_nothing_that_is_here() {
    let shards = [weights(SIZE, 1), weights(SIZE, 2)];
    let (test_hub, folder) = (sharded(&shards), tempfile::tempdir().unwrap());
    let (mut downloader, id) = with_one_shard_home(&test_hub, folder.path()).await;
    downloader.downloads.pause(&id).unwrap();
    downloader.until_rest(&id).await;
    let n_before = test_hub.fetches(SHARDS[0]).len();
    let before = (files_below(folder.path()), downloader.downloads.list());
    let mut files = downloader.files(REPO).await;
    (files[1].size_bytes, files[1].sha256) = (1 << 60, Some("0".repeat(64)));
    assert!(downloader.downloads.start(files).await.unwrap_err().is_disk_full());
    assert_eq!((files_below(folder.path()), downloader.downloads.list()), before);
    test_hub.heal();
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(SHARDS[0]).len(), n_before);
}

#[tokio::test]
async fn a_crash_before_the_journal_is_gone_loses_nothing() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
    test_hub.fault(Rule::new(Side::Cdn, FILE, Fault::Stall { after_bytes: 2 * PIECE }));
    let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
    let id = downloader.start(REPO).await.id;
    downloader.until(&id, |download| download.arrived_bytes > PIECE).await;
    downloader.downloads.close().await;
    drop(downloader);
    let (landed, journal) = (folder.path().join(LANDED), folder.path().join(format!("{LANDED}.journal")));
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&journal).unwrap()).unwrap();
    test_hub.heal();
    // Between its two last names: the bytes are whole, and have neither name that anybody looks for.
    let n_before = test_hub.fetches(FILE).len();
    fs::remove_file(folder.path().join(format!("{LANDED}.part"))).unwrap();
    fs::write(folder.path().join(format!("{LANDED}.placing")), &bytes).unwrap();
    let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert!(test_hub.fetches(FILE)[n_before].first_byte() >= 2 * PIECE, "it goes on");
    downloader.downloads.close().await;
    drop(downloader);
    // After the last: the journal tells of a file that is home.
    let changed = fs::metadata(&landed).unwrap().modified().unwrap();
    let changed_ns = changed.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    json["files"][0]["standing"] = "placed".into();
    json["files"][0]["changed_ns"] = changed_ns.into();
    fs::write(&journal, json.to_string()).unwrap();
    let n_before = test_hub.fetches(FILE).len();
    let mut downloader = open(&test_hub, folder.path(), &Ledger::default());
    downloader.until(&id, |download| download.state == DownloadState::Done).await;
    downloader.downloads.cancel(&id).await.unwrap();
    assert_eq!((files_below(folder.path()), test_hub.fetches(FILE).len()), (vec![LANDED.to_owned()], n_before));
    assert_eq!(fs::read(&landed).unwrap(), bytes);
}

#[tokio::test]
async fn whole_shards_of_a_cancelled_download_can_be_had_back() {
    let shards = [weights(SIZE, 1), weights(SIZE, 2)];
    let (test_hub, folder) = (sharded(&shards), tempfile::tempdir().unwrap());
    let (mut downloader, id) = with_one_shard_home(&test_hub, folder.path()).await;
    downloader.downloads.cancel(&id).await.unwrap();
    while downloader.next().await != (DownloadUpdate::Gone { id: id.clone() }) {}
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(fs::read(downloader.trash.path().join(SHARDS[0])).unwrap(), shards[0]);
}

/// A file system that knows no locks.
#[derive(Debug)]
struct NoLocks;

impl Disk for NoLocks {
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }

    fn taken_bytes(&self, path: &Path) -> u64 {
        RealDisk.taken_bytes(path)
    }

    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>> {
        RealDisk.open_part(path)
    }

    fn lock(&self, folder: &Path) -> io::Result<File> {
        fs::create_dir_all(folder)?;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The first shard is whole, the second begun and stalled.
async fn with_one_shard_home(test_hub: &TestHub, folder: &Path) -> (Downloader, String) {
    test_hub.fault(Rule::new(Side::Cdn, SHARDS[1], Fault::Stall { after_bytes: 2 * PIECE }));
    let mut downloader = open(test_hub, folder, &Ledger::default());
    let id = downloader.start(REPO).await.id;
    downloader.until(&id, |download| download.arrived_bytes > SIZE as u64 + PIECE).await;
    (downloader, id)
}

fn open(test_hub: &TestHub, folder: &Path, ledger: &Ledger) -> Downloader {
    Downloader::with(test_hub, folder, None, options(ledger))
}

fn options(ledger: &Ledger) -> DownloadOptions {
    DownloadOptions { piece_bytes: PIECE, save_every_bytes: PIECE, ledger: ledger.clone(), ..quick_options() }
}

fn ledger() -> Ledger {
    Ledger::new(Arc::new(Store::open(Path::new(":memory:")).unwrap().store))
}

fn hub_with(bytes: &[u8]) -> TestHub {
    TestHub::start(vec![Repo::new(REPO).file(FILE, bytes.to_vec())])
}

fn sharded(shards: &[Vec<u8>; 2]) -> TestHub {
    let files = SHARDS.iter().zip(shards);
    TestHub::start(vec![files.fold(Repo::new(REPO), |repo, (name, bytes)| repo.file(name, bytes.clone()))])
}

fn put(folder: &Path, bytes: &[u8]) -> PathBuf {
    let landed = folder.join(LANDED);
    fs::create_dir_all(landed.parent().unwrap()).unwrap();
    fs::write(&landed, bytes).unwrap();
    landed
}
