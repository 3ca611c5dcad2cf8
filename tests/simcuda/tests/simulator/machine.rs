//! A simulated machine as a C program would use it: the driver's functions, called by name.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

// For its functions.
use tandem_simcuda as _;

pub(crate) type Handle = *mut c_void;

unsafe extern "C" {
    fn simcuda_configure(settings: *const c_char);
    fn simcuda_counters(text: *mut c_char, length: usize) -> usize;
    pub(crate) fn cuInit(flags: c_uint) -> c_int;
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> c_int;
    pub(crate) fn cuCtxSetCurrent(context: Handle) -> c_int;
    pub(crate) fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    pub(crate) fn cuMemFree_v2(address: u64) -> c_int;
    pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int;
    pub(crate) fn cuMemHostAlloc(address: *mut Handle, bytes: usize, flags: c_uint) -> c_int;
    pub(crate) fn cuMemFreeHost(address: Handle) -> c_int;
    pub(crate) fn cuMemHostRegister_v2(address: Handle, bytes: usize, flags: c_uint) -> c_int;
    pub(crate) fn cuMemHostUnregister(address: Handle) -> c_int;
    fn cuMemcpyHtoD_v2(into: u64, from: *const c_void, bytes: usize) -> c_int;
    fn cuMemcpyDtoH_v2(into: *mut c_void, from: u64, bytes: usize) -> c_int;
    pub(crate) fn cuMemcpyHtoDAsync_v2(into: u64, from: *const c_void, bytes: usize, stream: Handle) -> c_int;
    pub(crate) fn cuMemcpyDtoHAsync_v2(into: *mut c_void, from: u64, bytes: usize, stream: Handle) -> c_int;
    pub(crate) fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> c_int;
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> c_int;
    pub(crate) fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
    pub(crate) fn cuStreamCreate(stream: *mut Handle, flags: c_uint) -> c_int;
    pub(crate) fn cuStreamSynchronize(stream: Handle) -> c_int;
    pub(crate) fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> c_int;
    pub(crate) fn cuEventCreate(event: *mut Handle, flags: c_uint) -> c_int;
    pub(crate) fn cuEventRecord(event: Handle, stream: Handle) -> c_int;
    pub(crate) fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) -> c_int;
    pub(crate) fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> c_int;
    pub(crate) fn cuGraphInstantiateWithFlags(instance: *mut Handle, graph: Handle, flags: u64) -> c_int;
    pub(crate) fn cuGraphLaunch(instance: Handle, stream: Handle) -> c_int;
    fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int;
}

/// The machine of a test; one test at a time.
pub(crate) struct Machine {
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Machine {
    /// A machine of these settings, with its first card in use.
    pub(crate) fn new(settings: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let text = CString::new(settings).unwrap();
        let mut context = std::ptr::null_mut();
        // SAFETY: the arguments are what the functions ask for.
        unsafe {
            simcuda_configure(text.as_ptr());
            assert_eq!(cuInit(0), 0);
            assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
            assert_eq!(cuCtxSetCurrent(context), 0);
        }
        Self { _alone: alone }
    }

    /// Other settings for the same machine.
    pub(crate) fn configure(&self, settings: &str) {
        let text = CString::new(settings).unwrap();
        // SAFETY: a C string.
        unsafe { simcuda_configure(text.as_ptr()) }
    }

    /// A counter by its name, or by the names of a kernel and of one of its counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: as many bytes are writable.
        let length = unsafe { simcuda_counters(text.as_mut_ptr().cast(), text.len()) };
        let text = std::str::from_utf8(&text[..length]).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        line.parse().unwrap()
    }

    /// Memory on the card with these values.
    pub(crate) fn put<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = size_of_val(values);
        let mut address = 0;
        // SAFETY: the arguments are what the functions ask for.
        unsafe {
            assert_eq!(cuMemAlloc_v2(&mut address, bytes), 0);
            assert_eq!(cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes), 0);
        }
        address
    }

    /// Values from the card.
    pub(crate) fn get<T: Copy + Default>(&self, address: u64, n: usize) -> Vec<T> {
        let mut values = vec![T::default(); n];
        // SAFETY: the arguments are what the function asks for.
        let code = unsafe { cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, size_of_val(&values[..])) };
        assert_eq!(code, 0, "{}", said(code));
        values
    }

    /// A kernel of a PTX file.
    pub(crate) fn kernel(&self, ptx: &str, name: &str) -> Handle {
        let (text, name) = (CString::new(ptx).unwrap(), CString::new(name).unwrap());
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the arguments are what the functions ask for.
        unsafe {
            let code = cuModuleLoadData(&mut module, text.as_ptr().cast());
            assert_eq!(code, 0, "{}", said(code));
            let code = cuModuleGetFunction(&mut function, module, name.as_ptr());
            assert_eq!(code, 0, "{}", said(code));
        }
        function
    }

    /// A stream that waits for no other.
    pub(crate) fn stream(&self) -> Handle {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the arguments are what the function asks for.
        assert_eq!(unsafe { cuStreamCreate(&mut stream, 1) }, 0);
        stream
    }

    /// Queues a kernel: blocks, threads, bytes of dynamic shared memory, stream.
    pub(crate) fn queue(
        &self,
        kernel: Handle,
        (blocks, threads, shared): (u32, u32, u32),
        stream: Handle,
        args: &[u64],
    ) -> i32 {
        let mut args = args.to_vec();
        let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| std::ptr::from_mut(arg).cast()).collect();
        let none = std::ptr::null_mut();
        // SAFETY: every argument has at least the bytes of its parameter.
        unsafe { cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared, stream, pointers.as_mut_ptr(), none) }
    }

    /// Queues a kernel on the default stream with a grid of more dimensions.
    pub(crate) fn queue_grid(&self, kernel: Handle, grid: [u32; 3], threads: u32, args: &[u64]) -> i32 {
        let mut args = args.to_vec();
        let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| std::ptr::from_mut(arg).cast()).collect();
        let (none, [x, y, z]) = (std::ptr::null_mut(), grid);
        // SAFETY: every argument has at least the bytes of its parameter.
        unsafe { cuLaunchKernel(kernel, x, y, z, threads, 1, 1, 0, none, pointers.as_mut_ptr(), none.cast()) }
    }

    /// Runs a kernel on the default stream; an error is what was found.
    pub(crate) fn run(&self, kernel: Handle, size: (u32, u32, u32), args: &[u64]) -> Result<(), String> {
        let none = std::ptr::null_mut();
        let queued = self.queue(kernel, size, none, args);
        // SAFETY: the default stream is always there.
        let code = if queued == 0 { unsafe { cuStreamSynchronize(none) } } else { queued };
        if code == 0 { Ok(()) } else { Err(said(code)) }
    }
}

/// What is said of the last call that failed.
pub(crate) fn said(code: c_int) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the text lives for ever.
    unsafe {
        cuGetErrorString(code, &mut text);
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
