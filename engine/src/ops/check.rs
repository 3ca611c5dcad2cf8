//! Whether a GPU computes what the processor does: products with the model's own weights and an attention, at the sizes of a
//! token and of a prompt, before anything depends on them. A driver, a card or a kernel that is wrong is found at load, not in
//! an answer. Not a test of every kernel: tests on the simulated driver are.

use std::sync::Arc;

use super::{Attend, Ops};
use crate::cpu::{self, Rounding};
use crate::cuda::CudaError;
use crate::error::EngineError;
use crate::gguf::{MappedModel, TensorFacts};
use crate::kv::{Cache, CacheOptions, CacheShape, KvShape, KvType, KvTypes, Values};
use crate::place::{Device, Placement};
use crate::tensor::{AttendScratch, Input, Rows, Weight};

/// Tokens at once: what generation does, and enough for the kernels of prompts.
const TOKENS: [usize; 2] = [1, 9];
/// Rows of a matrix that are tried, more than a tile has.
const MAX_ROWS: u64 = 96;
/// Beside the largest result. Inputs are whole numbers that no rounding changes, so sums differ by their order alone; what is
/// wrong differs by much more.
const TOLERANCE: f32 = 2e-3;
/// The shape of the attention that is tried.
const SHAPE: KvShape = KvShape { n_kv_heads: 2, key_dim: 64, values: Values::Own { dim: 64 }, window: None };

impl Ops {
    /// Refuses GPUs that compute something else than the processor.
    ///
    /// placement  what goes where: each GPU is tried with one matrix of every type that it holds
    /// Errors     `WrongResult`, and what else goes wrong on a GPU
    pub(crate) fn check_results(
        &self,
        file: &Arc<MappedModel>,
        placement: &Placement,
        types: KvTypes,
    ) -> Result<(), EngineError> {
        for index in self.gpus().iter().map(|gpu| gpu.index()) {
            let device = Device::Cuda(index);
            for tensor in one_of_each_type(&file.facts.tensors, placement, device) {
                for n_tokens in TOKENS {
                    let what = || format!("products of {n_tokens} with {} weights", tensor.tensor_type);
                    self.agree(index, what, |device| self.product(file, tensor, n_tokens, device))?;
                }
            }
            for n_tokens in TOKENS {
                let what = || format!("attention of {n_tokens}");
                self.agree(index, what, |device| self.attention(types, n_tokens, device))?;
            }
        }
        Ok(())
    }

    fn agree(
        &self,
        index: u32,
        what: impl Fn() -> String,
        run: impl Fn(Device) -> Result<Vec<f32>, EngineError>,
    ) -> Result<(), EngineError> {
        let (want, got) = (run(Device::Cpu)?, run(Device::Cuda(index))?);
        let largest = want.iter().filter(|want| want.is_finite()).fold(0f32, |max, want| max.max(want.abs()));
        // Damaged weights are no fault of the card.
        let is_near = |(got, want): (&f32, &f32)| !want.is_finite() || (got - want).abs() <= TOLERANCE * largest;
        if got.iter().zip(&want).all(is_near) {
            return Ok(());
        }
        Err(CudaError::WrongResult { index, what: what() }.into())
    }

    fn product(
        &self,
        file: &Arc<MappedModel>,
        tensor: &TensorFacts,
        n_tokens: usize,
        device: Device,
    ) -> Result<Vec<f32>, EngineError> {
        let n_rows = n_rows(tensor).min(MAX_ROWS) as usize;
        let weight = Weight::new(self.gpus().get(device)?, file, tensor, Some(0..n_rows))?;
        let x = self.whole_numbers(n_tokens, weight.n_cols(), device)?;
        let mut input = Input::new(self.gpus(), n_tokens, weight.n_cols(), Rounding::Twice)?;
        self.prepare(&x, &mut input);
        let mut y = Rows::new(self.gpus(), n_tokens, n_rows)?;
        y.reshape(n_tokens, n_rows);
        self.products([(&weight, &mut y)], &input);
        self.elems_of(y)
    }

    fn attention(&self, types: KvTypes, n_tokens: usize, device: Device) -> Result<Vec<f32>, EngineError> {
        let (n_heads, dim) = (2 * SHAPE.n_kv_heads, SHAPE.key_dim);
        let options = CacheOptions { n_positions: 64, n_batch: n_tokens, types, checkpoint_bytes: 0 };
        let mut cache = Cache::new(&[(CacheShape::Attention(SHAPE), device)], self.gpus(), &options)?;
        let mut scratch = AttendScratch::new(self.gpus(), n_heads, dim)?;
        let rows = |width, kv_type| {
            let mut rows = self.whole_numbers(n_tokens, width, Device::Cpu)?;
            self.scale(&mut rows, 1.0 / 127.0);
            turn_back(&mut rows, device, kv_type, dim);
            rows.move_to(device);
            Ok::<_, EngineError>(rows)
        };
        let kv_width = SHAPE.n_kv_heads * dim;
        let (k, v, mut q) = (rows(kv_width, types.k)?, rows(kv_width, types.v)?, rows(n_heads * dim, types.k)?);
        self.store(cache.layer(0), 0, &k, Some(&v));
        let mut y = Rows::new(self.gpus(), n_tokens, n_heads * dim)?;
        y.reshape(n_tokens, n_heads * dim);
        let attend = Attend { n_heads, scale: 0.125, first_pos: 0, softcap: None, sinks: None };
        self.attend(&attend, &mut scratch, &mut q, cache.layer(0), &mut y);
        turn_back(&mut y, device, types.v, dim);
        self.elems_of(y)
    }

    /// Rows that rounding to signed bytes leaves as they are: each 32 of them have 127 for their largest.
    fn whole_numbers(&self, n_rows: usize, width: usize, device: Device) -> Result<Rows, EngineError> {
        let mut rows = Rows::new(self.gpus(), n_rows, width)?;
        rows.reshape(n_rows, width);
        for (t, row) in rows.elems_mut().chunks_exact_mut(width).enumerate() {
            for (i, x) in row.iter_mut().enumerate() {
                *x = if i.is_multiple_of(32) { 127.0 } else { ((i + 11 * t) * 37 % 201) as f32 - 100.0 };
            }
        }
        rows.move_to(device);
        Ok(rows)
    }

    fn elems_of(&self, mut rows: Rows) -> Result<Vec<f32>, EngineError> {
        rows.move_to(Device::Cpu);
        self.check()?;
        Ok(rows.elems().to_vec())
    }
}

/// The processor stores heads turned where they get few bits, a card as they are: what the processor is to store as a card
/// does, and what it then finds, is turned back.
pub(super) fn turn_back(x: &mut Rows, device: Device, kv_type: KvType, head_dim: usize) {
    if device == Device::Cpu && kv_type.is_turned() {
        cpu::turn(x.elems_mut(), cpu::turn_run(head_dim));
    }
}

/// The first matrix of each type on a device.
fn one_of_each_type<'a>(tensors: &'a [TensorFacts], placement: &Placement, device: Device) -> Vec<&'a TensorFacts> {
    let mut found: Vec<&TensorFacts> = Vec::new();
    for tensor in tensors {
        let is_new = || found.iter().all(|other| other.tensor_type != tensor.tensor_type);
        if tensor.shape.len() > 1 && n_rows(tensor) > 0 && placement.device_of(&tensor.name) == device && is_new() {
            found.push(tensor);
        }
    }
    found
}

/// Rows of all matrices of a tensor.
fn n_rows(tensor: &TensorFacts) -> u64 {
    tensor.n_elems().checked_div(tensor.shape.last().copied().unwrap_or(1)).unwrap_or(0)
}
