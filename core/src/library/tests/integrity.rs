//! Verify: right, damaged, unknown, stopped; and what the hub says about it.

use super::*;
use crate::wire::VerifyProgress;

#[test]
fn one_flipped_byte_is_found_and_a_second_file_counts_too() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/m-Q8_0.gguf", &llama());
    let library = fixture.open();
    let id = library.add_download(std::slice::from_ref(&path), &[file(Some(&sha256(&llama())))]).unwrap().id;
    let mut last = None;
    let verified = library.verify(&id, &mut |progress| last = Some(progress)).unwrap();
    let n_bytes = path.metadata().unwrap().len();
    assert_eq!(verified.integrity, Integrity::Verified);
    assert_eq!(last, Some(VerifyProgress { done_bytes: n_bytes, total_bytes: n_bytes }));

    // Damage that leaves size and time as they were.
    let modified = path.metadata().unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(library.verify(&id, &mut |_| ()).unwrap().integrity, Integrity::Mismatched);
    assert_eq!(fixture.open().get(&id).unwrap().integrity, Integrity::Mismatched, "after a restart");
}

/// As a failing disk, a careless tool or a virus leaves it: other bytes, and the time of the last change tells.
#[test]
fn damage_is_a_mismatch_and_never_a_newer_version() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/tiny.gguf", &llama());
    let right = fs::read(&path).unwrap();
    let library = fixture.open();
    let promised = RepoFile { size_bytes: right.len() as u64, ..file(Some(&sha256(&llama()))) };
    let id = library.add_download(std::slice::from_ref(&path), std::slice::from_ref(&promised)).unwrap().id;
    let mut bytes = right.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();

    library.rescan();
    assert_eq!(library.get(&id).unwrap().integrity, Integrity::Unverified, "nobody has read it yet");
    assert!(library.find(&promised).is_none(), "so it is not what the hub has");
    assert_eq!(library.compare_with("p/r", std::slice::from_ref(&promised)).unwrap(), (1, 0));
    let library = fixture.open();
    assert_eq!(library.verify(&id, &mut |_| ()).unwrap().integrity, Integrity::Mismatched, "after a restart too");
    assert_eq!(library.compare_with("p/r", std::slice::from_ref(&promised)).unwrap(), (1, 0));
    let damaged = library.get(&id).unwrap();
    assert_eq!(
        (damaged.integrity, damaged.newer, damaged.source),
        (Integrity::Mismatched, None, Some(promised.clone()))
    );

    // An intact copy elsewhere is another model, until the damage is undone.
    fixture.write("home/.lmstudio/models/p/r/tiny.gguf", &llama());
    library.use_folder(&fixture.path("home/.lmstudio/models")).unwrap();
    assert_eq!(library.list().len(), 2);
    fs::write(&path, right).unwrap();
    library.rescan();
    assert_eq!(library.verify(&id, &mut |_| ()).unwrap().integrity, Integrity::Verified);
    assert_eq!(library.find(&promised).unwrap().id, id);
}

#[test]
fn a_hash_that_nobody_promised_is_kept_and_can_be_looked_up() {
    let fixture = Fixture::new();
    fixture.write("home/.lmstudio/models/p/r/m-Q8_0.gguf", &llama());
    let library = fixture.open();
    library.use_folder(&fixture.path("home/.lmstudio/models")).unwrap();
    let id = library.list()[0].id.clone();
    let checked = library.verify(&id, &mut |_| ()).unwrap();
    assert_eq!(checked.integrity, Integrity::Unverified);
    assert_eq!(checked.files[0].sha256.as_deref(), Some(sha256(&llama()).as_str()));

    // The repo has it under another name by now, and something else under this one.
    let size_bytes = checked.size_bytes;
    let there = |path: &str, sha256: &str| RepoFile { path: path.into(), size_bytes, ..file(Some(sha256)) };
    let other = "0".repeat(64);
    library.compare_with("p/r", &[there("m-Q8_0.gguf", &other)]).unwrap();
    let model = library.get(&id).unwrap();
    assert_eq!((model.integrity, model.newer.unwrap().sha256.unwrap()), (Integrity::Unverified, other.clone()));
    let counts =
        library.compare_with("p/r", &[there("m-Q8_0.gguf", &other), there("old.gguf", &sha256(&llama()))]).unwrap();
    assert_eq!(counts, (1, 0));
    let model = library.get(&id).unwrap();
    assert_eq!((model.integrity, model.newer), (Integrity::Verified, None));
    assert_eq!(fixture.open().get(&id).unwrap().integrity, Integrity::Verified, "after a restart");
}

#[test]
fn a_newer_version_upstream_is_seen_by_hash_and_without_one_by_size() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/tiny.gguf", &llama());
    let library = fixture.open();
    let id = library.list()[0].id.clone();
    let n_bytes = path.metadata().unwrap().len();
    let there = |size_bytes: u64| RepoFile { size_bytes, ..file(Some(&"1".repeat(64))) };
    assert_eq!(library.compare_with("p/r", &[there(n_bytes)]).unwrap(), (1, 0), "nobody knows");
    assert_eq!(library.compare_with("p/r", &[there(n_bytes + 1)]).unwrap(), (1, 1));
    library.add_download(&[path], &[RepoFile { size_bytes: n_bytes, ..file(Some(&sha256(&llama()))) }]).unwrap();
    assert_eq!(library.compare_with("p/r", &[there(n_bytes)]).unwrap(), (1, 1));
    assert!(library.get(&id).unwrap().newer.is_some());
    assert_eq!(library.compare_with("x/y", &[]).unwrap(), (0, 0));
    assert_eq!(library.repos(), ["p/r"]);
}

#[test]
fn a_check_can_be_stopped_and_only_one_runs() {
    let fixture = Fixture::new();
    let path = fixture.write("x/big-Q8_0.gguf", &llama());
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(16 << 20).unwrap();
    drop(file);
    let library = fixture.open();
    let id = library.add(&path).unwrap().id;
    let mut n_steps = 0;
    let stopped = library.verify(&id, &mut |_| {
        n_steps += 1;
        assert_eq!(library.verify(&id, &mut |_| ()).unwrap_err().explain().code, ErrorCode::Busy);
        library.stop_verify(&id);
    });
    assert_eq!((stopped.unwrap_err().explain().code, n_steps), (ErrorCode::Cancelled, 1));
    assert_eq!(library.get(&id).unwrap().files[0].sha256, None);
    assert!(library.verify(&id, &mut |_| ()).is_ok(), "and can begin again");
}

#[test]
fn a_file_that_is_written_to_meanwhile_is_not_judged() {
    let fixture = Fixture::new();
    let path = fixture.write("x/m-Q8_0.gguf", &llama());
    let library = fixture.open();
    let id = library.add(&path).unwrap().id;
    let failure = library.verify(&id, &mut |_| fs::write(&path, named("later").to_bytes().unwrap()).unwrap());
    assert_eq!(failure.unwrap_err().explain().code, ErrorCode::Busy);
}

#[test]
fn damaged_shards_are_named_by_their_own_hashes() {
    let fixture = Fixture::new();
    let shards = llama().split(2);
    let paths: Vec<PathBuf> =
        (1..=2).map(|n| fixture.write_own(&format!("p/r/m-Q8_0-0000{n}-of-00002.gguf"), &shards[n - 1])).collect();
    let promised: Vec<RepoFile> = shards.iter().map(|shard| file(Some(&sha256(shard)))).collect();
    let library = fixture.open();
    let model = library.add_download(&paths, &promised).unwrap();
    assert_eq!((model.integrity, library.list().len()), (Integrity::Verified, 1));
    let mut bytes = fs::read(&paths[1]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let modified = paths[1].metadata().unwrap().modified().unwrap();
    fs::write(&paths[1], bytes).unwrap();
    fs::File::options().write(true).open(&paths[1]).unwrap().set_modified(modified).unwrap();
    let checked = library.verify(&model.id, &mut |_| ()).unwrap();
    let wrong: Vec<&str> = checked
        .files
        .iter()
        .filter(|file| file.sha256 != file.expected_sha256)
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(checked.integrity, Integrity::Mismatched);
    assert!(wrong.len() == 1 && wrong[0].ends_with("00002-of-00002.gguf"), "{wrong:?}");
}
