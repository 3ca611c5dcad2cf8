//! What the layers remember of the tokens before: keys and values of each position, or a state of fixed size. Allocated
//! once, written position by position. It does not know which tokens it holds; the session does.

mod rows;
mod shape;

use crate::error::EngineError;
use crate::place::Device;
use crate::tensor::zeroed;
pub use rows::KvCache;
pub use shape::{CacheOptions, CacheShape, KvShape, KvType, KvTypes, Values};

/// The caches of all layers.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<LayerCache>,
}

impl Cache {
    /// Allocates every layer's cache on its device.
    ///
    /// Errors   `OutOfMemory`, `DeviceUnsupported`
    pub fn new(layers: &[(CacheShape, Device)], options: &CacheOptions) -> Result<Self, EngineError> {
        let layer = |&(shape, device): &(CacheShape, Device)| LayerCache::new(shape, device, options);
        Ok(Self { layers: layers.iter().map(layer).collect::<Result<_, _>>()? })
    }

    /// One layer's cache. A layer may read that of another one.
    pub fn layer(&mut self, layer: usize) -> &mut LayerCache {
        &mut self.layers[layer]
    }

    /// Forgets all positions from `n_wanted` on and says how many are left: no more than asked, perhaps fewer, since not
    /// every kind of layer can go back to any position.
    pub fn rewind(&mut self, n_wanted: usize) -> usize {
        let states = self.layers.iter_mut().filter_map(|layer| match layer {
            LayerCache::Recurrent(state) => Some(state),
            LayerCache::Nothing | LayerCache::Attention(_) => None,
        });
        // Attention reads only positions before its own, so what lies behind needs no clearing; a state starts anew.
        states.fold(n_wanted, |_, state| {
            state.elems.fill(0.0);
            0
        })
    }
}

/// What one layer keeps.
#[derive(Debug)]
pub enum LayerCache {
    /// Nothing.
    Nothing,
    /// Keys and values.
    Attention(KvCache),
    /// A state.
    Recurrent(State),
}

/// The state of a recurrent layer, zeros before the first token.
#[derive(Debug)]
pub struct State {
    elems: Vec<f32>,
}

impl LayerCache {
    fn new(shape: CacheShape, device: Device, options: &CacheOptions) -> Result<Self, EngineError> {
        if device != Device::Cpu {
            return Err(EngineError::DeviceUnsupported { device });
        }
        Ok(match shape {
            CacheShape::Nothing => Self::Nothing,
            CacheShape::Attention(shape) => Self::Attention(KvCache::new(shape, options)?),
            CacheShape::Recurrent { n_elems } => {
                Self::Recurrent(State { elems: zeroed("the state of a recurrent layer", 1, n_elems)? })
            }
        })
    }

    /// The keys and values of an attention layer. Panics for any other: the family asks for what it said it keeps.
    pub fn keys_values(&self) -> &KvCache {
        match self {
            Self::Attention(kv) => kv,
            other => panic!("keys and values of {other:?}"),
        }
    }

    /// As `keys_values`, to be written.
    pub fn keys_values_mut(&mut self) -> &mut KvCache {
        match self {
            Self::Attention(kv) => kv,
            other => panic!("keys and values of {other:?}"),
        }
    }

    /// The state of a recurrent layer, after the tokens so far. Panics for any other.
    pub fn state(&mut self) -> &mut [f32] {
        match self {
            Self::Recurrent(state) => &mut state.elems,
            other => panic!("a state of {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::KvSlice;

    const SHAPE: KvShape = KvShape { n_kv_heads: 2, key_dim: 3, values: Values::Own { dim: 2 }, window: None };

    fn options(types: KvTypes) -> CacheOptions {
        CacheOptions { n_positions: 4, n_batch: 4, types }
    }

    fn cache(types: KvTypes) -> Cache {
        Cache::new(&[(CacheShape::Attention(SHAPE), Device::Cpu)], &options(types)).unwrap()
    }

    #[test]
    fn rows_come_back_from_where_they_were_stored() {
        let rows: Vec<f32> = (0..12).map(|i| i as f32 - 3.5).collect();
        let mut cache = cache(KvTypes { k: KvType::F32, v: KvType::F16 });
        let kv = cache.layer(0).keys_values_mut();
        kv.store(2, &rows, Some(&rows[..8]));
        let KvSlice::F32(stored) = kv.keys(4) else { panic!("stored as f32") };
        assert_eq!(stored[..12], [0.0; 12]);
        assert_eq!(stored[12..], rows);
        let Some(KvSlice::F16(stored)) = kv.values(4) else { panic!("stored as f16") };
        assert_eq!(stored[8..].iter().map(|x| x.to_f32()).collect::<Vec<_>>(), rows[..8]);
    }

    #[test]
    fn values_inside_the_keys_take_no_room() {
        let shape = KvShape { values: Values::InKeys { dim: 2 }, ..SHAPE };
        let layer = CacheShape::Attention(shape);
        let options = options(KvTypes::both(KvType::F16));
        assert_eq!(layer.n_bytes(&options), 4 * 6 * 2);
        let mut cache = Cache::new(&[(layer, Device::Cpu)], &options).unwrap();
        let kv = cache.layer(0).keys_values_mut();
        kv.store(0, &[1.0; 6], None);
        assert!(kv.values(1).is_none());
    }

    #[test]
    fn a_state_starts_anew_when_the_cache_goes_back() {
        let layers = [(CacheShape::Nothing, Device::Cpu), (CacheShape::Recurrent { n_elems: 5 }, Device::Cpu)];
        let options = options(KvTypes::both(KvType::F16));
        let mut cache = Cache::new(&layers, &options).unwrap();
        assert_eq!(layers.map(|(shape, _)| shape.n_bytes(&options)), [0, 20]);
        cache.layer(1).state().fill(2.0);
        assert_eq!(cache.rewind(3), 0);
        assert_eq!(cache.layer(1).state(), [0.0; 5]);
    }

    #[test]
    fn a_cache_beyond_all_memory_is_an_error() {
        let shape = CacheShape::Attention(KvShape { n_kv_heads: 1 << 20, key_dim: 1 << 20, ..SHAPE });
        let options = CacheOptions { n_positions: 1 << 20, ..options(KvTypes::both(KvType::F16)) };
        let error = Cache::new(&[(shape, Device::Cpu)], &options).unwrap_err();
        assert!(matches!(error, EngineError::OutOfMemory { .. }), "{error}");
    }
}
