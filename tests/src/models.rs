//! Real models that tests run on: files on this machine, never fetched here.

use std::path::PathBuf;

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// SmolLM2-135M-Instruct as Q4_1: from `TANDEM_SMOLLM2`, else where `cargo xtask test` puts it.
///
/// Panics with what to do if there is no such file.
pub fn smollm2() -> PathBuf {
    let path = std::env::var_os("TANDEM_SMOLLM2").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/models")).join(SMOLLM2),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "this test needs {SMOLLM2}, and `{}` is not there: run `cargo xtask test`, which fetches it, or point \
         TANDEM_SMOLLM2 at it",
        path.display()
    );
    path
}
