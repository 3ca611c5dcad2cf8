//! Matrix products: what is multiplied, cut into tasks for the pool. The loops themselves are `tile` and `float`.
use super::activations::{Activations, Span};
use super::isa::Isa;
use super::shared::SharedSlice;
use super::{Cpu, float, tile};
use crate::gguf::TensorType;
use crate::quant::{Codec, Element, format_of};

/// Bytes ahead of each stream to prefetch. Source: measured; 1 to 3 KB are equal.
pub(super) const PREFETCH: usize = 1536;
/// Rows read at once for one column, each from its own stretch of memory.
pub(super) const STREAMS: usize = 4;
/// Columns that stay in the second-level cache while rows pass: 64 columns of 4096 weights are 512 KiB.
pub(super) const COLUMN_BLOCK: usize = 64;
/// A task of one column reads so much at most: long streams, at small cost of claiming.
const TASK_BYTES: usize = 384 * 1024;
/// ... and so much at least: below this a task takes less time than handing it over.
const MIN_TASK_BYTES: usize = 16 * 1024;
/// Rows per task are a multiple of this: one cache line of results.
const ROW_STEP: usize = 16;
/// Tasks per thread that a small product is cut into.
const TASKS_PER_THREAD: usize = 2;

/// Weights in the blocks of their file.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Block format.
    pub tensor_type: TensorType,
    /// Rows: outputs.
    pub n_rows: usize,
    /// Columns: inputs.
    pub n_cols: usize,
    /// [n_rows, n_cols] blocks, row after row.
    pub bytes: &'a [u8],
}

/// y = W x for every token.
///
/// w        [n_rows, n_cols]
/// x        [n_tokens, n_cols]
/// y        [n_tokens, n_rows] f32
/// Errors   none; panics if shapes do not fit or the type is not supported (`quant::supports`)
/// Cost     reads W once per 64 tokens; no allocation
pub fn matmul(cpu: &Cpu, w: Matrix<'_>, x: &Activations, y: &mut [f32]) {
    matmul_list(cpu, &mut [(w, y)], x);
}

/// Several products of the same activations as one list of tasks (q, k, v; gate, up): one hand-over instead of several.
///
/// list     at most 8 matrices and their outputs, as in `matmul`
/// Errors   none; panics as `matmul`
pub fn matmul_list(cpu: &Cpu, list: &mut [(Matrix<'_>, &mut [f32])], x: &Activations) {
    assert!(list.len() <= MAX_LIST, "{} products in one list", list.len());
    let n_tokens = x.n_tokens();
    if n_tokens == 0 {
        return;
    }
    let n_bytes: usize = list.iter().map(|(w, _)| w.bytes.len()).sum();
    let task_bytes = (n_bytes / (cpu.pool.n_threads() * TASKS_PER_THREAD)).clamp(MIN_TASK_BYTES, TASK_BYTES);
    let mut parts: [Option<Part<'_>>; MAX_LIST] = [const { None }; MAX_LIST];
    let mut n_tasks = 0;
    for (part, (w, y)) in parts.iter_mut().zip(list) {
        let new = Part::new(*w, x, y, task_bytes, n_tasks);
        n_tasks = new.first_task + new.n_tasks();
        *part = Some(new);
    }
    cpu.pool.run(n_tasks, &|task| {
        let part = parts.iter().flatten().rfind(|part| part.first_task <= task);
        // parts without rows have no tasks, so the last that begins here is the one that holds the task
        part.expect("the first part begins at task 0").run(cpu.isa(), x, task);
    });
}

/// Most products of one list.
const MAX_LIST: usize = 8;

/// One product of a list, cut into tasks.
struct Part<'a> {
    w: Matrix<'a>,
    y: SharedSlice<'a, f32>,
    product: Product,
    row_bytes: usize,
    rows_per_task: usize,
    first_task: usize,
}

impl<'a> Part<'a> {
    fn new(w: Matrix<'a>, x: &Activations, y: &'a mut [f32], task_bytes: usize, first_task: usize) -> Part<'a> {
        let format = format_of(w.tensor_type).unwrap_or_else(|| panic!("no kernel for {}", w.tensor_type));
        let row_bytes = w.tensor_type.row_bytes(w.n_cols as u64).expect("a row is a whole number of blocks") as usize;
        assert_eq!(w.n_cols, x.n_cols(), "weights and activations of different length");
        assert_eq!(w.bytes.len(), w.n_rows * row_bytes, "{} x {} {}", w.n_rows, w.n_cols, w.tensor_type);
        assert_eq!(y.len(), x.n_tokens() * w.n_rows, "outputs");
        let rows_per_task = (task_bytes / row_bytes.max(1)).max(1).next_multiple_of(ROW_STEP);
        Part { w, y: SharedSlice::new(y), product: format.product, row_bytes, rows_per_task, first_task }
    }

    fn n_tasks(&self) -> usize {
        self.w.n_rows.div_ceil(self.rows_per_task)
    }

    fn run(&self, isa: Isa, x: &Activations, task: usize) {
        let first = (task - self.first_task) * self.rows_per_task;
        let n_rows = self.rows_per_task.min(self.w.n_rows - first);
        let job = Job {
            w: &self.w.bytes[first * self.row_bytes..][..n_rows * self.row_bytes],
            row_bytes: self.row_bytes,
            n_rows,
            n_cols: self.w.n_cols,
            n_tokens: x.n_tokens(),
            spans: x.spans(),
            n_spans: x.n_spans(),
            floats: x.floats(),
            n_floats: x.n_floats(),
            y: self.y.ptr(first),
            y_stride: self.w.n_rows,
        };
        // SAFETY: a `Cpu` holds only an ISA that is present. Lengths: `w` was cut just now; `new` checked that the
        // activations have `n_cols` columns and `y` room for `n_rows` per token; each row belongs to one task.
        unsafe { (self.product.0)(isa, &job) };
    }
}

/// What a kernel gets: some rows of a matrix, all columns.
pub(crate) struct Job<'a> {
    /// n_rows * row_bytes
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) n_rows: usize,
    /// A whole number of blocks.
    pub(super) n_cols: usize,
    pub(super) n_tokens: usize,
    /// [n_tokens, n_spans]
    pub(super) spans: &'a [Span],
    pub(super) n_spans: usize,
    /// [n_tokens, n_floats]
    pub(super) floats: &'a [f32],
    pub(super) n_floats: usize,
    /// Row r of token t goes to `y[t * y_stride + r]`.
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
}

/// The kernel of a format: all its ISAs behind one function.
#[derive(Clone, Copy)]
pub(crate) struct Product(unsafe fn(Isa, &Job<'_>));

impl Product {
    /// Of a quantised format.
    pub(crate) const fn quantised<C: Codec>() -> Product {
        Product(tile::product::<C>)
    }

    /// Of a float format.
    pub(crate) const fn float<E: Element>() -> Product {
        Product(float::product::<E>)
    }
}

/// All rows in groups of four that lie a quarter of the job apart ("far" walk), so that memory sees four streams. Rows
/// behind the last are the last one again.
#[inline(always)]
pub(super) fn far_rows(n_rows: usize) -> impl Iterator<Item = [usize; STREAMS]> {
    let n_groups = n_rows.div_ceil(STREAMS);
    let row = move |g: usize, r: usize| (r * n_groups + g).min(n_rows - 1);
    (0..n_groups).map(move |g| [row(g, 0), row(g, 1), row(g, 2), row(g, 3)])
}
