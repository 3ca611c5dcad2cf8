//! What the layers remember of the tokens before: keys and values of each position, or a state of fixed size. Allocated
//! once, written position by position. It does not know which tokens it holds; the session does.

mod checkpoint;
mod rows;
mod shape;
mod state;

use crate::cuda::Gpus;
use crate::error::EngineError;
use crate::place::Device;
use checkpoint::Checkpoints;
pub use checkpoint::{Mark, checkpoint_bytes};
pub use rows::KvCache;
pub use shape::{CacheOptions, CacheShape, KV_TYPES, KvShape, KvType, KvTypes, UnknownKvType, Values};
pub use state::State;

/// The caches of all layers.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<LayerCache>,
    checkpoints: Checkpoints,
    /// After how many positions the states are; `None` while some layers are ahead of others.
    state_pos: Option<usize>,
}

impl Cache {
    /// Allocates every layer's cache on its device.
    ///
    /// gpus     those that are open
    /// Errors   `OutOfMemory`, `DeviceUnsupported`, `Cuda`
    pub(crate) fn new(
        layers: &[(CacheShape, Device)],
        gpus: &Gpus,
        options: &CacheOptions,
    ) -> Result<Self, EngineError> {
        let shapes: Vec<_> = layers.iter().map(|(shape, _)| *shape).collect();
        let layer = |&(shape, device): &(CacheShape, Device)| LayerCache::new(shape, device, gpus, options);
        let layers = layers.iter().map(layer).collect::<Result<_, _>>()?;
        Ok(Self { layers, checkpoints: Checkpoints::new(&shapes, options), state_pos: Some(0) })
    }

    /// One layer's cache. A layer may read that of another one.
    pub fn layer(&mut self, layer: usize) -> &mut LayerCache {
        &mut self.layers[layer]
    }

    /// Whether there are states: they are after the last position only, and there is no other way back than a checkpoint.
    pub fn has_states(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, LayerCache::Recurrent(_)))
    }

    /// To be called before a step writes positions up to `end`: what it would overwrite and a checkpoint needs is saved.
    ///
    /// Cost     allocates only where a checkpoint saves the rows of a sliding window for the first time
    pub fn begin(&mut self, end: usize) {
        self.checkpoints.save_windows(end, &self.layers);
        self.state_pos = None;
    }

    /// To be called when a step has written positions up to `end` in all layers.
    pub fn finish(&mut self, end: usize) {
        self.state_pos = Some(end);
    }

    /// Makes a checkpoint at position `n`, if one is of use there: of what is held, and of the rings what is seen from there.
    pub fn keep(&mut self, n: usize, mark: Mark) {
        let is_of_use = if self.has_states() { self.state_pos == Some(n) } else { self.rings_serve(n) };
        if n > 0 && is_of_use {
            self.checkpoints.keep(n, mark, &self.layers);
        }
    }

    /// Where the last checkpoint is; 0 if there is none.
    pub fn last_checkpoint(&self) -> usize {
        self.checkpoints.last()
    }

    /// Forgets all positions from `n_wanted` on and says how many are left: as many as asked where keys and values are all
    /// that is kept, as many as a checkpoint holds elsewhere.
    pub fn rewind(&mut self, n_wanted: usize) -> usize {
        let is_there = !self.has_states() || self.state_pos == Some(n_wanted);
        let n_left = if is_there && self.rings_serve(n_wanted) {
            n_wanted
        } else if let Some(checkpoint) = self.checkpoints.last_before(n_wanted, &self.layers) {
            checkpoint.restore(&mut self.layers);
            checkpoint.n
        } else {
            0
        };
        if n_left == 0 {
            self.layers.iter_mut().for_each(LayerCache::clear);
        }
        self.checkpoints.drop_after(n_left);
        self.state_pos = Some(n_left);
        n_left
    }

    fn rings_serve(&self, n: usize) -> bool {
        self.layers.iter().all(|layer| match layer {
            LayerCache::Attention(kv) => kv.serves(n),
            LayerCache::Recurrent(_) | LayerCache::Nothing => true,
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

impl LayerCache {
    fn new(shape: CacheShape, device: Device, gpus: &Gpus, options: &CacheOptions) -> Result<Self, EngineError> {
        let gpu = gpus.get(device)?;
        Ok(match shape {
            CacheShape::Nothing => Self::Nothing,
            CacheShape::Attention(shape) => Self::Attention(KvCache::new(shape, gpu, options)?),
            CacheShape::Recurrent { n_elems } => Self::Recurrent(State::new(n_elems, gpu)?),
        })
    }

    /// It is as if there had been no position. Attention reads only positions before its own, so what lies behind stays.
    fn clear(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Attention(kv) => kv.clear(),
            Self::Recurrent(state) => state.clear(),
        }
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
    pub fn state(&mut self) -> &mut State {
        match self {
            Self::Recurrent(state) => state,
            other => panic!("a state of {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{KvSlice, turn};
    use crate::gguf::TensorType;
    use crate::quant;

    const SHAPE: KvShape = KvShape { n_kv_heads: 2, key_dim: 3, values: Values::Own { dim: 2 }, window: None };

    fn options(types: KvTypes) -> CacheOptions {
        CacheOptions { n_positions: 4, n_batch: 4, types, checkpoint_bytes: 0 }
    }

    fn cache(types: KvTypes) -> Cache {
        Cache::new(&[(CacheShape::Attention(SHAPE), Device::Cpu)], &Gpus::default(), &options(types)).unwrap()
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
        let mut cache = Cache::new(&[(layer, Device::Cpu)], &Gpus::default(), &options).unwrap();
        let kv = cache.layer(0).keys_values_mut();
        kv.store(0, &[1.0; 6], None);
        assert!(kv.values(1).is_none());
    }

    #[test]
    fn a_state_starts_anew_when_the_cache_goes_back() {
        let layers = [(CacheShape::Nothing, Device::Cpu), (CacheShape::Recurrent { n_elems: 5 }, Device::Cpu)];
        let options = options(KvTypes::both(KvType::F16));
        let mut cache = Cache::new(&layers, &Gpus::default(), &options).unwrap();
        assert_eq!(layers.map(|(shape, _)| shape.n_bytes(&options)), [0, 20]);
        cache.layer(1).state().elems_mut().fill(2.0);
        cache.finish(4);
        assert_eq!(cache.rewind(4), 4);
        assert_eq!(cache.layer(1).state().elems_mut(), [2.0; 5]);
        assert_eq!(cache.rewind(3), 0);
        assert_eq!(cache.layer(1).state().elems_mut(), [0.0; 5]);
    }

    #[test]
    fn quantised_rows_are_the_blocks_of_their_format() {
        let x: Vec<f32> = (0..128).map(|i| (i as f32 * 0.7).sin()).collect();
        let shape = KvShape { n_kv_heads: 2, key_dim: 32, values: Values::Own { dim: 32 }, window: None };
        let options = options(KvTypes { k: KvType::Q8_0, v: KvType::Q4_0 });
        let mut cache = Cache::new(&[(CacheShape::Attention(shape), Device::Cpu)], &Gpus::default(), &options).unwrap();
        let kv = cache.layer(0).keys_values_mut();
        kv.store(1, &x, Some(&x));
        let (KvSlice::Q8_0(k), Some(KvSlice::Q4_0(v))) = (kv.keys(3), kv.values(3)) else { panic!("as asked") };
        for (tensor_type, blocks, tolerance) in [(TensorType::Q8_0, k, 0.005), (TensorType::Q4_0, v, 0.3)] {
            let mut rows = vec![f32::NAN; 192];
            quant::decode_row(tensor_type, blocks, &mut rows).unwrap();
            if tensor_type == TensorType::Q4_0 {
                turn(&mut rows, 32);
            }
            assert_eq!(rows[..64], [0.0; 64]);
            assert!(rows[64..].iter().zip(&x).all(|(got, x)| (got - x).abs() < tolerance), "{tensor_type}: {rows:?}");
        }
    }

    #[test]
    fn a_window_keeps_a_ring_and_what_left_it_is_not_served() {
        let shape = KvShape { window: Some(20), ..SHAPE };
        let options =
            CacheOptions { n_positions: 1000, n_batch: 7, types: KvTypes::both(KvType::F32), checkpoint_bytes: 0 };
        let layer = CacheShape::Attention(shape);
        assert_eq!(layer.n_bytes(&options), 32 * (6 + 4) * 4);
        let mut cache = Cache::new(&[(layer, Device::Cpu)], &Gpus::default(), &options).unwrap();
        let store = |cache: &mut Cache, positions: std::ops::Range<usize>| {
            let rows = |width| positions.clone().flat_map(move |p| vec![p as f32; width]).collect::<Vec<_>>();
            cache.layer(0).keys_values_mut().store(positions.start, &rows(6), Some(&rows(4)));
        };
        (0..10).for_each(|i| store(&mut cache, 5 * i..5 * i + 5));
        let KvSlice::F32(keys) = cache.layer(0).keys_values().keys(50) else { panic!("stored as f32") };
        assert!((18..50).all(|p| keys[p % 32 * 6] == p as f32), "{keys:?}");
        // Position 37 sees 18 to 36, position 36 sees 17, which is gone.
        assert_eq!(cache.rewind(37), 37);
        store(&mut cache, 37..44);
        assert_eq!(cache.rewind(36), 0);
        store(&mut cache, 0..7);
        assert_eq!(cache.rewind(3), 3);
    }

    #[test]
    fn rows_of_a_ring_come_back_as_they_were_saved() {
        let shape = KvShape { n_kv_heads: 1, key_dim: 32, values: Values::Own { dim: 64 }, window: Some(9) };
        for k in KV_TYPES {
            for v in KV_TYPES {
                let options =
                    CacheOptions { n_positions: 40, n_batch: 4, types: KvTypes { k, v }, checkpoint_bytes: 0 };
                let mut kv = KvCache::new(shape, None, &options).unwrap();
                let store = |kv: &mut KvCache, p: usize, x: f32| kv.store(p, &[x; 32], Some(&[2.0 * x; 64]));
                (0..70).for_each(|p| store(&mut kv, p, p as f32));
                let seen = kv.seen_from(67);
                assert_eq!(seen, 59..67);
                let mut saved = vec![0; seen.len() * kv.row_bytes()];
                kv.save(seen.clone(), &mut saved);
                (0..70).for_each(|p| store(&mut kv, p, -1.0));
                kv.restore(seen.clone(), &saved);
                assert!(kv.serves(67) && !kv.serves(66));
                let mut again = vec![0; saved.len()];
                kv.save(seen, &mut again);
                assert_eq!(saved, again, "{k} {v}");
            }
        }
    }

    #[test]
    fn a_cache_beyond_all_memory_is_an_error() {
        let shape = CacheShape::Attention(KvShape { n_kv_heads: 1 << 20, key_dim: 1 << 20, ..SHAPE });
        let options = CacheOptions { n_positions: 1 << 20, ..options(KvTypes::both(KvType::F16)) };
        let error = Cache::new(&[(shape, Device::Cpu)], &Gpus::default(), &options).unwrap_err();
        assert!(matches!(error, EngineError::OutOfMemory { .. }), "{error}");
    }
}
