//! The kernels by name: loaded once per GPU from the PTX in `kernels/`.

use std::ffi::{CString, c_void};

use cudarc::driver::{DriverError, result, sys};

use crate::gguf::TensorType;
use crate::quant::{self, FORMATS};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) raw: sys::CUfunction,
}

/// The products of one block format.
#[derive(Clone, Copy)]
pub(super) struct Products {
    tensor_type: TensorType,
    /// One input per block of threads, each with a matrix of its own.
    pub(super) matvec: Function,
    /// Several inputs per block of threads, all with one matrix.
    pub(super) matmul: Function,
    /// Single rows, decoded.
    pub(super) rows: Function,
}

/// PTX of one source file, for compute 7.5 and for 8.0 and newer.
struct Source {
    sm75: &'static str,
    sm80: &'static str,
}

macro_rules! source {
    ($name:literal) => {
        Source {
            sm75: include_str!(concat!("kernels/", $name, "_sm75.ptx")),
            sm80: include_str!(concat!("kernels/", $name, "_sm80.ptx")),
        }
    };
}

static SOURCES: [Source; 5] =
    [source!("elementwise"), source!("norm"), source!("attention"), source!("recurrent"), source!("products")];

macro_rules! functions {
    ($($name:ident)*) => {
        /// Every kernel.
        pub(super) struct Functions {
            modules: Vec<sys::CUmodule>,
            products: Vec<Products>,
            $(pub(super) $name: Function,)*
        }

        impl Functions {
            /// Loads them into the context that is current.
            pub(super) fn load(capability: (u32, u32)) -> Result<Self, DriverError> {
                let modules = Modules::load(capability)?;
                Ok(Self {
                    products: products(&modules)?,
                    $($name: modules.function(stringify!($name))?,)*
                    modules: modules.into_inner(),
                })
            }
        }
    };
}

functions! {
    add multiply scale clamp softcap relu_squared gate_silu gate_gelu gate_clamped_swish sigmoid_mul scale_rows
    copy_strided gather_rows add_group_bias scale_groups combine add_to_each predict_streams correct_streams
    rms_norm layer_norm gated_norm unit_heads match_length keep_outstanding
    rope kv_store attend_64 attend_128 attend_256 attend_576 attend_merge
    convolve delta_net_gates delta_net scan_steps scan
}

impl Functions {
    /// The products of a type that `cuda::supports`.
    pub(super) fn products(&self, tensor_type: TensorType) -> &Products {
        let products = self.products.iter().find(|products| products.tensor_type == tensor_type);
        products.expect("types were checked at load")
    }

    /// Unloads them.
    ///
    /// # Safety
    /// Their context is current, and nothing of them runs any more.
    pub(super) unsafe fn unload(&mut self) {
        for module in self.modules.drain(..) {
            // SAFETY: the caller's contract; a module is unloaded once. Without a driver there is nothing to undo.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

fn products(modules: &Modules) -> Result<Vec<Products>, DriverError> {
    let named = FORMATS.iter().filter_map(|format| Some((format.tensor_type, format.gpu_kernel?)));
    named
        .map(|(tensor_type, kernel)| {
            let quant::GpuKernel { matvec, matmul, rows } = *kernel;
            Ok(Products {
                tensor_type,
                matvec: modules.function(matvec)?,
                matmul: modules.function(matmul)?,
                rows: modules.function(rows)?,
            })
        })
        .collect()
}

/// Modules that are unloaded if loading ends early.
struct Modules(Vec<sys::CUmodule>);

impl Modules {
    fn load(capability: (u32, u32)) -> Result<Self, DriverError> {
        let mut modules = Self(Vec::with_capacity(SOURCES.len()));
        for Source { sm75, sm80 } in &SOURCES {
            let ptx = CString::new(if capability >= (8, 0) { *sm80 } else { *sm75 }).expect("PTX has no zero byte");
            // SAFETY: the image is text that ends with a zero byte.
            modules.0.push(unsafe { result::module::load_data(ptx.as_ptr().cast::<c_void>()) }?);
        }
        Ok(modules)
    }

    fn function(&self, name: &'static str) -> Result<Function, DriverError> {
        let mut last = DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND);
        for &module in &self.0 {
            let c_name = CString::new(name).expect("a name has no zero byte");
            // SAFETY: the module is loaded.
            match unsafe { result::module::get_function(module, c_name) } {
                Ok(raw) => return Ok(Function { name, raw }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn into_inner(mut self) -> Vec<sys::CUmodule> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        for module in self.0.drain(..) {
            // SAFETY: loaded here, and nothing of it has been started.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}
