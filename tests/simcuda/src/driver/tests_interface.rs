//! What tests ask for, beside the driver's own functions.

use std::ffi::{CStr, c_char};

use super::{Driver, Source, driver};
use crate::settings::Settings;

/// Simulates another machine, with counters and findings of its own.
///
/// # Safety
/// `settings` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_configure(settings: *const c_char) {
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(settings) }.to_string_lossy();
    let settings = Settings::parse(&text);
    let mut locked = driver();
    let driver = locked.get_or_insert_with(|| Driver::new(settings.clone(), Source::Call));
    driver.source = Source::Call;
    driver.configure(settings);
}

/// Writes counters as text. Yields how many bytes there are; nothing is written if they are more than `length`.
///
/// # Safety
/// `text` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_counters(text: *mut c_char, length: usize) -> usize {
    let counters = driver().as_ref().map(|driver| driver.counters.to_text()).unwrap_or_default();
    // SAFETY: passed on from this function's caller.
    unsafe { put(&counters, text, length) }
}

/// Writes findings, one a line, in the same way.
///
/// # Safety
/// `text` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_findings(text: *mut c_char, length: usize) -> usize {
    let findings = driver().as_ref().map(|driver| driver.findings.join("\n")).unwrap_or_default();
    // SAFETY: passed on from this function's caller.
    unsafe { put(&findings, text, length) }
}

/// # Safety
/// `into` points to `length` writable bytes.
unsafe fn put(text: &str, into: *mut c_char, length: usize) -> usize {
    if text.len() <= length {
        // SAFETY: as many bytes are writable.
        unsafe { text.as_ptr().copy_to_nonoverlapping(into.cast(), text.len()) };
    }
    text.len()
}
