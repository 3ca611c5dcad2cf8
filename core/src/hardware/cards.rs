//! NVIDIA cards through NVML. The library is opened once and kept; every way in which it can be missing or fail is a
//! state, and a card that fails does not hide its neighbours.
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

use crate::wire::{Gpu, GpuProbe};

/// Places where a driver puts its library: names for the loader first, then paths it may not know.
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &[
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
];
#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvml.dll", "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvml.dll"];

/// Exists while NVIDIA's kernel module is loaded on Linux.
const KERNEL_MODULE: &str = "/proc/driver/nvidia/version";

/// When a library that is not open is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reopen {
    /// Always: somebody asked.
    Always,
    /// Only after a fault: a missing driver does not appear from one second to the next.
    AfterFault,
}

/// The cards of this machine.
pub(super) struct Cards {
    path: Option<PathBuf>,
    nvml: Option<Nvml>,
    driver: String,
    last: GpuProbe,
    was_tried: bool,
}

impl Cards {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, nvml: None, driver: String::new(), last: GpuProbe::NoDriver, was_tried: false }
    }

    /// Every card that answers, in NVML's order, and how the search ended.
    pub(super) fn read(&mut self, reopen: Reopen) -> (Vec<Gpu>, GpuProbe) {
        let is_worth_trying =
            !self.was_tried || reopen == Reopen::Always || matches!(self.last, GpuProbe::Failed { .. });
        if self.nvml.is_none() && !is_worth_trying {
            return (Vec::new(), self.last.clone());
        }
        self.was_tried = true;
        let (gpus, probe) = match self.try_read() {
            Ok(gpus) if gpus.is_empty() => (gpus, GpuProbe::NoDevice),
            Ok(gpus) => (gpus, GpuProbe::Found),
            Err(fault) => {
                self.nvml = None;
                (Vec::new(), fault.into())
            }
        };
        if probe != self.last {
            tracing::info!(?probe, n_gpus = gpus.len(), "graphics cards");
            self.last = probe.clone();
        }
        (gpus, probe)
    }

    fn try_read(&mut self) -> Result<Vec<Gpu>, Fault> {
        let nvml = match self.nvml.take() {
            Some(nvml) => nvml,
            None => {
                let nvml = open(self.path.as_deref())?;
                self.driver = nvml.sys_driver_version()?;
                nvml
            }
        };
        let n_cards = nvml.device_count()?;
        let mut gpus = Vec::new();
        let mut first_fault = None;
        for index in 0..n_cards {
            match card(&nvml, index, &self.driver) {
                Ok(gpu) => gpus.push(gpu),
                Err(error) => {
                    tracing::debug!(index, %error, "a card does not answer");
                    first_fault.get_or_insert(error);
                }
            }
        }
        match first_fault {
            Some(error) if gpus.is_empty() => Err(error.into()),
            _ => {
                self.nvml = Some(nvml);
                Ok(gpus)
            }
        }
    }
}

fn card(nvml: &Nvml, index: u32, driver: &str) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let memory = device.memory_info()?;
    Ok(Gpu {
        index,
        name: device.name()?,
        vram_total_bytes: memory.total,
        vram_free_bytes: memory.free.min(memory.total),
        driver: driver.to_owned(),
        load_percent: device.utilization_rates().ok().map(|rates| rates.gpu.min(100)),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        unusable: None,
    })
}

fn open(path: Option<&Path>) -> Result<Nvml, Fault> {
    match path {
        Some(path) => open_at(path),
        None => open_first(LIBRARIES, Path::new(KERNEL_MODULE).exists()),
    }
}

/// A library that is not there means no driver, unless the kernel says that there is one.
fn open_first(libraries: &[&str], is_module_loaded: bool) -> Result<Nvml, Fault> {
    let mut last = Fault::NoDriver;
    for library in libraries {
        match open_at(Path::new(library)) {
            Err(Fault::NoDriver) if is_module_loaded => last = Fault::NoLibrary,
            Err(Fault::NoDriver) => {}
            found => return found,
        }
    }
    Err(last)
}

fn open_at(path: &Path) -> Result<Nvml, Fault> {
    Nvml::builder().lib_path(path.as_os_str()).init().map_err(|error| match error {
        NvmlError::LibloadingError(_) if !path.exists() => Fault::NoDriver,
        error => Fault::Driver(error),
    })
}

/// Why there are no cards to show.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("no NVIDIA driver")]
    NoDriver,
    #[error("the NVIDIA kernel module is loaded, but its library `libnvidia-ml` cannot be")]
    NoLibrary,
    #[error(transparent)]
    Driver(#[from] NvmlError),
}

impl From<Fault> for GpuProbe {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoDriver => Self::NoDriver,
            fault => Self::Failed { reason: fault.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_no_driver_unless_the_kernel_module_is_loaded() {
        let nowhere = ["libtandem-nowhere.so.7", "/nowhere/libnvidia-ml.so.1"];
        assert!(matches!(open_first(&nowhere, false), Err(Fault::NoDriver)));
        assert!(matches!(open_first(&nowhere, true), Err(Fault::NoLibrary)));
    }

    #[test]
    fn a_file_that_is_no_library_is_a_fault_with_the_loaders_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libnvidia-ml.so.1");
        std::fs::write(&path, "<html>not a library</html>").unwrap();
        let (gpus, probe) = Cards::new(Some(path)).read(Reopen::Always);
        assert!(gpus.is_empty());
        assert!(matches!(probe, GpuProbe::Failed { reason } if !reason.is_empty()));
    }
}
