//! The small operations of a forward pass. Meanings and shapes are those of `ops`, which calls these.

use std::ops::Range;

use super::functions::Function;
use super::gpu::{Arg, At, Gpu};
use crate::cpu::{Gate, GateOrder};

/// Activations on a GPU, [n_rows, width].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRows {
    /// Where they begin.
    pub(crate) at: At,
    /// Rows at present.
    pub(crate) n_rows: usize,
    /// Elements per row.
    pub(crate) width: usize,
}

/// Pieces of rows: steps, in elements, from row to row and from piece to piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    /// Where they begin.
    pub(crate) at: At,
    /// Elements from one row to the next.
    pub(crate) row: usize,
    /// Elements from one piece of a row to the next.
    pub(crate) piece: usize,
}

/// Threads of a block where each takes one element.
const ELEMENTS: usize = 256;
/// Threads of a block that takes a row; the kernels of `norm.cu` count on it.
const ROW: usize = 256;

impl DeviceRows {
    /// All elements.
    pub(crate) fn n_elems(&self) -> usize {
        self.n_rows * self.width
    }

    /// Some of the rows.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.n_rows, "{rows:?} of {} rows", self.n_rows);
        Self { at: self.at.plus(rows.start * self.width * size_of::<f32>()), n_rows: rows.len(), ..*self }
    }

    /// The same elements in rows of another width.
    fn with_width(&self, width: usize) -> Self {
        assert!(width > 0 && self.n_elems().is_multiple_of(width), "{} elements in rows of {width}", self.n_elems());
        Self { at: self.at, n_rows: self.n_elems() / width, width }
    }

    /// Pieces of so many elements that follow each other, from an element of each row on.
    pub(crate) fn pieces(&self, first: usize, piece: usize) -> Pieces {
        Pieces { at: self.at.plus(first * size_of::<f32>()), row: self.width, piece }
    }
}

impl Gpu {
    /// Starts a kernel with one thread per element.
    pub(super) fn each<const N: usize>(&self, function: Function, n_elems: usize, args: [Arg; N]) {
        self.launch(function, [n_elems.div_ceil(ELEMENTS), 1, 1], ELEMENTS, args);
    }

    /// Starts a kernel with one block of threads per row.
    fn each_row<const N: usize>(&self, function: Function, n_rows: usize, args: [Arg; N]) {
        self.launch(function, [n_rows, 1, 1], ROW, args);
    }

    pub(crate) fn add(&self, x: DeviceRows, y: At, n_y: usize) {
        self.each(self.functions.add, x.n_elems(), [x.at.into(), y.into(), x.n_elems().into(), n_y.into()]);
    }

    pub(crate) fn multiply(&self, x: DeviceRows, y: At, n_y: usize) {
        self.each(self.functions.multiply, x.n_elems(), [x.at.into(), y.into(), x.n_elems().into(), n_y.into()]);
    }

    pub(crate) fn scale(&self, x: DeviceRows, factor: f32) {
        self.each(self.functions.scale, x.n_elems(), [x.at.into(), factor.into(), x.n_elems().into()]);
    }

    pub(crate) fn clamp(&self, x: DeviceRows, limit: f32) {
        self.each(self.functions.clamp, x.n_elems(), [x.at.into(), limit.into(), x.n_elems().into()]);
    }

    pub(crate) fn softcap(&self, x: DeviceRows, cap: f32) {
        self.each(self.functions.softcap, x.n_elems(), [x.at.into(), cap.into(), x.n_elems().into()]);
    }

    pub(crate) fn relu_squared(&self, x: DeviceRows) {
        self.each(self.functions.relu_squared, x.n_elems(), [x.at.into(), x.n_elems().into()]);
    }

    pub(crate) fn gate(&self, kind: Gate, gate: DeviceRows, up: DeviceRows) {
        assert_eq!(gate.n_elems(), up.n_elems(), "gates");
        let function = match kind {
            Gate::Silu => self.functions.gate_silu,
            Gate::Gelu => self.functions.gate_gelu,
            Gate::ClampedSwish => self.functions.gate_clamped_swish,
        };
        self.each(function, gate.n_elems(), [gate.at.into(), up.at.into(), gate.n_elems().into()]);
    }

    pub(crate) fn sigmoid_mul(&self, x: DeviceRows, gate: DeviceRows) {
        let n_cols = x.n_elems() / gate.n_elems();
        assert_eq!(n_cols * gate.n_elems(), x.n_elems(), "gates");
        let args = [x.at.into(), gate.at.into(), x.n_elems().into(), n_cols.into()];
        self.each(self.functions.sigmoid_mul, x.n_elems(), args);
    }

    /// Every row by its own factor.
    pub(crate) fn scale_rows(&self, x: DeviceRows, factors: impl ExactSizeIterator<Item = f32>) {
        assert_eq!(factors.len(), x.n_rows, "factors");
        let factors = self.stage(factors);
        let args = [x.at.into(), factors.into(), x.n_elems().into(), x.width.into()];
        self.each(self.functions.scale_rows, x.n_elems(), args);
    }

    pub(crate) fn copy(&self, x: DeviceRows, y: DeviceRows) {
        assert_eq!(x.n_elems(), y.n_elems(), "rows to copy");
        let all = |rows: DeviceRows| Pieces { at: rows.at, row: rows.width, piece: 0 };
        self.copy_pieces(all(x), all(y.with_width(x.width)), [x.n_rows, 1, x.width]);
    }

    /// Copies pieces of rows from where they are to where they go.
    ///
    /// shape    rows, pieces of each, elements of each
    pub(crate) fn copy_pieces(&self, x: Pieces, y: Pieces, [n, m, dim]: [usize; 3]) {
        let n_elems = n * m * dim;
        let args: [Arg; 9] = [
            x.at.into(),
            y.at.into(),
            n_elems.into(),
            m.into(),
            dim.into(),
            x.row.into(),
            x.piece.into(),
            y.row.into(),
            y.piece.into(),
        ];
        self.each(self.functions.copy_strided, n_elems, args);
    }

    pub(crate) fn add_to_each(&self, x: DeviceRows, y: DeviceRows) {
        let args = [x.at.into(), y.at.into(), x.n_elems().into(), (x.width / y.width).into(), y.width.into()];
        self.each(self.functions.add_to_each, x.n_elems(), args);
    }

    pub(crate) fn gather_rows(&self, x: At, rows: At, y: DeviceRows) {
        let args = [x.into(), rows.into(), y.at.into(), y.n_elems().into(), y.width.into()];
        self.each(self.functions.gather_rows, y.n_elems(), args);
    }

    pub(crate) fn add_group_bias(&self, x: DeviceRows, biases: At, ids: At) {
        let args = [x.at.into(), biases.into(), ids.into(), x.n_elems().into(), x.width.into()];
        self.each(self.functions.add_group_bias, x.n_elems(), args);
    }

    pub(crate) fn scale_groups(&self, x: DeviceRows, factors: At, ids: At) {
        let args = [x.at.into(), factors.into(), ids.into(), x.n_elems().into(), x.width.into()];
        self.each(self.functions.scale_groups, x.n_elems(), args);
    }

    /// slots    [n_tokens, n_used]
    /// weights  as `slots`
    pub(crate) fn combine(&self, x: At, slots: At, weights: At, n_used: usize, y: DeviceRows) {
        let args: [Arg; 7] =
            [x.into(), slots.into(), weights.into(), y.at.into(), y.n_elems().into(), n_used.into(), y.width.into()];
        self.each(self.functions.combine, y.n_elems(), args);
    }

    pub(crate) fn rms_norm(&self, x: DeviceRows, weight: At, n: usize, eps: f32, y: At) {
        let n_rows = x.with_width(n).n_rows;
        self.each_row(self.functions.rms_norm, n_rows, [x.at.into(), weight.into(), y.into(), n.into(), eps.into()]);
    }

    pub(crate) fn layer_norm(&self, x: DeviceRows, eps: f32) {
        self.each_row(self.functions.layer_norm, x.n_rows, [x.at.into(), x.width.into(), eps.into()]);
    }

    /// weight   [n_weights], again and again
    pub(crate) fn gated_norm(
        &self,
        (weight, n_weights, order): (At, usize, GateOrder),
        group: usize,
        eps: f32,
        x: DeviceRows,
        gate: DeviceRows,
    ) {
        let args: [Arg; 7] = [
            x.at.into(),
            gate.at.into(),
            weight.into(),
            group.into(),
            n_weights.into(),
            eps.into(),
            (order == GateOrder::GateFirst).into(),
        ];
        self.each_row(self.functions.gated_norm, x.with_width(group).n_rows, args);
    }

    pub(crate) fn match_length(&self, x: DeviceRows, to: DeviceRows) {
        let args = [x.at.into(), to.at.into(), (x.n_elems() / to.n_elems()).into(), to.width.into()];
        self.each_row(self.functions.match_length, x.with_width(to.width).n_rows, args);
    }

    pub(crate) fn keep_outstanding(&self, x: DeviceRows, n_deviations: f32) {
        let args = [x.at.into(), x.width.into(), n_deviations.into()];
        self.each_row(self.functions.keep_outstanding, x.n_rows, args);
    }

    pub(crate) fn predict_streams(&self, x: DeviceRows, others: At, coefs: At, n_streams: usize) {
        let n = x.n_elems();
        let args = [x.at.into(), others.into(), coefs.into(), n.into(), n_streams.into(), x.width.into()];
        self.each(self.functions.predict_streams, n, args);
    }

    pub(crate) fn correct_streams(&self, x: DeviceRows, held: At, others: At, coefs: At, n_streams: usize) {
        let n = x.n_elems();
        let args: [Arg; 7] =
            [x.at.into(), held.into(), others.into(), coefs.into(), n.into(), n_streams.into(), x.width.into()];
        self.each(self.functions.correct_streams, n, args);
    }
}
