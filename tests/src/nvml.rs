//! A fake NVML library in a folder of its own, with settings that a test may change while it is in use.
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A copy of the fake library. Loaded copies do not share state.
#[derive(Debug)]
pub struct FakeNvml {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl FakeNvml {
    /// A library that answers as `settings` say; their form stands at the head of `tandem-fake-nvml`.
    pub fn new(settings: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let library = folder.path().join("libnvidia-ml.so.1");
        let built = built_library()?;
        std::fs::copy(&built, &library).with_context(|| format!("copying `{}`", built.display()))?;
        let fake = Self { folder, library };
        fake.set(settings)?;
        Ok(fake)
    }

    /// What to give to `ProbeOptions::nvml_path`.
    pub fn path(&self) -> &Path {
        &self.library
    }

    /// Changes the answers from the next call on.
    pub fn set(&self, settings: &str) -> anyhow::Result<()> {
        tandem_fake_nvml::Settings::parse(settings);
        let text = self.folder.path().join("fake-nvml.txt");
        let fresh = text.with_extension("new");
        std::fs::write(&fresh, settings)?;
        Ok(std::fs::rename(fresh, text)?)
    }
}

/// Cargo builds the library as a dependency of this crate, beside the test that runs.
fn built_library() -> anyhow::Result<PathBuf> {
    let name = format!("{}tandem_fake_nvml{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let test = std::env::current_exe()?;
    let candidates = test.ancestors().skip(1).take(2).flat_map(|dir| [dir.join(&name), dir.join("deps").join(&name)]);
    candidates.into_iter().find(|path| path.exists()).with_context(|| format!("`{name}` beside `{}`", test.display()))
}
