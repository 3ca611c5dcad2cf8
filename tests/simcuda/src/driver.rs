//! The driver's functions, as C sees them, over one state of all cards.
//!
//! Every function takes the lock, asks whether it is told to fail, and does its work. Handles are small numbers.
#![expect(unreachable_pub, reason = "the driver's functions are found by name")]

mod devices;
mod events;
mod graphs;
mod launch;
mod memory;
mod modules;
mod queue;
mod streams;
mod tests_interface;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use crate::check::memory::Map;
use crate::check::order::{Clock, History};
use crate::counters::Counters;
use crate::ptx::Kernel;
use crate::settings::Settings;

/// `CUresult`. Source: `cuda.h` of CUDA 12.0.
pub(crate) type Code = c_int;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const UNSUPPORTED_PTX_VERSION: Code = 222;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Code = 900;
pub(crate) const STREAM_CAPTURE_INVALIDATED: Code = 901;
pub(crate) const STREAM_CAPTURE_UNJOINED: Code = 904;

/// Why a call fails.
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, message: String::new() }
    }
}

pub(crate) type Done<T = ()> = Result<T, Refusal>;

/// All of it.
pub(crate) struct Driver {
    settings: Settings,
    source: Source,
    is_initialised: bool,
    /// Calls so far, of those that are told to fail.
    n_calls: HashMap<String, u64>,
    /// By card: launches, and what calls answer since it was lost.
    n_launches: Vec<u64>,
    lost: Vec<Option<Code>>,
    /// A fault that every later call answers with.
    sticky: Option<Code>,
    regions: BTreeMap<u64, memory::Region>,
    /// What kernels of a card and module may reach, until an allocation changes.
    maps: HashMap<(usize, usize), Arc<Map>>,
    peers: Vec<(usize, usize)>,
    modules: Vec<Option<modules::Loaded>>,
    functions: Vec<modules::Function>,
    streams: Vec<Option<queue::Stream>>,
    /// The default stream of each card.
    default_streams: HashMap<usize, usize>,
    events: Vec<Option<events::Event>>,
    captures: Vec<Option<graphs::Capture>>,
    graphs: Vec<Option<Arc<graphs::Graph>>>,
    instances: Vec<Option<graphs::Instance>>,
    /// What the host knows to be finished.
    host: Clock,
    history: History,
    n_tasks: u64,
    counters: Counters,
    findings: Vec<String>,
    last_error: String,
}

/// Where the settings come from.
enum Source {
    Unread,
    Call,
    File(PathBuf, Option<(SystemTime, u64)>),
    Rest,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    /// The card of this thread's context.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Driver {
    fn new(settings: Settings, source: Source) -> Self {
        let n_cards = settings.cards.len();
        Self {
            settings,
            source,
            is_initialised: false,
            n_calls: HashMap::new(),
            n_launches: vec![0; n_cards],
            lost: vec![None; n_cards],
            sticky: None,
            regions: BTreeMap::new(),
            maps: HashMap::new(),
            peers: Vec::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            streams: Vec::new(),
            default_streams: HashMap::new(),
            events: Vec::new(),
            captures: Vec::new(),
            graphs: Vec::new(),
            instances: Vec::new(),
            host: Clock::default(),
            history: History::default(),
            n_tasks: 0,
            counters: Counters::default(),
            findings: Vec::new(),
            last_error: String::new(),
        }
    }

    /// Another machine, counters from zero; what is allocated and loaded stays.
    fn configure(&mut self, settings: Settings) {
        let n_cards = settings.cards.len();
        self.settings = settings;
        self.n_calls.clear();
        self.n_launches = vec![0; n_cards];
        self.lost = vec![None; n_cards];
        self.sticky = None;
        let allocated_bytes = self.counters.allocated_bytes;
        self.counters = Counters { allocated_bytes, most_allocated_bytes: allocated_bytes, ..Counters::default() };
        self.findings.clear();
    }

    /// Reads the file of settings again if it has changed.
    fn refresh(&mut self) {
        let Source::File(path, read) = &mut self.source else { return };
        // A clock's tick may see two changes: the length tells most of them apart.
        let changed = std::fs::metadata(&*path).and_then(|file| Ok((file.modified()?, file.len()))).ok();
        if changed == *read {
            return;
        }
        *read = changed;
        if let Ok(text) = std::fs::read_to_string(&*path) {
            self.settings = Settings::parse(&text);
            let n_cards = self.settings.cards.len();
            self.n_launches.resize(n_cards, 0);
            self.lost.resize(n_cards, None);
        }
    }

    /// Whether a call is told to fail.
    fn check_told(&mut self, call: &str) -> Done {
        let Some(failure) = self.settings.failures.iter().find(|failure| failure.call == call) else { return Ok(()) };
        let n_calls = self.n_calls.entry(call.to_owned()).or_default();
        *n_calls += 1;
        if *n_calls > failure.after {
            return Err(Refusal::new(failure.code, format!("`{call}` is told to fail")));
        }
        Ok(())
    }

    /// The card of this thread's context, if it is still there.
    fn card(&self) -> Done<usize> {
        let card = CURRENT.get().ok_or(INVALID_CONTEXT)?;
        self.check_there(card)?;
        Ok(card)
    }

    fn check_there(&self, card: usize) -> Done {
        match self.lost.get(card) {
            Some(None) => Ok(()),
            Some(Some(code)) => Err(Refusal::new(*code, format!("card {card} is lost"))),
            None => Err(INVALID_DEVICE.into()),
        }
    }

    /// Notes something that a card would let pass.
    fn found(&mut self, code: Code, finding: String) -> Refusal {
        let mut stderr = std::io::stderr().lock();
        let _ = std::io::Write::write_fmt(&mut stderr, format_args!("simcuda: {finding}\n"));
        self.counters.n_findings += 1;
        self.findings.push(finding.clone());
        if self.settings.is_sticky {
            self.sticky = Some(code);
        }
        Refusal::new(code, finding)
    }

    fn kernel(&self, function: usize) -> Done<Arc<Kernel>> {
        Ok(self.functions.get(function).ok_or(INVALID_HANDLE)?.kernel.clone())
    }
}

/// The state, made from the settings at the first call.
fn driver() -> MutexGuard<'static, Option<Driver>> {
    let mut driver = DRIVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if driver.is_none() {
        let file = library_file().map(|file| file.with_file_name("simcuda.txt")).filter(|file| file.exists());
        let made = match (file, std::env::var("SIMCUDA")) {
            (Some(path), _) => Driver::new(Settings::default(), Source::File(path, None)),
            (None, Ok(text)) => Driver::new(Settings::parse(&text.replace(';', "\n")), Source::Rest),
            (None, Err(_)) => Driver::new(Settings::default(), Source::Unread),
        };
        *driver = Some(made);
    }
    driver
}

/// One call of the driver.
fn call(name: &str, work: impl FnOnce(&mut Driver) -> Done) -> Code {
    let mut locked = driver();
    let driver = locked.as_mut().expect("made when it is locked");
    driver.refresh();
    let needs_start = !matches!(name, "cuInit" | "cuDriverGetVersion");
    let done = if needs_start && !driver.is_initialised {
        Err(NOT_INITIALIZED.into())
    } else if let (Some(code), true) = (driver.sticky, needs_start) {
        Err(Refusal::new(code, driver.last_error.clone()))
    } else {
        driver.check_told(name).and_then(|()| work(driver))
    };
    match done {
        Ok(()) => SUCCESS,
        Err(refusal) => {
            driver.last_error = refusal.message;
            refusal.code
        }
    }
}

/// Writes through a pointer that may be null.
///
/// # Safety
/// `place` is null or writable.
unsafe fn write<T>(place: *mut T, value: T) -> Done {
    if place.is_null() {
        return Err(INVALID_VALUE.into());
    }
    // SAFETY: not null, hence writable by this function's contract.
    unsafe { place.write(value) };
    Ok(())
}

/// A handle that stands for an index.
fn handle(index: usize) -> *mut c_void {
    // From 16 on: small numbers are special streams.
    std::ptr::without_provenance_mut((index + 1) << 4)
}

/// The index that a handle stands for.
fn index(handle: *mut c_void) -> Done<usize> {
    let number = handle.addr();
    if number < 16 || number & 15 != 0 { Err(INVALID_HANDLE.into()) } else { Ok((number >> 4) - 1) }
}

/// What is in a table at an index.
fn at<T>(table: &[Option<T>], index: usize) -> Done<&T> {
    table.get(index).and_then(Option::as_ref).ok_or_else(|| INVALID_HANDLE.into())
}

fn at_mut<T>(table: &mut [Option<T>], index: usize) -> Done<&mut T> {
    table.get_mut(index).and_then(Option::as_mut).ok_or_else(|| INVALID_HANDLE.into())
}

/// Adds to a table and yields the handle.
fn add<T>(table: &mut Vec<Option<T>>, value: T) -> usize {
    let free = table.iter().position(Option::is_none).unwrap_or(table.len());
    if free == table.len() {
        table.push(Some(value));
    } else {
        table[free] = Some(value);
    }
    free
}

fn take<T>(table: &mut [Option<T>], index: usize) -> Done<T> {
    table.get_mut(index).and_then(Option::take).ok_or_else(|| INVALID_HANDLE.into())
}

/// Writes a code's name.
///
/// # Safety
/// `name` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Code, name: *mut *const c_char) -> Code {
    let text = match code {
        SUCCESS => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        NO_BINARY_FOR_GPU => c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        UNSUPPORTED_PTX_VERSION => c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        716 => c"CUDA_ERROR_MISALIGNED_ADDRESS",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => c"CUDA_ERROR",
    };
    // SAFETY: passed on from this function's caller.
    unsafe { write(name, text.as_ptr()) }.map_or_else(|refusal| refusal.code, |()| SUCCESS)
}

/// Writes what was wrong with the last call that failed.
///
/// # Safety
/// `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Code, text: *mut *const c_char) -> Code {
    let last = driver().as_ref().map(|driver| driver.last_error.clone()).unwrap_or_default();
    let said = if last.is_empty() { format!("simulated error {code}") } else { last };
    let said = CString::new(said.replace('\0', " ")).unwrap_or_default();
    // Texts live for ever in the driver; these are few.
    // SAFETY: passed on from this function's caller.
    unsafe { write(text, said.into_raw().cast_const()) }.map_or_else(|refusal| refusal.code, |()| SUCCESS)
}

/// The file this code was loaded from.
fn library_file() -> Option<PathBuf> {
    let own: unsafe extern "C" fn(u32) -> Code = devices::cuInit;
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
