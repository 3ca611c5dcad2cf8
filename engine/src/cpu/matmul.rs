//! Matrix products: what is multiplied, cut into tasks for the pool. The loops themselves are `tile`, `panel` and `float`.
use super::activations::{Activations, Span};
use super::isa::Isa;
use super::panel::{self, Panel};
use super::shared::SharedSlice;
use super::{Cpu, float, tile};
use crate::gguf::TensorType;
use crate::quant::{Codec, Element, format_of};
use std::ops::Range;

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
    let task_bytes = task_bytes(cpu, list.iter().map(|(w, _)| w.bytes.len()).sum());
    let mut parts = Parts::new();
    for (w, y) in list {
        parts.push(*w, 0..x.n_tokens(), y, x, task_bytes);
    }
    parts.run(cpu, x);
}

/// A stack of matrices: index to matrix.
pub type MatrixOf<'a, 'w> = &'a dyn Fn(usize) -> Matrix<'w>;

/// Products of stacked matrices, each with tokens of its own: the experts of a step, the heads of a projection.
///
/// groups   (index of a matrix, its tokens); the tokens of all groups follow each other from 0 on
/// list     stacks (index to matrix) and their outputs y [n_tokens, n_rows]
/// Errors   none; panics as `matmul`, and if the groups leave tokens out
/// Cost     reads every matrix once per 64 of its tokens; no allocation
pub fn matmul_groups<'w, 'y, const N: usize>(
    cpu: &Cpu,
    groups: &[(u32, Range<u32>)],
    list: [(MatrixOf<'_, 'w>, &'y mut [f32]); N],
    x: &Activations,
) {
    let [first, ..] = groups else { return };
    let group_bytes = list.iter().map(|(matrix, _)| matrix(first.0 as usize).bytes.len()).sum::<usize>();
    let task_bytes = task_bytes(cpu, group_bytes * groups.len());
    let mut list = list;
    for groups in groups.chunks(MAX_PARTS / N) {
        let mut parts = Parts::new();
        for (matrix, y) in &mut list {
            for (i, tokens) in groups {
                let (w, tokens) = (matrix(*i as usize), tokens.start as usize..tokens.end as usize);
                let (own, rest) = std::mem::take(y).split_at_mut(tokens.len() * w.n_rows);
                *y = rest;
                parts.push(w, tokens, own, x, task_bytes);
            }
        }
        parts.run(cpu, x);
    }
    assert!(list.iter().all(|(_, y)| y.is_empty()), "groups and outputs");
}

/// What a task should read, for products that read so much together.
fn task_bytes(cpu: &Cpu, n_bytes: usize) -> usize {
    (n_bytes / (cpu.pool.n_threads() * TASKS_PER_THREAD)).clamp(MIN_TASK_BYTES, TASK_BYTES)
}

/// Most products of one list of tasks.
const MAX_PARTS: usize = 32;

/// Products that are computed together.
struct Parts<'a> {
    parts: [Option<Part<'a>>; MAX_PARTS],
    n_parts: usize,
    n_tasks: usize,
}

impl<'a> Parts<'a> {
    fn new() -> Parts<'a> {
        Parts { parts: [const { None }; MAX_PARTS], n_parts: 0, n_tasks: 0 }
    }

    fn push(&mut self, w: Matrix<'a>, tokens: Range<usize>, y: &'a mut [f32], x: &Activations, task_bytes: usize) {
        let part = Part::new(w, tokens, y, x, task_bytes, self.n_tasks);
        self.n_tasks += part.n_tasks();
        assert!(self.n_parts < MAX_PARTS, "more than {MAX_PARTS} products in one list");
        self.parts[self.n_parts] = Some(part);
        self.n_parts += 1;
    }

    fn run(&self, cpu: &Cpu, x: &Activations) {
        cpu.pool.run(self.n_tasks, &|task| {
            let part = self.parts[..self.n_parts].iter().flatten().rfind(|part| part.first_task <= task);
            // parts without rows have no tasks, so the last that begins here is the one that holds the task
            part.expect("the first part begins at task 0").run(cpu.isa(), x, task);
        });
    }
}

/// One product of a list, cut into tasks.
struct Part<'a> {
    w: Matrix<'a>,
    tokens: Range<usize>,
    y: SharedSlice<'a, f32>,
    product: Product,
    row_bytes: usize,
    rows_per_task: usize,
    first_task: usize,
}

impl<'a> Part<'a> {
    fn new(
        w: Matrix<'a>,
        tokens: Range<usize>,
        y: &'a mut [f32],
        x: &Activations,
        task_bytes: usize,
        first_task: usize,
    ) -> Part<'a> {
        let format = format_of(w.tensor_type).unwrap_or_else(|| panic!("no kernel for {}", w.tensor_type));
        let row_bytes = w.tensor_type.row_bytes(w.n_cols as u64).expect("a row is a whole number of blocks") as usize;
        assert_eq!(w.n_cols, x.n_cols(), "weights and activations of different length");
        assert_eq!(w.bytes.len(), w.n_rows * row_bytes, "{} x {} {}", w.n_rows, w.n_cols, w.tensor_type);
        assert!(tokens.start <= tokens.end && tokens.end <= x.n_tokens(), "{tokens:?} of {} tokens", x.n_tokens());
        assert_eq!(y.len(), tokens.len() * w.n_rows, "outputs");
        let rows_per_task = (task_bytes / row_bytes.max(1)).max(1).next_multiple_of(ROW_STEP);
        Part { w, tokens, y: SharedSlice::new(y), product: format.product, row_bytes, rows_per_task, first_task }
    }

    fn n_tasks(&self) -> usize {
        if self.tokens.is_empty() { 0 } else { self.w.n_rows.div_ceil(self.rows_per_task) }
    }

    fn run(&self, isa: Isa, x: &Activations, task: usize) {
        let first = (task - self.first_task) * self.rows_per_task;
        let n_rows = self.rows_per_task.min(self.w.n_rows - first);
        let n_floats = x.n_floats();
        let job = Job {
            w: &self.w.bytes[first * self.row_bytes..][..n_rows * self.row_bytes],
            row_bytes: self.row_bytes,
            n_rows,
            n_cols: self.w.n_cols,
            n_tokens: self.tokens.len(),
            spans: &raw const x.spans()[self.tokens.start * x.n_parts()],
            span_stride: x.n_tokens() * x.n_parts(),
            n_parts: x.n_parts(),
            floats: &x.floats()[self.tokens.start * n_floats..self.tokens.end * n_floats],
            n_floats,
            y: self.y.ptr(first),
            y_stride: self.w.n_rows,
        };
        // SAFETY: a `Cpu` holds only an ISA that is present. Lengths: `w` was cut just now; `new` checked that the
        // activations have `n_cols` columns and `y` room for `n_rows` per token; each row belongs to one task.
        unsafe { self.product.run(isa, &job) };
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
    /// First span of the first column; those of the other columns follow it, `n_parts` of each token.
    pub(super) spans: *const Span,
    /// 1, or 2: columns whose products are added.
    pub(super) n_parts: usize,
    /// From one span of a column to its next.
    pub(super) span_stride: usize,
    /// [n_tokens, n_floats]
    pub(super) floats: &'a [f32],
    pub(super) n_floats: usize,
    /// Row r of token t goes to `y[t * y_stride + r]`.
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
}

/// The kernels of a format: all its ISAs behind one function each.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    /// Any number of columns; the best for few.
    columns: unsafe fn(Isa, &Job<'_>),
    /// What that is called.
    form: unsafe fn(Isa) -> &'static str,
    /// For many columns.
    panel: Option<Panel>,
}

impl Product {
    /// Of a quantised format.
    pub(crate) const fn quantised<C: Codec>() -> Product {
        Product { columns: tile::product::<C>, form: tile::form::<C>, panel: Some(Panel::of::<C>()) }
    }

    /// Of a float format.
    pub(crate) const fn float<E: Element>() -> Product {
        Product { columns: float::product::<E>, form: |_| "float", panel: None }
    }

    /// Which kernel computes so many columns, for reports.
    pub(crate) fn kernel(self, isa: Isa, n_columns: usize) -> &'static str {
        match self.panel_for(isa, n_columns) {
            Some(_) => "panel",
            // SAFETY: it computes nothing; a missing ISA is none of its business.
            None => unsafe { (self.form)(isa) },
        }
    }

    fn panel_for(self, isa: Isa, n_columns: usize) -> Option<Panel> {
        self.panel.filter(|_| n_columns >= panel::MIN_COLUMNS && isa != Isa::Scalar)
    }

    /// Computes a job.
    ///
    /// # Safety
    /// The CPU has the ISA; the job's lengths are right.
    unsafe fn run(self, isa: Isa, job: &Job<'_>) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.panel_for(isa, job.n_tokens * job.n_parts) {
                Some(panel) => panel.product(isa, job),
                None => (self.columns)(isa, job),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Rounding;

    /// Group products are the matrix's own products with its own tokens, bit for bit, for more groups than one list holds.
    #[test]
    fn groups_are_products_of_their_own_tokens() {
        let (n_matrices, n_rows, n_cols, n_tokens) = (50usize, 20usize, 40usize, 97usize);
        let wave = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let weights: Vec<u8> = wave(n_matrices * n_rows * n_cols, 0.37).iter().flat_map(|v| v.to_le_bytes()).collect();
        let matrix = |i: usize| Matrix {
            tensor_type: TensorType::F32,
            n_rows,
            n_cols,
            bytes: &weights[i * n_rows * n_cols * 4..(i + 1) * n_rows * n_cols * 4],
        };
        let reversed = |i: usize| matrix(n_matrices - 1 - i);
        let x = wave(n_tokens * n_cols, 0.11);
        let cpu = Cpu::new(Isa::best(), 2).unwrap();
        let mut activations = Activations::new(n_cols, n_tokens, Rounding::Once);
        activations.set(&cpu, &x, n_cols);
        // all but every seventh matrix have 1 to 4 tokens
        let mut groups = Vec::new();
        let mut first = 0;
        for i in (0..n_matrices as u32).filter(|i| i % 7 != 0) {
            let end = (first + 1 + i % 4).min(n_tokens as u32);
            groups.push((i, first..end));
            first = end;
        }
        groups.last_mut().unwrap().1.end = n_tokens as u32;
        let (mut y, mut z) = (vec![f32::NAN; n_tokens * n_rows], vec![f32::NAN; n_tokens * n_rows]);
        matmul_groups(&cpu, &groups, [(&matrix, &mut y), (&reversed, &mut z)], &activations);
        let mut picked = Activations::new(n_cols, n_tokens, Rounding::Once);
        for (i, tokens) in groups {
            let list: Vec<u32> = tokens.clone().collect();
            picked.gather(&activations, &list);
            let mut want = vec![0.0; list.len() * n_rows];
            for (matrix, got) in [(matrix(i as usize), &y), (reversed(i as usize), &z)] {
                matmul(&cpu, matrix, &picked, &mut want);
                assert_eq!(got[tokens.start as usize * n_rows..tokens.end as usize * n_rows], want, "matrix {i}");
            }
        }
    }
}
