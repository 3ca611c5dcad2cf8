//! The database against a dying process and a full disk: this test runs itself as the child that suffers them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tandem_core::store::{NewTurn, Store};
use tandem_core::wire::{EndReason, ErrorCode, Message};

/// Names the folder of the child; absent in the parent.
const CHILD: &str = "TANDEM_STORE_TEST_CHILD";
const N_KILLS: u64 = 20;

#[test]
fn killed_at_any_point_it_keeps_what_was_committed() {
    if let Some(dir) = std::env::var_os(CHILD) {
        write_turns_for_ever(&Path::new(&dir).join("tandem.db"));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut n_committed = 0;
    for round in 0..N_KILLS {
        let mut child = child("killed_at_any_point_it_keeps_what_was_committed", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The child goes on writing while this one decides; the number of lines read makes the moment differ.
        let mut committed = Vec::new();
        while (committed.len() as u64) < 1 + round * 7 % 11 {
            committed.extend(lines.next().expect("the child writes on").strip_prefix("committed ").map(str::to_owned));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        committed.extend(lines.filter_map(|line| line.strip_prefix("committed ").map(str::to_owned)));

        let opened = Store::open(&dir.path().join("tandem.db")).unwrap();
        assert!(opened.notices.is_empty(), "round {round}: {:?}", opened.notices);
        for line in &committed {
            let (chat, text) = line.split_once(' ').unwrap();
            let chat = opened.store.chat(chat.parse().unwrap()).expect("a committed chat is there");
            assert!(chat.messages.iter().any(|m| m.text == text), "round {round}: `{text}` is lost");
        }
        n_committed += committed.len();
        opened.store.close_interrupted().unwrap();
        let open_ends = |chat: i64| opened.store.chat(chat).unwrap().messages.into_iter().filter(|m| m.end.is_none());
        let n_open: usize = opened.store.chats().unwrap().iter().map(|chat| open_ends(chat.id).count()).sum();
        assert_eq!(n_open, 0);
    }
    assert!(n_committed as u64 > N_KILLS);
}

/// On a tiny volume in a mount namespace of its own, where the system grants one; elsewhere it says so.
#[test]
fn a_full_disk_at_start_shows_the_chats_and_says_so() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return start_on_a_full_disk(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let probe = Command::new("unshare").args(["-Urm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this system grants no mount namespace, so there is no volume to fill");
        return;
    }
    let run = child("a_full_disk_at_start_shows_the_chats_and_says_so", dir.path());
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", "mount -t tmpfs -o size=512k tmpfs \"$0\" && exec \"$@\""]);
    command.arg(dir.path()).arg(run.get_program()).args(run.get_args()).env(CHILD, dir.path());
    assert!(command.status().unwrap().success());
}

fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args([test, "--exact", "--nocapture"]).env(CHILD, dir);
    command
}

fn write_turns_for_ever(database: &Path) -> ! {
    let store = Store::open(database).expect("opens").store;
    for n in 0_u64.. {
        let text = format!("question-{}-{n}", std::process::id());
        let turn = store.begin_turn(&NewTurn { text: text.clone(), ..NewTurn::default() }).expect("stored");
        say(&format!("committed {} {text}", turn.chat.id));
        let part = "answer ".repeat(n as usize % 300);
        store.save_part(turn.assistant.id, &part, "").expect("stored");
        if n % 2 == 0 {
            let text = format!("answer-{}-{n}", std::process::id());
            let end = Some(EndReason::Complete);
            store.finish(&Message { text: text.clone(), end, ..turn.assistant }).expect("stored");
            say(&format!("committed {} {text}", turn.chat.id));
        }
    }
    unreachable!("the parent kills it")
}

fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the parent listens");
}

fn start_on_a_full_disk(dir: &Path) {
    let database = dir.join("tandem.db");
    let ask = |text: &str| NewTurn { text: text.into(), title: text.into(), ..NewTurn::default() };

    // With an old database: its chats are shown; a new one is refused or not kept, and the person is told which.
    Store::open(&database).expect("opens").store.begin_turn(&ask("old")).expect("stored");
    let filler = fill(dir);
    let opened = Store::open(&database).expect("opens");
    assert_eq!(opened.store.chats().expect("reads")[0].title, "old");
    match opened.store.begin_turn(&ask("new")) {
        Ok(_) => assert!(!opened.notices.is_empty(), "not kept, and not said"),
        Err(error) => assert_eq!(tandem_core::error::Explain::explain(&error).code, ErrorCode::DiskFull),
    }
    drop(opened);
    fs::remove_file(filler).expect("there");
    let opened = Store::open(&database).expect("opens");
    assert!(opened.notices.is_empty(), "{:?}", opened.notices);
    assert_eq!(opened.store.chats().expect("reads").len(), 1);
    drop(opened);

    // Without one: it starts all the same.
    fill(dir);
    let opened = Store::open(&dir.join("other.db")).expect("opens");
    assert_eq!(opened.notices[0].code, ErrorCode::DiskFull);
    opened.store.begin_turn(&ask("new")).expect("works in memory");
}

/// Writes until nothing more fits.
fn fill(dir: &Path) -> PathBuf {
    use std::io::Write;
    let path = dir.join("filler");
    let mut file = fs::File::create(&path).expect("made");
    for block in [4096, 512, 1] {
        while file.write_all(&vec![0; block]).is_ok() {}
    }
    path
}
