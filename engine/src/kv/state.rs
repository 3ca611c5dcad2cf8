//! The state of a recurrent layer: f32 of a fixed number, with the processor or on a GPU.

use std::sync::Arc;

use crate::cuda::{At, Buffer, Gpu};
use crate::error::EngineError;
use crate::tensor::zeroed;

/// The state of a recurrent layer, zeros before the first token.
#[derive(Debug)]
pub struct State {
    n_elems: usize,
    data: Elems,
}

#[derive(Debug)]
enum Elems {
    Cpu(Vec<f32>),
    OnGpu(Buffer),
}

impl State {
    /// gpu      where it lives; none for the processor
    pub(super) fn new(n_elems: usize, gpu: Option<&Arc<Gpu>>) -> Result<Self, EngineError> {
        let data = match gpu {
            None => Elems::Cpu(zeroed("the state of a recurrent layer", 1, n_elems)?),
            Some(gpu) => Elems::OnGpu(Buffer::zeroed(gpu, n_elems * size_of::<f32>())?),
        };
        Ok(Self { n_elems, data })
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.n_elems
    }

    /// As before the first token.
    pub(super) fn clear(&mut self) {
        match &mut self.data {
            Elems::Cpu(elems) => elems.fill(0.0),
            Elems::OnGpu(buffer) => buffer.gpu().fill_zero(buffer.at(), buffer.n_bytes()),
        }
    }

    /// Copies it out.
    pub(super) fn save(&self, out: &mut [f32]) {
        match &self.data {
            Elems::Cpu(elems) => out.copy_from_slice(elems),
            Elems::OnGpu(buffer) => buffer.gpu().read_and_wait(buffer.at(), &mut out[..self.n_elems]),
        }
    }

    /// Copies it back in.
    pub(super) fn restore(&mut self, saved: &[f32]) {
        match &mut self.data {
            Elems::Cpu(elems) => elems.copy_from_slice(saved),
            Elems::OnGpu(buffer) => buffer.gpu().write_and_wait(buffer.at(), &saved[..self.n_elems]),
        }
    }

    /// The elements as the processor's kernels take and change them. Panics if they are on a GPU.
    pub(crate) fn elems_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            Elems::Cpu(elems) => elems,
            Elems::OnGpu(buffer) => panic!("the processor works on a state in {buffer:?}"),
        }
    }

    /// Where an element lies on a GPU. Panics if it is not there.
    pub(crate) fn on(&self, gpu: &Gpu, first: usize) -> At {
        match &self.data {
            Elems::OnGpu(buffer) if buffer.gpu().index() == gpu.index() => buffer.at().plus(first * size_of::<f32>()),
            _ => panic!("a state elsewhere for {gpu:?}"),
        }
    }
}
