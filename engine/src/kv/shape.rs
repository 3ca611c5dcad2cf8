//! What layers keep, as plain data: the shapes that families give, the types that the plan chooses, and what both take.

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
}

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
}

impl CacheShape {
    /// Bytes that it takes.
    pub fn n_bytes(&self, options: &CacheOptions) -> u64 {
        match self {
            CacheShape::Nothing => 0,
            CacheShape::Attention(kv) => {
                let row = kv.key_row_bytes(options.types.k).saturating_add(kv.value_row_bytes(options.types.v));
                row.saturating_mul(kv.n_rows(options) as u64)
            }
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

    /// Positions that there is room for.
    pub(super) fn n_rows(&self, options: &CacheOptions) -> usize {
        options.n_positions
    }

    fn key_row_bytes(&self, kv_type: KvType) -> u64 {
        (self.key_width() as u64).saturating_mul(kv_type.elem_bytes())
    }

    fn value_row_bytes(&self, kv_type: KvType) -> u64 {
        (self.value_width() as u64).saturating_mul(kv_type.elem_bytes())
    }
}

impl KvType {
    /// Bytes per element.
    fn elem_bytes(self) -> u64 {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

impl KvTypes {
    /// Keys and values alike.
    pub const fn both(kv_type: KvType) -> Self {
        Self { k: kv_type, v: kv_type }
    }
}
