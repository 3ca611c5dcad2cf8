//! For tests: loads the library into this process before anybody looks for a driver, and speaks with it.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::Counters;

/// The simulated driver of this process.
#[derive(Debug)]
pub struct Simulator {
    configure: unsafe extern "C" fn(*const c_char),
    counters: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    findings: unsafe extern "C" fn(*mut c_char, usize) -> usize,
}

/// Makes the simulated driver that of this process; with `TANDEM_REAL_GPU` in the environment it stays the machine's own, and
/// tests that only compare results say what a real card computes.
pub fn drive() {
    if std::env::var_os("TANDEM_REAL_GPU").is_none() {
        Simulator::load();
    }
}

impl Simulator {
    /// Loads it, once. From then on `libcuda.so` is this library.
    ///
    /// Panics if it was not built.
    pub fn load() -> &'static Self {
        static LOADED: OnceLock<Simulator> = OnceLock::new();
        LOADED.get_or_init(|| {
            let path = Self::library();
            let name = CString::new(path.as_os_str().as_bytes()).expect("paths have no zeros");
            // SAFETY: a path that ends with a zero; the library runs no code when it is loaded.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            assert!(!library.is_null(), "`{}` cannot be loaded", path.display());
            let symbol = |name: &std::ffi::CStr| -> *mut c_void {
                // SAFETY: the library is loaded and stays so.
                let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                assert!(!found.is_null(), "`{}` is no simulated driver", path.display());
                found
            };
            type Text = unsafe extern "C" fn(*mut c_char, usize) -> usize;
            // SAFETY: these are the types that `driver::tests_interface` declares.
            unsafe {
                Self {
                    configure: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(symbol(
                        c"simcuda_configure",
                    )),
                    counters: std::mem::transmute::<*mut c_void, Text>(symbol(c"simcuda_counters")),
                    findings: std::mem::transmute::<*mut c_void, Text>(symbol(c"simcuda_findings")),
                }
            }
        })
    }

    /// The library that cargo built as a dependency of the running test.
    ///
    /// Panics if it is not there.
    pub fn library() -> PathBuf {
        let name = format!("{}tandem_simcuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let test = std::env::current_exe().expect("a running program has a path");
        let folders = test.ancestors().skip(1).take(2);
        let mut candidates = folders.flat_map(|folder| [folder.join(&name), folder.join("deps").join(&name)]);
        let found = candidates.find(|path| path.exists());
        found.unwrap_or_else(|| panic!("`{name}` was not built beside `{}`", test.display()))
    }

    /// Simulates this machine from now on, with counters and findings of its own; see the crate's documentation.
    pub fn configure(&self, settings: &str) {
        crate::Settings::parse(settings);
        let text = CString::new(settings).expect("settings have no zeros");
        // SAFETY: a text that ends with a zero.
        unsafe { (self.configure)(text.as_ptr()) }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        Counters::from_text(&Self::text(self.counters))
    }

    /// What was found so far, one sentence each.
    pub fn findings(&self) -> Vec<String> {
        Self::text(self.findings).lines().map(str::to_owned).collect()
    }

    fn text(of: unsafe extern "C" fn(*mut c_char, usize) -> usize) -> String {
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            // SAFETY: as many bytes are writable.
            let needed = unsafe { of(buffer.as_mut_ptr().cast::<c_char>(), buffer.len()) };
            if needed <= buffer.len() {
                buffer.truncate(needed);
                return String::from_utf8(buffer).expect("it writes UTF-8");
            }
            buffer = vec![0u8; needed];
        }
    }
}
