//! Weights and activations that know where they live. A weight is a piece of the mapped file, in the file's own blocks, or a copy
//! of it on a GPU; a vector is small and decoded; rows are the activations of a forward pass, allocated once (`rows`), and so is
//! what operations need besides (`buffers`).

mod buffers;
mod rows;

use std::ops::Range;
use std::sync::Arc;

use crate::cpu::Matrix;
use crate::cuda::{self, At, Buffer, DeviceMatrices, Gpu};
use crate::error::EngineError;
use crate::gguf::{MappedModel, Piece, TensorFacts, TensorType};
use crate::place::Device;
use crate::quant;
pub(crate) use buffers::{Angles, AttendScratch, CardRoutes, Input};
pub use rows::Rows;

/// A matrix of weights, [n_rows, n_cols].
#[derive(Debug)]
pub struct Weight {
    stack: WeightStack,
}

/// Matrices of one shape, [n_matrices, n_rows, n_cols]: the experts of a layer, the heads of a projection.
#[derive(Debug)]
pub struct WeightStack {
    tensor_type: TensorType,
    n_rows: usize,
    n_cols: usize,
    data: WeightBlocks,
    /// Factors on the products with each matrix, where the file has some.
    scales: Option<Vec<f32>>,
}

#[derive(Debug)]
enum WeightBlocks {
    /// Read by the processor from the mapped file; where each matrix lies.
    Mapped { model: Arc<MappedModel>, matrices: Vec<Piece> },
    /// Copied to a GPU, behind each other.
    Cuda { buffer: Buffer, matrix_bytes: usize },
}

impl Weight {
    /// The tensor's rows `rows`, or all of them; of a stack of matrices, the rows of all of them in a row.
    ///
    /// gpu      where they go; none for the processor
    /// Errors   a type that the engine does not multiply
    pub(crate) fn new(
        gpu: Option<&Arc<Gpu>>,
        model: &Arc<MappedModel>,
        facts: &TensorFacts,
        rows: Option<Range<usize>>,
    ) -> Result<Self, EngineError> {
        let n_rows = facts.n_elems().checked_div(facts.shape.last().copied().unwrap_or(1)).unwrap_or(0) as usize;
        let whole =
            TensorFacts { shape: vec![n_rows as u64, facts.shape.last().copied().unwrap_or(1)], ..facts.clone() };
        Ok(Self { stack: WeightStack::new(gpu, model, &[&whole], rows)? })
    }

    /// The same with a factor on products.
    pub(crate) fn scaled(self, scales: Option<Vec<f32>>) -> Self {
        Self { stack: self.stack.scaled(scales) }
    }

    /// The factor on products.
    pub(crate) fn scale(&self) -> f32 {
        self.stack.scale(0)
    }

    /// Rows: what a product with it yields per token.
    pub fn n_rows(&self) -> usize {
        self.stack.n_rows
    }

    /// Columns: what a product with it takes per token.
    pub fn n_cols(&self) -> usize {
        self.stack.n_cols
    }

    /// Where it lives.
    pub(crate) fn device(&self) -> Device {
        self.stack.device()
    }

    /// Type and bytes, for reports.
    pub(crate) fn size(&self) -> (TensorType, u64) {
        self.stack.matrix_size()
    }

    /// The weights as the processor's kernels take them.
    pub(crate) fn matrix(&self) -> Matrix<'_> {
        self.stack.matrix(0)
    }

    /// The weights as the GPU's kernels take them.
    pub(crate) fn on_gpu(&self) -> DeviceMatrices {
        self.stack.on_gpu()
    }
}

impl WeightStack {
    /// All matrices of all tensors, which have one shape and type; of each only `rows`, if given.
    ///
    /// gpu      where they go; none for the processor
    /// tensors  [n, n_rows, n_cols] or [n_rows, n_cols] each, one at least
    /// Errors   a type that the device does not multiply, or several types; no memory on the GPU
    pub(crate) fn new(
        gpu: Option<&Arc<Gpu>>,
        model: &Arc<MappedModel>,
        tensors: &[&TensorFacts],
        rows: Option<Range<usize>>,
    ) -> Result<Self, EngineError> {
        let [first, ..] = tensors else { unreachable!("a stack has a tensor") };
        let (tensor_type, n_cols) = (first.tensor_type, first.shape.last().copied().unwrap_or(1) as usize);
        let n_all_rows = first.shape.iter().nth_back(1).copied().unwrap_or(1) as usize;
        let rows = rows.unwrap_or(0..n_all_rows);
        let mut matrices = Vec::new();
        for facts in tensors {
            check_type(facts)?;
            if facts.tensor_type != tensor_type {
                return Err(EngineError::TensorTypeUnsupported {
                    tensor: facts.name.clone(),
                    tensor_type: facts.tensor_type,
                });
            }
            let n_matrices = facts.n_elems().checked_div((n_all_rows * n_cols) as u64).unwrap_or(0);
            let row_bytes = facts.n_bytes / (n_matrices * n_all_rows as u64).max(1);
            matrices.extend((0..n_matrices).map(|i| Piece {
                file: facts.file,
                offset_bytes: facts.offset_bytes + (i * n_all_rows as u64 + rows.start as u64) * row_bytes,
                n_bytes: rows.len() as u64 * row_bytes,
            }));
        }
        let data = match gpu {
            None => WeightBlocks::Mapped { model: Arc::clone(model), matrices },
            Some(gpu) => {
                if !cuda::supports(tensor_type) {
                    let (device, tensor) = (Device::Cuda(gpu.index()), first.name.clone());
                    return Err(EngineError::GpuTypeUnsupported { device, tensor, tensor_type });
                }
                gpu.load_products(tensor_type)?;
                let matrix_bytes = matrices.first().map_or(0, |piece| piece.n_bytes as usize);
                WeightBlocks::Cuda { buffer: copied(gpu, model, &matrices)?, matrix_bytes }
            }
        };
        Ok(Self { tensor_type, n_rows: rows.len(), n_cols, data, scales: None })
    }

    /// Room on a GPU for copies of `n` matrices.
    ///
    /// Errors   a type that the GPU does not multiply, no memory
    pub(crate) fn room_on(&self, gpu: &Arc<Gpu>, n: usize) -> Result<Self, EngineError> {
        gpu.load_products(self.tensor_type)?;
        let matrix_bytes = self.matrix_size().1 as usize;
        let data = WeightBlocks::Cuda { buffer: Buffer::new(gpu, n * matrix_bytes)?, matrix_bytes };
        Ok(Self { data, scales: self.scales.as_ref().map(|_| vec![1.0; n]), ..*self })
    }

    /// Starts to copy a matrix of the processor's over one of these, which are on a GPU.
    pub(crate) fn copy_matrix(&mut self, from: &Self, i: usize, to: usize) {
        let WeightBlocks::Cuda { buffer, matrix_bytes } = &self.data else { panic!("copies live on a GPU") };
        let bytes = from.matrix(i).bytes;
        assert_eq!(bytes.len(), *matrix_bytes, "a matrix and its copy");
        // SAFETY: the file's mapping is not written, and lives as long as the model, which waits for its GPUs; there is
        // room for so many matrices.
        unsafe { buffer.gpu().begin_write(buffer.at().plus(to * matrix_bytes), bytes) };
        if let (Some(scales), Some(from)) = (&mut self.scales, &from.scales) {
            scales[to] = from[i];
        }
    }

    /// The same with a factor on the products with each matrix.
    pub(crate) fn scaled(self, scales: Option<Vec<f32>>) -> Self {
        Self { scales, ..self }
    }

    /// The factor on products with a matrix.
    pub(crate) fn scale(&self, i: usize) -> f32 {
        self.scales.as_ref().map_or(1.0, |scales| scales[i])
    }

    /// Whether products with any matrix have a factor.
    pub(crate) fn is_scaled(&self) -> bool {
        self.scales.is_some()
    }

    /// Matrices.
    pub(crate) fn n_matrices(&self) -> usize {
        match &self.data {
            WeightBlocks::Mapped { matrices, .. } => matrices.len(),
            WeightBlocks::Cuda { buffer, matrix_bytes } => buffer.n_bytes() / matrix_bytes,
        }
    }

    /// Rows of each matrix.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Columns of each matrix.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Where they live.
    pub(crate) fn device(&self) -> Device {
        match &self.data {
            WeightBlocks::Mapped { .. } => Device::Cpu,
            WeightBlocks::Cuda { buffer, .. } => Device::Cuda(buffer.gpu().index()),
        }
    }

    /// Type and bytes of each matrix, for reports.
    pub(crate) fn matrix_size(&self) -> (TensorType, u64) {
        let n_bytes = match &self.data {
            WeightBlocks::Mapped { matrices, .. } => matrices.first().map_or(0, |piece| piece.n_bytes),
            WeightBlocks::Cuda { matrix_bytes, .. } => *matrix_bytes as u64,
        };
        (self.tensor_type, n_bytes)
    }

    /// One matrix as the processor's kernels take it. Panics if it lives on a GPU.
    pub(crate) fn matrix(&self, i: usize) -> Matrix<'_> {
        match &self.data {
            WeightBlocks::Mapped { model, matrices } => Matrix {
                tensor_type: self.tensor_type,
                n_rows: self.n_rows,
                n_cols: self.n_cols,
                bytes: model.bytes(matrices[i]),
            },
            WeightBlocks::Cuda { buffer, .. } => panic!("weights on {buffer:?} for the processor"),
        }
    }

    /// The matrices as the GPU's kernels take them. Panics if they live with the processor.
    pub(crate) fn on_gpu(&self) -> DeviceMatrices {
        match &self.data {
            WeightBlocks::Mapped { .. } => panic!("mapped weights for a GPU"),
            WeightBlocks::Cuda { buffer, matrix_bytes } => DeviceMatrices {
                at: buffer.at(),
                tensor_type: self.tensor_type,
                n_matrices: self.n_matrices(),
                n_rows: self.n_rows,
                n_cols: self.n_cols,
                n_bytes: *matrix_bytes,
            },
        }
    }
}

/// Copies pieces of a file to a GPU, behind each other; those that lie so already in one go.
fn copied(gpu: &Arc<Gpu>, model: &MappedModel, pieces: &[Piece]) -> Result<Buffer, EngineError> {
    let n_bytes = pieces.iter().map(|piece| piece.n_bytes as usize).sum();
    let buffer = Buffer::new(gpu, n_bytes)?;
    let follows = |a: &Piece, b: &Piece| a.file == b.file && a.offset_bytes + a.n_bytes == b.offset_bytes;
    let mut n_done = 0;
    for run in pieces.chunk_by(follows) {
        let n_bytes = run.iter().map(|piece| piece.n_bytes).sum();
        let bytes = model.bytes(Piece { n_bytes, ..run[0] });
        gpu.write_and_wait(buffer.at().plus(n_done), bytes);
        n_done += bytes.len();
    }
    gpu.check()?;
    Ok(buffer)
}

/// A small vector of weights (a norm, a bias), decoded; the host keeps it even where a GPU has a copy.
#[derive(Debug)]
pub struct Vector {
    elems: Vec<f32>,
    copy: Option<Buffer>,
}

impl Vector {
    /// Decodes some elements of a tensor.
    pub(crate) fn new(
        gpu: Option<&Arc<Gpu>>,
        model: &MappedModel,
        facts: &TensorFacts,
        elems: Range<usize>,
    ) -> Result<Self, EngineError> {
        Self::of_elems(gpu, decode(model, facts)?[elems].to_vec())
    }

    /// Elements worked out at load.
    pub(crate) fn of_elems(gpu: Option<&Arc<Gpu>>, elems: Vec<f32>) -> Result<Self, EngineError> {
        let copy = gpu.map(|gpu| Buffer::of(gpu, bytemuck::cast_slice(&elems))).transpose()?;
        Ok(Self { elems, copy })
    }

    /// Room on a GPU for some elements of another.
    pub(crate) fn room_on(&self, gpu: &Arc<Gpu>, n_elems: usize) -> Result<Self, EngineError> {
        let copy = Buffer::new(gpu, n_elems * size_of::<f32>())?;
        Ok(Self { elems: vec![0.0; n_elems], copy: Some(copy) })
    }

    /// Starts to copy a row of another over one of these, which have a copy on a GPU.
    pub(crate) fn copy_row(&mut self, from: &Self, width: usize, i: usize, to: usize) {
        let row = &from.elems[i * width..(i + 1) * width];
        self.elems[to * width..(to + 1) * width].copy_from_slice(row);
        let copy = self.copy.as_ref().expect("copies live on a GPU");
        // SAFETY: ordinary memory, which the driver has read when it returns; there is room for so many rows.
        unsafe { copy.gpu().begin_write(copy.at().plus(to * width * size_of::<f32>()), row) };
    }

    /// The elements as the processor's kernels take them.
    pub(crate) fn elems(&self) -> &[f32] {
        &self.elems
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.elems.len()
    }

    /// The elements as a GPU's kernels take them. Panics if that GPU has no copy.
    pub(crate) fn on(&self, gpu: &Gpu) -> At {
        match &self.copy {
            Some(copy) if copy.gpu().index() == gpu.index() => copy.at(),
            copy => panic!("a vector with a copy on {copy:?} for {gpu:?}"),
        }
    }
}

/// A whole tensor as f32; for small ones. Zeros where there is only a header.
///
/// Errors   a type that the engine does not know, elements that are no numbers
pub(crate) fn decode(model: &MappedModel, facts: &TensorFacts) -> Result<Vec<f32>, EngineError> {
    check_type(facts)?;
    let mut elems = zeroed("a vector of weights", 1, facts.n_elems() as usize)?;
    if let Some(bytes) = model.tensor_bytes_if_there(facts) {
        quant::decode_row(facts.tensor_type, bytes, &mut elems).expect("the file's sizes were checked");
    }
    match elems.iter().position(|elem| !elem.is_finite()) {
        Some(elem) => Err(EngineError::WeightNotFinite { tensor: facts.name.clone(), elem }),
        None => Ok(elems),
    }
}

fn check_type(facts: &TensorFacts) -> Result<(), EngineError> {
    let TensorFacts { name, tensor_type, .. } = facts;
    if quant::supports(*tensor_type) {
        return Ok(());
    }
    Err(EngineError::TensorTypeUnsupported { tensor: name.clone(), tensor_type: *tensor_type })
}

/// No memory for a buffer of the forward pass, of about so many bytes.
fn refused(bytes: u64) -> EngineError {
    EngineError::OutOfMemory { what: BUFFERS, bytes }
}

/// What buffers of the forward pass are called.
const BUFFERS: &str = "buffers of the forward pass";

/// An empty vector with room for `n_elems`, which may be refused.
pub(crate) fn room<T>(what: &'static str, n_elems: usize) -> Result<Vec<T>, EngineError> {
    let mut elems = Vec::new();
    let bytes = (n_elems as u64).saturating_mul(size_of::<T>() as u64);
    elems.try_reserve_exact(n_elems).map_err(|_| EngineError::OutOfMemory { what, bytes })?;
    Ok(elems)
}

/// `n_rows` times `width` zeros that may be refused; untouched pages cost nothing.
pub(crate) fn zeroed<T: bytemuck::Zeroable>(
    what: &'static str,
    n_rows: usize,
    width: usize,
) -> Result<Vec<T>, EngineError> {
    let n_elems = n_rows.saturating_mul(width);
    let bytes = (n_elems as u64).saturating_mul(size_of::<T>() as u64);
    let refused = || EngineError::OutOfMemory { what, bytes };
    // A `Vec` cannot be larger, and asking for one would panic.
    if bytes > isize::MAX as u64 {
        return Err(refused());
    }
    bytemuck::allocation::try_zeroed_vec(n_elems).map_err(|()| refused())
}
