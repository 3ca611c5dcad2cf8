//! To come.

/// Whether the engine multiplies by weights of this type.
pub fn supports(tensor_type: crate::gguf::TensorType) -> bool {
    use crate::gguf::TensorType as T;
    matches!(
        tensor_type,
        T::F32 | T::F16 | T::BF16 | T::Q8_0 | T::Q4_0 | T::Q4_1 | T::Q5_0 | T::Q5_1 | T::Q4_K | T::Q5_K | T::Q6_K
    )
}
