//! Files fetched in pieces: several connections, damage on disk and on the wire, mirrors, old journals; and the queue.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::download::{Backoff, DownloadError, DownloadLimits, DownloadOptions, DownloadUpdate};
use tandem_core::hub::{Hub, HubOptions};
use tandem_core::wire::{Download, DownloadState, ErrorCode, Move};
use tandem_tests::downloads::{Downloader, files_below, quick_options, weights};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub};

const REPO: &str = "a/b";
const FILE: &str = "m-Q8_0.gguf";
const SIZE: usize = 40 * PIECE as usize + 123;
const PIECE: u64 = 64 << 10;

#[tokio::test]
async fn later_pieces_arrive_while_the_first_one_hangs() {
    let (bytes, test_hub, folder) = setting();
    let mut downloader = open(&test_hub, folder.path());
    // The first request shows that the file is to be had; the second one, for the next pieces, hangs.
    test_hub.fault(cdn(Fault::Stall { after_bytes: 100 }).after(1).times(1));
    let id = downloader.start(REPO).await.id;
    let hung = |download: &Download| download.arrived_bytes > 30 * PIECE;
    let seen = downloader.until(&id, hung).await;
    assert!(seen.verified_bytes <= 16 * PIECE, "hashed as far as there is no gap: {}", seen.verified_bytes);
    downloader.downloads.pause(&id).unwrap();
    let paused = downloader.until(&id, |download| download.state == DownloadState::Paused).await;
    test_hub.heal();
    let n_before = test_hub.fetches(FILE).len();
    downloader.downloads.resume(&id).unwrap();
    finish(&mut downloader, &id, &bytes).await;
    let missing = SIZE as u64 - paused.arrived_bytes;
    let sent: u64 = test_hub.fetches(FILE)[n_before..].iter().map(|seen| seen.sent_bytes()).sum();
    assert_eq!(sent, missing, "nothing that was here is fetched again");
}

#[tokio::test]
async fn whatever_befalls_connections_the_file_ends_right() {
    let status = |status| cdn(Fault::status(status)).after(2).times(3);
    let cases: [(&str, Vec<Rule>); 10] = [
        ("cuts", (0..9).map(|n| cdn(Fault::Cut { after_bytes: 1000 * n }).after(n).times(1)).collect()),
        ("cuts for ever", vec![cdn(Fault::Cut { after_bytes: 3 * PIECE / 2 })]),
        ("503", vec![status(503)]),
        ("429", vec![status(429)]),
        ("expired", vec![status(403)]),
        ("web pages", vec![cdn(Fault::Html).after(3).times(3)]),
        ("ranges ignored later", vec![cdn(Fault::IgnoreRange).after(3)]),
        ("shifted", vec![cdn(Fault::ShiftRange { by: 1 }).after(3).times(3)]),
        ("short and long", vec![cdn(Fault::ShortBody { by: 9 }).times(5), cdn(Fault::LongBody { by: 9 }).after(5)]),
        ("flips", (0..5).map(|n| cdn(Fault::FlipBit { at: 8 * n * PIECE + 7 }).times(1)).collect()),
    ];
    for (name, rules) in cases {
        let (bytes, test_hub, folder) = setting();
        // Nothing is asked to be waited for.
        let heedless = Fault::Status { status: 429, headers: vec![("retry-after", "0".to_owned())] };
        rules.into_iter().for_each(|rule| test_hub.fault(rule));
        if name == "429" {
            test_hub.heal();
            test_hub.fault(cdn(heedless).after(2).times(3));
        }
        let mut downloader = open(&test_hub, folder.path());
        let id = downloader.start(REPO).await.id;
        let rested = downloader.until_rest(&id).await;
        assert_eq!((rested.state, rested.failure), (DownloadState::Done, None), "{name}");
        assert!(fs::read(landed(folder.path())).unwrap() == bytes, "{name}");
        assert_eq!(files_below(folder.path()), [format!("{REPO}/{FILE}")], "{name}");
    }
}

#[tokio::test]
async fn a_connection_that_drips_is_replaced() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::Drip { every: Duration::from_millis(5) }).times(1));
    let stall = Duration::from_millis(200);
    let mut downloader = with(&test_hub, folder.path(), DownloadOptions { stall, ..options() });
    let id = downloader.start(REPO).await.id;
    finish(&mut downloader, &id, &bytes).await;
}

#[tokio::test]
async fn a_damaged_disk_costs_the_damaged_piece() {
    let (bytes, test_hub, folder) = setting();
    let mut before = open(&test_hub, folder.path());
    test_hub.fault(cdn(Fault::Stall { after_bytes: 10 }).after(8));
    let id = before.start(REPO).await.id;
    before.until(&id, |download| download.arrived_bytes > 6 * PIECE).await;
    before.downloads.close().await;
    drop(before);
    test_hub.heal();
    let part = part(folder.path());
    let mut damaged = fs::read(&part).unwrap();
    damaged[PIECE as usize + 1000] ^= 1;
    fs::write(&part, damaged).unwrap();
    let mut after = open(&test_hub, folder.path());
    let (kept, n_before) = (after.downloads.list()[0].arrived_bytes, test_hub.fetches(FILE).len());
    after.downloads.resume(&id).unwrap();
    let done = finish(&mut after, &id, &bytes).await;
    assert_eq!(done.n_repaired, 1);
    let sent: u64 = test_hub.fetches(FILE)[n_before..].iter().map(|seen| seen.sent_bytes()).sum();
    assert_eq!(sent, SIZE as u64 - kept + PIECE, "the rest and one piece");
}

#[tokio::test]
async fn damage_on_the_wire_is_found_and_only_that_is_kept_anew() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::FlipBit { at: 20 * PIECE + 5 }).times(1));
    let mut downloader = open(&test_hub, folder.path());
    let id = downloader.start(REPO).await.id;
    // All arrives before the damage can be known.
    downloader.until(&id, |download| download.state == DownloadState::Repairing).await;
    let done = finish(&mut downloader, &id, &bytes).await;
    assert_eq!(done.n_repaired, 1);
}

#[tokio::test]
async fn a_mirror_decides_where_the_hub_is_damaged_for_good() {
    let (bytes, test_hub, folder) = setting();
    for at in [3 * PIECE, 17 * PIECE + 9, SIZE as u64 - 1] {
        test_hub.fault(cdn(Fault::FlipBit { at }));
    }
    let mirror = hub_with(&bytes);
    let mut downloader = open(&test_hub, folder.path());
    downloader.downloads.set_mirrors(vec![client(&mirror)]);
    let id = downloader.start(REPO).await.id;
    let done = finish(&mut downloader, &id, &bytes).await;
    assert_eq!(done.n_repaired, 3);
    assert!(!mirror.fetches(FILE).is_empty());
}

#[tokio::test]
async fn a_dead_mirror_keeps_no_other_from_being_asked() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::FlipBit { at: 20 * PIECE }));
    let (dead, good) = (hub_with(&bytes), hub_with(&bytes));
    dead.fault(Rule::new(Side::Hub, "", Fault::status(503)));
    let mut downloader = open(&test_hub, folder.path());
    downloader.downloads.set_mirrors(vec![client(&dead), client(&good)]);
    let id = downloader.start(REPO).await.id;
    finish(&mut downloader, &id, &bytes).await;
    assert!(!good.fetches(FILE).is_empty() && dead.fetches(FILE).is_empty());
}

#[tokio::test]
async fn a_passing_fault_bars_no_mirror() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::FlipBit { at: 20 * PIECE }));
    let mirror = hub_with(&bytes);
    mirror.fault(Rule::new(Side::Hub, "", Fault::status(503)).times(1));
    mirror.fault(cdn(Fault::Cut { after_bytes: 10 }).times(1));
    let mut downloader = open(&test_hub, folder.path());
    downloader.downloads.set_mirrors(vec![client(&mirror)]);
    let id = downloader.start(REPO).await.id;
    assert_eq!(finish(&mut downloader, &id, &bytes).await.n_repaired, 1);
}

#[tokio::test]
async fn a_bad_mirror_spoils_nothing() {
    let bytes = weights(SIZE, 1);
    let other_file = hub_with(&weights(SIZE, 2));
    let damaged = hub_with(&bytes);
    damaged.fault(cdn(Fault::FlipBit { at: 5 * PIECE }));
    let dead = hub_with(&bytes);
    let dead_client = client(&dead);
    drop(dead);
    for mirror in [client(&other_file), client(&damaged), dead_client] {
        let (test_hub, folder) = (hub_with(&bytes), tempfile::tempdir().unwrap());
        test_hub.fault(cdn(Fault::FlipBit { at: 20 * PIECE }).times(1));
        let mut downloader = open(&test_hub, folder.path());
        downloader.downloads.set_mirrors(vec![mirror]);
        let id = downloader.start(REPO).await.id;
        downloader.until(&id, |download| download.state == DownloadState::Repairing).await;
        finish(&mut downloader, &id, &bytes).await;
    }
}

#[tokio::test]
async fn what_stays_wrong_is_given_up_and_repaired_from_another_source() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::FlipBit { at: 20 * PIECE }));
    let mut downloader = open(&test_hub, folder.path());
    let id = downloader.start(REPO).await.id;
    let failed = downloader.until_rest(&id).await;
    assert_eq!(failed.failure.map(|failure| failure.code), Some(ErrorCode::ChecksumMismatch));
    assert!(part(folder.path()).exists() && !landed(folder.path()).exists(), "kept, and not under its name");
    let sent = |hub: &TestHub| hub.fetches(FILE).iter().map(|seen| seen.sent_bytes()).sum::<u64>();
    assert!(sent(&test_hub) <= 3 * SIZE as u64, "fetched twice, with what was in doubt: {}", sent(&test_hub));
    drop(downloader);

    // After a restart, from elsewhere: compared once, and only what differs is fetched and kept.
    let intact = hub_with(&bytes);
    let mut downloader = open(&intact, folder.path());
    assert_eq!(downloader.downloads.list()[0].arrived_bytes, SIZE as u64);
    downloader.downloads.resume(&id).unwrap();
    finish(&mut downloader, &id, &bytes).await;
    assert!(sent(&intact) <= SIZE as u64 + 4 * PIECE, "{}", sent(&intact));
}

#[tokio::test]
async fn a_journal_of_the_first_format_goes_on() {
    const KEPT: usize = 1_000_001;
    let (bytes, test_hub, folder) = setting();
    fs::create_dir_all(part(folder.path()).parent().unwrap()).unwrap();
    fs::write(part(folder.path()), &bytes[..KEPT]).unwrap();
    let downloader = open(&test_hub, folder.path());
    let file = serde_json::to_value(&downloader.files(REPO).await[0]).unwrap();
    drop(downloader);
    let journal = serde_json::json!({
        "format": 1, "files": [{ "file": file, "synced_bytes": KEPT, "standing": "wanted" }],
    });
    fs::write(format!("{}.journal", landed(folder.path()).display()), journal.to_string()).unwrap();
    let mut downloader = open(&test_hub, folder.path());
    let found = downloader.downloads.list();
    assert_eq!(found[0].arrived_bytes, KEPT as u64);
    downloader.downloads.resume(&found[0].id).unwrap();
    finish(&mut downloader, &found[0].id, &bytes).await;
    assert_eq!(test_hub.fetches(FILE)[0].first_byte(), KEPT as u64);
}

#[tokio::test]
async fn a_rate_limit_holds_and_can_be_lifted_at_any_time() {
    let (bytes, test_hub, folder) = setting();
    let slow = DownloadLimits { bytes_per_s: 1, ..DownloadLimits::default() };
    let mut downloader = with(&test_hub, folder.path(), DownloadOptions { limits: slow, ..options() });
    let id = downloader.start(REPO).await.id;
    let running = downloader.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(running.arrived_bytes, 0, "the first chunk takes hours");
    downloader.downloads.set_limits(DownloadLimits::default());
    finish(&mut downloader, &id, &bytes).await;
}

#[tokio::test]
async fn nobody_has_to_wait_for_the_next_attempt() {
    let (bytes, test_hub, folder) = setting();
    test_hub.fault(cdn(Fault::Cut { after_bytes: 1000 }).times(1));
    let hours = Duration::from_secs(9999);
    let backoff = Backoff { first: hours, longest: hours, attempts: 4 };
    let mut downloader = with(&test_hub, folder.path(), DownloadOptions { backoff, ..options() });
    let id = downloader.start(REPO).await.id;
    downloader.until(&id, |download| download.state == DownloadState::Retrying).await;
    downloader.downloads.resume(&id).unwrap();
    finish(&mut downloader, &id, &bytes).await;
}

#[tokio::test]
async fn several_downloads_run_at_once_if_wanted() {
    let (test_hub, ids) = queue_hub();
    let folder = tempfile::tempdir().unwrap();
    test_hub.fault(cdn(Fault::Stall { after_bytes: 1000 }));
    let mut downloader = open(&test_hub, folder.path());
    let mut names = Vec::new();
    for id in &ids {
        names.push(downloader.start(id).await.id);
    }
    downloader.until(&names[0], |download| download.arrived_bytes == 1000).await;
    downloader.downloads.set_limits(DownloadLimits { at_once: 2, ..DownloadLimits::default() });
    downloader.until(&names[1], |download| download.arrived_bytes == 1000).await;
    let states: Vec<DownloadState> = downloader.downloads.list().iter().map(|download| download.state).collect();
    use DownloadState::{Queued, Running};
    assert_eq!(states, [Running, Running, Queued, Queued]);
}

#[tokio::test]
async fn the_queue_takes_the_order_that_it_is_given() {
    let (test_hub, ids) = queue_hub();
    let folder = tempfile::tempdir().unwrap();
    test_hub.fault(cdn(Fault::Stall { after_bytes: 1000 }).times(1));
    let mut downloader = open(&test_hub, folder.path());
    let mut names = Vec::new();
    for id in &ids {
        names.push(downloader.start(id).await.id);
    }
    downloader.until(&names[0], |download| download.arrived_bytes == 1000).await;
    let downloads = &downloader.downloads;
    let order = |list: Vec<Download>| -> Vec<usize> {
        list.iter().map(|download| names.iter().position(|name| *name == download.id).unwrap()).collect()
    };
    assert_eq!(order(downloads.shift(&names[3], Move::Up).await.unwrap()), [0, 1, 3, 2]);
    assert_eq!(order(downloads.shift(&names[1], Move::Down).await.unwrap()), [0, 3, 1, 2]);
    assert_eq!(order(downloads.shift(&names[2], Move::Down).await.unwrap()), [0, 3, 1, 2], "there is nothing after it");
    assert!(matches!(downloads.shift("none", Move::Up).await, Err(DownloadError::Unknown { .. })));
    downloads.close().await;
    drop(downloader);
    let mut downloader = open(&test_hub, folder.path());
    assert_eq!(order(downloader.downloads.list()), [0, 3, 1, 2], "after a restart too");
    names.iter().for_each(|name| downloader.downloads.resume(name).unwrap());
    let mut finished = Vec::new();
    while finished.len() < names.len() {
        if let DownloadUpdate::Finished { download, .. } = downloader.next().await {
            finished.push(download);
        }
    }
    assert_eq!(order(finished), [0, 3, 1, 2]);
}

fn setting() -> (Vec<u8>, TestHub, tempfile::TempDir) {
    let bytes = weights(SIZE, 1);
    let test_hub = hub_with(&bytes);
    (bytes, test_hub, tempfile::tempdir().expect("a temporary folder"))
}

fn hub_with(bytes: &[u8]) -> TestHub {
    TestHub::start(vec![Repo::new(REPO).file(FILE, bytes.to_vec())])
}

fn queue_hub() -> (TestHub, Vec<String>) {
    let ids: Vec<String> = (0..4).map(|n| format!("a/m{n}")).collect();
    let repos = ids.iter().map(|id| Repo::new(id).file(FILE, weights(PIECE as usize, 1))).collect();
    (TestHub::start(repos), ids)
}

fn client(test_hub: &TestHub) -> Arc<Hub> {
    let options = HubOptions { base_url: test_hub.url().to_owned(), ..HubOptions::default() };
    Arc::new(Hub::new(options).expect("a client of a test hub"))
}

fn options() -> DownloadOptions {
    DownloadOptions { piece_bytes: PIECE, ..quick_options() }
}

fn open(test_hub: &TestHub, folder: &Path) -> Downloader {
    with(test_hub, folder, options())
}

fn with(test_hub: &TestHub, folder: &Path, options: DownloadOptions) -> Downloader {
    Downloader::with(test_hub, folder, None, options)
}

fn cdn(fault: Fault) -> Rule {
    Rule::new(Side::Cdn, FILE, fault)
}

fn landed(folder: &Path) -> PathBuf {
    folder.join(REPO).join(FILE)
}

fn part(folder: &Path) -> PathBuf {
    folder.join(REPO).join(format!("{FILE}.part"))
}

async fn finish(downloader: &mut Downloader, id: &str, bytes: &[u8]) -> Download {
    let done =
        downloader.until(id, |download| matches!(download.state, DownloadState::Done | DownloadState::Failed)).await;
    assert_eq!((done.state, done.failure.as_ref()), (DownloadState::Done, None));
    assert!(fs::read(landed(&downloader.models_dir)).expect("the file has landed") == bytes);
    done
}
