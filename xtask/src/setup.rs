//! What both jobs need before they can begin.

use anyhow::Result;

use crate::packages::{self, Purpose};
use crate::python::Venv;
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{models, toolchain, ui};

/// Makes the machine ready: tools, system packages, the interface, Python, models.
pub(crate) fn prepare(workspace: &Workspace, steps: &mut Steps, purposes: &[Purpose]) -> Result<Venv> {
    steps.need("Rust and Node.js", toolchain::check)?;
    steps.need("system packages", || packages::provide(purposes))?;
    steps.need("packages of the interface", || ui::install(workspace))?;
    steps.need("build of the interface", || ui::build(workspace))?;
    let venv = steps.need("Python environment", || Venv::open(workspace, "hf"))?;
    steps.need("starter model", || models::STARTER.provide(workspace, &venv))?;
    Ok(venv)
}
