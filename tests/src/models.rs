//! Real models that tests run on: files on this machine, never fetched here.

use std::path::PathBuf;

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA: &str = "gemma-3-270m-q4_k_m.gguf";

/// SmolLM2-135M-Instruct as Q4_1: from `TANDEM_SMOLLM2`, else where `cargo xtask test` puts it.
///
/// Panics with what to do if there is no such file.
pub fn smollm2() -> PathBuf {
    model(SMOLLM2, "TANDEM_SMOLLM2")
}

/// Gemma 3 270M (the base model, not tuned to chat) as Q4_K_M: from `TANDEM_GEMMA`, else as `smollm2`.
pub fn gemma() -> PathBuf {
    model(GEMMA, "TANDEM_GEMMA")
}

fn model(file: &str, variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/models")).join(file),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "this test needs {file}, and `{}` is not there: run `cargo xtask test`, which fetches it, or point {variable} at it",
        path.display()
    );
    path
}
