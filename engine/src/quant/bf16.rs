//! BF16: 2 bytes per weight, the upper half of a single.
use super::Format;
use super::codec::Element;
use super::format::gpu_kernel;
use crate::cpu::isa::Vector;
use crate::gguf::TensorType;

pub(super) const FORMAT: Format =
    Format::float::<Bf16>(|x, out| out.copy_from_slice(&half::bf16::from_f32(x[0]).to_le_bytes()))
        .on_gpu(gpu_kernel!("bf16", floats));

/// bfloat16.
pub(crate) struct Bf16;

impl Element for Bf16 {
    const TENSOR_TYPE: TensorType = TensorType::BF16;
    const BYTES: usize = 2;

    fn decode(b: &[u8]) -> f32 {
        half::bf16::from_le_bytes([b[0], b[1]]).to_f32()
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(p: *const u8) -> V::S {
        // SAFETY: the caller's contract is that of the ISA method.
        unsafe { V::load_bf16(p.cast()) }
    }
}
