//! Events: positions in streams that others wait for.

use std::ffi::{c_uint, c_void};

use super::queue::Position;
use super::{Code, INVALID_HANDLE, NOT_READY, add, at, at_mut, call, handle, index, take, write};
use crate::check::order::Clock;

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    /// Where it was recorded, and what is finished then.
    recorded: Option<(Position, Clock)>,
    /// Where it was recorded in a capture: which one, and the number of the record.
    pub(crate) captured: Option<(usize, usize)>,
}

/// Makes an event.
///
/// # Safety
/// `event` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> Code {
    call("cuEventCreate", |driver| {
        driver.card()?;
        let made = add(&mut driver.events, Event::default());
        // SAFETY: passed on from this function's caller.
        unsafe { write(event, handle(made)) }
    })
}

/// Drops an event; what waits for it still does.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> Code {
    call("cuEventDestroy_v2", |driver| take(&mut driver.events, index(event)?).map(|_| ()))
}

/// Sets an event to the end of a stream.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> Code {
    call("cuEventRecord", |driver| {
        let (event, stream) = (index(event)?, driver.stream(stream)?);
        if let Some((capture, branch)) = at(&driver.streams, stream)?.capture {
            let number = driver.note_record(capture, branch)?;
            at_mut(&mut driver.events, event)?.captured = Some((capture, number));
            return Ok(());
        }
        let recorded = (driver.position(stream)?, at(&driver.streams, stream)?.clock.clone());
        *at_mut(&mut driver.events, event)? = Event { recorded: Some(recorded), captured: None };
        Ok(())
    })
}

/// Makes what comes next on a stream wait for an event.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> Code {
    call("cuStreamWaitEvent", |driver| {
        let (event, stream) = (index(event)?, driver.stream(stream)?);
        let event = at(&driver.events, event)?;
        if let Some((capture, number)) = event.captured {
            return driver.note_wait(stream, capture, number);
        }
        match event.recorded.clone() {
            Some((position, clock)) => driver.wait_for(stream, position, &clock),
            None => Ok(()),
        }
    })
}

/// The host waits for an event.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: *mut c_void) -> Code {
    call("cuEventSynchronize", |driver| {
        driver.counters.n_waits += 1;
        match at(&driver.events, index(event)?)?.recorded.clone() {
            Some((position, clock)) => driver.waited(position, &clock),
            None => Ok(()),
        }
    })
}

/// Tells whether an event has happened.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> Code {
    call("cuEventQuery", |driver| {
        let Some((position, clock)) = at(&driver.events, index(event)?)?.recorded.clone() else { return Ok(()) };
        if driver.is_done(position) {
            driver.host.join(&clock);
            return Ok(());
        }
        // Whoever asks again and again must get an end.
        driver.run_until(position)?;
        Err(NOT_READY.into())
    })
}

/// Writes the time between two events, which is none.
///
/// # Safety
/// `milliseconds` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, begin: *mut c_void, end: *mut c_void) -> Code {
    call("cuEventElapsedTime", |driver| {
        for event in [begin, end] {
            let Some((position, _)) = at(&driver.events, index(event)?)?.recorded else {
                return Err(INVALID_HANDLE.into());
            };
            if !driver.is_done(position) {
                return Err(NOT_READY.into());
            }
        }
        // SAFETY: passed on from this function's caller.
        unsafe { write(milliseconds, 0.0) }
    })
}
