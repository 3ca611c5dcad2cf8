//! Products of matrices in the file's own blocks, and single rows of them.

use super::gpu::{Arg, At, Gpu};
use super::ops::DeviceRows;
use crate::gguf::TensorType;
use crate::moe::Group;
use crate::quant::GpuInput;

/// Matrices of one shape that lie behind each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMatrices {
    /// Where the first begins.
    pub(crate) at: At,
    /// Type of all.
    pub(crate) tensor_type: TensorType,
    /// How many.
    pub(crate) n_matrices: usize,
    /// Rows of each.
    pub(crate) n_rows: usize,
    /// Columns of each.
    pub(crate) n_cols: usize,
    /// Bytes of each.
    pub(crate) n_bytes: usize,
}

/// An input of products, [n_rows, width] in two forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceInput {
    /// As it is.
    pub(crate) floats: DeviceRows,
    /// Rounded to signed bytes, if its rows are whole groups of 32.
    bytes: At,
    /// A scale for each 32, and the scale times their sum.
    scales: At,
}

/// The inputs of each matrix, where they differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceGroups {
    /// [n] the matrix of each input
    pub(crate) ids: At,
    /// [n_matrices + 1] where the inputs of each matrix begin in `inputs`
    offsets: At,
    /// [n] 0, 1, 2, ...: inputs lie in the order of their matrices already
    inputs: At,
    /// Inputs of the matrix that has most.
    n_most: usize,
}

/// Elements that share a scale.
const GROUP: usize = 32;
/// Rows of a matrix that a block of threads takes, a warp each; the kernels count on it, as on what follows.
const ROWS: usize = 8;
/// Inputs that a block of threads takes at once where all go to one matrix.
const INPUTS: usize = 8;
/// Rows, inputs and threads of a tile.
const TILE_ROWS: usize = 64;
const TILE_INPUTS: usize = 32;
const TILE_THREADS: usize = 128;
/// Fewer inputs than this are not worth a tile.
const MIN_TILE_INPUTS: usize = 9;

impl DeviceGroups {
    /// Inputs that each have a matrix of their own, which the host need not know.
    ///
    /// ids      [n] the matrix of each input
    pub(crate) fn each(ids: At) -> Self {
        Self { ids, offsets: At::NONE, inputs: At::NONE, n_most: 1 }
    }
}

impl DeviceInput {
    /// Bytes of a buffer for so many elements.
    pub(crate) fn n_bytes(n_elems: usize) -> usize {
        let [_, scales] = Self::offsets(n_elems);
        scales + n_elems.div_ceil(GROUP) * 2 * size_of::<f32>()
    }

    /// An input in a buffer for so many elements.
    pub(crate) fn new(at: At, max_elems: usize, [n_rows, width]: [usize; 2]) -> Self {
        let [bytes, scales] = Self::offsets(max_elems).map(|offset| at.plus(offset));
        Self { floats: DeviceRows { at, n_rows, width }, bytes, scales }
    }

    /// Where bytes and scales begin.
    fn offsets(max_elems: usize) -> [usize; 2] {
        const ALIGNMENT: usize = 256;
        let bytes = (max_elems * size_of::<f32>()).next_multiple_of(ALIGNMENT);
        [bytes, bytes + max_elems.next_multiple_of(ALIGNMENT)]
    }

    fn has_bytes(&self) -> bool {
        self.floats.width.is_multiple_of(GROUP)
    }

    /// Bytes and scales as rows of 32-bit words.
    fn words(&self) -> [DeviceRows; 2] {
        let DeviceRows { n_rows, width, .. } = self.floats;
        let rows = |at, width| DeviceRows { at, n_rows, width };
        [rows(self.bytes, width / 4), rows(self.scales, 2 * width / GROUP)]
    }
}

impl Gpu {
    /// Brings rows into both forms.
    pub(crate) fn prepare(&self, x: DeviceRows, input: &DeviceInput) {
        self.copy(x, input.floats);
        if input.has_bytes() {
            let args = [x.at.into(), input.bytes.into(), input.scales.into(), x.width.into()];
            let grid = [x.width.div_ceil(QUANTIZE_THREADS), x.n_rows, 1];
            self.launch(self.functions.quantize_activations, grid, QUANTIZE_THREADS, args);
        }
    }

    /// Takes rows of another input, as often as they are named.
    ///
    /// rows     [n]
    pub(crate) fn gather(&self, from: &DeviceInput, rows: At, input: &DeviceInput) {
        self.gather_rows(from.floats.at, rows, input.floats);
        if input.has_bytes() {
            for (from, to) in from.words().into_iter().zip(input.words()) {
                self.gather_rows(from.at, rows, to);
            }
        }
    }

    /// Says which inputs go to which matrix.
    ///
    /// groups   (matrix, its inputs), sorted, all of the `n`
    pub(crate) fn groups(&self, groups: &[Group], n_matrices: usize, n: usize) -> DeviceGroups {
        let mut left = groups.iter().flat_map(|(i, inputs)| inputs.clone().map(move |_| *i));
        let ids = self.stage((0..n).map(|_| left.next().expect("every input is in a group")));
        let mut left = groups.iter().peekable();
        let mut end = 0;
        let offsets = self.stage((0..n_matrices + 1).map(|matrix| {
            let start = end;
            if let Some((_, inputs)) = left.next_if(|(i, _)| *i as usize == matrix) {
                end = inputs.end;
            }
            start
        }));
        let n_most = groups.iter().map(|(_, inputs)| inputs.len()).max().unwrap_or(0);
        DeviceGroups { ids, offsets, inputs: self.stage(0..n as u32), n_most }
    }

    /// y = W x for every input.
    ///
    /// y        [n, n_rows]
    pub(crate) fn product(&self, matrix: &DeviceMatrices, input: &DeviceInput, y: DeviceRows) {
        let products = self.functions.products(matrix.tensor_type);
        match products.tiles {
            Some(tiles) if y.n_rows >= MIN_TILE_INPUTS => {
                let args = tile_args(matrix, [At::NONE; 2], input, y);
                let grid = [matrix.n_rows.div_ceil(TILE_ROWS), y.n_rows.div_ceil(TILE_INPUTS), 1];
                self.launch(tiles, grid, TILE_THREADS, args);
            }
            _ => {
                let (function, n) = if y.n_rows == 1 { (products.one, 1) } else { (products.eight, INPUTS) };
                self.row_products(function, matrix, At::NONE, input, y, n);
            }
        }
    }

    /// The same, each input with a matrix of its own.
    pub(crate) fn group_product(
        &self,
        matrices: &DeviceMatrices,
        groups: &DeviceGroups,
        input: &DeviceInput,
        y: DeviceRows,
    ) {
        let products = self.functions.products(matrices.tensor_type);
        match products.tiles {
            Some(tiles) if groups.n_most >= MIN_TILE_INPUTS => {
                let args = tile_args(matrices, [groups.offsets, groups.inputs], input, y);
                let n_tiles = groups.n_most.div_ceil(TILE_INPUTS);
                let grid = [matrices.n_rows.div_ceil(TILE_ROWS), n_tiles, matrices.n_matrices];
                self.launch(tiles, grid, TILE_THREADS, args);
            }
            _ => self.row_products(products.one, matrices, groups.ids, input, y, 1),
        }
    }

    /// A warp per row of a matrix, `n` inputs at once.
    fn row_products(
        &self,
        function: super::functions::Function,
        matrices: &DeviceMatrices,
        ids: At,
        input: &DeviceInput,
        y: DeviceRows,
        n: usize,
    ) {
        check(matrices, input, y);
        let grid = [matrices.n_rows.div_ceil(ROWS), y.n_rows.div_ceil(n), 1];
        let [w, bytes]: [Arg; 2] = [matrices.at.into(), (matrices.n_bytes as u64).into()];
        let [n_rows, n_cols, n]: [Arg; 3] = [matrices.n_rows.into(), matrices.n_cols.into(), y.n_rows.into()];
        match self.functions.products(matrices.tensor_type).takes {
            GpuInput::Floats => {
                let args = [w, bytes, ids.into(), input.floats.at.into(), y.at.into(), n_rows, n_cols, n];
                self.launch(function, grid, 32 * ROWS, args);
            }
            GpuInput::Bytes => {
                let [q, scales]: [Arg; 2] = [input.bytes.into(), input.scales.into()];
                let args = [w, bytes, ids.into(), q, scales, y.at.into(), n_rows, n_cols, n];
                self.launch(function, grid, 32 * ROWS, args);
            }
        }
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

/// Threads of a block that rounds activations; the kernel counts on it.
const QUANTIZE_THREADS: usize = 256;

/// inputs   offsets and indices of the inputs of each matrix; none if all go to the first
fn tile_args(matrices: &DeviceMatrices, [offsets, inputs]: [At; 2], input: &DeviceInput, y: DeviceRows) -> [Arg; 11] {
    check(matrices, input, y);
    [
        matrices.at.into(),
        (matrices.n_bytes as u64).into(),
        offsets.into(),
        inputs.into(),
        1usize.into(),
        input.bytes.into(),
        input.scales.into(),
        y.at.into(),
        matrices.n_rows.into(),
        matrices.n_cols.into(),
        y.n_rows.into(),
    ]
}

fn check(matrices: &DeviceMatrices, input: &DeviceInput, y: DeviceRows) {
    let DeviceRows { n_rows, width, .. } = input.floats;
    assert!(
        width == matrices.n_cols && n_rows == y.n_rows && y.width == matrices.n_rows,
        "{matrices:?} {input:?} {y:?}"
    );
}
