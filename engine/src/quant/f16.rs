//! F16: 2 bytes per weight, IEEE half precision, denormals included.
use super::Format;
use super::codec::{Element, half_at, put_half};
use super::format::gpu_kernel;
use crate::cpu::isa::Vector;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format =
    Format::float::<F16>(|x, out| put_half(out, 0, x[0])).on_gpu(gpu_kernel!("f16", floats));

/// Half precision.
pub(crate) struct F16;

impl Element for F16 {
    const TENSOR_TYPE: TensorType = TensorType::F16;
    const BYTES: usize = 2;

    fn decode(b: &[u8]) -> f32 {
        half_at(b, 0)
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(p: *const u8) -> V::S {
        // SAFETY: the caller's contract is that of the ISA method.
        unsafe { V::load_f16(p.cast()) }
    }
}
