//! What the driver says of itself and its GPUs, before anything is opened. It never panics: without a driver, and without every
//! function that will be called, nothing of it is called.

use std::fmt;

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{DriverError, result};

use super::error::reason;

/// What there is to compute with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// No driver is installed.
    NoDriver,
    /// The driver does not know the kernels' form.
    DriverTooOld {
        /// The newest CUDA version it knows, as 1000 · major + 10 · minor.
        version: u32,
    },
    /// The driver sees no GPU.
    NoDevice,
    /// The driver does not start, or fails when asked.
    Failed {
        /// What it said.
        reason: String,
    },
    /// It is ready.
    Ready {
        /// Its GPUs.
        devices: Vec<CudaDevice>,
    },
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its index, as `Device::Cuda` takes it.
    pub index: u32,
    /// What it is called.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Its memory.
    pub memory_bytes: u64,
}

/// The first CUDA version whose drivers take the kernels (PTX 8.0): driver 525 or newer.
pub(super) const MIN_VERSION: u32 = 12_000;
/// Cards before Turing lack integer dot products in the form that the kernels use.
const MIN_CAPABILITY: (u32, u32) = (7, 5);

impl CudaDevice {
    /// Whether kernels run on it at all.
    pub fn is_supported(&self) -> bool {
        self.capability >= MIN_CAPABILITY
    }

    /// Whether it has tensor cores: the GTX 16 family counts as 7.5 and has none.
    pub fn has_tensor_cores(&self) -> bool {
        self.is_supported() && !self.name.contains("GTX 16")
    }
}

/// Functions of the driver that are called, here and later. A library that lacks one, a stub or what is left of a driver, would
/// end the program with the first call of it.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
];

/// Asks the driver, without opening a GPU: takes milliseconds and no memory of a card.
pub fn probe() -> DriverState {
    // SAFETY: it only tries to load libraries by name.
    if !unsafe { sys::is_culib_present() } {
        return DriverState::NoDriver;
    }
    if let Some(name) = missing_function() {
        return DriverState::Failed { reason: format!("its library has no {name}") };
    }
    match devices() {
        Ok(devices) => devices,
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => DriverState::NoDevice,
        Err(error) => DriverState::Failed { reason: reason(error) },
    }
}

/// A function that the driver's library lacks.
fn missing_function() -> Option<&'static str> {
    // SAFETY: the library opened a moment ago; addresses are looked up, and nothing is called.
    let has = |name: &str| unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok();
    FUNCTIONS.iter().copied().find(|name| !has(name))
}

/// The driver is there.
fn devices() -> Result<DriverState, DriverError> {
    let mut version = 0;
    // SAFETY: it writes one integer, and works before `cuInit`.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    let version = u32::try_from(version).unwrap_or(0);
    if version < MIN_VERSION {
        return Ok(DriverState::DriverTooOld { version });
    }
    result::init()?;
    let n_devices = u32::try_from(result::device::get_count()?).unwrap_or(0);
    if n_devices == 0 {
        return Ok(DriverState::NoDevice);
    }
    let devices = (0..n_devices).map(device).collect::<Result<_, _>>()?;
    Ok(DriverState::Ready { devices })
}

fn device(index: u32) -> Result<CudaDevice, DriverError> {
    let device = result::device::get(index as i32)?;
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver just gave.
        unsafe { result::device::get_attribute(device, attribute) }.map(|value| u32::try_from(value).unwrap_or(0))
    };
    Ok(CudaDevice {
        index,
        name: result::device::get_name(device)?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: as above.
        memory_bytes: unsafe { result::device::total_mem(device) }? as u64,
    })
}

impl fmt::Display for DriverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str("no NVIDIA driver is installed"),
            Self::DriverTooOld { version } => {
                write!(f, "the NVIDIA driver is too old (CUDA {}.{})", version / 1000, version % 1000 / 10)
            }
            Self::NoDevice => f.write_str("the NVIDIA driver sees no GPU"),
            Self::Failed { reason } => write!(f, "the NVIDIA driver failed: {reason}"),
            Self::Ready { devices } => {
                let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
                write!(f, "the driver has {}", names.join(", "))
            }
        }
    }
}
