//! Keys and values of one attention layer: one buffer each, a row per position. A layer with a sliding window keeps no more
//! than its window and one batch; its rows are a ring.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::shape::{CacheOptions, KvShape, KvType, Values};
use crate::cpu::{KvSlice, turn, turn_run};
use crate::cuda::{Buffer, DeviceKv, DeviceRows, Gpu};
use crate::error::EngineError;
use crate::quant;
use crate::tensor::zeroed;

/// The keys and values of one layer.
#[derive(Debug)]
pub struct KvCache {
    shape: KvShape,
    is_ring: bool,
    k: Rows,
    /// `None` if they lie inside the keys.
    v: Option<Rows>,
    /// First position whose row still holds it.
    first_held: usize,
}

impl KvCache {
    /// gpu      where it lives; none for the processor
    pub(super) fn new(shape: KvShape, gpu: Option<&Arc<Gpu>>, options: &CacheOptions) -> Result<Self, EngineError> {
        let n_rows = shape.n_rows(options);
        let v = match shape.values {
            Values::Own { dim } => Some(Rows::new(n_rows, shape.value_width(), turn_run(dim), options.types.v, gpu)?),
            Values::InKeys { .. } => None,
        };
        let k = Rows::new(n_rows, shape.key_width(), shape.key_run(), options.types.k, gpu)?;
        Ok(Self { shape, is_ring: n_rows < options.n_positions, k, v, first_held: 0 })
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
        let end = first_pos + self.k.store(first_pos, k);
        match (&mut self.v, v) {
            (Some(rows), Some(v)) => assert_eq!(first_pos + rows.store(first_pos, v), end, "as many values as keys"),
            (None, None) => {}
            (rows, _) => panic!("values {}", if rows.is_some() { "are missing" } else { "lie inside the keys" }),
        }
        self.first_held = self.first_held_after(end);
    }

    /// As `store`, for a cache on a GPU.
    pub(crate) fn store_on(&mut self, gpu: &Gpu, first_pos: usize, k: DeviceRows, v: Option<DeviceRows>) {
        assert_eq!(self.v.is_some(), v.is_some(), "values of their own");
        gpu.kv_store(k, &self.k.on(gpu), first_pos);
        if let (Some(rows), Some(v)) = (&self.v, v) {
            assert_eq!(v.n_rows, k.n_rows, "as many values as keys");
            gpu.kv_store(v, &rows.on(gpu), first_pos);
        }
        self.first_held = self.first_held_after(first_pos + k.n_rows);
    }

    /// Keys as a GPU's attention takes them. Panics if they are not there.
    pub(crate) fn keys_on(&self, gpu: &Gpu) -> DeviceKv {
        self.k.on(gpu)
    }

    /// Values as a GPU's attention takes them; `None` if they lie inside the keys.
    pub(crate) fn values_on(&self, gpu: &Gpu) -> Option<DeviceKv> {
        self.v.as_ref().map(|v| v.on(gpu))
    }

    /// Keys as attention takes them, once `n_positions` are stored.
    pub(crate) fn keys(&self, n_positions: usize) -> KvSlice<'_> {
        self.k.first(n_positions)
    }

    /// Values as attention takes them; `None` if they lie inside the keys.
    pub(crate) fn values(&self, n_positions: usize) -> Option<KvSlice<'_>> {
        self.v.as_ref().map(|v| v.first(n_positions))
    }

    /// Channels of keys that are turned together before the processor stores them; none if they are stored as they are.
    pub(crate) fn key_run(&self) -> Option<usize> {
        self.k.turned.as_ref().map(|turned| turned.run)
    }

    /// The same of values.
    pub(crate) fn value_run(&self) -> Option<usize> {
        self.v.as_ref().unwrap_or(&self.k).turned.as_ref().map(|turned| turned.run)
    }

    /// Whether it gives rows up.
    pub(super) fn is_ring(&self) -> bool {
        self.is_ring
    }

    /// The positions before `n` that position `n` and later ones see.
    pub(super) fn seen_from(&self, n: usize) -> Range<usize> {
        self.shape.window.map_or(0, |window| (n + 1).saturating_sub(window))..n
    }

    /// Whether it can go on from position `n`.
    pub(super) fn serves(&self, n: usize) -> bool {
        self.seen_from(n).start >= self.first_held
    }

    /// Whether it could still go on from position `n` once positions up to `end` are stored.
    pub(super) fn serves_after(&self, n: usize, end: usize) -> bool {
        self.seen_from(n).start >= self.first_held_after(end)
    }

    /// It is as if nothing had been stored.
    pub(super) fn clear(&mut self) {
        self.first_held = 0;
    }

    /// Copies the rows of some positions out.
    ///
    /// out      the rows of K, then of V, as bytes
    pub(super) fn save(&self, positions: Range<usize>, out: &mut [u8]) {
        let (k, v) = out.split_at_mut(positions.len() * self.k.row_bytes);
        self.k.save(positions.clone(), k);
        if let Some(rows) = &self.v {
            rows.save(positions, v);
        }
    }

    /// Copies the rows of some positions back in; they are all that it holds.
    pub(super) fn restore(&mut self, positions: Range<usize>, saved: &[u8]) {
        let (k, v) = saved.split_at(positions.len() * self.k.row_bytes);
        self.k.restore(positions.clone(), k);
        if let Some(rows) = &mut self.v {
            rows.restore(positions.clone(), v);
        }
        self.first_held = positions.start;
    }

    /// Bytes of what `save` writes for one position.
    pub(super) fn row_bytes(&self) -> usize {
        self.k.row_bytes + self.v.as_ref().map_or(0, |v| v.row_bytes)
    }

    /// Bytes of what `save` writes for what is seen from a position far from the beginning.
    pub(super) fn n_seen_bytes(&self) -> usize {
        self.shape.window.unwrap_or(0) * self.row_bytes()
    }

    fn first_held_after(&self, end: usize) -> usize {
        self.first_held.max(end.saturating_sub(self.k.n_rows))
    }
}

/// Rows of K or V: position p lies in row `p % n_rows`.
#[derive(Debug)]
struct Rows {
    n_rows: usize,
    width: usize,
    row_bytes: usize,
    kv_type: KvType,
    data: Elems,
    turned: Option<Box<Turned>>,
}

/// How heads are turned before they are stored.
#[derive(Debug)]
struct Turned {
    /// Channels that are turned together.
    run: usize,
    /// A row that is about to be stored.
    row: Vec<f32>,
}

#[derive(Debug)]
enum Elems {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Blocks(Vec<u8>),
    OnGpu(Buffer),
}

impl Rows {
    /// run      channels that are turned together if the type asks for it; a card stores all as they are
    fn new(
        n_rows: usize,
        width: usize,
        run: usize,
        kv_type: KvType,
        gpu: Option<&Arc<Gpu>>,
    ) -> Result<Self, EngineError> {
        let what = "the cache of keys and values";
        let row_bytes = kv_type.n_bytes(width as u64) as usize;
        let data = match (gpu, kv_type) {
            (Some(gpu), _) => Elems::OnGpu(Buffer::zeroed(gpu, n_rows.saturating_mul(row_bytes))?),
            (None, KvType::F32) => Elems::F32(zeroed(what, n_rows, width)?),
            (None, KvType::F16) => Elems::F16(zeroed(what, n_rows, width)?),
            (None, KvType::Q8_0 | KvType::Q4_0) => Elems::Blocks(zeroed(what, n_rows, row_bytes)?),
        };
        let is_turned = gpu.is_none() && kv_type.is_turned();
        let turned = || Ok::<_, EngineError>(Box::new(Turned { run, row: zeroed(what, 1, width)? }));
        let turned = is_turned.then(turned).transpose()?;
        Ok(Self { n_rows, width, row_bytes, kv_type, data, turned })
    }

    /// Stores rows from a position on and says how many.
    fn store(&mut self, first_pos: usize, x: &[f32]) -> usize {
        let n_stored = x.len() / self.width;
        for (rows, taken) in self.pieces(first_pos..first_pos + n_stored) {
            let x = &x[taken.start * self.width..taken.end * self.width];
            let range = rows.start * self.width..rows.end * self.width;
            match &mut self.data {
                Elems::F32(data) => data[range].copy_from_slice(x),
                Elems::F16(data) => data[range].convert_from_f32_slice(x),
                Elems::Blocks(data) => {
                    let blocks = &mut data[rows.start * self.row_bytes..rows.end * self.row_bytes];
                    for (x, blocks) in x.chunks_exact(self.width).zip(blocks.chunks_exact_mut(self.row_bytes)) {
                        let x = match &mut self.turned {
                            Some(turned) => {
                                turned.row.copy_from_slice(x);
                                turn(&mut turned.row, turned.run);
                                &turned.row
                            }
                            None => x,
                        };
                        quant::encode_row(self.kv_type.tensor_type(), x, blocks).expect("rows are whole blocks");
                    }
                }
                Elems::OnGpu(buffer) => panic!("the processor stores into a cache in {buffer:?}"),
            }
        }
        n_stored
    }

    fn first(&self, n_positions: usize) -> KvSlice<'_> {
        let n_rows = n_positions.min(self.n_rows);
        let range = ..n_rows * self.width;
        match &self.data {
            Elems::F32(data) => KvSlice::F32(&data[range]),
            Elems::F16(data) => KvSlice::F16(&data[range]),
            Elems::Blocks(data) => {
                let blocks = &data[..n_rows * self.row_bytes];
                if self.kv_type == KvType::Q4_0 { KvSlice::Q4_0(blocks) } else { KvSlice::Q8_0(blocks) }
            }
            Elems::OnGpu(buffer) => panic!("the processor reads a cache in {buffer:?}"),
        }
    }

    fn on(&self, gpu: &Gpu) -> DeviceKv {
        match &self.data {
            Elems::OnGpu(buffer) if buffer.gpu().index() == gpu.index() => {
                DeviceKv { at: buffer.at(), kv_type: self.kv_type, n_rows: self.n_rows, row_bytes: self.row_bytes }
            }
            _ => panic!("a cache elsewhere for {gpu:?}"),
        }
    }

    fn save(&self, positions: Range<usize>, out: &mut [u8]) {
        let bytes = match &self.data {
            Elems::F32(data) => bytemuck::cast_slice(data),
            Elems::F16(data) => bytemuck::cast_slice(data),
            Elems::Blocks(data) => data,
            Elems::OnGpu(buffer) => {
                for (rows, taken) in self.pieces(positions) {
                    let out = &mut out[taken.start * self.row_bytes..taken.end * self.row_bytes];
                    buffer.gpu().read_and_wait(buffer.at().plus(rows.start * self.row_bytes), out);
                }
                return;
            }
        };
        for (rows, taken) in self.pieces(positions) {
            let rows = &bytes[rows.start * self.row_bytes..rows.end * self.row_bytes];
            out[taken.start * self.row_bytes..taken.end * self.row_bytes].copy_from_slice(rows);
        }
    }

    fn restore(&mut self, positions: Range<usize>, saved: &[u8]) {
        let (pieces, row_bytes) = (self.pieces(positions), self.row_bytes);
        let bytes = match &mut self.data {
            Elems::F32(data) => bytemuck::cast_slice_mut(data),
            Elems::F16(data) => bytemuck::cast_slice_mut(data),
            Elems::Blocks(data) => data,
            Elems::OnGpu(buffer) => {
                for (rows, taken) in pieces {
                    let saved = &saved[taken.start * row_bytes..taken.end * row_bytes];
                    buffer.gpu().write_and_wait(buffer.at().plus(rows.start * row_bytes), saved);
                }
                return;
            }
        };
        for (rows, taken) in pieces {
            let saved = &saved[taken.start * row_bytes..taken.end * row_bytes];
            bytes[rows.start * row_bytes..rows.end * row_bytes].copy_from_slice(saved);
        }
    }

    /// The rows of at most `n_rows` positions, in two pieces where they begin anew, each with its part of the positions.
    fn pieces(&self, positions: Range<usize>) -> [(Range<usize>, Range<usize>); 2] {
        assert!(positions.len() <= self.n_rows, "{} positions in {} rows", positions.len(), self.n_rows);
        let first = positions.start % self.n_rows;
        let n_before = positions.len().min(self.n_rows - first);
        [(first..first + n_before, 0..n_before), (0..positions.len() - n_before, n_before..positions.len())]
    }
}
