//! A stand-in for NVIDIA's management library: exports the few functions that Tandem calls and answers them from a text
//! file, `fake-nvml.txt` in the folder of the library itself, read anew at every call. Without the file there is one
//! card of 6 GB. Not a model of NVML: no handles beyond an index, no state but "initialised".
//!
//! One setting a line, `#` starts a comment:
//!
//! ```text
//! driver 580.95.05
//! card 6 GiB free 5.5 GiB load 12 temperature 48 name GeForce RTX 2060
//! fail nvmlDeviceGetMemoryInfo_v2 15 card 1     # the code of nvmlReturn_t; without `card`: for every card
//! ```
//!
//! What only `tandem-simcuda` understands is passed over: both can be given the same text.
//!
//! A copy of the library in a folder of its own has its own file and its own state, also within one process.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

mod settings;

pub use settings::{Card, Settings};

/// `nvmlReturn_t`. Source: `nvml.h` of CUDA 13.
type Return = c_uint;
const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const INSUFFICIENT_SIZE: Return = 7;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

static N_INITIALISED: AtomicU32 = AtomicU32::new(0);

/// Starts the library.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    match settings().failure("nvmlInit_v2", None) {
        Some(code) => code,
        None => {
            N_INITIALISED.fetch_add(1, Ordering::SeqCst);
            SUCCESS
        }
    }
}

/// Ends it, once per start.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    let ended = N_INITIALISED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    if ended.is_ok() { SUCCESS } else { UNINITIALIZED }
}

/// One text for all codes.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_code: Return) -> *const c_char {
    c"simulated".as_ptr()
}

/// Writes the driver's version.
///
/// # Safety
/// `version` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Return {
    answer("nvmlSystemGetDriverVersion", None, |settings| {
        // SAFETY: passed on from this function's caller.
        unsafe { write_text(&settings.driver, version, length) }
    })
}

/// Writes the number of cards.
///
/// # Safety
/// `count` points to a writable integer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Return {
    answer("nvmlDeviceGetCount_v2", None, |settings| {
        // SAFETY: passed on from this function's caller.
        unsafe { write(count, settings.cards.len() as c_uint) }
    })
}

/// Writes the handle of a card: its index plus one, as a pointer that is never followed.
///
/// # Safety
/// `device` points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> Return {
    let index = index as usize;
    answer("nvmlDeviceGetHandleByIndex_v2", Some(index), |settings| {
        if index >= settings.cards.len() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: passed on from this function's caller.
        unsafe { write(device, std::ptr::without_provenance_mut(index + 1)) }
    })
}

/// Writes a card's name.
///
/// # Safety
/// `name` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, length: c_uint) -> Return {
    answer_for("nvmlDeviceGetName", device, |card| {
        // SAFETY: passed on from this function's caller.
        unsafe { write_text(&card.name, name, length) }
    })
}

/// Writes a card's memory.
///
/// # Safety
/// `memory` points to a writable `nvmlMemory_v2_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut Memory) -> Return {
    answer_for("nvmlDeviceGetMemoryInfo_v2", device, |card| {
        let (total, free) = (card.total_bytes, card.free_bytes);
        let version = size_of::<Memory>() as c_uint | 2 << 24;
        // SAFETY: passed on from this function's caller.
        unsafe { write(memory, Memory { version, total, reserved: 0, free, used: total.saturating_sub(free) }) }
    })
}

/// Writes a card's load in percent.
///
/// # Safety
/// `rates` points to a writable `nvmlUtilization_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: *mut c_void, rates: *mut Utilization) -> Return {
    answer_for("nvmlDeviceGetUtilizationRates", device, |card| match card.load_percent {
        // SAFETY: passed on from this function's caller.
        Some(gpu) => unsafe { write(rates, Utilization { gpu, memory: 0 }) },
        None => NOT_SUPPORTED,
    })
}

/// Writes a card's temperature in °C.
///
/// # Safety
/// `celsius` points to a writable integer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: *mut c_void,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> Return {
    answer_for("nvmlDeviceGetTemperature", device, |card| match card.temperature_c {
        // SAFETY: passed on from this function's caller.
        Some(temperature) => unsafe { write(celsius, temperature) },
        None => NOT_SUPPORTED,
    })
}

fn answer_for(call: &str, device: *mut c_void, write: impl FnOnce(&Card) -> Return) -> Return {
    let Some(index) = device.addr().checked_sub(1) else { return INVALID_ARGUMENT };
    answer(call, Some(index), |settings| settings.cards.get(index).map_or(INVALID_ARGUMENT, write))
}

fn answer(call: &str, card: Option<usize>, write: impl FnOnce(&Settings) -> Return) -> Return {
    if N_INITIALISED.load(Ordering::SeqCst) == 0 {
        return UNINITIALIZED;
    }
    let settings = settings();
    settings.failure(call, card).unwrap_or_else(|| write(&settings))
}

/// Writes through a pointer that may be null.
///
/// # Safety
/// `place` is null or writable.
unsafe fn write<T>(place: *mut T, value: T) -> Return {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, hence writable by this function's contract.
    unsafe { place.write(value) };
    SUCCESS
}

/// Writes a text with its closing zero.
///
/// # Safety
/// `place` is null or points to `length` writable bytes.
unsafe fn write_text(text: &str, place: *mut c_char, length: c_uint) -> Return {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: `length` bytes are writable and the text with its zero is no longer than that.
    unsafe {
        text.as_ptr().copy_to_nonoverlapping(place.cast(), text.len());
        place.add(text.len()).write(0);
    }
    SUCCESS
}

fn settings() -> Settings {
    let text = library_file().and_then(|file| std::fs::read_to_string(file.with_file_name("fake-nvml.txt")).ok());
    text.map_or_else(Settings::default, |text| Settings::parse(&text))
}

/// The file this code was loaded from.
fn library_file() -> Option<PathBuf> {
    let own: extern "C" fn() -> Return = nvmlInit_v2;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is that of a function of this library, and `found` is writable.
    let status: c_int = unsafe { libc::dladdr(own as *const c_void, found.as_mut_ptr()) };
    if status == 0 {
        return None;
    }
    // SAFETY: filled by a successful `dladdr`; the loader keeps the name while the library is loaded.
    let name = unsafe { found.assume_init().dli_fname };
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string by `dladdr`'s contract.
    Some(PathBuf::from(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()))
}
