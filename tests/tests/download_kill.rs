//! A downloading process killed without warning, again and again, while the hub misbehaves: files end byte-identical, and
//! little is fetched twice. `cargo xtask test --long` kills it some hundred times.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tandem_tests::downloads::{files_below, weights};
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub, TestHubOptions};

const FILE: &str = "m-Q8_0.gguf";
const SIZE: u64 = 12 << 20;
const PIECE: u64 = 1 << 20;
const SAVE_EVERY: u64 = 256 << 10;
/// What is on its way between server and disk when the process dies, and what faults make the hub send in vain, per kill.
const IN_FLIGHT: u64 = 1 << 20;
/// Bytes that arrive between two kills, at most; none as often as not, so that resuming is hit too.
const LONGEST_LIFE: u64 = 6 << 20;
const KILLS: usize = 30;
const LONG_KILLS: usize = 220;

#[test]
fn killed_downloads_go_on_and_end_right() {
    let n_kills = if std::env::var_os("TANDEM_LONG").is_some() { LONG_KILLS } else { KILLS };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut n_killed, mut n_files, mut sent, mut n_resumed) = (0, 0, 0, 0);
    while n_killed < n_kills {
        let bytes = weights(SIZE as usize, 5 + n_files);
        let repo = format!("a/m{n_files}");
        let repos = vec![Repo::new(&repo).file(FILE, bytes.clone())];
        // Slow enough to be hit in the middle.
        let options = TestHubOptions { repos, bytes_per_s: Some(16 << 20), ..TestHubOptions::default() };
        let test_hub = TestHub::with(options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join(&repo).join(FILE);
        while n_killed < n_kills && !target.exists() {
            misbehave(&test_hub, &mut dice);
            let mut child = start(&test_hub, &repo, folder.path());
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut said = lines.map_while(Result::ok).map_while(|line| line.parse::<u64>().ok());
            let first = said.next().unwrap_or(SIZE);
            let until = first + dice.below(2) * dice.below(LONGEST_LIFE);
            // It may be done before.
            said.find(|&arrived| arrived >= until);
            // SIGKILL on Unix: no handler runs, nothing is flushed.
            child.kill().unwrap();
            child.wait().unwrap();
            n_killed += 1;
            let landed = fs::read(&target).ok();
            assert!(landed.is_none_or(|landed| landed == bytes), "the final name is never wrong");
        }
        test_hub.heal();
        let output = start(&test_hub, &repo, folder.path()).wait_with_output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).ends_with("done\n"), "{output:?}");
        assert_eq!(files_below(folder.path()), [format!("{repo}/{FILE}")]);
        assert!(fs::read(&target).unwrap() == bytes, "byte-identical");
        let fetches = test_hub.fetches(FILE);
        sent += fetches.iter().map(|seen| seen.sent_bytes()).sum::<u64>();
        n_resumed += fetches.iter().filter(|seen| seen.first_byte() % PIECE > 0).count();
        n_files += 1;
    }
    let twice = sent.saturating_sub(n_files * SIZE);
    let per_kill = twice / n_killed as u64;
    eprintln!("{n_killed} kills, {n_files} files of {SIZE} bytes, {twice} bytes sent twice, {per_kill} per kill");
    assert!(per_kill <= SAVE_EVERY + IN_FLIGHT, "{per_kill}");
    assert!(n_resumed >= n_kills / 4, "it goes on in the middle of pieces: {n_resumed}");
}

/// Lets one or two passing faults befall the next requests.
fn misbehave(test_hub: &TestHub, dice: &mut Dice) {
    test_hub.heal();
    for _ in 0..=dice.below(2) {
        let fault = match dice.below(10) {
            0 | 1 => Fault::Cut { after_bytes: dice.below(PIECE) },
            2 => Fault::IgnoreRange,
            3 => Fault::ShiftRange { by: 1 + dice.below(1000) },
            4 => Fault::Html,
            5 => Fault::ShortBody { by: 1 + dice.below(PIECE) },
            6 => Fault::status(503),
            7 => Fault::FlipBit { at: dice.below(SIZE) },
            8 => Fault::rate_limited(0),
            _ => Fault::status(403),
        };
        test_hub.fault(Rule::new(Side::Cdn, FILE, fault).after(dice.below(4)).times(1 + dice.below(2)));
    }
}

fn start(test_hub: &TestHub, repo: &str, folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tandem-test-download"))
        .args([test_hub.url(), repo])
        .arg(folder)
        .args(["--save-every-bytes", &SAVE_EVERY.to_string(), "--piece-bytes", &PIECE.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the downloading process starts")
}

/// The same numbers on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
