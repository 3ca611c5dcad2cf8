//! Weights and activations that know where they live. A weight is a piece of the mapped file, in the file's own blocks; a vector
//! is small and decoded; rows are the activations of a forward pass, allocated once.

use std::ops::Range;
use std::sync::Arc;

use crate::arch::blocks::Rope;
use crate::cpu::{self, Activations, Matrix, Rounding};
use crate::error::EngineError;
use crate::gguf::{MappedModel, Piece, TensorFacts, TensorType};
use crate::place::Device;
use crate::quant;

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
}

impl Weight {
    /// The tensor's rows `rows`, or all of them; of a stack of matrices, the rows of all of them in a row.
    ///
    /// Errors   a type that the engine does not multiply
    pub(crate) fn new(
        device: Device,
        model: &Arc<MappedModel>,
        facts: &TensorFacts,
        rows: Option<Range<usize>>,
    ) -> Result<Self, EngineError> {
        let n_rows = facts.n_elems().checked_div(facts.shape.last().copied().unwrap_or(1)).unwrap_or(0) as usize;
        let whole =
            TensorFacts { shape: vec![n_rows as u64, facts.shape.last().copied().unwrap_or(1)], ..facts.clone() };
        Ok(Self { stack: WeightStack::new(device, model, &[&whole], rows)? })
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

    /// The weights as the processor's kernels take them.
    pub(crate) fn matrix(&self) -> Matrix<'_> {
        self.stack.matrix(0)
    }
}

impl WeightStack {
    /// All matrices of all tensors, which have one shape and type; of each only `rows`, if given.
    ///
    /// tensors  [n, n_rows, n_cols] or [n_rows, n_cols] each, one at least
    /// Errors   a type that the engine does not multiply, or several types
    pub(crate) fn new(
        device: Device,
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
        let data = match device {
            Device::Cpu => WeightBlocks::Mapped { model: Arc::clone(model), matrices },
            Device::Cuda(_) => return Err(EngineError::DeviceUnsupported { device }),
        };
        Ok(Self { tensor_type, n_rows: rows.len(), n_cols, data, scales: None })
    }

    /// The same with a factor on the products with each matrix.
    pub(crate) fn scaled(self, scales: Option<Vec<f32>>) -> Self {
        Self { scales, ..self }
    }

    /// The factor on products with a matrix.
    pub(crate) fn scale(&self, i: usize) -> f32 {
        self.scales.as_ref().map_or(1.0, |scales| scales[i])
    }

    /// Rows of each matrix.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Columns of each matrix.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// One matrix as the processor's kernels take it.
    pub(crate) fn matrix(&self, i: usize) -> Matrix<'_> {
        match &self.data {
            WeightBlocks::Mapped { model, matrices } => Matrix {
                tensor_type: self.tensor_type,
                n_rows: self.n_rows,
                n_cols: self.n_cols,
                bytes: model.bytes(matrices[i]),
            },
        }
    }
}

/// A small vector of weights (a norm, a bias), decoded.
#[derive(Debug)]
pub struct Vector {
    data: VectorElems,
}

#[derive(Debug)]
enum VectorElems {
    Cpu(Vec<f32>),
}

impl Vector {
    /// Decodes some elements of a tensor.
    pub(crate) fn new(
        device: Device,
        model: &MappedModel,
        facts: &TensorFacts,
        elems: Range<usize>,
    ) -> Result<Self, EngineError> {
        Self::of_elems(device, decode(model, facts)?[elems].to_vec())
    }

    /// Elements worked out at load.
    pub(crate) fn of_elems(device: Device, elems: Vec<f32>) -> Result<Self, EngineError> {
        match device {
            Device::Cpu => Ok(Self { data: VectorElems::Cpu(elems) }),
            Device::Cuda(_) => Err(EngineError::DeviceUnsupported { device }),
        }
    }

    /// The elements as the processor's kernels take them.
    pub(crate) fn elems(&self) -> &[f32] {
        match &self.data {
            VectorElems::Cpu(elems) => elems,
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

/// Activations, [n_rows, width]; the shape changes from use to use within what was allocated.
#[derive(Debug)]
pub struct Rows {
    n_rows: usize,
    width: usize,
    data: RowElems,
}

#[derive(Debug)]
enum RowElems {
    Cpu(Vec<f32>),
}

impl Rows {
    /// Allocates room for `max_rows` rows of `max_width`.
    pub(crate) fn new(device: Device, max_rows: usize, max_width: usize) -> Result<Self, EngineError> {
        let data = match device {
            Device::Cpu => RowElems::Cpu(zeroed(BUFFERS, max_rows, max_width)?),
            Device::Cuda(_) => return Err(EngineError::DeviceUnsupported { device }),
        };
        Ok(Self { n_rows: 0, width: max_width, data })
    }

    /// Gives the rows another shape; what they held is lost.
    pub fn reshape(&mut self, n_rows: usize, width: usize) {
        self.n_rows = n_rows;
        self.width = width;
    }

    /// Rows at present.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements per row at present.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Makes the rows live on `device`.
    pub(crate) fn move_to(&mut self, device: Device) {
        match (&self.data, device) {
            (RowElems::Cpu(_), Device::Cpu) => {}
            (_, Device::Cuda(_)) => unreachable!("the placement was checked at load"),
        }
    }

    /// The elements as the processor's kernels take them.
    pub(crate) fn elems(&self) -> &[f32] {
        match &self.data {
            RowElems::Cpu(elems) => &elems[..self.n_rows * self.width],
        }
    }

    /// The elements as the processor's kernels fill them.
    pub(crate) fn elems_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            RowElems::Cpu(elems) => &mut elems[..self.n_rows * self.width],
        }
    }
}

/// What a product takes: rows in the form that the kernels of their device want.
pub struct Input {
    data: InputElems,
}

enum InputElems {
    Cpu(Activations),
}

impl Input {
    /// Allocates room for `max_rows` rows of `max_width`.
    pub(crate) fn new(device: Device, max_rows: usize, max_width: usize, how: Rounding) -> Result<Self, EngineError> {
        match device {
            Device::Cpu => {
                let activations = Activations::try_new(max_width, max_rows, how)
                    .ok_or_else(|| refused(Activations::n_bytes(max_width, max_rows, how)))?;
                Ok(Self { data: InputElems::Cpu(activations) })
            }
            Device::Cuda(_) => Err(EngineError::DeviceUnsupported { device }),
        }
    }

    /// The rows as the processor's kernels take them.
    pub(crate) fn activations(&self) -> &Activations {
        match &self.data {
            InputElems::Cpu(activations) => activations,
        }
    }

    /// The rows as the processor's kernels fill them.
    pub(crate) fn activations_mut(&mut self) -> &mut Activations {
        match &mut self.data {
            InputElems::Cpu(activations) => activations,
        }
    }
}

/// What attention keeps in between.
pub struct AttendScratch {
    data: AttendPartials,
}

enum AttendPartials {
    Cpu(cpu::AttentionScratch),
}

impl AttendScratch {
    /// Allocates for at most so many heads and elements of a head.
    pub(crate) fn new(device: Device, n_heads: usize, head_dim: usize) -> Result<Self, EngineError> {
        match device {
            Device::Cpu => {
                let bytes = (n_heads * head_dim * size_of::<f32>()) as u64;
                let partials = cpu::AttentionScratch::try_new(n_heads, head_dim).ok_or_else(|| refused(bytes))?;
                Ok(Self { data: AttendPartials::Cpu(partials) })
            }
            Device::Cuda(_) => Err(EngineError::DeviceUnsupported { device }),
        }
    }

    /// Room for the processor's kernels.
    pub(crate) fn partials(&mut self) -> &mut cpu::AttentionScratch {
        match &mut self.data {
            AttendPartials::Cpu(partials) => partials,
        }
    }
}

/// The angles of a rope at the positions of a step.
pub struct Angles {
    data: AngleTable,
}

enum AngleTable {
    Cpu(cpu::Rope),
}

impl Angles {
    /// Allocates room for `max_tokens` positions.
    pub(crate) fn new(device: Device, rope: &Rope, max_tokens: usize) -> Result<Self, EngineError> {
        match device {
            Device::Cpu => {
                let bytes = (rope.options().n_rot * max_tokens * size_of::<f32>()) as u64;
                let table = cpu::Rope::try_new(&rope.options(), max_tokens).ok_or_else(|| refused(bytes))?;
                Ok(Self { data: AngleTable::Cpu(table) })
            }
            Device::Cuda(_) => Err(EngineError::DeviceUnsupported { device }),
        }
    }

    /// The angles as the processor's kernels take them.
    pub(crate) fn table(&self) -> &cpu::Rope {
        match &self.data {
            AngleTable::Cpu(table) => table,
        }
    }

    /// The angles as the processor's kernels fill them.
    pub(crate) fn table_mut(&mut self) -> &mut cpu::Rope {
        match &mut self.data {
            AngleTable::Cpu(table) => table,
        }
    }
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
