//! Streams as programs see them.

use std::ffi::{c_int, c_uint, c_void};

use super::queue::Work;
use super::{Code, Done, Driver, NOT_READY, at, call, handle, index, take, write};

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;

impl Driver {
    /// The stream of a handle; null and one are the current card's default stream, two the thread's own.
    pub(crate) fn stream(&mut self, stream: *mut c_void) -> Done<usize> {
        if stream.addr() > 2 {
            let stream = index(stream)?;
            at(&self.streams, stream)?;
            return Ok(stream);
        }
        let card = self.card()?;
        if let Some(&stream) = self.default_streams.get(&card) {
            return Ok(stream);
        }
        let stream = self.new_stream(card, true);
        self.default_streams.insert(card, stream);
        Ok(stream)
    }
}

/// Makes a stream.
///
/// # Safety
/// `stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) -> Code {
    call("cuStreamCreate", |driver| {
        let card = driver.card()?;
        let made = driver.new_stream(card, flags & NON_BLOCKING == 0);
        // SAFETY: passed on from this function's caller.
        unsafe { write(stream, handle(made)) }
    })
}

/// Makes a stream; priorities change nothing here.
///
/// # Safety
/// `stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, _priority: c_int) -> Code {
    // SAFETY: passed on from this function's caller.
    unsafe { cuStreamCreate(stream, flags) }
}

/// Does what waits on a stream and drops it.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> Code {
    call("cuStreamDestroy_v2", |driver| {
        let stream = index(stream)?;
        let position = driver.position(stream)?;
        let done = driver.run_until(position);
        take(&mut driver.streams, stream)?;
        done
    })
}

/// Waits for all work on a stream.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> Code {
    call("cuStreamSynchronize", |driver| {
        let stream = driver.stream(stream)?;
        driver.synchronize(stream)
    })
}

/// Tells whether all work on a stream is done.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: *mut c_void) -> Code {
    call("cuStreamQuery", |driver| {
        let stream = driver.stream(stream)?;
        let position = driver.position(stream)?;
        if driver.is_done(position) {
            return Ok(());
        }
        // Whoever asks again and again must get an end.
        driver.run_until(position)?;
        Err(NOT_READY.into())
    })
}

/// Waits for all work of the current card.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> Code {
    call("cuCtxSynchronize", |driver| {
        let card = driver.card()?;
        driver.synchronize_card(card)
    })
}

/// Calls a function of the host's when what is before it is done.
///
/// # Safety
/// `function` may be called with `argument` at any later time, by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: *mut c_void,
    function: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> Code {
    call("cuLaunchHostFunc", |driver| {
        let stream = driver.stream(stream)?;
        driver.enqueue(stream, "host function", Work::Host(function, argument.expose_provenance()))
    })
}
