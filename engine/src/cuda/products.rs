//! Products of matrices in the file's own blocks, and single rows of them.

use super::gpu::{Arg, At, Gpu};
use super::ops::DeviceRows;
use crate::gguf::TensorType;

/// Matrices of one shape that lie behind each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMatrices {
    /// Where the first begins.
    pub(crate) at: At,
    /// Type of all.
    pub(crate) tensor_type: TensorType,
    /// Rows of each.
    pub(crate) n_rows: usize,
    /// Columns of each.
    pub(crate) n_cols: usize,
    /// Bytes of each.
    pub(crate) n_bytes: usize,
}

/// Rows of a matrix that a block of threads takes, a warp each; the kernels count on it.
const ROWS: usize = 8;
/// Inputs that a block of threads takes at once where all go to one matrix.
const INPUTS: usize = 8;
/// Threads of a block.
const THREADS: usize = 32 * ROWS;

impl Gpu {
    /// y = W x for every input.
    ///
    /// x        [n, n_cols]
    /// y        [n, n_rows]
    pub(crate) fn product(&self, matrix: &DeviceMatrices, x: At, y: DeviceRows) {
        assert_eq!(y.width, matrix.n_rows, "results");
        let products = self.functions.products(matrix.tensor_type);
        let (function, n_blocks) =
            if y.n_rows == 1 { (products.matvec, 1) } else { (products.matmul, y.n_rows.div_ceil(INPUTS)) };
        let args = product_args(matrix, At::NONE, x, y);
        self.launch(function, [matrix.n_rows.div_ceil(ROWS), n_blocks, 1], THREADS, args);
    }

    /// y = W[ids] x, each input with a matrix of its own.
    ///
    /// ids      [n]
    /// x        [n, n_cols]
    /// y        [n, n_rows]
    pub(crate) fn group_product(&self, matrices: &DeviceMatrices, ids: At, x: At, y: DeviceRows) {
        assert_eq!(y.width, matrices.n_rows, "results");
        let function = self.functions.products(matrices.tensor_type).matvec;
        let args = product_args(matrices, ids, x, y);
        self.launch(function, [matrices.n_rows.div_ceil(ROWS), y.n_rows, 1], THREADS, args);
    }

    /// Rows of a matrix, decoded.
    pub(crate) fn rows_of(&self, matrix: &DeviceMatrices, rows: &[u32], x: DeviceRows) {
        assert!(x.width == matrix.n_cols && x.n_rows == rows.len(), "rows");
        let ids = self.stage(rows.iter().copied());
        let function = self.functions.products(matrix.tensor_type).rows;
        let args = [matrix.at.into(), ids.into(), x.at.into(), x.width.into(), x.n_elems().into()];
        self.each(function, x.n_elems(), args);
    }
}

fn product_args(matrices: &DeviceMatrices, ids: At, x: At, y: DeviceRows) -> [Arg; 8] {
    [
        matrices.at.into(),
        (matrices.n_bytes as u64).into(),
        ids.into(),
        x.into(),
        y.at.into(),
        matrices.n_rows.into(),
        matrices.n_cols.into(),
        y.n_rows.into(),
    ]
}
