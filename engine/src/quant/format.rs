//! A row of the format table, and what callers outside the kernels need of it: is a type supported, decode and encode.
use super::FORMATS;
use crate::cpu::{Isa, Product};
use crate::gguf::TensorType;

/// Encodes one block: `block_elems` to `block_bytes`.
pub(crate) type Encode = fn(&[f32], &mut [u8]);

/// A block format: what the engine can do with a tensor type.
pub struct Format {
    /// The type.
    pub tensor_type: TensorType,
    /// Decodes one block: `block_bytes` to `block_elems`; the norm for every kernel.
    pub(crate) decode: fn(&[u8], &mut [f32]),
    /// Encodes one block, where that is a formula or a short search.
    pub(crate) encode: Option<Encode>,
    /// Its CPU product.
    pub(crate) product: Product,
    /// Its GPU kernels, if there are some.
    pub gpu_kernel: Option<&'static GpuKernel>,
}

/// The GPU kernels of a format, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuKernel {
    /// What of an input they take.
    pub takes: GpuInput,
    /// Products of single inputs, each with a matrix of its own.
    pub one: &'static str,
    /// Products of eight inputs with one matrix.
    pub eight: &'static str,
    /// Products of many inputs, in tiles on tensor cores and without; if there are some.
    pub tiles: Option<[&'static str; 2]>,
    /// Rows, decoded.
    pub rows: &'static str,
}

/// The form of an input that GPU kernels take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuInput {
    /// As it is.
    Floats,
    /// Rounded to signed bytes, with a scale per 32.
    Bytes,
}

/// The kernels for a format by the name that it has in `cuda/kernels`: of a block format, or of plain `floats`.
macro_rules! gpu_kernel {
    ($name:literal) => {
        &$crate::quant::GpuKernel {
            takes: $crate::quant::GpuInput::Bytes,
            one: concat!("quant_matvec_", $name),
            eight: concat!("quant_matvec8_", $name),
            tiles: Some([concat!("quant_matmul_", $name), concat!("quant_matmul_dp4a_", $name)]),
            rows: concat!("quant_rows_", $name),
        }
    };
    ($name:literal, floats) => {
        &$crate::quant::GpuKernel {
            takes: $crate::quant::GpuInput::Floats,
            one: concat!("matvec_", $name),
            eight: concat!("matmul_", $name),
            tiles: None,
            rows: concat!("rows_", $name),
        }
    };
}
pub(super) use gpu_kernel;

impl Format {
    /// The same with GPU kernels.
    pub(super) const fn on_gpu(self, kernel: &'static GpuKernel) -> Self {
        Self { gpu_kernel: Some(kernel), ..self }
    }

    /// Which kernel of an instruction set multiplies its matrices with so many tokens, for reports.
    pub fn kernel(&self, isa: Isa, n_tokens: usize) -> &'static str {
        self.product.kernel(isa, n_tokens)
    }

    /// Whether `encode_row` works for it.
    pub fn has_encode(&self) -> bool {
        self.encode.is_some()
    }
}

/// What can be wrong with a row that is to be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// The engine has no codec for the type.
    #[error("tensor type {tensor_type} is not supported")]
    Unsupported {
        /// The type.
        tensor_type: TensorType,
    },
    /// The engine decodes the type but cannot produce it.
    #[error("tensor type {tensor_type} cannot be encoded")]
    NoEncode {
        /// The type.
        tensor_type: TensorType,
    },
    /// Elements and bytes do not belong together.
    #[error("{n_bytes} bytes of {tensor_type} do not hold {n_elems} elements")]
    Length {
        /// The type.
        tensor_type: TensorType,
        /// Elements asked for.
        n_elems: usize,
        /// Bytes given.
        n_bytes: usize,
    },
}

/// The format of a tensor type, if the engine has it.
pub fn format_of(tensor_type: TensorType) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.tensor_type == tensor_type)
}

/// Whether matrices of this type can be multiplied.
pub fn supports(tensor_type: TensorType) -> bool {
    format_of(tensor_type).is_some()
}

/// Decodes a row, such as one token's embedding.
///
/// bytes    whole blocks
/// out      [n_elems] f32
/// Errors   `Unsupported`; `Length` if `bytes` is not the size of `out.len()` elements
/// Cost     scalar, no allocation
pub fn decode_row(tensor_type: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    let format = format_of(tensor_type).ok_or(QuantError::Unsupported { tensor_type })?;
    let (elems, block) = check(tensor_type, out.len(), bytes.len())?;
    for (block, out) in bytes.chunks_exact(block).zip(out.chunks_exact_mut(elems)) {
        (format.decode)(block, out);
    }
    Ok(())
}

/// Encodes a row, for fixtures and caches.
///
/// x        [n_elems] f32, finite
/// out      whole blocks
/// Errors   `Unsupported`, `NoEncode`; `Length` if `out` is not the size of `x.len()` elements
/// Cost     scalar, no allocation
pub fn encode_row(tensor_type: TensorType, x: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    let format = format_of(tensor_type).ok_or(QuantError::Unsupported { tensor_type })?;
    let encode = format.encode.ok_or(QuantError::NoEncode { tensor_type })?;
    let (elems, block) = check(tensor_type, x.len(), out.len())?;
    for (x, block) in x.chunks_exact(elems).zip(out.chunks_exact_mut(block)) {
        encode(x, block);
    }
    Ok(())
}

/// Elements and bytes of a block, if so many elements take so many bytes.
fn check(tensor_type: TensorType, n_elems: usize, n_bytes: usize) -> Result<(usize, usize), QuantError> {
    let row = tensor_type.row();
    if tensor_type.row_bytes(n_elems as u64) != Some(n_bytes as u64) {
        return Err(QuantError::Length { tensor_type, n_elems, n_bytes });
    }
    Ok((row.block_elems as usize, row.block_bytes as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lengths_and_types_are_refused() {
        let mut out = [0.0; 32];
        assert!(matches!(decode_row(TensorType::Q8_0, &[0; 33], &mut out), Err(QuantError::Length { .. })));
        assert!(matches!(decode_row(TensorType::Q8_0, &[0; 34], &mut out[..31]), Err(QuantError::Length { .. })));
        assert!(matches!(decode_row(TensorType::I64, &[0; 8], &mut out[..1]), Err(QuantError::Unsupported { .. })));
        assert!(matches!(encode_row(TensorType::IQ2_S, &[0.0; 256], &mut [0; 82]), Err(QuantError::NoEncode { .. })));
        assert_eq!(decode_row(TensorType::Q8_0, &[], &mut []), Ok(()));
    }

    #[test]
    fn every_format_names_its_kernels() {
        for f in FORMATS {
            let is_float = matches!(f.tensor_type, TensorType::F32 | TensorType::F16 | TensorType::BF16);
            for isa in Isa::present() {
                let (one, many) = (f.kernel(isa, 1), f.kernel(isa, 512));
                let expected = match (is_float, isa) {
                    (true, _) => "float",
                    (_, Isa::Scalar) => "decoded",
                    _ => "panel",
                };
                assert_eq!(many, expected, "{} {isa}", f.tensor_type);
                assert!(one == many || one.ends_with("tile"), "{} {isa}: {one}", f.tensor_type);
            }
        }
    }

    #[test]
    fn each_format_has_one_row() {
        for f in FORMATS {
            assert!(std::ptr::eq(format_of(f.tensor_type).unwrap(), f), "{}", f.tensor_type);
        }
    }
}
