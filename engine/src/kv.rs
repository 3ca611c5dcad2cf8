//! The cache of keys and values: one buffer for K and one for V per layer, allocated once, written position by position.
//! It does not know which tokens it holds; the session does.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::cpu::KvSlice;
use crate::error::EngineError;
use crate::place::Device;
use crate::tensor::zeroed;

/// How cached keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats: half the memory.
    F16,
}

impl KvType {
    /// Bytes per element.
    pub fn elem_bytes(self) -> u64 {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

/// What one layer keeps of each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Heads of K and V.
    pub n_kv_heads: usize,
    /// Elements of one head of K, and of V.
    pub head_dim: usize,
}

impl CacheShape {
    /// Elements of K, and of V, at one position.
    pub fn width(self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Bytes of K and V together.
    pub fn n_bytes(self, n_positions: usize, kv_type: KvType) -> u64 {
        let elems = (self.width() as u64).saturating_mul(n_positions as u64).saturating_mul(2);
        elems.saturating_mul(kv_type.elem_bytes())
    }
}

/// The caches of all layers.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<LayerCache>,
}

impl Cache {
    /// Allocates every layer's cache on its device, for `n_positions`.
    pub fn new(layers: &[(CacheShape, Device)], n_positions: usize, kv_type: KvType) -> Result<Self, EngineError> {
        let layer = |&(shape, device): &(CacheShape, Device)| LayerCache::new(shape, device, n_positions, kv_type);
        Ok(Self { layers: layers.iter().map(layer).collect::<Result<_, _>>()? })
    }

    /// One layer's cache.
    pub fn layer(&mut self, layer: usize) -> &mut LayerCache {
        &mut self.layers[layer]
    }

    /// Forgets all positions from `n_wanted` on and says how many are left: no more than asked, perhaps fewer, since not
    /// every kind of layer can go back to any position.
    pub fn rewind(&mut self, n_wanted: usize) -> usize {
        // Attention reads only positions before its own, so what lies behind needs no clearing.
        n_wanted
    }
}

/// The keys and values of one layer.
#[derive(Debug)]
pub struct LayerCache {
    /// Keys, after rope.
    pub k: CacheRows,
    /// Values.
    pub v: CacheRows,
}

impl LayerCache {
    fn new(shape: CacheShape, device: Device, n_positions: usize, kv_type: KvType) -> Result<Self, EngineError> {
        let rows = || CacheRows::new(device, n_positions, shape.width(), kv_type);
        Ok(Self { k: rows()?, v: rows()? })
    }
}

/// Rows of K or V.
#[derive(Debug)]
pub struct CacheRows {
    width: usize,
    data: CacheElems,
}

#[derive(Debug)]
enum CacheElems {
    CpuF32(Vec<f32>),
    CpuF16(Vec<f16>),
}

impl CacheRows {
    fn new(device: Device, n_positions: usize, width: usize, kv_type: KvType) -> Result<Self, EngineError> {
        let what = "the cache of keys and values";
        let data = match (device, kv_type) {
            (Device::Cpu, KvType::F32) => CacheElems::CpuF32(zeroed(what, n_positions, width)?),
            (Device::Cpu, KvType::F16) => CacheElems::CpuF16(zeroed(what, n_positions, width)?),
            (Device::Cuda(_), _) => return Err(EngineError::DeviceUnsupported { device }),
        };
        Ok(Self { width, data })
    }

    /// Stores rows from position `first_pos` on.
    ///
    /// rows     [n, width]
    pub(crate) fn store(&mut self, first_pos: usize, rows: &[f32]) {
        let range = first_pos * self.width..first_pos * self.width + rows.len();
        match &mut self.data {
            CacheElems::CpuF32(data) => data[range].copy_from_slice(rows),
            CacheElems::CpuF16(data) => data[range].convert_from_f32_slice(rows),
        }
    }

    /// The first `n_positions` rows.
    pub(crate) fn first(&self, n_positions: usize) -> KvSlice<'_> {
        let range = ..n_positions * self.width;
        match &self.data {
            CacheElems::CpuF32(data) => KvSlice::F32(&data[range]),
            CacheElems::CpuF16(data) => KvSlice::F16(&data[range]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(kv_type: KvType) -> Result<Cache, EngineError> {
        Cache::new(&[(CacheShape { n_kv_heads: 2, head_dim: 3 }, Device::Cpu)], 4, kv_type)
    }

    #[test]
    fn rows_come_back_from_where_they_were_stored() {
        let rows: Vec<f32> = (0..12).map(|i| i as f32 - 3.5).collect();
        let mut f32_cache = cache(KvType::F32).unwrap();
        let k = &mut f32_cache.layer(0).k;
        k.store(2, &rows);
        let KvSlice::F32(stored) = k.first(4) else { panic!("stored as f32") };
        assert_eq!(stored[..12], [0.0; 12]);
        assert_eq!(stored[12..], rows);

        let mut f16_cache = cache(KvType::F16).unwrap();
        let v = &mut f16_cache.layer(0).v;
        v.store(1, &rows);
        let KvSlice::F16(stored) = v.first(3) else { panic!("stored as f16") };
        assert_eq!(stored.len(), 18);
        assert_eq!(stored[6..].iter().map(|x| x.to_f32()).collect::<Vec<_>>(), rows);
    }

    #[test]
    fn a_cache_beyond_all_memory_is_an_error() {
        let shape = CacheShape { n_kv_heads: 1 << 20, head_dim: 1 << 20 };
        let error = Cache::new(&[(shape, Device::Cpu)], 1 << 20, KvType::F16).unwrap_err();
        assert!(matches!(error, EngineError::OutOfMemory { .. }), "{error}");
        assert_eq!(CacheShape { n_kv_heads: 2, head_dim: 3 }.n_bytes(4, KvType::F16), 96);
    }
}
