//! The interface: its packages, its build, its own checks.

use std::fs;

use anyhow::Result;

use crate::command::succeed;
use crate::models::sha256;
use crate::toolchain::npm;
use crate::workspace::Workspace;

/// Installs what `package-lock.json` names, unless it is what was installed last.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let lock = sha256(&workspace.ui().join("package-lock.json"))?;
    let marker = workspace.ui().join("node_modules/.tandem-lock");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == lock) {
        eprintln!("     as package-lock.json says");
        return Ok(());
    }
    succeed(npm().args(["ci", "--no-audit", "--no-fund"]).current_dir(workspace.ui()))?;
    fs::write(&marker, lock)?;
    Ok(())
}

/// Builds what the window shows.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    script(workspace, "build", &["--logLevel", "error"])
}

/// Checks types and markup.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    script(workspace, "check", &[])
}

/// Runs the interface's own tests.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    script(workspace, "test", &[])
}

/// Runs one of the scripts in `ui/package.json`.
fn script(workspace: &Workspace, name: &str, args: &[&str]) -> Result<()> {
    succeed(npm().args(["run", "--silent", name, "--"]).args(args).current_dir(workspace.ui()))
}
