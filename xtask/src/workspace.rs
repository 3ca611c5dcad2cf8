//! Where things lie in this clone.

use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folders of this clone.
pub(crate) struct Workspace {
    /// The clone itself.
    pub(crate) root: PathBuf,
    /// Where cargo puts the programs it builds.
    programs: PathBuf,
}

impl Workspace {
    /// The clone that this very program was built from.
    pub(crate) fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?.to_path_buf();
        let own = std::env::current_exe().context("cannot tell where this program lies")?;
        let programs = own.parent().context("a program lies in a folder")?.to_path_buf();
        Ok(Self { root, programs })
    }

    /// The interface's sources.
    pub(crate) fn ui(&self) -> PathBuf {
        self.root.join("ui")
    }

    /// Models for tests and for the first start. Not below `CARGO_TARGET_DIR`: tests look for them here.
    pub(crate) fn models(&self) -> PathBuf {
        self.root.join("target/models")
    }

    /// Programs that only tests and set-up need.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("target/tools")
    }

    /// What a person may want to look at afterwards.
    pub(crate) fn artefacts(&self) -> PathBuf {
        self.root.join("artefacts")
    }

    /// A program that cargo built beside this one.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(format!("{name}{EXE_SUFFIX}"))
    }
}
