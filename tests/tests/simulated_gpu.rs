//! One text makes a machine for both of NVIDIA's libraries, and changes it while it is in use.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use tandem_core::hardware::{ProbeOptions, Prober};
use tandem_tests::gpu::{RTX_2060, SimulatedGpu};

/// A function of the simulated driver in this folder.
fn function(gpu: &SimulatedGpu, name: &CStr) -> *mut c_void {
    let path = CString::new(gpu.driver().as_os_str().as_bytes()).expect("paths have no zeros");
    // SAFETY: a library that runs no code when it is loaded, and a function's name.
    let found = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

#[test]
fn driver_and_management_library_tell_of_the_same_card() {
    let gpu = SimulatedGpu::new(RTX_2060).unwrap();
    let mut name = [0 as c_char; 64];
    let free = || {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the types are those that the driver declares.
        unsafe {
            let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int =
                std::mem::transmute(function(&gpu, c"cuDevicePrimaryCtxRetain"));
            let set: extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(function(&gpu, c"cuCtxSetCurrent"));
            let info: extern "C" fn(*mut usize, *mut usize) -> c_int =
                std::mem::transmute(function(&gpu, c"cuMemGetInfo_v2"));
            let mut context = std::ptr::null_mut();
            assert_eq!((retain(&mut context, 0), set(context), info(&mut free, &mut total)), (0, 0, 0));
        }
        (free, total)
    };
    // SAFETY: as above.
    unsafe {
        let init: extern "C" fn(u32) -> c_int = std::mem::transmute(function(&gpu, c"cuInit"));
        let get_name: extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
            std::mem::transmute(function(&gpu, c"cuDeviceGetName"));
        assert_eq!((init(0), get_name(name.as_mut_ptr(), 64, 0)), (0, 0));
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"NVIDIA GeForce RTX 2060");
    }
    assert_eq!(free(), (11 << 29, 6 << 30));
    let probe = || {
        let options = ProbeOptions { nvml_path: Some(gpu.nvml().to_path_buf()) };
        Prober::new(options).hardware(gpu.nvml()).gpus
    };
    assert_eq!(format!("{:?}", probe()).matches("NVIDIA GeForce RTX 2060").count(), 1);
    gpu.set(&RTX_2060.replace("free 5.5", "free 2")).unwrap();
    assert_eq!(free(), (2 << 30, 6 << 30));
}

#[test]
fn a_program_finds_both_libraries_first() {
    let gpu = SimulatedGpu::new(RTX_2060).unwrap();
    let mut program = Command::new("sh");
    program.args(["-c", "echo $LD_LIBRARY_PATH"]);
    gpu.equip(&mut program);
    let output = program.output().unwrap();
    let folder = gpu.driver().parent().unwrap().to_str().unwrap().to_owned();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(&folder));
}
