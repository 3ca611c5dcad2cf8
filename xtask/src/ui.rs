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

/// Runs one of the scripts in `ui/package.json`.
pub(crate) fn script(workspace: &Workspace, name: &str) -> Result<()> {
    succeed(npm().args(["run", "--silent", name]).current_dir(workspace.ui()))
}
