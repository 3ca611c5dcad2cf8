//! GGUF: header, tensor table, mapped file.
mod tensor_type;

pub use tensor_type::{TENSOR_TYPES, TensorType, TypeRow};
