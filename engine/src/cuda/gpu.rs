//! One GPU: its context, its stream, its kernels, and what went wrong on it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use cudarc::driver::{DriverError, result, sys};

use super::CudaError;
use super::functions::{Function, Functions};
use super::memory::Ticket;
use super::probe::{CudaDevice, DriverState, probe};
use super::staging::Staging;
use crate::error::EngineError;
use crate::gguf::TensorType;
use crate::place::{Device, Placement};

/// An address in a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At(pub(super) sys::CUdeviceptr);

/// A GPU that is open.
pub struct Gpu {
    description: CudaDevice,
    // In this order, since the context goes last.
    pub(super) functions: Functions,
    staging: Mutex<Staging>,
    stream: sys::CUstream,
    context: Context,
    has_failed: AtomicBool,
    failure: Mutex<Option<CudaError>>,
    n_bytes: AtomicU64,
    /// Tickets given out, and the last one that is known to be done.
    n_issued: AtomicU64,
    n_done: AtomicU64,
}

// SAFETY: the driver's handles may be used from any thread whose current context is theirs, which `bind` sees to.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver's calls are thread-safe.
unsafe impl Sync for Gpu {}

/// The GPUs of a placement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gpus(Vec<Arc<Gpu>>);

/// The primary context of a device.
struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

/// An argument of a kernel, as the driver reads it: the first bytes count.
#[derive(Clone, Copy)]
pub(super) struct Arg(u64);

impl At {
    /// No address: for arguments that may be absent.
    pub(crate) const NONE: At = At(0);

    /// So many bytes further on.
    pub(crate) fn plus(self, n_bytes: usize) -> At {
        At(self.0 + n_bytes as u64)
    }
}

impl Gpu {
    /// Opens a GPU: makes its context, loads the kernels.
    ///
    /// Errors   `Unavailable`, `Busy`, `CardTooOld`, `KernelsRefused`, and what else the driver says
    pub fn open(index: u32) -> Result<Arc<Self>, CudaError> {
        let description = match probe() {
            DriverState::Ready { devices } if (index as usize) < devices.len() => devices[index as usize].clone(),
            state => return Err(CudaError::Unavailable { index, state }),
        };
        if !description.is_supported() {
            return Err(CudaError::CardTooOld { index, name: description.name });
        }
        let opened = |what| move |error| CudaError::of(index, what, error);
        let context = Context::of(index).map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => CudaError::Busy { index },
            _ => CudaError::of(index, "context", error),
        })?;
        let functions = Functions::load(description.capability).map_err(opened("kernels"))?;
        let staging = Staging::new().map_err(opened("staging"))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(opened("stream"))?;
        tracing::info!(gpu = %description.name, capability = ?description.capability, "opened cuda{index}");
        Ok(Arc::new(Self {
            description,
            functions,
            staging: Mutex::new(staging),
            stream,
            context,
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            n_bytes: AtomicU64::new(0),
            n_issued: AtomicU64::new(0),
            n_done: AtomicU64::new(0),
        }))
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.description.index
    }

    /// What the driver says of it.
    pub fn description(&self) -> &CudaDevice {
        &self.description
    }

    /// Bytes that are allocated here at present.
    pub fn allocated_bytes(&self) -> u64 {
        self.n_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are free on the card, whoever uses the others; 0 if the driver does not say.
    pub fn free_bytes(&self) -> u64 {
        self.bind().and_then(|()| result::mem_get_info()).map_or(0, |(free, _)| free as u64)
    }

    /// The first thing that went wrong; nothing was done since.
    pub fn check(&self) -> Result<(), CudaError> {
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), Err)
    }

    /// Loads the products of weights of a type that `cuda::supports`.
    pub(crate) fn load_products(&self, tensor_type: TensorType) -> Result<(), CudaError> {
        let loaded = self.bind().and_then(|()| self.functions.load_products(&self.description, tensor_type));
        loaded.map_err(|error| CudaError::of(self.index(), "kernels", error))
    }

    /// Waits until everything asked for is done.
    pub(crate) fn wait_for_all(&self) {
        self.wait(Ticket(self.n_issued.load(Ordering::Relaxed)));
    }

    /// Waits for a copy, and so for everything asked for before it.
    pub(crate) fn wait(&self, ticket: Ticket) {
        if self.n_done.load(Ordering::Relaxed) >= ticket.0 {
            return;
        }
        let n_issued = self.n_issued.load(Ordering::Relaxed);
        // SAFETY: the stream lives as long as `self`.
        self.attempt("waiting", || unsafe { result::stream::synchronize(self.stream) });
        self.n_done.store(n_issued, Ordering::Relaxed);
    }

    /// Copies to the GPU without waiting.
    ///
    /// # Safety
    /// The elements stay as they are until the ticket is waited for, and `at` has room for them.
    pub(crate) unsafe fn begin_write<T: Pod>(&self, at: At, elems: &[T]) -> Ticket {
        if elems.is_empty() {
            return Ticket::default();
        }
        // SAFETY: the caller's contract.
        self.attempt("copy to the GPU", || unsafe { result::memcpy_htod_async(at.0, elems, self.stream) });
        self.ticket()
    }

    /// Copies from the GPU without waiting.
    ///
    /// # Safety
    /// Nobody looks at the elements or frees them until the ticket is waited for, and at `at` there are so many.
    pub(crate) unsafe fn begin_read<T: Pod>(&self, at: At, elems: &mut [T]) -> Ticket {
        if elems.is_empty() {
            return Ticket::default();
        }
        // SAFETY: the caller's contract.
        self.attempt("copy from the GPU", || unsafe { result::memcpy_dtoh_async(elems, at.0, self.stream) });
        self.ticket()
    }

    /// Copies to the GPU.
    pub(crate) fn write_and_wait<T: Pod>(&self, at: At, elems: &[T]) {
        // SAFETY: waited for at once; the caller's buffers are as large as they say.
        let ticket = unsafe { self.begin_write(at, elems) };
        self.wait(ticket);
    }

    /// Copies from the GPU.
    pub(crate) fn read_and_wait<T: Pod>(&self, at: At, elems: &mut [T]) {
        // SAFETY: waited for at once; the caller's buffers are as large as they say.
        let ticket = unsafe { self.begin_read(at, elems) };
        self.wait(ticket);
    }

    /// Copies a few elements that nobody keeps to the GPU, and says where they are until the next few megabytes of such.
    pub(crate) fn stage<T: Pod>(&self, elems: impl ExactSizeIterator<Item = T>) -> At {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.must_wait_for(elems.len() * size_of::<T>()) {
            self.wait_for_all();
        }
        let (at, bytes) = staging.take(elems);
        // SAFETY: the bytes are not written again before `must_wait_for` said so and all copies were done.
        unsafe { self.begin_write(at, bytes) };
        at
    }

    /// Sets bytes to zero without waiting.
    pub(crate) fn fill_zero(&self, at: At, n_bytes: usize) {
        if n_bytes > 0 {
            // SAFETY: the caller's buffer is as large as it says.
            self.attempt("clearing", || unsafe { result::memset_d8_async(at.0, 0, n_bytes, self.stream) });
        }
    }

    /// Starts a kernel without waiting.
    ///
    /// grid     blocks of threads; nothing is started if there are none
    pub(super) fn launch<const N: usize>(
        &self,
        function: Function,
        grid: [usize; 3],
        n_threads: usize,
        mut args: [Arg; N],
    ) {
        if grid.contains(&0) {
            return;
        }
        let [x, y, z] = grid.map(|n| n as u32);
        let mut args = args.each_mut().map(|Arg(bytes)| std::ptr::from_mut(bytes).cast::<c_void>());
        self.attempt(function.name, || {
            let block = (n_threads as u32, 1, 1);
            // SAFETY: the module is loaded as long as `self` lives. Arguments are those of the kernel's signature and
            // buffers as large as shapes say: every kernel runs on the simulated driver, which checks both.
            unsafe { result::launch_kernel(function.raw, (x, y, z), block, 0, self.stream, &mut args) }
        });
    }

    /// Makes the context the current one of this thread.
    pub(super) fn bind(&self) -> Result<(), DriverError> {
        self.context.bind()
    }

    pub(super) fn allocate(&self, n_bytes: usize) -> Result<sys::CUdeviceptr, CudaError> {
        let allocated = self.bind().and_then(|()| {
            // SAFETY: the context is current.
            unsafe { result::malloc_sync(n_bytes) }
        });
        match allocated {
            Ok(at) => {
                self.n_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
                Ok(at)
            }
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(CudaError::OutOfMemory {
                index: self.index(),
                needed_bytes: n_bytes as u64,
                free_bytes: self.free_bytes(),
            }),
            Err(error) => Err(CudaError::of(self.index(), "allocating", error)),
        }
    }

    pub(super) fn free(&self, at: sys::CUdeviceptr, n_bytes: usize) {
        self.n_bytes.fetch_sub(n_bytes as u64, Ordering::Relaxed);
        if self.bind().is_ok() {
            // SAFETY: allocated by `allocate` and freed once; the driver waits for what still uses it. A lost GPU has
            // nothing to give back.
            let _ = unsafe { result::free_sync(at) };
        }
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.n_issued.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Does something unless something has failed before; keeps what fails.
    fn attempt(&self, what: &'static str, f: impl FnOnce() -> Result<(), DriverError>) {
        if self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.bind().and_then(|()| f()) {
            let failure = CudaError::of(self.index(), what, error);
            tracing::error!(%failure, "a GPU failed");
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.wait_for_all();
        if self.bind().is_err() {
            return;
        }
        self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).free();
        // SAFETY: the context is current, everything is done, and nothing is used behind this.
        unsafe {
            self.functions.unload();
            let _ = result::stream::destroy(self.stream);
        }
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu(cuda{}, {})", self.index(), self.description.name)
    }
}

impl Gpus {
    /// Opens those that a placement names.
    pub(crate) fn open(placement: &Placement) -> Result<Self, EngineError> {
        let indices = placement.devices().into_iter().filter_map(|device| match device {
            Device::Cpu => None,
            Device::Cuda(index) => Some(index),
        });
        Ok(Self(indices.map(Gpu::open).collect::<Result<_, _>>()?))
    }

    /// One of them; the processor is none.
    ///
    /// Errors   `DeviceUnsupported`: it was not opened
    pub(crate) fn get(&self, device: Device) -> Result<Option<&Arc<Gpu>>, EngineError> {
        match device {
            Device::Cpu => Ok(None),
            Device::Cuda(index) => {
                let gpu = self.0.iter().find(|gpu| gpu.index() == index);
                gpu.map(Some).ok_or(EngineError::DeviceUnsupported { device })
            }
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Gpu>> {
        self.0.iter()
    }

    /// The first thing that went wrong on any.
    pub(crate) fn check(&self) -> Result<(), CudaError> {
        self.0.iter().try_for_each(|gpu| gpu.check())
    }
}

impl Context {
    fn of(index: u32) -> Result<Self, DriverError> {
        let device = result::device::get(index as i32)?;
        // SAFETY: the driver has just given the device.
        let context = Self { device, raw: unsafe { result::primary_ctx::retain(device) }? };
        context.bind()?;
        Ok(context)
    }

    fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.raw) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl From<At> for Arg {
    fn from(at: At) -> Self {
        Self(at.0)
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self(value.to_le())
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(u64::from(value).to_le())
    }
}

/// Counts: kernels take 32 bits.
impl From<usize> for Arg {
    fn from(value: usize) -> Self {
        Self::from(u32::try_from(value).expect("counts of a step fit into 32 bits"))
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Self::from(u32::from(value))
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Self {
        Self::from(value.to_bits())
    }
}
