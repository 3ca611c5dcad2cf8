//! The library against real files in folders with any name.

mod foreign;
mod integrity;
mod places;

use std::fs;

use sha2::{Digest, Sha256};
use tandem_engine::gguf::{TensorType, Writer};

use super::item::display_name;
use super::*;
use crate::wire::{ErrorCode, HashWord, Integrity, RemoveRequest};

struct Fixture {
    root: tempfile::TempDir,
    models_dir: PathBuf,
    store: Arc<Store>,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let models_dir = root.path().join("模型 é ✓");
        fs::create_dir(&models_dir).unwrap();
        let store = Arc::new(Store::open(&root.path().join("tandem.db")).unwrap().store);
        Self { root, models_dir, store }
    }

    fn open(&self) -> Library {
        let trash = Trash::Folder(self.root.path().join("trash"));
        let around = Environment { home: Some(self.root.path().join("home")), ..Environment::default() };
        Library::open(self.store.clone(), &self.models_dir, trash, around, Box::new(|_| ())).unwrap()
    }

    /// A path below the fixture, as the library writes it.
    fn path(&self, path: &str) -> PathBuf {
        dunce::canonicalize(self.root.path()).unwrap().join(path)
    }

    fn write(&self, path: &str, writer: &Writer) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, writer.to_bytes().unwrap()).unwrap();
        path
    }

    fn write_own(&self, path: &str, writer: &Writer) -> PathBuf {
        self.write(&format!("模型 é ✓/{path}"), writer)
    }
}

/// A model like `llama` with other bytes.
fn named(name: &str) -> Writer {
    llama().meta("general.basename", name)
}

fn sha256(writer: &Writer) -> String {
    Sha256::digest(writer.to_bytes().unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks for a model to be removed, with the files of these programs.
fn remove(id: &str, of_programs: &[Program]) -> RemoveRequest {
    RemoveRequest { model_id: id.to_owned(), of_programs: of_programs.to_vec() }
}

/// A model whose header is whole.
fn llama() -> Writer {
    let square = [32, 32];
    let writer = Writer::new("llama")
        .meta("general.name", "Tiny")
        .meta("llama.block_count", 1_u32)
        .meta("llama.context_length", 256_u32)
        .meta("llama.embedding_length", 32_u32)
        .meta("llama.feed_forward_length", 32_u32)
        .meta("llama.attention.head_count", 2_u32)
        .meta("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "smollm")
        .tensor_absent("token_embd.weight", &square, TensorType::Q8_0)
        .tensor_absent("output_norm.weight", &[32], TensorType::F32)
        .tensor_absent("blk.0.attn_norm.weight", &[32], TensorType::F32)
        .tensor_absent("blk.0.ffn_norm.weight", &[32], TensorType::F32);
    ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        .iter()
        .fold(writer, |writer, name| writer.tensor_absent(&format!("blk.0.{name}.weight"), &square, TensorType::Q8_0))
}

fn file(sha256: Option<&str>) -> RepoFile {
    RepoFile {
        repo: "p/r".into(),
        commit: "c".into(),
        path: "tiny.gguf".into(),
        size_bytes: 1,
        sha256: sha256.map(str::to_owned),
        hash_word: HashWord::Unknown,
    }
}

#[test]
fn a_model_is_called_what_its_file_is_called() {
    let digest = format!("sha256-{}", "0f".repeat(32));
    for (stem, quant, general_name, expected) in [
        ("SmolLM2-135M-Instruct.Q4_1", "Q4_1", Some("Smollm2 135M 8k Mix1 Ep2"), "SmolLM2-135M-Instruct"),
        ("Qwen3.6-35B-A3B-UD-Q4_K_XL", "UD-Q4_K_XL", None, "Qwen3.6-35B-A3B"),
        ("tiny-q8_0", "Q8_0", Some("Other"), "tiny"),
        ("张三的模型", "Q4_0", None, "张三的模型"),
        ("ggml-model-Q4_0", "Q4_0", Some("Llama 3"), "Llama 3"),
        ("model", "F16", None, "model"),
        ("Q4_0", "Q4_0", None, "Q4_0"),
        (digest.as_str(), "Q4_0", Some("Gemma"), "Gemma"),
    ] {
        assert_eq!(display_name(stem, quant, general_name), expected, "{stem}");
    }
}

#[test]
fn a_file_is_taken_in_where_it_lies_and_shown_once() {
    let fixture = Fixture::new();
    let path = fixture.write("elsewhere/张/tiny-Q8_0.gguf", &llama());
    let library = fixture.open();
    let model = library.add(&path).unwrap();
    assert_eq!((model.name.as_str(), model.quant.as_str(), model.n_params), ("tiny", "Q8_0", 8 * 32 * 32 + 3 * 32));
    assert_eq!((model.context_length, model.integrity), (256, Integrity::Unverified));
    assert_eq!(library.add(&path.parent().unwrap().join("../张/tiny-Q8_0.gguf")).unwrap().id, model.id);
    #[cfg(unix)]
    {
        let link = fixture.root.path().join("link.gguf");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(library.add(&link).unwrap().id, model.id);
    }
    assert_eq!(library.list().len(), 1);
    drop(library);
    assert_eq!(fixture.open().list()[0].id, model.id, "after a restart");
}

#[test]
fn what_is_no_model_is_refused_and_what_cannot_chat_is_listed() {
    let fixture = Fixture::new();
    let library = fixture.open();
    let page = fixture.root.path().join("page.gguf");
    fs::write(&page, "<!DOCTYPE html>").unwrap();
    assert_eq!(library.add(&page).unwrap_err().code, ErrorCode::NotGguf);
    assert_eq!(library.add(Path::new("/nowhere/x.gguf")).unwrap_err().code, ErrorCode::NotFound);
    assert!(library.list().is_empty());

    let cases = [
        ("mmproj.gguf", Writer::new("clip").tensor_f32("v.x", &[1], &[0.0]), ErrorCode::NotAChatModel),
        ("new.gguf", Writer::new("llama99").tensor_f32("x", &[1], &[0.0]), ErrorCode::UnknownArchitecture),
    ];
    for (name, writer, code) in cases {
        let model = library.add(&fixture.write(name, &writer)).unwrap();
        assert_eq!(model.refusal.unwrap().code, code, "{name}");
    }
    assert_eq!(library.list().len(), 2);
}

#[test]
fn the_models_folder_is_scanned_at_start() {
    let fixture = Fixture::new();
    fixture.write_own("publisher/repo/sub/tiny.gguf", &llama());
    fixture.write_own("publisher/repo/.hidden/tiny.gguf", &llama());
    fs::write(fixture.models_dir.join("half.gguf"), b"GGUF").unwrap();
    fs::write(fixture.models_dir.join("big.gguf.part"), b"GGUF").unwrap();
    let names: Vec<String> = fixture.open().list().into_iter().map(|model| model.path).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].ends_with("sub/tiny.gguf"));
}

#[test]
fn a_missing_file_is_said_and_its_return_seen() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/tiny.gguf", &llama());
    let id = fixture.open().add_download(std::slice::from_ref(&path), &[file(Some("ab"))]).unwrap().id;
    let away = fixture.root.path().join("away");
    fs::rename(&path, &away).unwrap();
    let library = fixture.open();
    assert_eq!(library.get(&id).unwrap().refusal.unwrap().code, ErrorCode::ModelMissing);
    assert!(library.find(&file(Some("ab"))).is_none());
    fs::rename(&away, &path).unwrap();
    library.rescan();
    let model = library.get(&id).unwrap();
    assert_eq!((model.refusal, model.integrity), (None, Integrity::Verified));
}

#[test]
fn only_a_compared_download_is_verified_and_a_changed_file_no_longer() {
    let fixture = Fixture::new();
    let path = fixture.write_own("p/r/tiny.gguf", &llama());
    let library = fixture.open();
    assert_eq!(
        library.add_download(std::slice::from_ref(&path), &[file(None)]).unwrap().integrity,
        Integrity::Unverified
    );
    let model = library.add_download(std::slice::from_ref(&path), &[file(Some("ab"))]).unwrap();
    assert_eq!(model.integrity, Integrity::Verified);
    assert_eq!(library.find(&file(Some("ab"))).unwrap().id, model.id);
    assert!(library.find(&file(Some("cd"))).is_none());
    assert_eq!(library.add(&path).unwrap().integrity, Integrity::Verified, "seen again, unchanged");

    fs::write(&path, llama().meta("general.tags", "longer").to_bytes().unwrap()).unwrap();
    library.rescan();
    let changed = library.get(&model.id).unwrap();
    assert_eq!((changed.integrity, changed.files[0].sha256.clone()), (Integrity::Unverified, None));
    assert_eq!(changed.files[0].expected_sha256.as_deref(), Some("ab"), "what was promised is not forgotten");
    assert!(library.find(&file(Some("ab"))).is_none(), "nobody has read it: it may be anything");
    assert_eq!(library.verify(&model.id, &mut |_| ()).unwrap().integrity, Integrity::Mismatched);
}

#[test]
fn removing_moves_own_files_to_the_trash_and_leaves_others() {
    let fixture = Fixture::new();
    let own = fixture.write_own("p/r/tiny.gguf", &llama());
    let other = fixture.write("elsewhere/tiny.gguf", &llama());
    let library = fixture.open();
    for path in [&own, &other] {
        let id = library.add(path).unwrap().id;
        library.remove(&remove(&id, &[])).unwrap();
        assert_eq!(library.remove(&remove(&id, &[])).unwrap_err().code, ErrorCode::ModelMissing);
    }
    assert!(!own.exists() && other.exists());
    assert!(fixture.root.path().join("trash/tiny.gguf").is_file());
    assert_eq!(fs::read_dir(&fixture.models_dir).unwrap().count(), 0, "no empty folders are left");
    assert!(fixture.open().list().is_empty());
}
