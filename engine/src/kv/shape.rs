//! What layers keep, as plain data: the shapes that families give, the types that the plan chooses, and what both take.

use std::fmt;
use std::str::FromStr;

use crate::cpu::turn_run;
use crate::error::EngineError;
use crate::gguf::TensorType;

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheShape {
    /// Nothing: a layer without a mixer, or one that reads another layer's cache.
    Nothing,
    /// Keys and values of each position.
    Attention(KvShape),
    /// A state of fixed size, f32 (gated delta net, Mamba, short convolution).
    Recurrent {
        /// Its elements.
        n_elems: usize,
    },
}

/// Keys and values of one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Heads of keys and of values.
    pub n_kv_heads: usize,
    /// Elements of one head of the keys.
    pub key_dim: usize,
    /// Where the values lie.
    pub values: Values,
    /// Sliding window, tokens: position j is seen from i only if i - j < window.
    pub window: Option<usize>,
}

/// Where the values of an attention layer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Beside the keys.
    Own {
        /// Elements of one head.
        dim: usize,
    },
    /// The first elements of each key are the value (latent attention).
    InKeys {
        /// How many.
        dim: usize,
    },
}

/// How cached keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats: half the memory.
    F16,
    /// 8 bits and a scale per 32 elements.
    Q8_0,
    /// 4 bits and a scale per 32 elements.
    Q4_0,
}

/// All of them, from exact to small.
pub const KV_TYPES: [KvType; 4] = [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0];

/// Rings are allocated in steps of this many rows.
const RING_STEP: usize = 32;

/// How keys and how values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvTypes {
    /// Keys.
    pub k: KvType,
    /// Values.
    pub v: KvType,
}

/// How much the caches hold, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Most positions.
    pub n_positions: usize,
    /// Most positions that are written at once.
    pub n_batch: usize,
    /// How keys and values are stored.
    pub types: KvTypes,
    /// Most bytes of checkpoints.
    pub checkpoint_bytes: u64,
}

impl CacheShape {
    /// Refuses types that do not take its heads.
    ///
    /// Errors   `KvTypeUnsupported`
    pub fn check(&self, types: KvTypes) -> Result<(), EngineError> {
        let CacheShape::Attention(kv) = self else { return Ok(()) };
        let value_type = if matches!(kv.values, Values::Own { .. }) { types.v } else { types.k };
        for (kv_type, head_dim) in [(types.k, kv.key_dim), (value_type, kv.value_dim())] {
            if !(head_dim as u64).is_multiple_of(kv_type.block_elems()) {
                return Err(EngineError::KvTypeUnsupported { kv_type, head_dim });
            }
        }
        Ok(())
    }

    /// Bytes that it takes.
    pub fn n_bytes(&self, options: &CacheOptions) -> u64 {
        match self {
            CacheShape::Nothing => 0,
            CacheShape::Attention(kv) => kv.row_bytes(options.types).saturating_mul(kv.n_rows(options) as u64),
            CacheShape::Recurrent { n_elems } => (*n_elems as u64).saturating_mul(4),
        }
    }
}

impl KvShape {
    /// Elements of one head of the values.
    pub fn value_dim(&self) -> usize {
        match self.values {
            Values::Own { dim } | Values::InKeys { dim } => dim,
        }
    }

    /// Channels that are turned together where keys are: values that lie inside them have to be turned back alone.
    pub(super) fn key_run(&self) -> usize {
        match self.values {
            Values::Own { .. } => turn_run(self.key_dim),
            Values::InKeys { dim } => turn_run(self.key_dim).min(turn_run(dim)),
        }
    }

    /// Elements of the keys of one position.
    pub(super) fn key_width(&self) -> usize {
        self.n_kv_heads.saturating_mul(self.key_dim)
    }

    /// Elements of the values of one position that are stored beside the keys.
    pub(super) fn value_width(&self) -> usize {
        match self.values {
            Values::Own { dim } => self.n_kv_heads.saturating_mul(dim),
            Values::InKeys { .. } => 0,
        }
    }

    /// Rows of its cache: all positions, or a ring of what the tokens of a batch see of the window, and themselves.
    pub(super) fn n_rows(&self, options: &CacheOptions) -> usize {
        let ring = |window: usize| window.saturating_add(options.n_batch).checked_next_multiple_of(RING_STEP);
        self.window.and_then(ring).map_or(options.n_positions, |n_rows| n_rows.min(options.n_positions))
    }

    /// Bytes of one position.
    pub(super) fn row_bytes(&self, types: KvTypes) -> u64 {
        let values = types.v.n_bytes(self.value_width() as u64);
        types.k.n_bytes(self.key_width() as u64).saturating_add(values)
    }
}

impl KvType {
    /// Its name, the same as llama.cpp's.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
            KvType::Q4_0 => "q4_0",
        }
    }

    /// Whether the processor turns heads before it stores them so; eight bits lose little without it (`docs/correctness.md`).
    pub(crate) fn is_turned(self) -> bool {
        self == KvType::Q4_0
    }

    /// The block format of its rows.
    pub(super) fn tensor_type(self) -> TensorType {
        match self {
            KvType::F32 => TensorType::F32,
            KvType::F16 => TensorType::F16,
            KvType::Q8_0 => TensorType::Q8_0,
            KvType::Q4_0 => TensorType::Q4_0,
        }
    }

    /// Elements that share a scale: a head must be a multiple of them.
    fn block_elems(self) -> u64 {
        self.tensor_type().row().block_elems
    }

    pub(super) fn n_bytes(self, n_elems: u64) -> u64 {
        n_elems.div_ceil(self.block_elems()).saturating_mul(self.tensor_type().row().block_bytes)
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl KvTypes {
    /// Keys and values alike.
    pub const fn both(kv_type: KvType) -> Self {
        Self { k: kv_type, v: kv_type }
    }
}

/// One name if both are the same, else the keys' and the values' with a slash between.
impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.k == self.v { self.k.fmt(f) } else { write!(f, "{}/{}", self.k, self.v) }
    }
}

/// The text names no type of a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cache type `{name}`: expected f32, f16, q8_0 or q4_0")]
pub struct UnknownKvType {
    /// What was given.
    pub name: String,
}

impl FromStr for KvType {
    type Err = UnknownKvType;

    fn from_str(name: &str) -> Result<Self, UnknownKvType> {
        let unknown = || UnknownKvType { name: name.to_owned() };
        KV_TYPES.into_iter().find(|kv_type| kv_type.name() == name).ok_or_else(unknown)
    }
}

impl FromStr for KvTypes {
    type Err = UnknownKvType;

    fn from_str(names: &str) -> Result<Self, UnknownKvType> {
        let (k, v) = names.split_once('/').unwrap_or((names, names));
        Ok(Self { k: k.parse()?, v: v.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for k in KV_TYPES {
            for v in KV_TYPES {
                let types = KvTypes { k, v };
                assert_eq!(types.to_string().parse(), Ok(types));
            }
        }
        assert_eq!("q8_0".parse(), Ok(KvTypes::both(KvType::Q8_0)));
        assert_eq!("f16/".parse::<KvTypes>().unwrap_err().name, "");
        assert!("q3_0".parse::<KvType>().is_err());
    }

    #[test]
    fn heads_that_are_no_whole_blocks_are_refused() {
        let shape = |key_dim, values| CacheShape::Attention(KvShape { n_kv_heads: 2, key_dim, values, window: None });
        let own = |dim| Values::Own { dim };
        let types = |k, v| KvTypes { k, v };
        use KvType::{F16, Q4_0, Q8_0};
        for (shape, types, refused) in [
            (shape(64, own(32)), types(Q8_0, Q4_0), None),
            (shape(80, own(80)), types(F16, F16), None),
            (shape(80, own(64)), types(F16, Q4_0), None),
            (shape(80, own(64)), types(Q8_0, F16), Some((Q8_0, 80))),
            (shape(64, own(80)), types(Q8_0, Q4_0), Some((Q4_0, 80))),
            (shape(96, Values::InKeys { dim: 64 }), types(Q8_0, F16), None),
            (shape(96, Values::InKeys { dim: 48 }), types(Q8_0, F16), Some((Q8_0, 48))),
            (shape(80, Values::InKeys { dim: 48 }), types(F16, Q8_0), None),
            (CacheShape::Recurrent { n_elems: 7 }, types(Q4_0, Q4_0), None),
        ] {
            let refusal = match shape.check(types) {
                Err(EngineError::KvTypeUnsupported { kv_type, head_dim }) => Some((kv_type, head_dim)),
                Ok(()) => None,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(refusal, refused, "{shape:?} {types}");
        }
    }

    #[test]
    fn bytes_follow_types_and_widths() {
        let shape = KvShape { n_kv_heads: 2, key_dim: 64, values: Values::Own { dim: 32 }, window: None };
        let n_bytes = |k, v| {
            let options = CacheOptions { n_positions: 10, n_batch: 4, types: KvTypes { k, v }, checkpoint_bytes: 0 };
            CacheShape::Attention(shape).n_bytes(&options)
        };
        assert_eq!(n_bytes(KvType::F32, KvType::F16), 10 * (128 * 4 + 64 * 2));
        assert_eq!(n_bytes(KvType::Q8_0, KvType::Q4_0), 10 * (4 * 34 + 2 * 18));
    }
}
