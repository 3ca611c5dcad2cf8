//! What can be wrong with a GGUF file, as data: every variant carries the names and numbers a message needs.

use std::path::PathBuf;

use super::TensorType;

/// A GGUF file that cannot be read, or a key that is not as asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be opened, read or mapped.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder, pipe or device.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile {
        /// Which path.
        path: PathBuf,
    },
    /// The bytes are something else.
    #[error("not a GGUF file but {found}")]
    NotGguf {
        /// What they seem to be.
        found: Found,
    },
    /// Every number in the file is in the other byte order.
    #[error("a big-endian GGUF file")]
    BigEndian,
    /// A version of GGUF that is not read here.
    #[error("GGUF version {version} (2 and 3 are read)")]
    UnsupportedVersion {
        /// As the file says.
        version: u32,
    },
    /// The file ends inside its header.
    #[error("the file ends inside {what}: at least {needed_bytes} bytes needed, {file_bytes} are there")]
    Truncated {
        /// The part that is cut.
        what: &'static str,
        /// Where that part would end.
        needed_bytes: u64,
        /// Where the file ends.
        file_bytes: u64,
    },
    /// A tensor's data ends after the file does.
    #[error("the data of `{tensor}` ends at byte {end_bytes}, the file at {file_bytes}")]
    TensorOutsideFile {
        /// Which tensor.
        tensor: String,
        /// Where its data would end.
        end_bytes: u64,
        /// Where the file ends.
        file_bytes: u64,
    },
    /// A count, length or size beyond any real file's.
    #[error("{what} is {got}, at most {most} is possible here")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// As the file says.
        got: u64,
        /// The limit that was passed.
        most: u64,
    },
    /// A key or tensor name that is empty or not UTF-8.
    #[error("a name at byte {at_bytes} is empty or not UTF-8")]
    BadName {
        /// Where it stands.
        at_bytes: u64,
    },
    /// The same key twice.
    #[error("key `{key}` appears twice")]
    DuplicateKey {
        /// Which key.
        key: String,
    },
    /// The same tensor twice.
    #[error("tensor `{tensor}` appears twice")]
    DuplicateTensor {
        /// Which tensor.
        tensor: String,
    },
    /// A value type whose size is unknown, so that nothing after it can be read.
    #[error("key `{key}` has the unknown value type {id}")]
    UnknownValueType {
        /// Which key.
        key: String,
        /// Id of the type.
        id: u32,
    },
    /// An array of arrays.
    #[error("key `{key}` is an array of arrays")]
    NestedArray {
        /// Which key.
        key: String,
    },
    /// A tensor type without a known size.
    #[error("tensor `{tensor}` has the unknown type {id}")]
    UnknownTensorType {
        /// Which tensor.
        tensor: String,
        /// Id of the type.
        id: u32,
    },
    /// A tensor type that only a fork of llama.cpp writes.
    #[error("tensor `{tensor}` has type {name} ({id}) of {fork}")]
    ForkTensorType {
        /// Which tensor.
        tensor: String,
        /// Id of the type.
        id: u32,
        /// What the fork calls it.
        name: &'static str,
        /// Which fork.
        fork: &'static str,
    },
    /// A tensor type that existed once.
    #[error("tensor `{tensor}` has type {name} ({id}), which was removed from GGUF")]
    RemovedTensorType {
        /// Which tensor.
        tensor: String,
        /// Id of the type.
        id: u32,
        /// What it was called.
        name: &'static str,
    },
    /// A shape that no tensor has.
    #[error("tensor `{tensor}` has an impossible shape: {why}")]
    BadShape {
        /// Which tensor.
        tensor: String,
        /// What is impossible about it.
        why: ShapeFault,
    },
    /// Tensor data that starts between alignment steps.
    #[error("tensor `{tensor}` starts at {offset_bytes}, not a multiple of {alignment_bytes}")]
    Misaligned {
        /// Which tensor.
        tensor: String,
        /// From the start of the data.
        offset_bytes: u64,
        /// `general.alignment`.
        alignment_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The one that starts inside it.
        second: String,
    },
    /// A key that must be there.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// Which key.
        key: String,
    },
    /// A key of another type than its meaning asks for, or out of its range.
    #[error("key `{key}` should be {expected}, is {got}")]
    WrongType {
        /// Which key.
        key: String,
        /// What its meaning asks for.
        expected: &'static str,
        /// What the file holds.
        got: String,
    },
    /// A value that contradicts others or is beyond any model's.
    #[error("key `{key}` is {value}: {why}")]
    BadValue {
        /// Which key.
        key: String,
        /// As the file says.
        value: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A fault in one file of several.
    #[error("`{file}`: {source}")]
    InShard {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        source: Box<GgufError>,
    },
    /// A model in several files lacks some.
    #[error("{} of {count} files missing: {}{}", missing.len(), missing[..missing.len().min(5)].join(", "), if missing.len() > 5 { ", …" } else { "" })]
    MissingShards {
        /// Their names.
        missing: Vec<String>,
        /// How many there should be.
        count: u32,
    },
    /// The same part of a model twice.
    #[error("`{first}` and `{second}` are both part {number} of the model")]
    DoubledShard {
        /// One file.
        first: String,
        /// The other.
        second: String,
        /// Which part, from 1.
        number: u32,
    },
    /// A file whose contents are another part than its name says.
    #[error("`{file}` should be part {expected} of {count}, but holds part {got} of {got_count}")]
    WrongShard {
        /// Name of the file.
        file: String,
        /// From its name, from 1.
        expected: u32,
        /// From its name.
        count: u32,
        /// From its contents, from 1.
        got: u32,
        /// From its contents.
        got_count: u32,
    },
    /// All files are there, yet tensors are missing or too many.
    #[error("the files hold {got} tensors together, {expected} were announced")]
    ShardTensorCount {
        /// `split.tensors.count`.
        expected: u64,
        /// Counted.
        got: u64,
    },
    /// Asked to write a tensor with the wrong amount of data.
    #[error("tensor `{tensor}` takes {expected_bytes} bytes, {got_bytes} given")]
    TensorBytes {
        /// Which tensor.
        tensor: String,
        /// From shape and type.
        expected_bytes: u64,
        /// As given.
        got_bytes: u64,
    },
}

/// What a file that is no GGUF seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Display` says each in words")]
pub enum Found {
    Empty,
    Safetensors,
    Html,
    Pickle,
    Zip,
    Gzip,
    Json,
    LfsPointer,
    LegacyGgml,
    Unknown { magic: [u8; 4] },
}

impl Found {
    /// What bytes that do not begin with GGUF's magic seem to be.
    pub(super) fn from_start(bytes: &[u8]) -> Self {
        let text = bytes.trim_ascii_start();
        let starts_text =
            |prefix: &[u8]| text.len() >= prefix.len() && text[..prefix.len()].eq_ignore_ascii_case(prefix);
        match bytes {
            [] => Self::Empty,
            [b'P', b'K', 3 | 5, ..] => Self::Zip,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x80, 2..=5, ..] => Self::Pickle,
            [b'l', b'm', b'g', b'g', ..]
            | [b'f' | b't', b'm' | b'j', b'g', b'g', ..]
            | [b'g', b'g', b'm' | b'j', ..] => Self::LegacyGgml,
            // Safetensors: length of a JSON object, then the object.
            [_, _, _, _, _, 0, 0, 0, b'{', ..] => Self::Safetensors,
            _ if starts_text(b"version https://git-lfs") => Self::LfsPointer,
            _ if starts_text(b"<!doctype") || starts_text(b"<html") || starts_text(b"<?xml") => Self::Html,
            _ if starts_text(b"{") => Self::Json,
            _ => {
                let mut magic = [0; 4];
                bytes.iter().zip(&mut magic).for_each(|(byte, slot)| *slot = *byte);
                Self::Unknown { magic }
            }
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "an empty file",
            Self::Safetensors => "safetensors weights",
            Self::Html => "a web page",
            Self::Pickle => "a Python pickle (PyTorch weights)",
            Self::Zip => "a zip archive (PyTorch weights, perhaps)",
            Self::Gzip => "a gzip archive",
            Self::Json => "JSON",
            Self::LfsPointer => "a Git LFS pointer, not the file it points to",
            Self::LegacyGgml => "a GGML file from before GGUF",
            Self::Unknown { magic } => return write!(f, "something that begins with `{}`", magic.escape_ascii()),
        })
    }
}

/// What is impossible about a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ShapeFault {
    #[error("{0} dimensions")]
    TooManyDims(u32),
    #[error("a dimension of 0")]
    EmptyDim,
    #[error("more elements than 2^63")]
    Overflow,
    #[error("rows of {row_elems} elements are no whole blocks of {tensor_type}")]
    PartialBlock { row_elems: u64, tensor_type: TensorType },
}
