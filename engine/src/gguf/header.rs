//! Reads one file's header: magic, metadata, tensor table. Works on any prefix of the file and believes nothing: counts are
//! bounded by the bytes that could hold them, shapes and offsets are multiplied and added with checks.

use super::cursor::{Cursor, Stop};
use super::error::{Found, GgufError, ShapeFault};
use super::facts::TensorFacts;
use super::value::{Array, Metadata, Value, ValueType};
use super::{MAX_KEYS, MAX_TENSORS, TensorType};

const MAGIC: [u8; 4] = *b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Source: gguf.md of ggml, which caps keys at 2^16 - 1 bytes; `GGML_MAX_NAME` less its NUL.
const MAX_KEY_BYTES: u64 = 65_535;
const MAX_NAME_BYTES: u64 = 63;
const MAX_DIMS: u32 = 4;
/// Smallest records: a key of one byte with a one-byte value; a name of one byte without dimensions.
const MIN_KEY_RECORD_BYTES: u64 = 8 + 1 + 4 + 1;
const MIN_TENSOR_RECORD_BYTES: u64 = 8 + 1 + 4 + 4 + 8;

/// One file's header.
pub(super) struct Header {
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorFacts>,
    pub(super) data_offset_bytes: u64,
}

/// Reads the header from the first bytes of a file of `file_bytes`.
pub(super) fn read(prefix: &[u8], file_bytes: u64) -> Result<Header, Stop> {
    let mut cursor = Cursor::new(prefix, file_bytes);
    read_magic(&mut cursor, prefix)?;
    let n_tensors = cursor.count("the number of tensors", MIN_TENSOR_RECORD_BYTES, MAX_TENSORS)?;
    let n_keys = cursor.count("the number of keys", MIN_KEY_RECORD_BYTES, MAX_KEYS)?;

    let mut metadata = Metadata::default();
    for _ in 0..n_keys {
        let key = cursor.name("a key", MAX_KEY_BYTES)?;
        let value = read_value(&mut cursor, key)?;
        metadata.insert(key, value)?;
    }
    let alignment_bytes = alignment(&metadata)?;

    let mut tensors = Vec::new();
    for _ in 0..n_tensors {
        tensors.push(read_tensor(&mut cursor, alignment_bytes)?);
    }
    let data_offset_bytes = cursor.position().next_multiple_of(alignment_bytes);
    place_tensors(&mut tensors, data_offset_bytes, file_bytes)?;
    Ok(Header { metadata, tensors, data_offset_bytes })
}

fn read_magic(cursor: &mut Cursor<'_>, prefix: &[u8]) -> Result<(), Stop> {
    let seen = &prefix[..prefix.len().min(MAGIC.len())];
    if seen.is_empty() && cursor.remaining_bytes() > 0 {
        return Err(Stop::NeedMore { at_least_bytes: MAGIC.len() as u64 });
    }
    if seen == b"FUGG" {
        return Err(GgufError::BigEndian.into());
    }
    if seen.is_empty() || seen != &MAGIC[..seen.len()] {
        return Err(GgufError::NotGguf { found: Found::from_start(prefix) }.into());
    }
    cursor.take(4, "its magic")?;
    match cursor.u32("its version")? {
        2 | 3 => Ok(()),
        version if version != 0 && version & 0xffff == 0 => Err(GgufError::BigEndian.into()),
        version => Err(GgufError::UnsupportedVersion { version }.into()),
    }
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, Stop> {
    match read_value_type(cursor, key)? {
        ValueType::String => {
            let bytes = cursor.string("a string value")?;
            Ok(Value::String(String::from_utf8_lossy(bytes).into_owned()))
        }
        ValueType::Array => read_array(cursor, key).map(Value::Array),
        scalar => {
            let bytes = cursor.take(scalar.n_bytes().unwrap_or(0) as u64, "a value")?;
            let unknown = || GgufError::UnknownValueType { key: key.to_owned(), id: scalar.id() };
            Value::from_scalar_bytes(scalar, bytes).ok_or_else(unknown).map_err(Stop::from)
        }
    }
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, Stop> {
    const WHAT: &str = "the length of an array";
    let element_type = read_value_type(cursor, key)?;
    match element_type {
        ValueType::Array => Err(GgufError::NestedArray { key: key.to_owned() }.into()),
        ValueType::String => {
            let n = cursor.count(WHAT, 8, u64::MAX)?;
            let mut array = Array::from_strings::<&[u8]>([]);
            for _ in 0..n {
                array.push_string(cursor.string("a string in an array")?);
            }
            Ok(array)
        }
        scalar => {
            let n_bytes = scalar.n_bytes().unwrap_or(1) as u64;
            let n = cursor.count(WHAT, n_bytes, u64::MAX)?;
            // No overflow: the count was checked against the bytes that remain.
            Ok(Array::from_scalar_bytes(scalar, cursor.take(n * n_bytes, "an array")?))
        }
    }
}

fn read_value_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, Stop> {
    let id = cursor.u32("a value type")?;
    ValueType::from_id(id).ok_or_else(|| GgufError::UnknownValueType { key: key.to_owned(), id }.into())
}

fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    let value = metadata.get_u64(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if value.is_power_of_two() && value <= MAX_ALIGNMENT {
        return Ok(value);
    }
    Err(GgufError::BadValue { key: KEY.to_owned(), value, why: "not a power of two up to 2^20" })
}

/// One record of the tensor table; its offset is still relative to the data.
fn read_tensor(cursor: &mut Cursor<'_>, alignment_bytes: u64) -> Result<TensorFacts, Stop> {
    let name = cursor.name("a tensor name", MAX_NAME_BYTES)?.to_owned();
    let n_dims = cursor.u32("a number of dimensions")?;
    if n_dims > MAX_DIMS {
        return Err(GgufError::BadShape { tensor: name, why: ShapeFault::TooManyDims(n_dims) }.into());
    }
    let mut shape = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        shape.push(cursor.u64("a dimension")?);
    }
    // The file stores the contiguous dimension first.
    shape.reverse();
    let type_id = cursor.u32("a tensor type")?;
    let offset_bytes = cursor.u64("a tensor's offset")?;

    let Some(tensor_type) = TensorType::from_id(type_id) else {
        return Err(unknown_tensor_type(name, type_id).into());
    };
    let n_bytes = match n_bytes(&shape, tensor_type) {
        Ok(n_bytes) => n_bytes,
        Err(why) => return Err(GgufError::BadShape { tensor: name, why }.into()),
    };
    if !offset_bytes.is_multiple_of(alignment_bytes) {
        return Err(GgufError::Misaligned { tensor: name, offset_bytes, alignment_bytes }.into());
    }
    Ok(TensorFacts { name, shape, tensor_type, file: 0, offset_bytes, n_bytes })
}

/// Bytes of a tensor, if its shape is possible.
pub(super) fn n_bytes(shape: &[u64], tensor_type: TensorType) -> Result<u64, ShapeFault> {
    let row_elems = shape.last().copied().unwrap_or(1);
    let n_elems = shape.iter().try_fold(1_u64, |n, dim| n.checked_mul(*dim)).filter(|n| i64::try_from(*n).is_ok());
    match n_elems {
        Some(0) => Err(ShapeFault::EmptyDim),
        None if shape.contains(&0) => Err(ShapeFault::EmptyDim),
        None => Err(ShapeFault::Overflow),
        Some(n_elems) if row_elems.is_multiple_of(tensor_type.row().block_elems) => {
            tensor_type.row_bytes(n_elems).ok_or(ShapeFault::Overflow)
        }
        Some(_) => Err(ShapeFault::PartialBlock { row_elems, tensor_type }),
    }
}

/// Turns offsets into positions in the file; every tensor must lie inside it and none may share bytes.
fn place_tensors(tensors: &mut [TensorFacts], data_offset_bytes: u64, file_bytes: u64) -> Result<(), GgufError> {
    for tensor in tensors.iter_mut() {
        let start = data_offset_bytes.saturating_add(tensor.offset_bytes);
        let end_bytes = start.saturating_add(tensor.n_bytes);
        if end_bytes > file_bytes {
            return Err(GgufError::TensorOutsideFile { tensor: tensor.name.clone(), end_bytes, file_bytes });
        }
        tensor.offset_bytes = start;
    }
    let mut by_offset: Vec<&TensorFacts> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset_bytes);
    match by_offset.windows(2).find(|pair| pair[0].offset_bytes + pair[0].n_bytes > pair[1].offset_bytes) {
        Some(pair) => Err(GgufError::Overlap { first: pair[0].name.clone(), second: pair[1].name.clone() }),
        None => Ok(()),
    }
}

/// Names a tensor type that has no known size. Source: `ggml.h` of llama.cpp and of ik_llama.cpp.
fn unknown_tensor_type(tensor: String, id: u32) -> GgufError {
    let removed = match id {
        4 => Some("Q4_2"),
        5 => Some("Q4_3"),
        31 => Some("Q4_0_4_4"),
        32 => Some("Q4_0_4_8"),
        33 => Some("Q4_0_8_8"),
        37 => Some("IQ4_NL_4_8"),
        38 => Some("IQ4_NL_8_8"),
        _ => None,
    };
    if let Some(name) = removed {
        return GgufError::RemovedTensorType { tensor, id, name };
    }
    match FORK_TYPES.iter().find(|(ids, _)| ids.contains(&id)) {
        Some((_, name)) => GgufError::ForkTensorType { tensor, id, name, fork: "ik_llama.cpp" },
        None => GgufError::UnknownTensorType { tensor, id },
    }
}

/// Types of ik_llama.cpp; 36 was IQ4_NL_4_4 in llama.cpp for a short while, and no such file is about.
#[rustfmt::skip]
const FORK_TYPES: &[(std::ops::RangeInclusive<u32>, &str)] = &[
    (36..=36, "I2_S"), (133..=133, "Q6_0"), (134..=134, "IQ1_BN"), (135..=135, "IQ2_BN"), (137..=137, "IQ2_K"), (138..=138, "IQ3_K"),
    (139..=139, "IQ4_K"), (140..=140, "IQ5_K"), (141..=141, "IQ6_K"), (144..=144, "IQ4_KS"), (145..=145, "IQ2_KS"), (146..=146, "IQ4_KSS"),
    (152..=152, "IQ5_KS"), (153..=153, "IQ2_KT"), (154..=154, "IQ3_KT"), (155..=155, "IQ4_KT"), (156..=156, "IQ3_KS"), (157..=157, "IQ2_KL"),
    (158..=158, "IQ1_KT"), (202..=399, "a row-interleaved type"),
];
