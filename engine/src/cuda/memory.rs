//! Memory on a GPU, and memory of the host that the GPU copies from and to by itself. Both go when they are dropped.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::CudaError;
use super::gpu::{At, Gpu};

/// A piece of a GPU's memory.
pub(crate) struct Buffer {
    gpu: Arc<Gpu>,
    at: sys::CUdeviceptr,
    n_bytes: usize,
}

/// When a copy was asked for; `Gpu::wait` waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

impl Buffer {
    /// Allocates; what it holds is not said.
    ///
    /// Errors   `OutOfMemory`, and what the driver says
    pub(crate) fn new(gpu: &Arc<Gpu>, n_bytes: usize) -> Result<Self, CudaError> {
        let at = if n_bytes == 0 { 0 } else { gpu.allocate(n_bytes)? };
        Ok(Self { gpu: Arc::clone(gpu), at, n_bytes })
    }

    /// The same, all bytes zero.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_bytes: usize) -> Result<Self, CudaError> {
        let buffer = Self::new(gpu, n_bytes)?;
        gpu.fill_zero(buffer.at(), n_bytes);
        gpu.check()?;
        Ok(buffer)
    }

    /// A copy of what the host holds; it has arrived when this returns.
    pub(crate) fn of(gpu: &Arc<Gpu>, bytes: &[u8]) -> Result<Self, CudaError> {
        let buffer = Self::new(gpu, bytes.len())?;
        gpu.write_and_wait(buffer.at(), bytes);
        gpu.check()?;
        Ok(buffer)
    }

    /// The GPU it lies on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Where it begins.
    pub(crate) fn at(&self) -> At {
        At(self.at)
    }

    /// How large it is.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.n_bytes > 0 {
            self.gpu.free(self.at, self.n_bytes);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer(cuda{}, {} bytes)", self.gpu.index(), self.n_bytes)
    }
}

/// Host memory that stays where it is, so that the GPU copies it without the processor.
pub(crate) struct Pinned {
    gpu: Arc<Gpu>,
    at: *mut f32,
    n_elems: usize,
}

// SAFETY: it owns its memory, like a `Vec`.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeros; `None` if the system gives no such memory, and ordinary memory must do.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_elems: usize) -> Option<Self> {
        /// For all GPUs, not only the one whose context is current.
        const PORTABLE: u32 = 1;
        if n_elems == 0 || gpu.bind().is_err() {
            return None;
        }
        // SAFETY: the context is current.
        let at = unsafe { result::malloc_host(n_elems * size_of::<f32>(), PORTABLE) }.ok()?.cast::<f32>();
        // SAFETY: so many elements were just allocated.
        unsafe { at.write_bytes(0, n_elems) };
        Some(Self { gpu: Arc::clone(gpu), at, n_elems })
    }
}

impl Deref for Pinned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: allocated with so many elements, all of them written.
        unsafe { std::slice::from_raw_parts(self.at, self.n_elems) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above; borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.n_elems) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.gpu.wait_for_all();
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated by `malloc_host`, freed once, and no copy is under way.
            let _ = unsafe { result::free_host(self.at.cast()) };
        }
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} elements)", self.n_elems)
    }
}
