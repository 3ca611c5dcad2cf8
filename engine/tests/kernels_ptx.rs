//! The kernels' PTX lies in git: none is older than its sources. `cargo xtask kernels` makes it.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

#[test]
fn ptx_is_made_of_these_sources() {
    let mut n_checked = 0;
    for ptx in files("ptx") {
        let text = fs::read_to_string(&ptx).unwrap();
        let line = text.lines().next().unwrap().strip_prefix("// sources: ").expect("the first line names the sources");
        for source in line.split(' ') {
            let (name, made_of) = source.split_once('=').unwrap();
            let now = sha256(&fs::read(ptx.with_file_name(name)).unwrap());
            assert_eq!(now, made_of, "{} is older than {name}: run `cargo xtask kernels`", ptx.display());
            n_checked += 1;
        }
    }
    assert!(n_checked > 0, "no PTX was found");
}

#[test]
fn every_source_has_both_kinds_of_ptx_and_no_ptx_is_left_over() {
    let stems = |extension: &str| -> BTreeSet<String> {
        files(extension).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let expected = stems("cu").iter().flat_map(|source| [format!("{source}_sm75"), format!("{source}_sm80")]).collect();
    assert_eq!(stems("ptx"), expected);
}

#[test]
fn ptx_asks_for_no_newer_driver_and_card_than_promised() {
    for ptx in files("ptx") {
        let text = fs::read_to_string(&ptx).unwrap();
        let target = if ptx.to_str().unwrap().ends_with("_sm75.ptx") { ".target sm_75" } else { ".target sm_80" };
        assert!(text.lines().any(|line| line == ".version 8.0"), "{}", ptx.display());
        assert!(text.lines().any(|line| line == target), "{}", ptx.display());
    }
}

fn files(extension: &str) -> Vec<PathBuf> {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src/cuda/kernels", "../tests/simcuda/kernels"].map(|folder| engine.join(folder));
    let paths = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
