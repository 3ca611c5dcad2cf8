//! GGUF: header and tensor table, from a file or from its first bytes; models in several files; mapped weights; a writer
//! for fixtures. Which architectures, tensor types and vocabularies run is other modules' business, asked by `refusal`.

mod cursor;
mod error;
mod facts;
mod header;
mod label;
mod mapped;
mod refusal;
mod shards;
mod tensor_type;
mod value;
mod writer;

pub use error::{Found, GgufError, ShapeFault};
pub use facts::{FileFacts, ModelFacts, Prefix, TensorFacts};
pub use label::quant_label_from_name;
pub use mapped::{MappedModel, Piece};
pub use refusal::{NotChat, Refusal, Unsound};
pub use shards::ShardName;
pub use tensor_type::{TENSOR_TYPES, TensorType, TypeRow};
pub use value::{Array, Metadata, Value, ValueType};
pub use writer::Writer;

/// Longest header that is read: ten times that of the largest vocabulary known.
pub const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Most keys; real files have below 200.
const MAX_KEYS: u64 = 1 << 16;
/// Most tensors in one file; real files have below 10,000.
const MAX_TENSORS: u64 = 1 << 20;
