//! The short convolution of LFM2: a convolution over a few tokens between two gates, and nothing else to remember.

use super::super::{Loader, Part};
use super::recurrent::{Convolution, RecurrentBuffers, RecurrentSizes};
use super::{Buffers, Sizes, Step};
use crate::cpu::ConvActivation;
use crate::error::EngineError;
use crate::kv::CacheShape;
use crate::tensor::Weight;

/// Weights of a short convolution.
#[derive(Debug)]
pub(crate) struct ShortConv {
    before: Weight,
    after: Weight,
    x: Weight,
    convolution: Convolution,
    output: Weight,
}

impl ShortConv {
    /// Reads its matrices; one holds the rows of both gates and of what is convolved.
    ///
    /// Errors   a kernel that is too long; tensors that are absent or of another shape
    pub(crate) fn load(loader: &Loader, part: &Part<'_>, n_embd: usize) -> Result<Self, EngineError> {
        let n_taps = Convolution::n_taps(loader, "shortconv.l_cache")?;
        let rows = |third: usize| {
            part.weight_rows("shortconv.in_proj.weight", [3 * n_embd, n_embd], third * n_embd..(third + 1) * n_embd)
        };
        Ok(Self {
            before: rows(0)?,
            after: rows(1)?,
            x: rows(2)?,
            convolution: Convolution::load(part, "shortconv.conv", [n_embd, n_taps], ConvActivation::None)?,
            output: part.weight("shortconv.out_proj.weight", [n_embd, n_embd])?,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        let width = self.x.n_rows();
        sizes.recurrent.grow(RecurrentSizes { conv: width, y: width, ..RecurrentSizes::default() });
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        CacheShape::Recurrent { n_elems: self.convolution.state_len() }
    }

    /// h -> out
    pub(crate) fn run(&self, layer: usize, step: &mut Step<'_>) {
        let (n_tokens, width) = (step.n_tokens(), self.x.n_rows());
        let Buffers { h, input, out, recurrent, .. } = &mut *step.buffers;
        let RecurrentBuffers { conv, gate: after, y: before, .. } = recurrent;
        let ops = step.ops;
        for rows in [&mut *conv, &mut *after, &mut *before, &mut *out] {
            rows.reshape(n_tokens, width);
        }
        ops.prepare(h, input);
        ops.products([(&self.before, &mut *before), (&self.after, &mut *after), (&self.x, &mut *conv)], input);
        ops.multiply_rows(conv, before);
        self.convolution.run(ops, conv, step.cache.layer(layer));
        ops.multiply_rows(conv, after);
        ops.prepare(conv, input);
        ops.products([(&self.output, out)], input);
    }
}
