//! A downloading process killed without warning, again and again: the file ends byte-identical, little is fetched twice.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tandem_tests::downloads::{files_below, weights};
use tandem_tests::hub::{Repo, TestHub, TestHubOptions};

const REPO: &str = "a/b";
const SIZE: u64 = 12 << 20;
const SAVE_EVERY: u64 = 1 << 20;
/// What is on its way between server and disk when the process dies.
const IN_FLIGHT: u64 = 8 << 20;
/// When it is killed, in bytes that it said had arrived.
const KILLS: &[u64] = &[1, 700_000, 2_500_000, 5_000_000, 5_100_000, 9_000_000, 12_000_000];

#[test]
fn killed_downloads_go_on_and_end_right() {
    let bytes = weights(SIZE as usize, 5);
    let repos = vec![Repo::new(REPO).file("m-Q8_0.gguf", bytes.clone())];
    // Slow enough to be hit in the middle.
    let options = TestHubOptions { repos, bytes_per_s: Some(24 << 20), ..TestHubOptions::default() };
    let test_hub = TestHub::with(options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for &kill_at in KILLS {
        let mut child = start(&test_hub, folder.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = lines.map_while(Result::ok).map(|line| line.parse::<u64>());
        assert!(said.any(|arrived| arrived.is_ok_and(|arrived| arrived >= kill_at)), "it gets that far");
        // SIGKILL on Unix: no handler runs, nothing is flushed.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.path().join("a/b/m-Q8_0.gguf").exists() || kill_at > SIZE - IN_FLIGHT);
    }
    let output = start(&test_hub, folder.path()).wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).ends_with("done\n"), "{output:?}");
    assert_eq!(files_below(folder.path()), ["a/b/m-Q8_0.gguf"]);
    assert!(fs::read(folder.path().join("a/b/m-Q8_0.gguf")).unwrap() == bytes, "byte-identical");
    let sent: u64 = test_hub.fetches("m-Q8_0.gguf").iter().map(|seen| seen.sent_bytes()).sum();
    eprintln!("{} kills, {} bytes sent twice", KILLS.len(), sent - SIZE);
    assert!(sent <= SIZE + KILLS.len() as u64 * (SAVE_EVERY + IN_FLIGHT), "{sent}");
    let resumed = test_hub.fetches("m-Q8_0.gguf").iter().filter(|seen| seen.first_byte() > 0).count();
    assert!(resumed >= 4, "it goes on where it was: {resumed}");
}

fn start(test_hub: &TestHub, folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tandem-test-download"))
        .args([test_hub.url(), REPO])
        .arg(folder)
        .arg(SAVE_EVERY.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the downloading process starts")
}
