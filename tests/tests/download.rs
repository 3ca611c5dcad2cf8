//! Downloads against the test hub: the fault table, pause and resume, restart, cancel, queue, shards, names.

use std::fs;
use std::time::Duration;

use tandem_core::download::{DownloadError, DownloadOptions, DownloadUpdate};
use tandem_core::wire::{DownloadState, ErrorCode, RepoFile};
use tandem_tests::downloads::{Downloader, files_below, quick_options, weights};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub, TestHubOptions, demo_repos};

const REPO: &str = "测试/Model-GGUF";
const FILE: &str = "Q4_K_M/模型 é ✓-Q4_K_M.gguf";
const LANDED: &str = "测试/Model-GGUF/Q4_K_M/模型 é ✓-Q4_K_M.gguf";
const SIZE: usize = 1 << 20;
const HALF: u64 = SIZE as u64 / 2;

/// How a download must end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    Failed(ErrorCode),
    Paused(ErrorCode),
}

/// A way for the hub or its second host to misbehave, and what must come of it.
struct Row {
    name: &'static str,
    rules: fn() -> Vec<Rule>,
    end: End,
}

const FAULTS: &[Row] = &[
    Row { name: "nothing", rules: Vec::new, end: End::Done },
    Row { name: "cut", rules: || vec![cdn(Fault::Cut { after_bytes: HALF }).times(1)], end: End::Done },
    Row { name: "cut again and again", rules: || vec![cdn(Fault::Cut { after_bytes: 300_000 })], end: End::Done },
    Row {
        name: "cut before the first byte",
        rules: || vec![cdn(Fault::Cut { after_bytes: 0 }).times(2)],
        end: End::Done,
    },
    Row {
        name: "cut for ever",
        rules: || vec![cdn(Fault::Cut { after_bytes: 0 })],
        end: End::Paused(ErrorCode::NoNetwork),
    },
    Row { name: "range ignored from the start", rules: || vec![cdn(Fault::IgnoreRange)], end: End::Done },
    Row { name: "range ignored", rules: || vec![cut(), cdn(Fault::IgnoreRange).after(1)], end: End::Done },
    Row {
        name: "range shifted",
        rules: || vec![cut(), cdn(Fault::ShiftRange { by: 7 }).after(1).times(1)],
        end: End::Done,
    },
    Row {
        name: "range shifted for ever",
        rules: || vec![cut(), cdn(Fault::ShiftRange { by: 7 }).after(1)],
        end: End::Failed(ErrorCode::HubAnswerInvalid),
    },
    Row { name: "wrong total", rules: || vec![cut(), cdn(Fault::WrongTotal).after(1).times(1)], end: End::Done },
    Row { name: "short body", rules: || vec![cdn(Fault::ShortBody { by: 1000 }).times(1)], end: End::Done },
    Row { name: "long body", rules: || vec![cdn(Fault::LongBody { by: 100_000 })], end: End::Done },
    Row { name: "416", rules: || vec![cut(), cdn(Fault::status(416)).after(1).times(1)], end: End::Done },
    Row { name: "web page once", rules: || vec![cut(), cdn(Fault::Html).after(1).times(1)], end: End::Done },
    Row {
        name: "web page for ever",
        rules: || vec![cut(), cdn(Fault::Html).after(1)],
        end: End::Failed(ErrorCode::HubAnswerInvalid),
    },
    Row {
        name: "web page from the hub",
        rules: || vec![hub(Fault::Html)],
        end: End::Failed(ErrorCode::HubAnswerInvalid),
    },
    Row { name: "link expired", rules: || vec![cut(), cdn(Fault::status(403)).after(1).times(1)], end: End::Done },
    Row {
        name: "links expire at once",
        rules: || vec![cdn(Fault::status(403))],
        end: End::Failed(ErrorCode::HubRefused),
    },
    Row { name: "500 once", rules: || vec![cdn(Fault::status(500)).times(1)], end: End::Done },
    Row { name: "503 for ever", rules: || vec![cdn(Fault::status(503))], end: End::Paused(ErrorCode::HubRefused) },
    Row { name: "hub 502 once", rules: || vec![hub(Fault::status(502)).times(1)], end: End::Done },
    Row { name: "429 once", rules: || vec![hub(Fault::rate_limited(0)).times(1)], end: End::Done },
    Row {
        name: "429 from the second host",
        rules: || vec![cut(), cdn(retry_after(0)).after(1).times(2)],
        end: End::Done,
    },
    Row { name: "429 for ever", rules: || vec![hub(Fault::rate_limited(0))], end: End::Paused(ErrorCode::RateLimited) },
    Row { name: "no right to see it", rules: || vec![hub(Fault::status(401))], end: End::Failed(ErrorCode::NotFound) },
    Row { name: "token refused", rules: || vec![hub(wrong_token())], end: End::Failed(ErrorCode::TokenWrong) },
    Row { name: "404", rules: || vec![hub(Fault::status(404))], end: End::Failed(ErrorCode::NotFound) },
    Row { name: "gated", rules: || vec![hub(gated())], end: End::Failed(ErrorCode::TokenMissing) },
    Row { name: "pointed elsewhere only for bytes", rules: || vec![hub(Fault::AnswerHead)], end: End::Done },
    Row { name: "no HEAD", rules: || vec![hub(Fault::status(405)).by("HEAD")], end: End::Done },
    Row { name: "redirect loop once", rules: || vec![cdn(Fault::RedirectLoop).times(8)], end: End::Done },
    Row {
        name: "redirect loop",
        rules: || vec![hub(Fault::RedirectLoop)],
        end: End::Failed(ErrorCode::HubAnswerInvalid),
    },
    Row {
        name: "no commit told",
        rules: || vec![hub(Fault::WithoutHeader { name: "x-repo-commit" })],
        end: End::Failed(ErrorCode::HubAnswerInvalid),
    },
    Row { name: "bit flipped once", rules: || vec![cdn(Fault::FlipBit { at: HALF }).times(1)], end: End::Done },
    Row {
        name: "bit flipped",
        rules: || vec![cdn(Fault::FlipBit { at: HALF })],
        end: End::Failed(ErrorCode::ChecksumMismatch),
    },
    Row {
        name: "last bit flipped",
        rules: || vec![cdn(Fault::FlipBit { at: SIZE as u64 - 1 })],
        end: End::Failed(ErrorCode::ChecksumMismatch),
    },
    Row {
        name: "changed before it began",
        rules: || vec![hub(Fault::Replace { bytes: weights(SIZE, 9).into() })],
        end: End::Failed(ErrorCode::ChangedUpstream),
    },
    Row {
        name: "changed in the middle",
        rules: || vec![cut(), hub(Fault::Replace { bytes: weights(SIZE, 9).into() }).after(1)],
        end: End::Failed(ErrorCode::ChangedUpstream),
    },
    Row {
        name: "longer in the middle",
        rules: || vec![cut(), hub(Fault::Replace { bytes: weights(SIZE + 1, 1).into() }).after(1)],
        end: End::Failed(ErrorCode::ChangedUpstream),
    },
    Row {
        name: "second host has another file",
        rules: || vec![cut(), cdn(Fault::Replace { bytes: weights(SIZE, 9).into() }).after(1)],
        end: End::Failed(ErrorCode::ChangedUpstream),
    },
];

#[tokio::test]
async fn every_fault_ends_as_it_must() {
    let bytes = weights(SIZE, 1);
    for Row { name, rules, end } in FAULTS {
        let (test_hub, folder) = (hub_with(&bytes), folder());
        let mut downloader = Downloader::open(&test_hub, folder.path());
        let files = downloader.files(REPO).await;
        rules().into_iter().for_each(|rule| test_hub.fault(rule));
        let download = downloader.downloads.start(files).await.unwrap();
        let rested = downloader.until_rest(&download.id).await;
        let code = rested.failure.map(|failure| failure.code);
        let ended = match (rested.state, code) {
            (DownloadState::Done, None) => End::Done,
            (DownloadState::Failed, Some(code)) => End::Failed(code),
            (DownloadState::Paused, Some(code)) => End::Paused(code),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(ended, *end, "{name}");
        let landed = fs::read(folder.path().join(LANDED)).ok();
        if *end == End::Done {
            assert!(landed.is_some_and(|landed| landed == bytes), "{name}: the file is whole and right");
            assert_eq!(files_below(folder.path()), [LANDED], "{name}: nothing else is left");
        } else {
            assert_eq!(landed, None, "{name}: nothing wrong ever has the final name");
        }
        if name.starts_with("changed") || name.starts_with("second") || name.starts_with("longer") {
            let part = fs::read(folder.path().join(format!("{LANDED}.part"))).unwrap_or_default();
            let is_old = |(n, byte): (usize, &u8)| *byte == 0 || bytes.get(n) == Some(byte);
            assert!(part.iter().enumerate().all(is_old), "{name}: old and new bytes are never mixed");
        }
    }
}

#[tokio::test]
async fn after_a_cut_only_the_rest_is_fetched() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    test_hub.fault(cdn(Fault::Cut { after_bytes: HALF }).times(1));
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let download = downloader.start(REPO).await;
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Done);
    let fetches = test_hub.fetches(FILE);
    assert_eq!(fetches.len(), 2);
    let resumed_at = fetches[1].first_byte();
    assert!(resumed_at > 0 && resumed_at <= HALF, "{resumed_at}");
    assert_eq!(fetches[1].sent_bytes(), SIZE as u64 - resumed_at);
    let states: Vec<DownloadState> = downloader
        .seen()
        .iter()
        .filter_map(|update| match update {
            DownloadUpdate::Changed(download) => Some(download.state),
            _ => None,
        })
        .collect();
    assert!(states.contains(&DownloadState::Retrying), "{states:?}");
}

#[tokio::test]
async fn a_stalled_connection_is_given_up() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    test_hub.fault(cdn(Fault::Stall { after_bytes: HALF }).times(1));
    let options = DownloadOptions { stall: Duration::from_millis(200), ..quick_options() };
    let mut downloader = Downloader::with(&test_hub, folder.path(), None, options);
    let download = downloader.start(REPO).await;
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Done);
    assert!(test_hub.fetches(FILE).len() >= 2);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), bytes);
}

#[tokio::test]
async fn a_pause_keeps_bytes_and_resume_fetches_the_rest() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let id = stall_at_half(&test_hub, &mut downloader).await;
    downloader.downloads.pause(&id).unwrap();
    let paused = downloader.until(&id, |download| download.state == DownloadState::Paused).await;
    assert_eq!((paused.arrived_bytes, paused.failure, paused.bytes_per_s), (HALF, None, 0.0));
    test_hub.heal();
    downloader.downloads.resume(&id).unwrap();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(FILE).iter().map(|seen| seen.first_byte()).collect::<Vec<_>>(), [0, HALF]);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), bytes);
}

#[tokio::test]
async fn a_restart_finds_unfinished_downloads_paused() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    let mut before = Downloader::open(&test_hub, folder.path());
    let id = stall_at_half(&test_hub, &mut before).await;
    before.downloads.close().await;
    drop(before);
    test_hub.heal();
    let mut after = Downloader::open(&test_hub, folder.path());
    let found = after.downloads.list();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].id.as_str(), found[0].state, found[0].arrived_bytes),
        (id.as_str(), DownloadState::Paused, HALF)
    );
    assert_eq!(found[0].quant, "Q4_K_M");
    after.downloads.resume(&id).unwrap();
    after.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(after.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(FILE).last().unwrap().first_byte(), HALF);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), bytes);
    assert_eq!(files_below(folder.path()), [LANDED]);
}

#[tokio::test]
async fn a_part_shorter_than_its_journal_is_fetched_again() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let id = stall_at_half(&test_hub, &mut downloader).await;
    downloader.downloads.pause(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Paused).await;
    test_hub.heal();
    let part = folder.path().join(format!("{LANDED}.part"));
    fs::OpenOptions::new().write(true).open(part).unwrap().set_len(1000).unwrap();
    downloader.downloads.resume(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(FILE).last().unwrap().first_byte(), 0);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), bytes);
}

#[tokio::test]
async fn cancel_leaves_nothing_behind() {
    let (test_hub, folder) = (hub_with(&weights(SIZE, 1)), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    for paused_first in [false, true] {
        let id = stall_at_half(&test_hub, &mut downloader).await;
        if paused_first {
            downloader.downloads.pause(&id).unwrap();
            downloader.until(&id, |download| download.state == DownloadState::Paused).await;
        }
        downloader.downloads.cancel(&id).await.unwrap();
        while downloader.next().await != (DownloadUpdate::Gone { id: id.clone() }) {}
        assert!(downloader.downloads.list().is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file and no empty folder");
        assert!(matches!(downloader.downloads.cancel(&id).await, Err(DownloadError::Unknown { .. })));
    }
}

#[tokio::test]
async fn downloads_take_turns_in_order() {
    let repos: Vec<String> = (0..4).map(|n| format!("a/m{n}")).collect();
    let served = repos.iter().map(|id| Repo::new(id).file("m-Q8_0.gguf", weights(SIZE, 1))).collect();
    let (test_hub, folder) = (TestHub::start(served), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    test_hub.fault(Rule::new(Side::Cdn, "m-Q8_0.gguf", Fault::Stall { after_bytes: HALF }).times(1));
    let mut ids = Vec::new();
    for repo in &repos {
        ids.push(downloader.start(repo).await.id);
    }
    downloader.until(&ids[0], |download| download.arrived_bytes == HALF).await;
    let states: Vec<DownloadState> = downloader.downloads.list().iter().map(|download| download.state).collect();
    use DownloadState::{Queued, Running};
    assert_eq!(states, [Running, Queued, Queued, Queued]);
    downloader.downloads.pause(&ids[2]).unwrap();
    downloader.downloads.pause(&ids[0]).unwrap();
    downloader.until(&ids[3], |download| download.state == DownloadState::Done).await;
    let finished = finished_in_order(&downloader);
    assert_eq!(finished, [ids[1].clone()], "the last one's own report follows its state");
    downloader.downloads.resume(&ids[2]).unwrap();
    downloader.until(&ids[2], |download| download.state == DownloadState::Done).await;
    let mut running = Vec::new();
    for update in downloader.seen() {
        if let DownloadUpdate::Changed(download) = update {
            running.retain(|id| *id != download.id);
            if matches!(download.state, Running | DownloadState::Verifying | DownloadState::Retrying) {
                running.push(download.id.clone());
            }
        }
        assert!(running.len() <= 1, "one at a time: {running:?}");
    }
}

#[tokio::test]
async fn shards_are_one_download() {
    let (test_hub, folder) = (TestHub::start(demo_repos()), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let download = downloader.start("tandem-demo/Tiny-Sharded-GGUF").await;
    assert_eq!(download.files.len(), 3);
    let paths = loop {
        if let DownloadUpdate::Finished { paths, download } = downloader.next().await {
            assert_eq!((download.arrived_bytes, download.verified_bytes), (download.size_bytes, download.size_bytes));
            break paths;
        }
    };
    assert!(paths.len() == 3 && paths.is_sorted() && paths.iter().all(|path| path.is_file()));
    let facts = tandem_engine::gguf::ModelFacts::from_file(&paths[0]).unwrap();
    assert_eq!(facts.tensors.len(), 3);
}

#[tokio::test]
async fn a_shard_that_changed_meanwhile_is_fetched_again() {
    const NAMES: [&str; 2] = ["m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf"];
    let shards = [weights(SIZE, 1), weights(SIZE, 2)];
    let repo = NAMES.iter().zip(&shards).fold(Repo::new(REPO), |repo, (name, bytes)| repo.file(name, bytes.clone()));
    let (test_hub, folder) = (TestHub::start(vec![repo]), folder());
    test_hub.fault(Rule::new(Side::Cdn, NAMES[1], Fault::Stall { after_bytes: HALF }));
    let mut before = Downloader::open(&test_hub, folder.path());
    let id = before.start(REPO).await.id;
    before.until(&id, |download| download.arrived_bytes == SIZE as u64 + HALF).await;
    before.downloads.close().await;
    drop(before);
    test_hub.heal();
    let landed = NAMES.map(|name| folder.path().join(REPO).join(name));
    let mut damaged = shards[0].clone();
    damaged[5] ^= 1;
    fs::write(&landed[0], damaged).unwrap();
    let mut after = Downloader::open(&test_hub, folder.path());
    after.downloads.resume(&id).unwrap();
    after.until(&id, |download| download.state == DownloadState::Running).await;
    assert_eq!(after.until_rest(&id).await.state, DownloadState::Done);
    for (path, bytes) in landed.iter().zip(&shards) {
        assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
    }
    assert_eq!(test_hub.fetches(NAMES[1]).last().unwrap().first_byte(), HALF, "the other goes on");
}

#[tokio::test]
async fn the_token_never_leaves_the_hub() {
    let tokens = vec!["hf_accepted".to_owned()];
    let options = TestHubOptions { repos: demo_repos(), tokens, ..TestHubOptions::default() };
    let (test_hub, folder) = (TestHub::with(options).unwrap(), folder());
    let mut downloader = Downloader::with(&test_hub, folder.path(), Some("hf_accepted"), quick_options());
    let download = downloader.start("tandem-demo/Tiny-Gated-GGUF").await;
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Done);
    let seen = test_hub.seen();
    assert!(seen.iter().filter(|seen| seen.side == Side::Hub).all(|seen| seen.authorization.is_some()));
    assert!(seen.iter().any(|seen| seen.side == Side::Cdn));
    assert!(seen.iter().filter(|seen| seen.side == Side::Cdn).all(|seen| seen.authorization.is_none()));
}

#[tokio::test]
async fn a_file_that_is_here_is_not_fetched_again() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    let landed = folder.path().join(LANDED);
    fs::create_dir_all(landed.parent().unwrap()).unwrap();
    fs::write(&landed, &bytes).unwrap();
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let download = downloader.start(REPO).await;
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(FILE).len(), 0);
    // One that only looks like it is replaced, but not before the right one is whole.
    let wrong = weights(SIZE, 2);
    fs::write(&landed, &wrong).unwrap();
    test_hub.fault(cdn(Fault::FlipBit { at: 3 }));
    let download = downloader.start(REPO).await;
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Failed);
    assert_eq!(fs::read(&landed).unwrap(), wrong);
    test_hub.heal();
    downloader.downloads.resume(&download.id).unwrap();
    assert_eq!(downloader.until_rest(&download.id).await.state, DownloadState::Done);
    assert_eq!(fs::read(&landed).unwrap(), bytes);
}

#[tokio::test]
async fn a_newer_version_replaces_a_half_download_and_never_mixes() {
    let (old, new) = (weights(SIZE, 1), weights(SIZE, 2));
    let (test_hub, folder) = (hub_with(&old), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let id = stall_at_half(&test_hub, &mut downloader).await;
    downloader.downloads.pause(&id).unwrap();
    downloader.until(&id, |download| download.state == DownloadState::Paused).await;
    test_hub.heal();
    test_hub.replace(REPO, FILE, new.clone());
    downloader.downloads.resume(&id).unwrap();
    let failed = downloader.until_rest(&id).await;
    assert_eq!(failed.failure.map(|failure| failure.code), Some(ErrorCode::ChangedUpstream));
    assert_eq!(downloader.start(REPO).await.id, id, "the same place, so the same download");
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), new);
    assert_eq!(test_hub.fetches(FILE).last().unwrap().first_byte(), 0);
    // A whole file stays until the newer one is whole too.
    test_hub.replace(REPO, FILE, old);
    let id = stall_at_half(&test_hub, &mut downloader).await;
    assert_eq!(fs::read(folder.path().join(LANDED)).unwrap(), new);
    downloader.downloads.cancel(&id).await.unwrap();
    while downloader.next().await != (DownloadUpdate::Gone { id: id.clone() }) {}
    assert_eq!(files_below(folder.path()), [LANDED]);
}

#[tokio::test]
async fn two_requests_for_the_same_file_make_one_download() {
    let bytes = weights(SIZE, 1);
    let (test_hub, folder) = (hub_with(&bytes), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let files = downloader.files(REPO).await;
    let downloads = &downloader.downloads;
    let (first, second) = tokio::join!(downloads.start(files.clone()), downloads.start(files));
    assert_eq!(first.unwrap().id, second.unwrap().id);
    assert_eq!(downloads.list().len(), 1);
    let id = downloads.list()[0].id.clone();
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    assert_eq!(test_hub.fetches(FILE).len(), 1);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let (test_hub, folder) = (hub_with(&weights(10, 1)), folder());
    let downloader = Downloader::open(&test_hub, folder.path());
    let files = downloader.files(REPO).await;
    let with_path = |path: &str| vec![RepoFile { path: path.into(), ..files[0].clone() }];
    for path in ["../../evil.gguf", "/etc/evil.gguf", "a/../../../evil.gguf", "a\\..\\evil.gguf"] {
        let refused = downloader.downloads.start(with_path(path)).await;
        assert!(matches!(refused, Err(DownloadError::BadPath { .. })), "{path}");
    }
    let other_repo = RepoFile { repo: "other/repo".into(), ..files[0].clone() };
    let mixed = downloader.downloads.start(vec![files[0].clone(), other_repo]).await;
    assert!(matches!(mixed, Err(DownloadError::BadRequest)));
    assert!(matches!(downloader.downloads.start(Vec::new()).await, Err(DownloadError::BadRequest)));
    assert!(matches!(downloader.downloads.resume("none"), Err(DownloadError::Unknown { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn no_network_pauses_and_says_so() {
    let (test_hub, folder) = (hub_with(&weights(SIZE, 1)), folder());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let files = downloader.files(REPO).await;
    drop(test_hub);
    let download = downloader.downloads.start(files).await.unwrap();
    let paused = downloader.until_rest(&download.id).await;
    assert_eq!(paused.state, DownloadState::Paused);
    assert_eq!(paused.failure.map(|failure| failure.code), Some(ErrorCode::NoNetwork));
}

#[tokio::test]
async fn every_later_request_asks_for_the_same_content_by_name() {
    let (test_hub, folder) = (hub_with(&weights(SIZE, 1)), folder());
    test_hub.fault(cut());
    let mut downloader = Downloader::open(&test_hub, folder.path());
    let id = downloader.start(REPO).await.id;
    assert_eq!(downloader.until_rest(&id).await.state, DownloadState::Done);
    let asked: Vec<Option<String>> = test_hub.fetches(FILE).iter().map(|seen| seen.if_range.clone()).collect();
    let etag = format!("\"{}\"", test_hub.sha256(REPO, FILE));
    assert!(asked.len() > 1 && asked[0].is_none(), "{asked:?}");
    assert!(asked[1..].iter().all(|name| name.as_ref() == Some(&etag)), "{asked:?}");
}

#[tokio::test]
async fn two_processes_never_write_into_one_models_folder() {
    let (bytes, folder) = (weights(SIZE, 7), tempfile::tempdir().unwrap());
    let test_hub = TestHub::start(vec![Repo::new("a/b").file("m.gguf", bytes.clone())]);
    test_hub.fault(Rule::new(Side::Cdn, "m.gguf", Fault::Stall { after_bytes: HALF }));
    let mut first = Downloader::open(&test_hub, folder.path());
    let id = first.start("a/b").await.id;
    first.until(&id, |download| download.arrived_bytes > 0).await;

    let mut second = Downloader::open(&test_hub, folder.path());
    assert!(second.downloads.list().is_empty(), "what another one fetches is not ours to pause or cancel");
    let refused = second.downloads.start(second.files("a/b").await).await.unwrap_err();
    assert!(matches!(&refused, DownloadError::FolderInUse { dir } if dir == folder.path()), "{refused:?}");
    first.downloads.pause(&id).unwrap();
    let paused = first.until_rest(&id).await;
    assert_eq!(paused.state, DownloadState::Paused);
    test_hub.heal();
    first.downloads.close().await;

    // Once the first has ended, the second goes on where that was.
    assert_eq!(second.downloads.list()[0].arrived_bytes, paused.arrived_bytes);
    second.downloads.resume(&id).unwrap();
    assert_eq!(second.until_rest(&id).await.state, DownloadState::Paused, "as it was found");
    assert_eq!(second.until_rest(&id).await.state, DownloadState::Done);
    assert!(fs::read(folder.path().join("a/b/m.gguf")).unwrap() == bytes);
}

fn cdn(fault: Fault) -> Rule {
    Rule::new(Side::Cdn, FILE, fault)
}

fn hub(fault: Fault) -> Rule {
    Rule::new(Side::Hub, "/resolve/", fault)
}

fn cut() -> Rule {
    cdn(Fault::Cut { after_bytes: HALF }).times(1)
}

fn retry_after(seconds: u64) -> Fault {
    Fault::Status { status: 429, headers: vec![("retry-after", seconds.to_string())] }
}

fn wrong_token() -> Fault {
    let message = "Invalid credentials in Authorization header".to_owned();
    Fault::Status { status: 401, headers: vec![("x-error-message", message)] }
}

fn gated() -> Fault {
    Fault::Status { status: 403, headers: vec![("x-error-code", "GatedRepo".to_owned())] }
}

fn hub_with(bytes: &[u8]) -> TestHub {
    TestHub::start(vec![Repo::new(REPO).file(FILE, bytes.to_vec())])
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("模型 テスト é ✓").tempdir().expect("a temporary folder")
}

/// Starts the download and waits until it hangs in the middle; its identifier.
async fn stall_at_half(test_hub: &TestHub, downloader: &mut Downloader) -> String {
    test_hub.heal();
    test_hub.fault(cdn(Fault::Stall { after_bytes: HALF }));
    let id = downloader.start(REPO).await.id;
    downloader.until(&id, |download| download.arrived_bytes == HALF).await;
    id
}

fn finished_in_order(downloader: &Downloader) -> Vec<String> {
    let finished = downloader.seen().iter().filter_map(|update| match update {
        DownloadUpdate::Finished { download, .. } => Some(download.id.clone()),
        _ => None,
    });
    finished.collect()
}
