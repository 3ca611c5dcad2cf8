//! The same file in several places, folders that misbehave, and what a rescan makes of changes.

use super::*;

#[cfg(unix)]
#[test]
fn the_same_file_found_by_links_is_one_model_with_all_its_places() {
    let fixture = Fixture::new();
    let own = fixture.write_own("p/r/m-Q8_0.gguf", &llama());
    let lm_studio = fixture.path("home/.lmstudio/models/p/r");
    fs::create_dir_all(&lm_studio).unwrap();
    fs::hard_link(&own, lm_studio.join("m-Q8_0.gguf")).unwrap();
    let loose = fixture.path("loose");
    fs::create_dir_all(&loose).unwrap();
    std::os::unix::fs::symlink(&own, loose.join("other name.gguf")).unwrap();

    let library = fixture.open();
    let id = library.list()[0].id.clone();
    for folder in ["home/.lmstudio/models", "loose"] {
        library.use_folder(&fixture.path(folder)).unwrap();
    }
    let listed = library.list();
    let programs: Vec<Program> = listed[0].places.iter().map(|place| place.program).collect();
    assert_eq!((listed.len(), listed[0].id.as_str()), (1, id.as_str()));
    assert_eq!(programs, [Program::Tandem, Program::LmStudio, Program::Other]);

    // Two names of the same bytes: removing one frees nothing, and the model stays where the other is, but not by a link.
    let planned = library.plan_removal(&remove(&id, &[])).unwrap();
    assert_eq!((planned.freed_bytes, planned.files.len(), planned.stays.len()), (0, 1, 1));
    let all = library.plan_removal(&remove(&id, &[Program::LmStudio])).unwrap();
    assert_eq!(all.freed_bytes, own.metadata().unwrap().len());
    for _ in 0..3 {
        let refused = library.remove(&remove(&id, &[])).unwrap_err();
        assert!(refused.message.en.contains("other name.gguf") && own.is_file(), "{refused:?}");
        library.rescan();
    }
    library.remove(&remove(&id, &[Program::Other])).unwrap();
    assert!(!own.exists());
    let left = library.get(&id).unwrap();
    assert_eq!(left.places.iter().map(|place| place.program).collect::<Vec<_>>(), [Program::LmStudio]);
    assert_eq!((left.refusal, Path::new(&left.path).is_file()), (None, true));
    fixture.open().rescan();
    assert_eq!(fixture.open().list().len(), 1, "after a restart");
}

#[test]
fn copies_are_one_model_as_soon_as_their_hashes_are_known() {
    let fixture = Fixture::new();
    fixture.write_own("p/r/m-Q8_0.gguf", &llama());
    fixture.write("other/copy-Q8_0.gguf", &llama());
    fixture.write("other/different-Q8_0.gguf", &named("d"));
    let library = fixture.open();
    library.use_folder(&fixture.path("other")).unwrap();
    assert_eq!(library.list().len(), 3);
    for model in library.list() {
        library.verify(&model.id, &mut |_| ()).unwrap();
    }
    library.rescan();
    let names: Vec<String> = library.list().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["m", "different"]);
    assert_eq!(library.list()[0].places.len(), 2);

    // One of the copies is written over: two models again.
    fs::write(fixture.path("other/copy-Q8_0.gguf"), named("changed").to_bytes().unwrap()).unwrap();
    library.rescan();
    let mut names: Vec<String> = library.list().into_iter().map(|model| model.name).collect();
    names.sort();
    assert_eq!(names, ["copy", "different", "m"]);
}

#[test]
fn what_other_programs_add_and_remove_is_followed() {
    let fixture = Fixture::new();
    let first = fixture.write("home/.lmstudio/models/p/r/a-Q8_0.gguf", &named("a"));
    let library = fixture.open();
    library.use_folder(&fixture.path("home/.lmstudio/models")).unwrap();
    fixture.write("home/.lmstudio/models/p/r/b-Q8_0.gguf", &named("b"));
    fixture.write("home/.lmstudio/models/p/r/mtp-a-Q8_0.gguf", &named("draft"));
    library.rescan();
    let drafts =
        |model: &LibraryModel| model.files.iter().filter(|file| file.role == crate::wire::FileRole::Draft).count();
    assert_eq!(
        library.list().iter().map(|model| (model.name.clone(), drafts(model))).collect::<Vec<_>>(),
        [("a".into(), 1), ("b".into(), 0)]
    );
    fs::remove_file(first).unwrap();
    library.rescan();
    assert_eq!(library.list().len(), 1, "gone with the file");

    // A drive that is not connected takes nothing out.
    fs::rename(fixture.path("home/.lmstudio"), fixture.path("away")).unwrap();
    library.rescan();
    assert_eq!(library.list()[0].refusal.as_ref().unwrap().code, ErrorCode::ModelMissing);
    fs::rename(fixture.path("away"), fixture.path("home/.lmstudio")).unwrap();
    library.rescan();
    assert_eq!(library.list()[0].refusal, None);
}

#[test]
fn a_file_that_vanished_is_said_when_it_is_used() {
    let fixture = Fixture::new();
    let path = fixture.write("elsewhere/m-Q8_0.gguf", &llama());
    let library = fixture.open();
    let id = library.add(&path).unwrap().id;
    fs::remove_file(&path).unwrap();
    let failure = library.verify(&id, &mut |_| ()).unwrap_err().explain();
    assert_eq!(failure.code, ErrorCode::NotFound);
    assert!(failure.message.en.contains("m-Q8_0.gguf"), "{failure:?}");
}

#[cfg(unix)]
#[test]
fn cycles_broken_links_and_closed_folders_are_passed_over_and_named() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let fixture = Fixture::new();
    fixture.write("mine/deep/m-Q8_0.gguf", &llama());
    symlink("..", fixture.path("mine/deep/again")).unwrap();
    symlink("nowhere.gguf", fixture.path("mine/broken.gguf")).unwrap();
    fs::write(fixture.path("mine/page.gguf"), "<!DOCTYPE html>").unwrap();
    let closed = fixture.path("mine/closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let is_superuser = fs::read_dir(&closed).is_ok();

    let library = fixture.open();
    let used = library.use_folder(&fixture.path("mine")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(library.list().len(), 1);
    let problems: String = used.problems.iter().map(|problem| format!("{}\n", problem.message.en)).collect();
    assert!(problems.contains("broken.gguf` is a link to a file that is not there"), "{problems}");
    assert!(
        problems.contains("is not a GGUF file") || problems.contains("HTML") || problems.contains("web page"),
        "{problems}"
    );
    assert!(is_superuser || problems.contains("closed` cannot be read: access is denied"), "{problems}");
    assert!(library.folders()[0].problems.len() >= 2);
}

#[test]
fn files_and_folders_dropped_together_are_all_taken_in() {
    let fixture = Fixture::new();
    let file = fixture.write("下载/张三 🙂-Q8_0.gguf", &named("one"));
    fixture.write("models folder/two-Q8_0.gguf", &named("two"));
    let page = fixture.path("notes.txt");
    fs::write(&page, "words").unwrap();
    let library = fixture.open();
    let added = library.add_paths(&[file, fixture.path("models folder"), page, fixture.path("nowhere")]);
    assert_eq!((added.models.len(), added.folders.len(), added.failures.len()), (1, 1, 2));
    let names: Vec<String> = library.list().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["张三 🙂", "two"]);
    assert_eq!(added.folders[0].n_models, 1);
    library.drop_folder(Path::new(&added.folders[0].path)).unwrap();
    assert_eq!(library.list().len(), 1);
}

#[test]
fn a_shard_named_by_hand_brings_its_model() {
    let fixture = Fixture::new();
    for (n, shard) in llama().split(3).iter().enumerate() {
        fixture.write(&format!("x/m-Q8_0-0000{}-of-00003.gguf", n + 1), shard);
    }
    let library = fixture.open();
    let model = library.add(&fixture.path("x/m-Q8_0-00003-of-00003.gguf")).unwrap();
    assert_eq!((model.files.len(), model.refusal), (3, None));
    assert!(model.path.ends_with("m-Q8_0-00001-of-00003.gguf"));
    fs::remove_file(fixture.path("x/m-Q8_0-00002-of-00003.gguf")).unwrap();
    library.rescan();
    let refusal = library.list()[0].refusal.clone().unwrap();
    assert!(refusal.message.en.contains("`m-Q8_0-00002-of-00003.gguf`"), "{refusal:?}");
}

#[test]
fn files_of_one_name_do_not_replace_each_other_in_the_trash() {
    let fixture = Fixture::new();
    let library = fixture.open();
    for repo in ["a", "b"] {
        let path = fixture.write_own(&format!("p/{repo}/m-Q8_0.gguf"), &named(repo));
        let id = library.add(&path).unwrap().id;
        let removal = library.remove(&remove(&id, &[])).unwrap();
        assert_eq!(removal.files.len(), 1);
        assert!(removal.freed_bytes > 0);
    }
    assert_eq!(fs::read_dir(fixture.path("trash")).unwrap().count(), 2);
}

#[test]
fn an_entry_of_an_older_version_keeps_what_was_verified() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/m-Q8_0.gguf", &llama());
    let library = fixture.open();
    let source = RepoFile { size_bytes: path.metadata().unwrap().len(), ..file(Some(&sha256(&llama()))) };
    let mut model = library.add_download(&[path], &[source]).unwrap();
    (model.files, model.places) = (Vec::new(), Vec::new());
    fixture.store.put_model(&model).unwrap();
    let again = fixture.open().get(&model.id).unwrap();
    assert_eq!((again.integrity, again.files.len(), again.places.len()), (Integrity::Verified, 1, 1));
}
