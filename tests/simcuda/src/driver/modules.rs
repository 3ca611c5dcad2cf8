//! PTX as programs load it, and the kernels in it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::devices::{STATIC_SHARED, most_shared};
use super::{
    Code, Done, Driver, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND,
    Refusal, UNSUPPORTED_PTX_VERSION, add, at, call, handle, index, take, write,
};
use crate::ptx::{self, Kernel, Module};

/// A module that is loaded on a card.
pub(crate) struct Loaded {
    module: Module,
    card: usize,
}

/// A kernel that somebody asked for.
pub(crate) struct Function {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) card: usize,
    /// Bytes of dynamic shared memory that a launch may ask for.
    pub(crate) most_dynamic: usize,
}

/// Newest PTX that a driver reads, times ten: 12.0 reads 8.0. Source: PTX ISA, "Release Notes".
fn newest_ptx(driver_version: i32) -> u32 {
    let (major, minor) = (driver_version / 1000, driver_version % 1000 / 10);
    ((major - 4) * 10 + minor) as u32
}

impl Driver {
    fn load(&mut self, text: &str) -> Done<usize> {
        let card = self.card()?;
        let module = ptx::parse(text).map_err(|message| Refusal::new(INVALID_PTX, message))?;
        let (version, newest) = (module.version, newest_ptx(self.settings.version));
        if version > newest {
            let message = format!("PTX {version} is newer than {newest}, which this driver reads");
            return Err(Refusal::new(UNSUPPORTED_PTX_VERSION, message));
        }
        let compute = self.settings.cards[card].compute;
        if module.target > compute {
            let message = format!("PTX for sm_{} on a card of sm_{compute}", module.target);
            return Err(Refusal::new(NO_BINARY_FOR_GPU, message));
        }
        Ok(add(&mut self.modules, Loaded { module, card }))
    }

    fn function(&mut self, module: usize, name: &str) -> Done<usize> {
        let loaded = at(&self.modules, module)?;
        let kernel = loaded.module.kernels.get(name).cloned();
        let kernel = kernel.ok_or_else(|| Refusal::new(NOT_FOUND, format!("no kernel `{name}`")))?;
        if let Some(known) = self.functions.iter().position(|known| Arc::ptr_eq(&known.kernel, &kernel)) {
            return Ok(known);
        }
        let most_dynamic = STATIC_SHARED.saturating_sub(kernel.shared_bytes);
        self.functions.push(Function { kernel, card: loaded.card, most_dynamic });
        Ok(self.functions.len() - 1)
    }
}

/// Loads PTX.
///
/// # Safety
/// `image` is a C string, `module` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> Code {
    call("cuModuleLoadData", |driver| {
        if image.is_null() {
            return Err(INVALID_VALUE.into());
        }
        // SAFETY: by this function's contract.
        let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
        let text = text.to_str().map_err(|_| Refusal::new(INVALID_IMAGE, "only PTX can be loaded"))?;
        let made = driver.load(text)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(module, handle(made)) }
    })
}

/// Loads PTX; options change nothing here.
///
/// # Safety
/// As for `cuModuleLoadData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_void,
    _n_options: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> Code {
    // SAFETY: passed on from this function's caller.
    unsafe { cuModuleLoadData(module, image) }
}

/// Drops a module. Work that is queued keeps its kernels.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> Code {
    call("cuModuleUnload", |driver| take(&mut driver.modules, index(module)?).map(|_| ()))
}

/// Writes the handle of a kernel.
///
/// # Safety
/// `name` is a C string, `function` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> Code {
    call("cuModuleGetFunction", |driver| {
        // SAFETY: by this function's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = driver.function(index(module)?, &name)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(function, handle(found)) }
    })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_DYNAMIC_SHARED: c_int = 8;

/// Writes what is known of a kernel.
///
/// # Safety
/// `value` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: *mut c_void) -> Code {
    call("cuFuncGetAttribute", |driver| {
        let function = driver.functions.get(index(function)?).ok_or(INVALID_HANDLE)?;
        let found = match attribute {
            0 => function.kernel.max_threads as c_int,
            1 => function.kernel.shared_bytes as c_int,
            3 => function.kernel.local_bytes as c_int,
            MAX_DYNAMIC_SHARED => function.most_dynamic as c_int,
            _ => 0,
        };
        // SAFETY: passed on from this function's caller.
        unsafe { write(value, found) }
    })
}

/// Lets a kernel have more dynamic shared memory.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: *mut c_void, attribute: c_int, value: c_int) -> Code {
    call("cuFuncSetAttribute", |driver| {
        let function = driver.functions.get_mut(index(function)?).ok_or(INVALID_HANDLE)?;
        if attribute != MAX_DYNAMIC_SHARED {
            return Ok(());
        }
        let most = most_shared(&driver.settings.cards[function.card]).saturating_sub(function.kernel.shared_bytes);
        if value < 0 || value as usize > most {
            let message = format!("{value} bytes of dynamic shared memory, {most} are the most on this card");
            return Err(Refusal::new(INVALID_VALUE, message));
        }
        function.most_dynamic = value as usize;
        Ok(())
    })
}

/// A preference that changes nothing here.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetCacheConfig(_function: *mut c_void, _config: c_int) -> Code {
    call("cuFuncSetCacheConfig", |_| Ok(()))
}
