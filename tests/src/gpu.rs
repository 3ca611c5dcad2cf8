//! A simulated NVIDIA card for programs that are started: the driver and the management library, in a folder of their own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::nvml::FakeNvml;

/// 6 GB of VRAM, compute 7.5, tensor cores.
pub const RTX_2060: &str =
    "card 6 GiB free 5.5 GiB compute 7.5 multiprocessors 30 load 3 temperature 41 name NVIDIA GeForce RTX 2060\n";

/// A folder with `libcuda.so` and `libnvidia-ml.so.1`, both simulated, with one file of settings each.
#[derive(Debug)]
pub struct SimulatedGpu {
    nvml: FakeNvml,
}

impl SimulatedGpu {
    /// A machine as `settings` say; their form stands at the heads of `tandem-fake-nvml` and `tandem-simcuda`.
    pub fn new(settings: &str) -> anyhow::Result<Self> {
        let gpu = Self { nvml: FakeNvml::new(settings)? };
        let built = tandem_simcuda::Simulator::library();
        std::fs::copy(&built, gpu.driver()).with_context(|| format!("copying `{}`", built.display()))?;
        gpu.set(settings)?;
        Ok(gpu)
    }

    /// Changes the machine while it is in use: other programs take memory, for one.
    pub fn set(&self, settings: &str) -> anyhow::Result<()> {
        tandem_simcuda::Settings::parse(settings);
        self.nvml.set(settings)?;
        let text = self.folder().join("simcuda.txt");
        let fresh = text.with_extension("new");
        std::fs::write(&fresh, settings)?;
        Ok(std::fs::rename(fresh, text)?)
    }

    /// Makes a program find both libraries before any other.
    pub fn equip(&self, program: &mut Command) {
        let mut path = OsString::from(self.folder());
        if let Some(before) = std::env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(before);
        }
        program.env("LD_LIBRARY_PATH", path);
    }

    /// What to give to `ProbeOptions::nvml_path`.
    pub fn nvml(&self) -> &Path {
        self.nvml.path()
    }

    /// The simulated driver.
    pub fn driver(&self) -> PathBuf {
        self.folder().join("libcuda.so")
    }

    fn folder(&self) -> &Path {
        self.nvml.path().parent().expect("the library lies in a folder")
    }
}
