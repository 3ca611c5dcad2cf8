//! The kernels by name: loaded once per GPU from the PTX in `kernels/`, those of a block format with the first weights of it.

use std::ffi::{CString, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::probe::CudaDevice;
use crate::gguf::{TENSOR_TYPES, TensorType};
use crate::quant::{self, GpuInput};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) raw: sys::CUfunction,
}

/// The products of one format.
#[derive(Clone, Copy)]
pub(super) struct Products {
    /// What of an input they take.
    pub(super) takes: GpuInput,
    /// One input per block of threads, each with a matrix of its own.
    pub(super) one: Function,
    /// Eight inputs per block of threads, all with one matrix.
    pub(super) eight: Function,
    /// Many inputs in tiles, each tile with one matrix.
    pub(super) tiles: Option<Function>,
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

/// What every model takes.
static SOURCES: [Source; 7] = [
    source!("elementwise"),
    source!("norm"),
    source!("attention"),
    source!("recurrent"),
    source!("route"),
    source!("products"),
    source!("quant_activations"),
];

/// What models with weights of a type take.
static QUANT_SOURCES: [(TensorType, Source); 18] = [
    (TensorType::Q8_0, source!("quant_q8_0")),
    (TensorType::Q4_0, source!("quant_q4_0")),
    (TensorType::Q4_1, source!("quant_q4_1")),
    (TensorType::Q5_0, source!("quant_q5_0")),
    (TensorType::Q5_1, source!("quant_q5_1")),
    (TensorType::Q2_K, source!("quant_q2_K")),
    (TensorType::Q3_K, source!("quant_q3_K")),
    (TensorType::Q4_K, source!("quant_q4_K")),
    (TensorType::Q5_K, source!("quant_q5_K")),
    (TensorType::Q6_K, source!("quant_q6_K")),
    (TensorType::IQ4_NL, source!("quant_iq4_nl")),
    (TensorType::IQ4_XS, source!("quant_iq4_xs")),
    (TensorType::IQ3_S, source!("quant_iq3_s")),
    (TensorType::IQ3_XXS, source!("quant_iq3_xxs")),
    (TensorType::IQ2_S, source!("quant_iq2_s")),
    (TensorType::IQ2_XS, source!("quant_iq2_xs")),
    (TensorType::IQ2_XXS, source!("quant_iq2_xxs")),
    (TensorType::MXFP4, source!("quant_mxfp4")),
];

macro_rules! functions {
    ($($name:ident)*) => {
        /// Every kernel.
        pub(super) struct Functions {
            modules: Mutex<Modules>,
            products: [OnceLock<Products>; TENSOR_TYPES.len()],
            $(pub(super) $name: Function,)*
        }

        impl Functions {
            /// Loads them into the context that is current.
            pub(super) fn load(capability: (u32, u32)) -> Result<Self, DriverError> {
                let mut modules = Modules::default();
                SOURCES.iter().try_for_each(|source| modules.load(source, capability))?;
                Ok(Self {
                    products: [const { OnceLock::new() }; TENSOR_TYPES.len()],
                    $($name: modules.function(stringify!($name))?,)*
                    modules: Mutex::new(modules),
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
    route quantize_activations
}

impl Functions {
    /// Loads the products of a type that `cuda::supports`, once.
    pub(super) fn load_products(&self, device: &CudaDevice, tensor_type: TensorType) -> Result<(), DriverError> {
        let slot = &self.products[tensor_type as usize];
        let Some(kernel) = quant::format_of(tensor_type).and_then(|format| format.gpu_kernel) else { return Ok(()) };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.get().is_some() {
            return Ok(());
        }
        if let Some((_, source)) = QUANT_SOURCES.iter().find(|(there, _)| *there == tensor_type) {
            modules.load(source, device.capability)?;
        }
        let tiles = kernel.tiles.map(|[cores, plain]| if device.has_tensor_cores() { cores } else { plain });
        let products = Products {
            takes: kernel.takes,
            one: modules.function(kernel.one)?,
            eight: modules.function(kernel.eight)?,
            tiles: tiles.map(|name| modules.function(name)).transpose()?,
            rows: modules.function(kernel.rows)?,
        };
        // Nobody else was in here meanwhile.
        let _ = slot.set(products);
        Ok(())
    }

    /// The products of a type that were loaded.
    pub(super) fn products(&self, tensor_type: TensorType) -> &Products {
        self.products[tensor_type as usize].get().expect("products are loaded with the weights")
    }

    /// Unloads them.
    ///
    /// # Safety
    /// Their context is current, and nothing of them runs any more.
    pub(super) unsafe fn unload(&mut self) {
        // SAFETY: the caller's contract.
        unsafe { self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).unload() };
    }
}

/// What is loaded.
#[derive(Default)]
struct Modules(Vec<sys::CUmodule>);

impl Modules {
    fn load(&mut self, source: &Source, capability: (u32, u32)) -> Result<(), DriverError> {
        let ptx = if capability >= (8, 0) { source.sm80 } else { source.sm75 };
        let ptx = CString::new(ptx).expect("PTX has no zero byte");
        // SAFETY: the image is text that ends with a zero byte.
        self.0.push(unsafe { result::module::load_data(ptx.as_ptr().cast::<c_void>()) }?);
        Ok(())
    }

    /// The latest modules first.
    fn function(&self, name: &'static str) -> Result<Function, DriverError> {
        let mut last = DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND);
        for &module in self.0.iter().rev() {
            let c_name = CString::new(name).expect("a name has no zero byte");
            // SAFETY: the module is loaded.
            match unsafe { result::module::get_function(module, c_name) } {
                Ok(raw) => return Ok(Function { name, raw }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// # Safety
    /// Their context is current, and nothing of them runs any more.
    unsafe fn unload(&mut self) {
        for module in self.0.drain(..) {
            // SAFETY: the caller's contract; a module is unloaded once. Without a driver there is nothing to undo.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

// SAFETY: handles that the driver lets any thread use.
unsafe impl Send for Modules {}
