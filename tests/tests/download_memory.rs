//! What a download costs in memory: the same for a file of any size, since nothing of it is kept but states of hashes.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tandem_tests::hub::{Repo, TestHub};

const FILE: &str = "m-Q8_0.gguf";
/// Many times what may be held at once.
const SIZE: u64 = 192 << 20;
const MOST_BYTES: u64 = 64 << 20;

#[test]
fn a_download_costs_no_more_than_64_mb() {
    let folder = tempfile::tempdir().unwrap();
    let (sparse, models) = (folder.path().join(FILE), folder.path().join("models"));
    fs::File::create(&sparse).unwrap().set_len(SIZE).unwrap();
    let test_hub = TestHub::start(vec![Repo::new("a/b").file_at(FILE, &sparse).unwrap()]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_tandem-test-download"))
        .args([test_hub.url(), "a/b"])
        .arg(&models)
        .args(["--report-every-ms", "20"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_bytes = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_done = lines.any(|line| {
        peak_bytes = peak(&status).unwrap_or(peak_bytes);
        line == "done"
    });
    assert!(child.wait().unwrap().success() && is_done);
    assert_eq!(fs::metadata(models.join("a/b").join(FILE)).unwrap().len(), SIZE);
    eprintln!("{} MiB at most, for a file of {} MiB", peak_bytes >> 20, SIZE >> 20);
    assert!((1..=MOST_BYTES).contains(&peak_bytes), "{peak_bytes}");
}

/// The most that a process has held so far.
fn peak(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
