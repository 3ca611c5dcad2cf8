//! F32: 4 bytes per weight, little-endian single precision.
use super::Format;
use super::codec::Element;
use super::format::gpu_kernel;
use crate::cpu::isa::Vector;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format =
    Format::float::<F32>(|x, out| out.copy_from_slice(&x[0].to_le_bytes())).on_gpu(gpu_kernel!("f32", floats));

/// Single precision.
pub(crate) struct F32;

impl Element for F32 {
    const TENSOR_TYPE: TensorType = TensorType::F32;
    const BYTES: usize = 4;

    fn decode(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(p: *const u8) -> V::S {
        // SAFETY: the caller's contract is that of the ISA method.
        unsafe { V::load(p.cast()) }
    }
}
