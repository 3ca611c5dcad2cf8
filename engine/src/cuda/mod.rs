//! The GPU backend, through the driver that comes with the card and nothing else: no toolkit, no compiler at run time. Kernels
//! are CUDA C in `kernels/`, compiled ahead to PTX that lies beside them; the driver makes machine code of it.
//!
//! This folder alone knows `cudarc`. What it offers to `tensor` and `ops` are GPUs ([`Gpu`]), memory on them and beside them,
//! and the operations of a forward pass on device addresses. Work goes to one stream per GPU and nobody waits for it, but for
//! what the host must read. What fails is kept ([`Gpu::check`]) and everything after it is left undone, as the driver itself
//! does it, so that operations need not return anything.

mod attention;
mod error;
mod functions;
mod gpu;
mod memory;
mod ops;
mod probe;
mod products;
mod recurrent;
mod route;
mod staging;

pub(crate) use attention::{Attend, DeviceKv, MAX_KEY_DIM, MAX_VALUE_DIM, scratch_bytes};
pub use error::CudaError;
pub use gpu::Gpu;
pub(crate) use gpu::{At, Gpus};
pub(crate) use memory::{Buffer, Pinned, Ticket};
pub(crate) use ops::{DeviceRows, Pieces};
pub use probe::{CudaDevice, DriverState, probe};
pub(crate) use products::{DeviceGroups, DeviceInput, DeviceMatrices};
pub(crate) use recurrent::MAX_STATE;
pub(crate) use route::routes;
pub(crate) use staging::N_BYTES as STAGING_BYTES;

use crate::gguf::TensorType;
use crate::quant;

/// Whether matrices of this type can live on a GPU; others stay with the processor.
pub fn supports(tensor_type: TensorType) -> bool {
    quant::format_of(tensor_type).is_some_and(|format| format.gpu_kernel.is_some())
}
