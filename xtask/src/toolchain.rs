//! The two tools that set-up does not install: Rust and Node.

use anyhow::{Context, Result, bail};

use crate::command::{command, output};

/// What Tauri needs.
const RUST: (u32, u32) = (1, 90);
/// What Vite needs.
const NODE: (u32, u32) = (20, 0);

/// Says plainly when Rust or Node are missing or too old.
pub(crate) fn check() -> Result<()> {
    let rustc = output(command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version"))
        .context("Rust is missing; install it with rustup")?;
    require("Rust", &rustc, RUST, "Update it with `rustup update`; what Debian 12 and Ubuntu 24.04 pack is older.")?;
    let node = output(command("node").arg("--version")).context(
        "Node.js is missing; install version 20 or newer, with npm, from its own site or with a version switcher",
    )?;
    require(
        "Node.js",
        &node,
        NODE,
        "Install a newer one from its own site or with a version switcher; what Debian 12 packs is older.",
    )?;
    output(npm().arg("--version")).context("npm is missing; it comes with Node.js, some systems pack it apart")?;
    eprintln!("     {rustc}, Node.js {node}");
    Ok(())
}

/// npm, which is a script on Windows.
pub(crate) fn npm() -> std::process::Command {
    command(if cfg!(windows) { "npm.cmd" } else { "npm" })
}

fn require(name: &str, found: &str, (major, minor): (u32, u32), remedy: &str) -> Result<()> {
    let version = version(found).with_context(|| format!("cannot read the version of {name} from `{found}`"))?;
    if version < (major, minor) {
        bail!("{name} {major}.{minor} or newer is needed, this is {}.{}. {remedy}", version.0, version.1);
    }
    Ok(())
}

/// First `major.minor` in a program's own words: `rustc 1.95.0 (…)`, `v20.20.2`.
fn version(words: &str) -> Option<(u32, u32)> {
    words.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_a_programs_own_words() {
        assert_eq!(version("rustc 1.95.0 (59807616e 2026-03-21)"), Some((1, 95)));
        assert_eq!(version("rustc 1.91.0-nightly"), Some((1, 91)));
        assert_eq!(version("v20.20.2"), Some((20, 20)));
        assert_eq!(version("nothing here"), None);
    }

    #[test]
    fn an_old_tool_is_refused_with_both_versions() {
        let refusal = require("Rust", "rustc 1.63.0", RUST, "Update it.").unwrap_err().to_string();
        assert_eq!(refusal, "Rust 1.90 or newer is needed, this is 1.63. Update it.");
        assert!(require("Node.js", "v20.0.0", NODE, "").is_ok());
    }
}
