//! Which weight is to blame when a model computes values that are no numbers. Large matrices are not read through at load,
//! since that would cost a load as much as reading the file; they are once something is wrong.

use crate::Flow;
use crate::error::EngineError;
use crate::gguf::{MappedModel, TensorFacts};
use crate::quant;

/// Elements decoded at once.
const CHUNK: usize = 1 << 16;

/// The error by the name of the weight that it comes from, if that is found; every other error as it is.
///
/// on       called before each tensor; `Break` ends the search
pub(crate) fn name_the_weight(error: EngineError, file: &MappedModel, on: &mut dyn FnMut() -> Flow) -> EngineError {
    if !matches!(error, EngineError::LogitsNotFinite { .. }) {
        return error;
    }
    let tensors = file.facts.tensors.iter().take_while(|_| on() == Flow::Continue);
    let blamed = tensors.filter_map(|tensor| Some((tensor, first_not_finite(file, tensor)?))).next();
    blamed.map_or(error, |(tensor, elem)| EngineError::WeightNotFinite { tensor: tensor.name.clone(), elem })
}

/// Index of a tensor's first element that is no number.
fn first_not_finite(file: &MappedModel, tensor: &TensorFacts) -> Option<usize> {
    let bytes = file.tensor_bytes_if_there(tensor)?;
    let row = tensor.tensor_type.row();
    let (block_elems, block_bytes) = (row.block_elems as usize, row.block_bytes as usize);
    let n_blocks = CHUNK / block_elems;
    let mut elems = vec![0.0; n_blocks * block_elems];
    bytes.chunks(n_blocks * block_bytes).enumerate().find_map(|(i, bytes)| {
        let elems = &mut elems[..bytes.len() / block_bytes * block_elems];
        quant::decode_row(tensor.tensor_type, bytes, elems).ok()?;
        let at = elems.iter().position(|elem| !elem.is_finite())?;
        Some(i * n_blocks * block_elems + at)
    })
}
