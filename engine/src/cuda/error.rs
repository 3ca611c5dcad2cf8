//! What can go wrong with a GPU, as data.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use super::probe::DriverState;

/// Why a GPU did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no such GPU, or no driver for any.
    #[error("cuda{index} cannot be used: {state}")]
    Unavailable {
        /// Its index.
        index: u32,
        /// What there is.
        state: DriverState,
    },
    /// It is of a kind that the kernels do not run on.
    #[error("cuda{index} ({name}) is too old: GeForce GTX 16, RTX 20 and newer cards work")]
    CardTooOld {
        /// Its index.
        index: u32,
        /// What it is called.
        name: String,
    },
    /// Another program has it to itself, or has left it no memory.
    #[error("cuda{index} is in use by another program")]
    Busy {
        /// Its index.
        index: u32,
    },
    /// The card has too little memory left.
    #[error("cuda{index} has no memory for another {needed_bytes} bytes, {free_bytes} are free")]
    OutOfMemory {
        /// Its index.
        index: u32,
        /// What was asked for.
        needed_bytes: u64,
        /// What was free then.
        free_bytes: u64,
    },
    /// The driver does not take the kernels.
    #[error("the driver of cuda{index} refuses Tandem's kernels: {reason}")]
    KernelsRefused {
        /// Its index.
        index: u32,
        /// What it said.
        reason: String,
    },
    /// It computes something else than the processor.
    #[error("cuda{index} computes something else than the processor ({what})")]
    WrongResult {
        /// Its index.
        index: u32,
        /// What was compared.
        what: String,
    },
    /// The card or its driver is gone.
    #[error("cuda{index} was lost: {reason}")]
    Lost {
        /// Its index.
        index: u32,
        /// What the driver said.
        reason: String,
    },
    /// A kernel or a copy failed.
    #[error("cuda{index} failed ({what}): {reason}")]
    Failed {
        /// Its index.
        index: u32,
        /// What it was at.
        what: &'static str,
        /// What the driver said.
        reason: String,
    },
}

impl CudaError {
    /// What the driver's answer means for one of its GPUs.
    pub(super) fn of(index: u32, what: &'static str, error: DriverError) -> Self {
        use CUresult::*;
        let reason = reason(error);
        match error.0 {
            CUDA_ERROR_DEVICE_UNAVAILABLE | CUDA_ERROR_OUT_OF_MEMORY => Self::Busy { index },
            CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUDA_ERROR_NOT_FOUND => Self::KernelsRefused { index, reason },
            CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_NO_DEVICE
            | CUDA_ERROR_INVALID_DEVICE
            | CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_OPERATING_SYSTEM
            | CUDA_ERROR_UNKNOWN => Self::Lost { index, reason },
            _ => Self::Failed { index, what, reason },
        }
    }
}

/// The driver's name for an error, and what it says of it.
pub(super) fn reason(error: DriverError) -> String {
    let text = |text: Result<&std::ffi::CStr, DriverError>| text.map(|text| text.to_string_lossy().into_owned());
    match (text(error.error_name()), text(error.error_string())) {
        (Ok(name), Ok(text)) if !text.is_empty() => format!("{name}, {text}"),
        (Ok(name), _) => name,
        _ => format!("error {}", error.0 as u32),
    }
}
