//! That the test hub answers as the real one does: the official Python client must get along with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tandem_tests::hub::{Repo, Side, TestHub, TestHubOptions, demo_repos, tiny_gguf};

#[test]
fn official_client_lists_and_downloads() {
    let Some(python) = python() else {
        let how = "set TANDEM_HF_PYTHON to a Python with huggingface_hub 2.4.0, or run `cargo xtask test`";
        assert!(std::env::var_os("CI").is_none(), "the official client is missing: {how}");
        eprintln!("SKIPPED official_client_lists_and_downloads: the official client is missing: {how}");
        return;
    };
    let mut repos = demo_repos();
    repos.push(Repo::new("测试/Model-GGUF").file("模型 Q8_0.gguf", tiny_gguf("llama")).popularity(999, 9));
    let hub = TestHub::with(TestHubOptions {
        repos,
        renamed: vec![("old/Name".to_owned(), "测试/Model-GGUF".to_owned())],
        tokens: vec!["hf_accepted".to_owned(), "hf_other".to_owned()],
        ..TestHubOptions::default()
    })
    .expect("loopback ports are to be had");
    let work = tempfile::tempdir().expect("a temporary folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hub_client_check.py");
    let output = Command::new(&python).arg(script).arg(hub.url()).arg(work.path()).output().expect("Python runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", python.display());
    assert!(out.contains("checked "), "{out}");
    let seen = hub.seen();
    let with_token = |side| seen.iter().filter(|seen| seen.side == side && seen.authorization.is_some()).count();
    assert!(with_token(Side::Hub) > 0);
    assert_eq!(with_token(Side::Cdn), 0, "a token belongs to the hub alone");
}

/// A Python that has the official client.
fn python() -> Option<PathBuf> {
    if let Some(python) = std::env::var_os("TANDEM_HF_PYTHON") {
        return Some(python.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/hf/bin/python");
    installed.is_file().then_some(installed)
}
