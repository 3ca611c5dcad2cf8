//! Folders as other programs write them, built file by file; each layout's source is named in `layouts`.

use super::*;

/// What is listed, in short: name, programs, role and file name of each file.
fn told(library: &Library) -> Vec<String> {
    let one = |model: LibraryModel| {
        let programs: Vec<&str> = model.places.iter().map(|place| place.program.name()).collect();
        let files: Vec<String> = model
            .files
            .iter()
            .map(|file| format!("{:?} {}", file.role, Path::new(&file.path).file_name().unwrap().to_string_lossy()))
            .collect();
        format!("{} [{}] {}", model.name, programs.join(", "), files.join(", "))
    };
    let mut told: Vec<String> = library.list().into_iter().map(one).collect();
    told.sort();
    told
}

fn mmproj() -> Writer {
    Writer::new("clip").meta("general.type", "mmproj").tensor_f32("v.patch_embd.weight", &[1], &[0.0])
}

/// `registry/namespace/model/tag` of layers, each a media type and its bytes.
fn ollama_model(fixture: &Fixture, root: &str, name: &str, layers: &[(&str, &[u8])]) {
    let mut told = Vec::new();
    for (kind, bytes) in layers {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let blob = fixture.path(&format!("{root}/blobs/sha256-{hex}"));
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(blob, bytes).unwrap();
        told.push(serde_json::json!({
            "mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": format!("sha256:{hex}"), "size": bytes.len(),
        }));
    }
    let config = serde_json::json!({ "mediaType": "application/vnd.docker.container.image.v1+json", "digest": format!("sha256:{}", "0".repeat(64)), "size": 2 });
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "config": config, "layers": told,
    });
    let path = fixture.path(&format!("{root}/manifests/{name}"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn ollamas_manifests_give_names_tags_hashes_and_projectors() {
    let fixture = Fixture::new();
    let root = "home/.ollama/models";
    let (model, vision) = (named("a").to_bytes().unwrap(), mmproj().to_bytes().unwrap());
    let template: &[u8] = b"{{ .Prompt }}";
    ollama_model(
        &fixture,
        root,
        "registry.ollama.ai/library/gemma3/4b",
        &[("model", &model), ("projector", &vision), ("template", template)],
    );
    ollama_model(
        &fixture,
        root,
        "registry.ollama.ai/library/gemma3/latest",
        &[("model", &model), ("projector", &vision), ("template", template)],
    );
    let other = named("b").to_bytes().unwrap();
    ollama_model(&fixture, root, "hf.co/unsloth/测试-GGUF/Q8_0", &[("model", &other), ("template", template)]);
    fs::write(fixture.path("home/.ollama/models/manifests/registry.ollama.ai/library/gemma3/half"), "{").unwrap();
    let gone = fixture.path("home/.ollama/models/manifests/registry.ollama.ai/library/gone/1b");
    fs::create_dir_all(gone.parent().unwrap()).unwrap();
    let layer = serde_json::json!({ "mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{}", "1".repeat(64)), "size": 1 });
    fs::write(gone, serde_json::json!({ "schemaVersion": 2, "layers": [layer] }).to_string()).unwrap();

    let library = fixture.open();
    let offered = library.folders();
    assert_eq!(offered.len(), 1);
    assert_eq!((offered[0].program, offered[0].n_models, offered[0].is_used), (Program::Ollama, 2, false));
    assert_eq!(offered[0].size_bytes, (model.len() + vision.len() + other.len()) as u64);
    assert!(library.list().is_empty(), "only offered");

    let used = library.use_folder(Path::new(&offered[0].path)).unwrap();
    let problems: Vec<&str> = used.problems.iter().map(|problem| problem.message.en.as_str()).collect();
    assert!(problems.iter().any(|problem| problem.contains("gone:1b")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("half")), "{problems:?}");
    let hash = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        told(&library),
        [
            format!("gemma3:4b [Ollama, Ollama] Model sha256-{}, Projector sha256-{}", hash(&model), hash(&vision)),
            format!("hf.co/unsloth/测试-GGUF:Q8_0 [Ollama] Model sha256-{}", hash(&other)),
        ]
    );
    let listed = library.list();
    assert!(listed.iter().all(|model| model.files[0].expected_sha256.is_some() && model.refusal.is_none()));
    let verified = library.verify(&listed[0].id, &mut |_| ()).unwrap();
    assert_eq!(verified.integrity, Integrity::Verified);

    // Deleting takes both tags and what no other model needs; the shared template stays.
    let refused = library.remove(&remove(&listed[1].id, &[])).unwrap_err();
    assert!(refused.message.en.contains("Ollama"), "{refused:?}");
    let gemma = listed.iter().find(|model| model.name == "gemma3:4b").unwrap();
    let planned = library.plan_removal(&remove(&gemma.id, &[Program::Ollama])).unwrap();
    assert_eq!(planned.files.len(), 4, "two manifests, model, projector: {planned:?}");
    library.remove(&remove(&gemma.id, &[Program::Ollama])).unwrap();
    assert_eq!(library.list().len(), 1);
    assert!(fixture.path(&format!("{root}/blobs/sha256-{}", hash(template))).is_file());
    assert!(!fixture.path(&format!("{root}/blobs/sha256-{}", hash(&model))).exists());

    library.drop_folder(Path::new(&used.path)).unwrap();
    assert!(library.list().is_empty() && fixture.open().list().is_empty());
    assert!(fixture.path(&format!("{root}/blobs/sha256-{}", hash(&other))).is_file(), "nothing else is touched");
}

#[test]
fn lm_studios_folders_tell_the_repo_and_group_shards_and_projectors() {
    let fixture = Fixture::new();
    let root = "home/.lmstudio/models";
    let shards = llama().split(2);
    for (n, shard) in shards.iter().enumerate() {
        fixture.write(&format!("{root}/发布者/大模型 GGUF/big-Q8_0-0000{}-of-00002.gguf", n + 1), shard);
    }
    fixture.write(&format!("{root}/发布者/大模型 GGUF/mmproj-F16.gguf"), &mmproj());
    fixture.write(&format!("{root}/p/cut/cut-Q8_0-00001-of-00002.gguf"), &named("cut").split(2)[0]);
    fixture.write(&format!("{root}/p/q/🙂-Q8_0.gguf"), &named("q"));

    let library = fixture.open();
    library.use_folder(&fixture.path(root)).unwrap();
    assert_eq!(
        told(&library),
        [
            "big [LM Studio] Model big-Q8_0-00001-of-00002.gguf, Model big-Q8_0-00002-of-00002.gguf, Projector mmproj-F16.gguf",
            "cut [LM Studio] Model cut-Q8_0-00001-of-00002.gguf",
            "🙂 [LM Studio] Model 🙂-Q8_0.gguf",
        ]
    );
    let big = library.list().into_iter().find(|model| model.name == "big").unwrap();
    let source = big.source.unwrap();
    assert_eq!((source.repo.as_str(), source.path.as_str()), ("发布者/大模型 GGUF", "big-Q8_0-00001-of-00002.gguf"));
    let cut = library.list().into_iter().find(|model| model.name == "cut").unwrap().refusal.unwrap();
    assert!(cut.message.en.contains("`cut-Q8_0-00002-of-00002.gguf`"), "{cut:?}");
}

/// A repo in Hugging Face's cache; links where the system allows them.
#[cfg(unix)]
fn hugging_face_file(fixture: &Fixture, root: &str, repo: &str, commit: &str, path: &str, bytes: &[u8]) {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = fixture.path(&format!("{root}/models--{}", repo.replace('/', "--")));
    let link = folder.join("snapshots").join(commit).join(path);
    for folder in [folder.join("blobs"), folder.join("refs"), link.parent().unwrap().to_owned()] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(folder.join("blobs").join(&hex), bytes).unwrap();
    let up = "../".repeat(path.matches('/').count() + 2);
    std::os::unix::fs::symlink(format!("{up}blobs/{hex}"), link).unwrap();
    fs::write(folder.join("refs/main"), commit).unwrap();
}

#[cfg(unix)]
#[test]
fn hugging_faces_cache_is_read_through_its_links() {
    let fixture = Fixture::new();
    let root = "home/.cache/huggingface/hub";
    let (old, new) = ("a".repeat(40), "b".repeat(40));
    let (model, vision, before) =
        (named("m").to_bytes().unwrap(), mmproj().to_bytes().unwrap(), named("old").to_bytes().unwrap());
    let repo = "unsloth/m-GGUF";
    hugging_face_file(&fixture, root, repo, &old, "m-Q8_0.gguf", &before);
    hugging_face_file(&fixture, root, repo, &old, "mmproj-F16.gguf", &vision);
    hugging_face_file(&fixture, root, repo, &new, "m-Q8_0.gguf", &model);
    hugging_face_file(&fixture, root, repo, &new, "mmproj-F16.gguf", &vision);
    hugging_face_file(&fixture, root, repo, &new, "Q4_0/m-Q4_0.gguf", &named("sub").to_bytes().unwrap());
    let dangling = fixture.path(&format!("{root}/models--unsloth--m-GGUF/snapshots/{new}/gone-Q8_0.gguf"));
    std::os::unix::fs::symlink("../../blobs/nothing", &dangling).unwrap();

    let library = fixture.open();
    let used = library.use_folder(&fixture.path(root)).unwrap();
    assert!(used.problems.iter().any(|problem| problem.message.en.contains("gone-Q8_0.gguf")), "{:?}", used.problems);
    assert_eq!(
        told(&library),
        [
            "m [Hugging Face] Model m-Q4_0.gguf, Projector mmproj-F16.gguf",
            "m [Hugging Face] Model m-Q8_0.gguf, Projector mmproj-F16.gguf",
            "m [Hugging Face] Model m-Q8_0.gguf, Projector mmproj-F16.gguf",
        ]
    );
    let current = library.list().into_iter().find(|model| model.path.contains(&new) && model.quant == "Q8_0").unwrap();
    let source = current.source.clone().unwrap();
    assert_eq!((source.repo.as_str(), source.commit.as_str()), (repo, new.as_str()));
    assert_eq!(source.sha256.unwrap(), sha256(&named("m")));
    assert_eq!(current.files[0].expected_sha256.as_deref(), Some(sha256(&named("m")).as_str()));
    assert_eq!(library.verify(&current.id, &mut |_| ()).unwrap().integrity, Integrity::Verified);

    let planned = library.plan_removal(&remove(&current.id, &[Program::HuggingFace])).unwrap();
    assert_eq!(planned.freed_bytes, model.len() as u64, "the link is nothing, and the old commit needs the projector");
    library.remove(&remove(&current.id, &[Program::HuggingFace])).unwrap();
    assert!(library.get(&current.id).is_err());
    assert!(fixture.path(&format!("{root}/models--unsloth--m-GGUF/blobs/{}", sha256(&mmproj()))).is_file());
}

/// As after a commit that changed something else: one blob, linked from two snapshots.
#[cfg(unix)]
#[test]
fn a_blob_that_two_snapshots_share_goes_when_both_go() {
    let fixture = Fixture::new();
    let root = "home/.cache/huggingface/hub";
    let model = named("m").to_bytes().unwrap();
    for commit in ["a".repeat(40), "b".repeat(40)] {
        hugging_face_file(&fixture, root, "p/m-GGUF", &commit, "m-Q8_0.gguf", &model);
    }
    let library = fixture.open();
    library.use_folder(&fixture.path(root)).unwrap();
    let listed = library.list();
    assert_eq!((listed.len(), listed[0].places.len()), (1, 2));
    let removal = library.remove(&remove(&listed[0].id, &[Program::HuggingFace])).unwrap();
    assert_eq!((removal.files.len(), removal.freed_bytes), (3, model.len() as u64), "{removal:?}");
    let blob = fixture.path(&format!("{root}/models--p--m-GGUF/blobs/{}", sha256(&named("m"))));
    assert!(!blob.exists() && library.list().is_empty() && fixture.open().list().is_empty());
}

#[test]
fn models_that_turn_out_to_be_one_stay_one_and_their_hash_is_kept() {
    let fixture = Fixture::new();
    let bytes = named("m").to_bytes().unwrap();
    ollama_model(&fixture, "home/.ollama/models", "registry.ollama.ai/library/m/8b", &[("model", &bytes)]);
    let second = fixture.write("home/.lmstudio/models/p/r/m-Q8_0.gguf", &named("m"));
    let library = fixture.open();
    for root in ["home/.ollama/models", "home/.lmstudio/models"] {
        library.use_folder(&fixture.path(root)).unwrap();
    }
    assert_eq!(library.list().len(), 2, "nothing is known of the second yet");
    for model in library.list() {
        library.verify(&model.id, &mut |_| ()).unwrap();
    }
    let whole = |library: &Library| {
        let listed = library.list();
        (listed.len(), listed[0].places.len(), listed[0].integrity, listed[0].files[0].sha256.clone())
    };
    let one = (1, 2, Integrity::Verified, Some(sha256(&named("m"))));
    library.rescan();
    assert_eq!(whole(&library), one);
    library.rescan();
    assert_eq!(whole(&library), one, "and at every later look");
    let library = fixture.open();
    library.rescan();
    assert_eq!(whole(&library), one, "after a restart");

    // Written to, it is no longer known to be the same.
    fs::write(second, named("x").to_bytes().unwrap()).unwrap();
    library.rescan();
    assert_eq!((library.list().len(), library.list()[0].places.len()), (2, 1));
}

#[test]
fn what_was_proven_of_a_place_outlives_the_others() {
    let fixture = Fixture::new();
    let bytes = named("m").to_bytes().unwrap();
    let roots = ["home/.ollama/models", "home/.lmstudio/models"];
    ollama_model(&fixture, roots[0], "registry.ollama.ai/library/m/8b", &[("model", &bytes)]);
    let second = fixture.write("home/.lmstudio/models/p/r/m-Q8_0.gguf", &named("m"));
    // Two files of two programs were not written at once.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
    fs::File::options().write(true).open(&second).unwrap().set_modified(later).unwrap();
    for order in [[0, 1], [1, 0]] {
        let library = fixture.open();
        for n in order {
            let root = fixture.path(roots[n]);
            library.use_folder(&root).unwrap();
        }
        for model in library.list() {
            library.verify(&model.id, &mut |_| ()).unwrap();
        }
        library.rescan();
        assert_eq!((library.list().len(), library.list()[0].integrity), (1, Integrity::Verified));
        // One place goes: the other was proven too.
        let library = fixture.open();
        library.drop_folder(&fixture.path(roots[order[0]])).unwrap();
        library.rescan();
        let left = library.list().remove(0);
        let file = &left.files[0];
        let promised = Some(sha256(&named("m")));
        assert_eq!((&file.sha256, &file.expected_sha256), (&promised, &promised), "{order:?}");
        assert_eq!((left.integrity, library.list().len()), (Integrity::Verified, 1));
        library.drop_folder(&fixture.path(roots[order[1]])).unwrap();
    }
}

#[test]
fn damage_to_a_copy_that_was_found_right_is_known_by_what_it_was() {
    let fixture = Fixture::new();
    let bytes = named("m").to_bytes().unwrap();
    ollama_model(&fixture, "home/.ollama/models", "registry.ollama.ai/library/m/8b", &[("model", &bytes)]);
    let second = fixture.write("home/.lmstudio/models/p/r/m-Q8_0.gguf", &named("m"));
    let library = fixture.open();
    for root in ["home/.ollama/models", "home/.lmstudio/models"] {
        library.use_folder(&fixture.path(root)).unwrap();
    }
    for model in library.list() {
        library.verify(&model.id, &mut |_| ()).unwrap();
    }
    library.rescan();
    assert_eq!(library.list().len(), 1);
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&second, damaged).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
    fs::File::options().write(true).open(&second).unwrap().set_modified(later).unwrap();
    for _ in 0..3 {
        library.rescan();
    }
    let listed = library.list();
    assert_eq!(listed.len(), 2);
    let copy = listed.iter().find(|model| Path::new(&model.path) == second.canonicalize().unwrap()).unwrap();
    assert_eq!(library.verify(&copy.id, &mut |_| ()).unwrap().integrity, Integrity::Mismatched);
    let other = listed.iter().find(|model| model.id != copy.id).unwrap();
    assert_eq!(other.integrity, Integrity::Verified, "the other one is what it was");
}

#[test]
fn ollamas_names_are_kept_and_adapters_are_refused_by_name() {
    let fixture = Fixture::new();
    let (root, base) = ("home/.ollama/models", named("base").to_bytes().unwrap());
    for name in ["registry.ollama.ai/library/smollm/135m", "registry.ollama.ai/library/smollm/latest"] {
        ollama_model(&fixture, root, name, &[("model", &base)]);
    }
    let lora = named("lora").to_bytes().unwrap();
    ollama_model(&fixture, root, "registry.ollama.ai/library/mine/latest", &[("model", &base), ("adapter", &lora)]);
    let library = fixture.open();
    let used = library.use_folder(&fixture.path(root)).unwrap();
    let listed = library.list();
    let titles: Vec<&str> = listed[0].places.iter().filter_map(|place| place.title.as_deref()).collect();
    assert_eq!((listed.len(), titles.as_slice()), (1, ["smollm:135m", "smollm:latest"].as_slice()));
    let problems: Vec<&str> = used.problems.iter().map(|problem| problem.message.en.as_str()).collect();
    assert!(
        problems.len() == 1 && problems[0].contains("`mine:latest`") && problems[0].contains("adapter"),
        "{problems:?}"
    );
    let planned = library.plan_removal(&remove(&listed[0].id, &[Program::Ollama])).unwrap();
    let are_manifests = planned.files.iter().all(|file| file.contains("/manifests/"));
    assert!(planned.files.len() == 2 && are_manifests, "both names; `mine` needs the blob: {planned:?}");
}

#[test]
fn hugging_faces_cache_without_links_takes_hashes_from_the_tree() {
    let fixture = Fixture::new();
    let root = "cache/hub";
    let commit = "c".repeat(40);
    fixture.write(&format!("{root}/models--p--r/snapshots/{commit}/m-Q8_0.gguf"), &llama());
    let tree = serde_json::json!({ "format_version": 1, "files": { "m-Q8_0.gguf": { "size": 1, "blob_id": "x", "lfs_sha256": sha256(&llama()) } } });
    let path = fixture.path(&format!("{root}/models--p--r/trees/{commit}.json"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, tree.to_string()).unwrap();
    let library = fixture.open();
    let used = library.use_folder(&fixture.path(root)).unwrap();
    assert_eq!(used.program, Program::HuggingFace, "known by its layout");
    let model = library.list().remove(0);
    assert_eq!(library.verify(&model.id, &mut |_| ()).unwrap().integrity, Integrity::Verified);
}

#[test]
fn llama_cpps_cache_is_taken_apart_by_its_manifests_and_notes() {
    let fixture = Fixture::new();
    let root = "home/.cache/llama.cpp";
    let prefix = "ggml-org_gemma-3-4b-it-GGUF_";
    fixture.write(&format!("{root}/{prefix}gemma-3-4b-it-Q8_0.gguf"), &named("g"));
    fixture.write(&format!("{root}/{prefix}mmproj-model-f16.gguf"), &mmproj());
    let manifest = serde_json::json!({
        "ggufFile": { "rfilename": "gemma-3-4b-it-Q8_0.gguf", "blobId": "x", "size": 1, "lfs": { "sha256": sha256(&named("g")), "size": 1, "pointerSize": 1 } },
        "mmprojFile": { "rfilename": "mmproj-model-f16.gguf", "blobId": "y", "size": 1, "lfs": { "sha256": sha256(&mmproj()), "size": 1, "pointerSize": 1 } },
    });
    fs::write(fixture.path(&format!("{root}/manifest=ggml-org=gemma-3-4b-it-GGUF=Q8_0.json")), manifest.to_string())
        .unwrap();
    fixture.write(&format!("{root}/bartowski_Small-GGUF_Small-Q8_0.gguf"), &named("s"));
    let note = r#"{"etag":"\"0123\"","lastModified":"","url":"https://huggingface.co/bartowski/Small-GGUF/resolve/main/Small-Q8_0.gguf"}"#;
    fs::write(fixture.path(&format!("{root}/bartowski_Small-GGUF_Small-Q8_0.gguf.json")), note).unwrap();
    fixture.write(&format!("{root}/who_knows-Q8_0.gguf"), &named("w"));
    fs::write(fixture.path(&format!("{root}/who_knows-Q8_0.gguf.etag")), "\"abc\"").unwrap();

    let library = fixture.open();
    library.use_folder(&fixture.path(root)).unwrap();
    assert_eq!(
        told(&library),
        [
            "Small [llama.cpp] Model bartowski_Small-GGUF_Small-Q8_0.gguf".to_owned(),
            format!(
                "gemma-3-4b-it [llama.cpp] Model {prefix}gemma-3-4b-it-Q8_0.gguf, Projector {prefix}mmproj-model-f16.gguf"
            ),
            "who_knows [llama.cpp] Model who_knows-Q8_0.gguf".to_owned(),
        ]
    );
    let find = |name: &str| library.list().into_iter().find(|model| model.name == name).unwrap();
    assert_eq!(find("Small").source.unwrap().repo, "bartowski/Small-GGUF");
    assert_eq!(library.verify(&find("gemma-3-4b-it").id, &mut |_| ()).unwrap().integrity, Integrity::Verified);
    let planned = library.plan_removal(&remove(&find("Small").id, &[Program::LlamaCpp])).unwrap();
    assert!(planned.files.iter().any(|path| path.ends_with(".gguf.json")), "its note goes too: {planned:?}");
}

#[test]
fn jans_notes_name_model_and_projector() {
    let fixture = Fixture::new();
    let data = "home/.local/share/Jan/data";
    fixture.write(&format!("{data}/llamacpp/models/unsloth/Qwen3_4B_Q8_0/model.gguf"), &named("j"));
    fixture.write(&format!("{data}/llamacpp/models/unsloth/Qwen3_4B_Q8_0/mmproj.gguf"), &mmproj());
    let imported = fixture.write("elsewhere/mine-Q8_0.gguf", &named("i"));
    let note = format!(
        "model_path: llamacpp/models/unsloth/Qwen3_4B_Q8_0/model.gguf\nmmproj_path: 'llamacpp/models/unsloth/Qwen3_4B_Q8_0/mmproj.gguf'\n\
         name: unsloth/Qwen3_4B_Q8_0\nsize_bytes: 3\nmodel_sha256: {}\nembedding: false\n",
        sha256(&named("j"))
    );
    fs::write(fixture.path(&format!("{data}/llamacpp/models/unsloth/Qwen3_4B_Q8_0/model.yml")), note).unwrap();
    let note = format!(
        "model_path: \"{}\"\nname: mine-Q8_0\nsize_bytes: 3\n",
        imported.display().to_string().replace('\\', "/")
    );
    fs::create_dir_all(fixture.path(&format!("{data}/llamacpp/models/mine"))).unwrap();
    fs::write(fixture.path(&format!("{data}/llamacpp/models/mine/model.yml")), note).unwrap();

    let library = fixture.open();
    assert_eq!(
        library.folders().iter().map(|folder| (folder.program, folder.n_models)).collect::<Vec<_>>(),
        [(Program::Jan, 2)]
    );
    library.use_folder(&fixture.path(&format!("{data}/llamacpp/models"))).unwrap();
    assert_eq!(
        told(&library),
        ["Qwen3_4B [Jan] Model model.gguf, Projector mmproj.gguf", "mine [Jan] Model mine-Q8_0.gguf"]
    );
    let find = |name: &str| library.list().into_iter().find(|model| model.name == name).unwrap();
    assert_eq!(library.verify(&find("Qwen3_4B").id, &mut |_| ()).unwrap().integrity, Integrity::Verified);
    library.remove(&remove(&find("mine").id, &[Program::Jan])).unwrap();
    assert!(imported.is_file(), "a file that Jan only points at is not Jan's to give");
}
