//! Operations of models with several residual streams.

use super::{On, Ops};
use crate::cpu;
use crate::tensor::Rows;

impl Ops {
    /// Replaces every stream by its prediction.
    ///
    /// x        [n_tokens, width], the stream that passes through layers
    /// others   [n_tokens, (n - 1) · width]
    /// coefs    [n_tokens, n²]
    pub(crate) fn predict_streams(&self, x: &mut Rows, others: &mut Rows, coefs: &Rows) {
        let _timer = self.profile.time("predict_streams");
        let (width, n) = (x.width(), others.width() / x.width() + 1);
        match self.on(x.device()) {
            On::Cpu(_) => cpu::predict_streams(x.elems_mut(), others.elems_mut(), coefs.elems(), n, width),
            On::Cuda(gpu) => gpu.predict_streams(x.on_mut(gpu), others.on_mut(gpu).at, coefs.on(gpu).at, n),
        }
    }

    /// Corrects every predicted stream by what a layer made of the first.
    ///
    /// x        [n_tokens, width], what the layer made; the corrected stream afterwards
    /// held     [n_tokens, width], the first stream as predicted
    /// others   [n_tokens, (n - 1) · width]
    /// coefs    [n_tokens, n]
    pub(crate) fn correct_streams(&self, x: &mut Rows, held: &Rows, others: &mut Rows, coefs: &Rows) {
        let _timer = self.profile.time("correct_streams");
        let (width, n) = (x.width(), coefs.width());
        match self.on(x.device()) {
            On::Cpu(_) => {
                cpu::correct_streams(x.elems_mut(), held.elems(), others.elems_mut(), coefs.elems(), n, width);
            }
            On::Cuda(gpu) => {
                let (held, coefs) = (held.on(gpu).at, coefs.on(gpu).at);
                gpu.correct_streams(x.on_mut(gpu), held, others.on_mut(gpu).at, coefs, n);
            }
        }
    }

    /// Gives rows the length of others.
    ///
    /// x        [n_tokens, n · width], changed in place
    /// to       [n_tokens, width]
    pub(crate) fn match_length(&self, x: &mut Rows, to: &Rows) {
        let _timer = self.profile.time("match_length");
        match self.on(x.device()) {
            On::Cpu(_) => cpu::match_length(x.elems_mut(), to.elems(), to.width()),
            On::Cuda(gpu) => gpu.match_length(x.on_mut(gpu), to.on(gpu)),
        }
    }

    /// Leaves of each row what lies above its mean by so many standard deviations.
    pub(crate) fn keep_outstanding(&self, x: &mut Rows, n_deviations: f32) {
        let _timer = self.profile.time("keep_outstanding");
        let width = x.width();
        match self.on(x.device()) {
            On::Cpu(_) => cpu::keep_outstanding(x.elems_mut(), width, n_deviations),
            On::Cuda(gpu) => gpu.keep_outstanding(x.on_mut(gpu), n_deviations),
        }
    }

    /// Adds one row of a token to each of its pieces.
    ///
    /// x        [n_tokens, n · width], changed in place
    /// y        [n_tokens, width]
    pub(crate) fn add_to_each(&self, x: &mut Rows, y: &Rows) {
        let _timer = self.profile.time("add_to_each");
        let (x_width, width) = (x.width(), y.width());
        match self.on(x.device()) {
            On::Cpu(_) => {
                for (x, y) in x.elems_mut().chunks_exact_mut(x_width).zip(y.elems().chunks_exact(width)) {
                    for x in x.chunks_exact_mut(width) {
                        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                    }
                }
            }
            On::Cuda(gpu) => gpu.add_to_each(x.on_mut(gpu), y.on(gpu)),
        }
    }
}
