//! Norms over the residual stream or over what a half of a layer yields.

use std::ops::Range;

use super::super::Part;
use super::{Buffers, Step};
use crate::error::EngineError;
use crate::tensor::{Rows, Vector};

/// A norm, with whatever weights it has.
#[derive(Debug)]
pub(crate) struct Norm {
    kind: Kind,
    eps: f32,
}

#[derive(Debug)]
enum Kind {
    /// By root mean square, then by a weight.
    RootMeanSquare(Vector),
    /// By mean and variance, then by a weight and a bias where there are some.
    MeanAndVariance { weight: Option<Vector>, bias: Option<Vector> },
}

impl Norm {
    /// By root mean square.
    pub(crate) fn load(part: &Part<'_>, name: &str, width: usize, eps: f32) -> Result<Self, EngineError> {
        Ok(Self { kind: Kind::RootMeanSquare(part.vector(name, width)?), eps })
    }

    /// By root mean square, without a weight of its own: all columns get `factor`.
    pub(crate) fn plain(part: &Part<'_>, width: usize, eps: f32, factor: f32) -> Result<Self, EngineError> {
        Ok(Self { kind: Kind::RootMeanSquare(part.vector_of(vec![factor; width])?), eps })
    }

    /// By root mean square, with a weight of the file's times a factor.
    pub(crate) fn load_scaled(
        part: &Part<'_>,
        name: &str,
        width: usize,
        eps: f32,
        factor: f32,
    ) -> Result<Self, EngineError> {
        let weight = part.elems(name, width)?.into_iter().map(|weight| weight * factor).collect();
        Ok(Self { kind: Kind::RootMeanSquare(part.vector_of(weight)?), eps })
    }

    /// By mean and variance; `name` without `.weight` or `.bias`, which may both be absent.
    pub(crate) fn load_layer_norm(part: &Part<'_>, name: &str, width: usize, eps: f32) -> Result<Self, EngineError> {
        let weight = part.vector_if_there(&format!("{name}.weight"), width)?;
        let bias = part.vector_if_there(&format!("{name}.bias"), width)?;
        Ok(Self { kind: Kind::MeanAndVariance { weight, bias }, eps })
    }

    /// x -> h, all rows.
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        self.run_rows(0..step.n_tokens(), step);
    }

    /// x -> h, some rows.
    pub(crate) fn run_rows(&self, rows: Range<usize>, step: &mut Step<'_>) {
        let Buffers { x, h, .. } = &mut *step.buffers;
        h.reshape(rows.len(), x.width());
        match &self.kind {
            Kind::RootMeanSquare(weight) => step.ops.rms_norm(x, rows, weight, self.eps, h),
            Kind::MeanAndVariance { .. } => {
                step.ops.copy(x, rows, h);
                self.run_in_place(h, step.ops);
            }
        }
    }

    /// Of rows, or of heads if it is as wide as one of them.
    pub(crate) fn run_in_place(&self, rows: &mut Rows, ops: &crate::ops::Ops) {
        match &self.kind {
            Kind::RootMeanSquare(weight) => ops.rms_norm_in_place(rows, weight, self.eps),
            Kind::MeanAndVariance { weight, bias } => {
                ops.layer_norm_in_place(rows, self.eps);
                if let Some(weight) = weight {
                    ops.multiply(rows, weight);
                }
                ops.add_bias(rows, bias.as_ref());
            }
        }
    }
}
