//! Memory of cards and pinned memory of the host, allocated, copied and filled.

use std::alloc::Layout;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::queue::Work;
use super::{
    Code, Done, Driver, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_SUPPORTED,
    OUT_OF_MEMORY, Refusal, STREAM_CAPTURE_UNSUPPORTED, call, write,
};

/// Memory that the driver knows.
pub(crate) struct Region {
    pub(crate) bytes: usize,
    pub(crate) place: Place,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Card(usize),
    /// The host's, pinned when it was allocated.
    Pinned,
    /// The host's, pinned later.
    Registered,
}

/// Alignment of what is allocated. Source: CUDA C++ Programming Guide, "Device Memory Accesses".
const ALIGN: usize = 256;
/// Larger allocations begin as zeros, which cost nothing until they are touched; smaller ones as no numbers.
const MOST_POISONED: usize = 4 << 20;

impl Driver {
    fn allocate_on(&mut self, card: usize, bytes: usize) -> Done<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE.into());
        }
        let used: usize = self.on_card(card).map(|region| region.bytes).sum();
        let free = self.settings.cards[card].free_bytes as usize;
        if used + bytes > free {
            return Err(Refusal::new(OUT_OF_MEMORY, format!("{bytes} bytes asked for, {used} of {free} are taken")));
        }
        let address = allocate(bytes)?;
        self.add_region(address, bytes, Place::Card(card))?;
        self.counters.allocated_bytes += bytes as u64;
        self.counters.most_allocated_bytes = self.counters.most_allocated_bytes.max(self.counters.allocated_bytes);
        Ok(address)
    }

    fn on_card(&self, card: usize) -> impl Iterator<Item = &Region> {
        self.regions.values().filter(move |region| region.place == Place::Card(card))
    }

    fn add_region(&mut self, address: u64, bytes: usize, place: Place) -> Done {
        self.maps.clear();
        self.regions.insert(address, Region { bytes, place });
        Ok(())
    }

    /// Gives memory back; yields its size.
    pub(crate) fn free(&mut self, address: u64) -> Done<usize> {
        let is_card = self.regions.get(&address).is_some_and(|region| matches!(region.place, Place::Card(_)));
        if !is_card {
            return Err(Refusal::new(INVALID_VALUE, format!("{address:#x} is not where an allocation begins")));
        }
        let bytes = self.forget_region(address)?;
        self.counters.allocated_bytes -= bytes as u64;
        deallocate(address, bytes);
        Ok(bytes)
    }

    fn forget_region(&mut self, address: u64) -> Done<usize> {
        self.maps.clear();
        Ok(self.regions.remove(&address).ok_or(INVALID_VALUE)?.bytes)
    }

    /// The region that a range lies in.
    fn region_of(&self, address: u64, bytes: usize) -> Option<&Region> {
        let (begin, region) = self.regions.range(..=address).next_back()?;
        (address + bytes as u64 <= begin + region.bytes as u64).then_some(region)
    }

    fn check_card_memory(&self, what: &str, address: u64, bytes: usize) -> Done {
        match self.region_of(address, bytes) {
            Some(Region { place: Place::Card(card), .. }) => self.check_there(*card),
            Some(_) => Ok(()),
            None => {
                Err(Refusal::new(INVALID_VALUE, format!("{what} of {bytes} bytes at {address:#x} is out of bounds")))
            }
        }
    }

    /// Writes bytes that were taken before.
    pub(crate) fn copy_in(&mut self, into: u64, bytes: &[u8]) -> Done {
        self.check_card_memory("copy", into, bytes.len())?;
        self.counters.n_to_device += 1;
        self.counters.to_device_bytes += bytes.len() as u64;
        let into = std::ptr::with_exposed_provenance_mut::<u8>(into as usize);
        // SAFETY: the range lies in one region.
        unsafe { into.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies between cards, pinned memory and memory of the host's that the caller vouches for.
    pub(crate) fn copy(&mut self, into: u64, from: u64, bytes: usize) -> Done {
        let is_card = |driver: &Self, address| {
            driver.region_of(address, bytes).is_some_and(|region| matches!(region.place, Place::Card(_)))
        };
        match (is_card(self, into), is_card(self, from)) {
            (true, true) => self.counters.within_bytes += bytes as u64,
            (true, false) => {
                self.counters.n_to_device += 1;
                self.counters.to_device_bytes += bytes as u64;
            }
            (false, true) => {
                self.counters.n_to_host += 1;
                self.counters.to_host_bytes += bytes as u64;
            }
            (false, false) => return Err(Refusal::new(INVALID_VALUE, "a copy from and to memory that was given back")),
        }
        let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
        let into = std::ptr::with_exposed_provenance_mut::<u8>(into as usize);
        // SAFETY: the range on the card lies in one region; the other one too, or the caller of the copy vouches for it.
        unsafe { into.copy_from(from, bytes) };
        Ok(())
    }

    /// Repeats a pattern.
    pub(crate) fn fill(&mut self, at: u64, pattern: &[u8], n: usize) -> Done {
        self.check_card_memory("fill", at, n * pattern.len())?;
        let at = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        for index in 0..n {
            // SAFETY: the range lies in one region.
            unsafe { at.add(index * pattern.len()).copy_from_nonoverlapping(pattern.as_ptr(), pattern.len()) };
        }
        Ok(())
    }

    fn queue_to_device(&mut self, into: u64, from: *const c_void, bytes: usize, stream: *mut c_void) -> Done<usize> {
        let stream = self.stream(stream)?;
        if bytes == 0 {
            return Ok(stream);
        }
        self.check_card_memory("copy", into, bytes)?;
        let from_address = from.expose_provenance() as u64;
        let work = if self.region_of(from_address, bytes).is_some() {
            Work::Copy { into, from: from_address, bytes }
        } else {
            // SAFETY: the caller vouches for memory that is not pinned; it is read now, as the driver does.
            let taken = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
            Work::Staged { into, bytes: Arc::from(taken) }
        };
        self.enqueue(stream, "copy to card", work)?;
        Ok(stream)
    }

    fn queue_to_host(&mut self, into: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> Done<usize> {
        let stream = self.stream(stream)?;
        if bytes == 0 {
            return Ok(stream);
        }
        self.check_card_memory("copy", from, bytes)?;
        let into = into.expose_provenance() as u64;
        let is_pinned = self.region_of(into, bytes).is_some();
        self.enqueue(stream, "copy to host", Work::Copy { into, from, bytes })?;
        // Memory that is not pinned is filled before the call returns.
        if !is_pinned {
            self.synchronize(stream)?;
        }
        Ok(stream)
    }

    fn check_not_captured(&self) -> Done {
        if self.is_captured_globally() {
            return Err(Refusal::new(STREAM_CAPTURE_UNSUPPORTED, "this call waits for streams that are captured"));
        }
        Ok(())
    }
}

fn layout(bytes: usize) -> Done<Layout> {
    Layout::from_size_align(bytes, ALIGN).map_err(|_| INVALID_VALUE.into())
}

fn allocate(bytes: usize) -> Done<u64> {
    if bytes > MOST_POISONED {
        // SAFETY: a fresh mapping; pages are made when they are touched.
        let mapped = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), bytes, access, flags | libc::MAP_NORESERVE, -1, 0)
        };
        if mapped == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY.into());
        }
        return Ok(mapped.expose_provenance() as u64);
    }
    // SAFETY: the size is not zero; as many bytes are filled.
    let memory = unsafe {
        let memory = std::alloc::alloc(layout(bytes)?);
        if memory.is_null() {
            return Err(OUT_OF_MEMORY.into());
        }
        memory.write_bytes(0xff, bytes);
        memory
    };
    Ok(memory.expose_provenance() as u64)
}

fn deallocate(address: u64, bytes: usize) {
    let memory = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: it was allocated in the same way, and its region is forgotten.
    unsafe {
        if bytes > MOST_POISONED {
            libc::munmap(memory.cast(), bytes);
        } else if let Ok(layout) = layout(bytes) {
            std::alloc::dealloc(memory, layout);
        }
    }
}

/// Allocates memory on the current card.
///
/// # Safety
/// `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
    call("cuMemAlloc_v2", |driver| {
        driver.check_not_captured()?;
        let card = driver.card()?;
        let made = driver.allocate_on(card, bytes)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(address, made) }
    })
}

/// Waits for the card and gives memory back.
///
/// # Safety
/// Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call("cuMemFree_v2", |driver| {
        if address == 0 {
            return Ok(());
        }
        driver.check_not_captured()?;
        if let Some(Place::Card(card)) = driver.regions.get(&address).map(|region| region.place) {
            // A lost card gives its memory back all the same.
            let done = driver.synchronize_card(card);
            driver.free(address)?;
            return done;
        }
        Err(Refusal::new(INVALID_VALUE, format!("{address:#x} is not where an allocation begins")))
    })
}

/// Allocates memory in a stream's order; it is there at once.
///
/// # Safety
/// `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: *mut c_void) -> Code {
    call("cuMemAllocAsync", |driver| {
        let stream = driver.stream(stream)?;
        let card = driver.card()?;
        let made = match driver.allocate_on(card, bytes) {
            // What the stream is about to give back may be enough.
            Err(refusal) if refusal.code == OUT_OF_MEMORY => {
                let position = driver.position(stream)?;
                driver.run_until(position)?;
                driver.allocate_on(card, bytes)?
            }
            other => other?,
        };
        // SAFETY: passed on from this function's caller.
        unsafe { write(address, made) }
    })
}

/// Gives memory back in a stream's order.
///
/// # Safety
/// Nobody uses the memory after what is on the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: *mut c_void) -> Code {
    call("cuMemFreeAsync", |driver| {
        let stream = driver.stream(stream)?;
        driver.enqueue(stream, "free", Work::Free(address))
    })
}

/// Managed memory is not simulated.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(_address: *mut u64, _bytes: usize, _flags: c_uint) -> Code {
    call("cuMemAllocManaged", |_| Err(NOT_SUPPORTED.into()))
}

/// Writes what is free on the current card, and its whole memory.
///
/// # Safety
/// Both are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    call("cuMemGetInfo_v2", |driver| {
        let card = driver.card()?;
        let used: usize = driver.on_card(card).map(|region| region.bytes).sum();
        let described = &driver.settings.cards[card];
        let left = (described.free_bytes as usize).saturating_sub(used);
        // SAFETY: passed on from this function's caller.
        unsafe {
            write(total, described.total_bytes as usize)?;
            write(free, left)
        }
    })
}

/// Allocates pinned memory of the host's.
///
/// # Safety
/// `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Code {
    call("cuMemHostAlloc", |driver| {
        if bytes == 0 {
            return Err(INVALID_VALUE.into());
        }
        let made = allocate(bytes)?;
        driver.add_region(made, bytes, Place::Pinned)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(address, std::ptr::with_exposed_provenance_mut(made as usize)) }
    })
}

/// Gives pinned memory back.
///
/// # Safety
/// It is from `cuMemHostAlloc`, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> Code {
    call("cuMemFreeHost", |driver| {
        let address = address.addr() as u64;
        if driver.regions.get(&address).map(|region| region.place) != Some(Place::Pinned) {
            return Err(INVALID_VALUE.into());
        }
        let bytes = driver.forget_region(address)?;
        deallocate(address, bytes);
        Ok(())
    })
}

/// Pins memory that the host has.
///
/// # Safety
/// The memory stays until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, _flags: c_uint) -> Code {
    call("cuMemHostRegister_v2", |driver| {
        let begin = address.expose_provenance() as u64;
        let before = driver.regions.range(..begin + bytes as u64).next_back();
        if bytes == 0 || address.is_null() {
            return Err(INVALID_VALUE.into());
        }
        if before.is_some_and(|(other, region)| other + region.bytes as u64 > begin) {
            return Err(HOST_MEMORY_ALREADY_REGISTERED.into());
        }
        driver.add_region(begin, bytes, Place::Registered)
    })
}

/// Ends what `cuMemHostRegister` began.
///
/// # Safety
/// Nothing on a stream uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(address: *mut c_void) -> Code {
    call("cuMemHostUnregister", |driver| {
        let address = address.addr() as u64;
        if driver.regions.get(&address).map(|region| region.place) != Some(Place::Registered) {
            return Err(HOST_MEMORY_NOT_REGISTERED.into());
        }
        driver.forget_region(address).map(|_| ())
    })
}

/// Writes where kernels find pinned memory: at the same address.
///
/// # Safety
/// `device` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(device: *mut u64, host: *mut c_void, _flags: c_uint) -> Code {
    call("cuMemHostGetDevicePointer_v2", |driver| {
        let address = host.addr() as u64;
        driver.region_of(address, 1).ok_or(INVALID_VALUE)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(device, address) }
    })
}

/// Copies to a card and waits.
///
/// # Safety
/// `from` points to as many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(into: u64, from: *const c_void, bytes: usize) -> Code {
    call("cuMemcpyHtoD_v2", |driver| {
        let stream = driver.queue_to_device(into, from, bytes, std::ptr::null_mut())?;
        driver.synchronize(stream)
    })
}

/// Queues a copy to a card.
///
/// # Safety
/// `from` points to as many readable bytes, until the copy is done if they are pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    into: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Code {
    call("cuMemcpyHtoDAsync_v2", |driver| driver.queue_to_device(into, from, bytes, stream).map(|_| ()))
}

/// Copies to the host and waits.
///
/// # Safety
/// `into` points to as many writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(into: *mut c_void, from: u64, bytes: usize) -> Code {
    call("cuMemcpyDtoH_v2", |driver| {
        let stream = driver.queue_to_host(into, from, bytes, std::ptr::null_mut())?;
        driver.synchronize(stream)
    })
}

/// Queues a copy to the host.
///
/// # Safety
/// `into` points to as many writable bytes until the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(into: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> Code {
    call("cuMemcpyDtoHAsync_v2", |driver| driver.queue_to_host(into, from, bytes, stream).map(|_| ()))
}

/// Queues a copy within a card.
///
/// # Safety
/// None is needed: the ranges are checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(into: u64, from: u64, bytes: usize, stream: *mut c_void) -> Code {
    call("cuMemcpyDtoDAsync_v2", |driver| {
        let stream = driver.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        driver.check_card_memory("copy", into, bytes)?;
        driver.check_card_memory("copy", from, bytes)?;
        driver.enqueue(stream, "copy on card", Work::Copy { into, from, bytes })
    })
}

/// Copies within a card.
///
/// # Safety
/// None is needed: the ranges are checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(into: u64, from: u64, bytes: usize) -> Code {
    // SAFETY: as for this function.
    unsafe { cuMemcpyDtoDAsync_v2(into, from, bytes, std::ptr::null_mut()) }
}

/// Queues a copy between cards.
///
/// # Safety
/// None is needed: the ranges are checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    into: u64,
    _into_context: *mut c_void,
    from: u64,
    _from_context: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Code {
    // SAFETY: as for this function.
    unsafe { cuMemcpyDtoDAsync_v2(into, from, bytes, stream) }
}

fn queue_fill(name: &str, at: u64, pattern: u32, pattern_bytes: usize, n: usize, stream: *mut c_void) -> Code {
    call(name, |driver| {
        let stream = driver.stream(stream)?;
        if n == 0 {
            return Ok(());
        }
        driver.check_card_memory("fill", at, n * pattern_bytes)?;
        driver.enqueue(stream, "fill", Work::Fill { at, pattern, pattern_bytes, n })
    })
}

/// Queues a fill with a byte.
///
/// # Safety
/// None is needed: the range is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(at: u64, value: u8, n: usize, stream: *mut c_void) -> Code {
    queue_fill("cuMemsetD8Async", at, value.into(), 1, n, stream)
}

/// Queues a fill with a word of two bytes.
///
/// # Safety
/// None is needed: the range is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16Async(at: u64, value: u16, n: usize, stream: *mut c_void) -> Code {
    queue_fill("cuMemsetD16Async", at, value.into(), 2, n, stream)
}

/// Queues a fill with a word of four bytes.
///
/// # Safety
/// None is needed: the range is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(at: u64, value: c_uint, n: usize, stream: *mut c_void) -> Code {
    queue_fill("cuMemsetD32Async", at, value, 4, n, stream)
}

/// Fills with a byte, in the order of the default stream.
///
/// # Safety
/// None is needed: the range is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(at: u64, value: u8, n: usize) -> Code {
    queue_fill("cuMemsetD8_v2", at, value.into(), 1, n, std::ptr::null_mut())
}

/// Fills with a word of four bytes, in the order of the default stream.
///
/// # Safety
/// None is needed: the range is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(at: u64, value: c_uint, n: usize) -> Code {
    queue_fill("cuMemsetD32_v2", at, value, 4, n, std::ptr::null_mut())
}

/// Hints about managed memory change nothing here.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAdvise(_at: u64, _bytes: usize, _advice: c_int, _device: c_int) -> Code {
    call("cuMemAdvise", |_| Err(NOT_SUPPORTED.into()))
}
