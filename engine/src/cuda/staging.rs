//! A ring for small things that go to the GPU between kernels: indices, weights of experts, factors.

use bytemuck::Pod;
use cudarc::driver::{DriverError, result, sys};

use super::gpu::At;

/// The same bytes on the host and on the GPU.
pub(super) struct Staging {
    host: Host,
    at: sys::CUdeviceptr,
    n_used: usize,
}

/// Memory that the GPU reads by itself, or ordinary memory where the system gives none.
enum Host {
    Pinned(*mut u8),
    Pageable(Box<[u8]>),
}

/// Everything that one step of a few thousand tokens needs at once.
pub(crate) const N_BYTES: usize = 8 << 20;
/// What lies in it begins at multiples of this.
const ALIGNMENT: usize = 16;

impl Staging {
    /// In the context that is current.
    pub(super) fn new() -> Result<Self, DriverError> {
        // SAFETY: the context is current.
        let at = unsafe { result::malloc_sync(N_BYTES) }?;
        // SAFETY: as above.
        let host = match unsafe { result::malloc_host(N_BYTES, 0) } {
            Ok(host) => {
                // SAFETY: so many bytes were just allocated.
                unsafe { host.cast::<u8>().write_bytes(0, N_BYTES) };
                Host::Pinned(host.cast())
            }
            Err(_) => Host::Pageable(vec![0; N_BYTES].into_boxed_slice()),
        };
        Ok(Self { host, at, n_used: 0 })
    }

    /// Whether the ring begins anew to take so many bytes: what was taken before must be done by then.
    pub(super) fn must_wait_for(&self, n_bytes: usize) -> bool {
        self.n_used + n_bytes > N_BYTES
    }

    /// Writes elements on the host, and says where they are to go.
    ///
    /// Errors   none; panics if they are more than the ring holds
    pub(super) fn take<T: Pod>(&mut self, elems: impl ExactSizeIterator<Item = T>) -> (At, &[u8]) {
        let n_bytes = elems.len() * size_of::<T>();
        if self.must_wait_for(n_bytes) {
            self.n_used = 0;
        }
        let first = self.n_used;
        self.n_used = (first + n_bytes).next_multiple_of(ALIGNMENT);
        let host = match &mut self.host {
            // SAFETY: allocated with so many bytes, all of them written.
            Host::Pinned(host) => unsafe { std::slice::from_raw_parts_mut(*host, N_BYTES) },
            Host::Pageable(host) => host,
        };
        let bytes = &mut host[first..first + n_bytes];
        for (to, elem) in bytes.chunks_exact_mut(size_of::<T>()).zip(elems) {
            to.copy_from_slice(bytemuck::bytes_of(&elem));
        }
        (At(self.at + first as u64), bytes)
    }

    /// Gives everything back, in the context that is current.
    pub(super) fn free(&mut self) {
        // SAFETY: allocated in `new`, freed once: `Gpu` calls this when it goes.
        unsafe {
            let _ = result::free_sync(self.at);
            if let Host::Pinned(host) = self.host {
                let _ = result::free_host(host.cast());
            }
        }
    }
}
