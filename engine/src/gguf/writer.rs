//! Writes GGUF files: for fixtures and tests, so that every shape of file can be made, right or wrong.

use std::path::Path;

use super::TensorType;
use super::error::GgufError;
use super::header;
use super::value::{Value, ValueType};

/// A GGUF file to be.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    alignment_bytes: u64,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    tensor_type: TensorType,
    /// Absent for a header that stands for a file too large to make.
    bytes: Option<Vec<u8>>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { version: 3, alignment_bytes: 32, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl Writer {
    /// A file of the given architecture.
    pub fn new(architecture: &str) -> Self {
        Self::default().meta("general.architecture", architecture)
    }

    /// Writes another version's number.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to `alignment_bytes`, and says so.
    pub fn alignment(mut self, alignment_bytes: u32) -> Self {
        self.alignment_bytes = alignment_bytes.into();
        self.meta("general.alignment", alignment_bytes)
    }

    /// Adds a key.
    pub fn meta(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Adds a tensor; `shape` is row-major.
    pub fn tensor(mut self, name: &str, shape: &[u64], tensor_type: TensorType, bytes: Vec<u8>) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), tensor_type, bytes: Some(bytes) });
        self
    }

    /// Adds a tensor of f32; `shape` is row-major.
    pub fn tensor_f32(self, name: &str, shape: &[u64], elems: &[f32]) -> Self {
        self.tensor(name, shape, TensorType::F32, bytemuck::cast_slice(elems).to_vec())
    }

    /// Adds a tensor without data: for `header`, and zeros in `to_bytes`.
    pub fn tensor_absent(mut self, name: &str, shape: &[u64], tensor_type: TensorType) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), tensor_type, bytes: None });
        self
    }

    /// The header alone, padded to the data, and the size of the whole file.
    pub fn header(&self) -> Result<(Vec<u8>, u64), GgufError> {
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            push_string(&mut out, key.as_bytes());
            out.extend_from_slice(&value.value_type().id().to_le_bytes());
            push_value(&mut out, value);
        }
        let mut offset_bytes = 0_u64;
        let mut end_bytes = 0;
        for tensor in &self.tensors {
            push_string(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|dim| out.extend_from_slice(&dim.to_le_bytes()));
            out.extend_from_slice(&tensor.tensor_type.row().id.to_le_bytes());
            out.extend_from_slice(&offset_bytes.to_le_bytes());
            end_bytes = offset_bytes + tensor.n_bytes()?;
            offset_bytes = end_bytes.next_multiple_of(self.alignment_bytes);
        }
        out.resize(out.len().next_multiple_of(self.alignment_bytes as usize), 0);
        let file_bytes = out.len() as u64 + end_bytes;
        Ok((out, file_bytes))
    }

    /// The whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GgufError> {
        let (mut out, file_bytes) = self.header()?;
        let data_offset = out.len();
        for tensor in &self.tensors {
            let offset = (out.len() - data_offset).next_multiple_of(self.alignment_bytes as usize);
            out.resize(data_offset + offset, 0);
            let n_bytes = tensor.n_bytes()?;
            match &tensor.bytes {
                Some(bytes) => out.extend_from_slice(bytes),
                None => out.resize(out.len() + n_bytes as usize, 0),
            }
        }
        debug_assert_eq!(out.len() as u64, file_bytes);
        Ok(out)
    }

    /// Writes the whole file.
    pub fn write(&self, path: &Path) -> Result<(), GgufError> {
        let io = |source| GgufError::Io { path: path.to_owned(), source };
        std::fs::write(path, self.to_bytes()?).map_err(io)
    }

    /// The same model in `count` files, tensors dealt out in order; the first file carries the metadata.
    pub fn split(&self, count: u16) -> Vec<Self> {
        let per_file = self.tensors.len().div_ceil(count.max(1).into()).max(1);
        (0..count)
            .map(|number| {
                let base = Self { metadata: Vec::new(), tensors: Vec::new(), ..*self };
                let mut part = if number == 0 { Self { tensors: Vec::new(), ..self.clone() } } else { base };
                part.tensors =
                    self.tensors.iter().skip(usize::from(number) * per_file).take(per_file).cloned().collect();
                part.meta("split.no", number)
                    .meta("split.count", count)
                    .meta("split.tensors.count", self.tensors.len() as i32)
            })
            .collect()
    }
}

impl Tensor {
    fn n_bytes(&self) -> Result<u64, GgufError> {
        let tensor = self.name.clone();
        let expected_bytes = header::n_bytes(&self.shape, self.tensor_type)
            .map_err(|why| GgufError::BadShape { tensor: tensor.clone(), why })?;
        match &self.bytes {
            Some(bytes) if bytes.len() as u64 != expected_bytes => {
                Err(GgufError::TensorBytes { tensor, expected_bytes, got_bytes: bytes.len() as u64 })
            }
            _ => Ok(expected_bytes),
        }
    }
}

fn push_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(&(string.len() as u64).to_le_bytes());
    out.extend_from_slice(string);
}

fn push_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => push_string(out, text.as_bytes()),
        Value::Array(array) => {
            out.extend_from_slice(&array.element_type().id().to_le_bytes());
            out.extend_from_slice(&(array.len() as u64).to_le_bytes());
            match array.strings() {
                Some(strings) => strings.for_each(|string| push_string(out, string)),
                None => out.extend_from_slice(array.scalar_bytes()),
            }
        }
        scalar => {
            debug_assert_ne!(scalar.value_type(), ValueType::Array);
            scalar.push_scalar_bytes(out);
        }
    }
}
