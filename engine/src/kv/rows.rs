//! Keys and values of one attention layer: one buffer each, a row per position.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::shape::{CacheOptions, KvShape, KvType, Values};
use crate::cpu::KvSlice;
use crate::error::EngineError;
use crate::tensor::zeroed;

/// The keys and values of one layer.
#[derive(Debug)]
pub struct KvCache {
    shape: KvShape,
    k: Rows,
    /// `None` if they lie inside the keys.
    v: Option<Rows>,
}

impl KvCache {
    pub(super) fn new(shape: KvShape, options: &CacheOptions) -> Result<Self, EngineError> {
        let n_rows = shape.n_rows(options);
        let v = match shape.values {
            Values::Own { .. } => Some(Rows::new(n_rows, shape.value_width(), options.types.v)?),
            Values::InKeys { .. } => None,
        };
        Ok(Self { shape, k: Rows::new(n_rows, shape.key_width(), options.types.k)?, v })
    }

    /// What it keeps of a position.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Stores keys, after rope, and values from position `first_pos` on.
    ///
    /// k        [n, n_kv_heads, key_dim]
    /// v        [n, n_kv_heads, value_dim], unless the values lie inside the keys
    pub(crate) fn store(&mut self, first_pos: usize, k: &[f32], v: Option<&[f32]>) {
        self.k.store(first_pos, k);
        match (&mut self.v, v) {
            (Some(rows), Some(v)) => rows.store(first_pos, v),
            (None, None) => {}
            (rows, _) => panic!("values {}", if rows.is_some() { "are missing" } else { "lie inside the keys" }),
        }
    }

    /// Keys as attention takes them, once `n_positions` are stored.
    pub(crate) fn keys(&self, n_positions: usize) -> KvSlice<'_> {
        self.k.first(n_positions)
    }

    /// Values as attention takes them; `None` if they lie inside the keys.
    pub(crate) fn values(&self, n_positions: usize) -> Option<KvSlice<'_>> {
        self.v.as_ref().map(|v| v.first(n_positions))
    }
}

/// Rows of K or V.
#[derive(Debug)]
struct Rows {
    width: usize,
    data: Elems,
}

#[derive(Debug)]
enum Elems {
    F32(Vec<f32>),
    F16(Vec<f16>),
}

impl Rows {
    fn new(n_rows: usize, width: usize, kv_type: KvType) -> Result<Self, EngineError> {
        let what = "the cache of keys and values";
        let data = match kv_type {
            KvType::F32 => Elems::F32(zeroed(what, n_rows, width)?),
            KvType::F16 => Elems::F16(zeroed(what, n_rows, width)?),
        };
        Ok(Self { width, data })
    }

    fn store(&mut self, first_pos: usize, rows: &[f32]) {
        let range = first_pos * self.width..first_pos * self.width + rows.len();
        match &mut self.data {
            Elems::F32(data) => data[range].copy_from_slice(rows),
            Elems::F16(data) => data[range].convert_from_f32_slice(rows),
        }
    }

    fn first(&self, n_rows: usize) -> KvSlice<'_> {
        let range = ..n_rows * self.width;
        match &self.data {
            Elems::F32(data) => KvSlice::F32(&data[range]),
            Elems::F16(data) => KvSlice::F16(&data[range]),
        }
    }
}
