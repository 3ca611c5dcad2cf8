//! The selective scan of Mamba-2: per head a matrix that decays by one number per token, takes up B times the input, and is
//! read by C.
//!
//! As in the gated delta net, a task takes some columns of one head through all tokens.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `columns_through_time`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::{COLUMNS, softplus};
use crate::cpu::Cpu;
use crate::cpu::isa::{LANES, Vector, per_isa};
use crate::cpu::math::exp;
use crate::cpu::ops::by_rows;
use crate::cpu::shared::SharedSlice;

/// The shape of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Heads, a multiple of `n_groups`.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C.
    pub n_groups: usize,
    /// Elements of B and of C.
    pub n_state: usize,
}

impl Scan {
    /// Elements of all heads of a token.
    pub fn x_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of x, B and C of a token.
    pub fn xbc_width(&self) -> usize {
        self.x_width() + 2 * self.n_groups * self.n_state
    }

    /// Elements of the state: [n_heads, n_state, head_dim].
    pub fn state_len(&self) -> usize {
        self.x_width() * self.n_state
    }
}

/// What a scan reads.
#[derive(Clone, Copy)]
pub struct ScanArgs<'a> {
    /// [n_tokens, xbc_width] all heads of x, then B of all groups, then C of all groups
    pub xbc: &'a [f32],
    /// [n_tokens, n_heads] lengths of the steps, positive
    pub steps: &'a [f32],
    /// [n_heads] rate of the decay, negative
    pub a: &'a [f32],
    /// [n_heads] part of x that goes past the state
    pub d: &'a [f32],
}

/// Lengths of the steps from what the product gave: softplus(dt + bias).
///
/// dt       [n_tokens, n_heads] f32, changed in place
/// bias     [n_heads]
pub fn scan_steps(cpu: &Cpu, dt: &mut [f32], bias: &[f32]) {
    by_rows(cpu, dt, bias.len(), &|rows, _| {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (dt, bias) in row.iter_mut().zip(bias) {
                *dt = softplus(*dt + bias);
            }
        }
    });
}

/// For every token and head: state = e^(step * a) * state + B (step * x)^T; out = state^T C + d * x.
///
/// state    [state_len], carried from step to step
/// out      [n_tokens, x_width]
/// Errors   none; panics if shapes do not fit
/// Cost     O(n_tokens * state_len), no allocation; on one ISA the same bits for every split of the tokens
/// Source   Dao, Gu 2024 section 7
pub fn scan(cpu: &Cpu, shape: &Scan, args: &ScanArgs<'_>, state: &mut [f32], out: &mut [f32]) {
    let Scan { n_heads, head_dim, n_groups, .. } = *shape;
    let row = shape.xbc_width();
    assert!(row > 0 && args.xbc.len().is_multiple_of(row) && n_heads.is_multiple_of(n_groups), "heads");
    let n_tokens = args.xbc.len() / row;
    assert_eq!(args.steps.len(), n_tokens * n_heads, "steps");
    assert!(args.a.len() == n_heads && args.d.len() == n_heads, "rates");
    assert_eq!(out.len(), n_tokens * shape.x_width(), "outputs");
    assert_eq!(state.len(), shape.state_len(), "state");
    let (state, out) = (SharedSlice::new(state), SharedSlice::new(out));
    let job = Job { shape, args, n_tokens, state: &state, out: &out };
    let n_blocks = head_dim.div_ceil(COLUMNS);
    cpu.pool.split(n_heads * n_blocks, 1, &|tasks| {
        for task in tasks {
            // SAFETY: the ISA of a `Cpu` is present; lengths were checked; each task has its own head and columns.
            unsafe { columns_through_time(cpu.isa(), &job, task / n_blocks, task % n_blocks * COLUMNS) };
        }
    });
}

/// Checked operands.
struct Job<'a> {
    shape: &'a Scan,
    args: &'a ScanArgs<'a>,
    n_tokens: usize,
    state: &'a SharedSlice<'a, f32>,
    out: &'a SharedSlice<'a, f32>,
}

/// What one token brings to one head.
struct Token {
    /// [head_dim]
    x: *const f32,
    /// [n_state]
    b: *const f32,
    /// [n_state]
    c: *const f32,
    step: f32,
    decay: f32,
    d: f32,
    /// [head_dim]
    out: *mut f32,
}

per_isa! {
    /// All tokens of at most `COLUMNS` columns of a head's state.
    ///
    /// Lengths were checked by `scan`; nobody else touches these columns of `state` and `out`.
    unsafe fn columns_through_time<V>(job: &Job<'_>, head: usize, first: usize) {
        let Scan { head_dim, n_state, .. } = *job.shape;
        let state = job.state.ptr(head * n_state * head_dim + first);
        let n_columns = (head_dim - first).min(COLUMNS);
        let whole = n_columns - n_columns % LANES;
        for t in 0..job.n_tokens {
            let token = job.token(t, head, first);
            match whole / LANES {
                2 => step::<V, 2>(&token, job.shape, state),
                1 => step::<V, 1>(&token, job.shape, state),
                _ => {}
            }
            for column in whole..n_columns {
                step_column(&token, job.shape, state.add(column), column);
            }
        }
    }
}

impl Job<'_> {
    /// Pointers for token `t`; those to x and out are at column `first`.
    #[inline(always)]
    unsafe fn token(&self, t: usize, head: usize, first: usize) -> Token {
        let Scan { n_heads, head_dim, n_groups, n_state } = *self.shape;
        let group = head / (n_heads / n_groups);
        let row = self.args.xbc.as_ptr().add(t * self.shape.xbc_width());
        let step = self.args.steps[t * n_heads + head];
        Token {
            x: row.add(head * head_dim + first),
            b: row.add(n_heads * head_dim + group * n_state),
            c: row.add(n_heads * head_dim + (n_groups + group) * n_state),
            step,
            decay: exp(step * self.args.a[head]),
            d: self.args.d[head],
            out: self.out.ptr((t * n_heads + head) * head_dim + first),
        }
    }
}

/// One token, N vectors of columns.
#[inline(always)]
unsafe fn step<V: Vector, const N: usize>(token: &Token, shape: &Scan, state: *mut f32) {
    let &Token { x, b, c, step, decay, d, out } = token;
    let (mut taken, mut y) = ([V::zero(); N], [V::zero(); N]);
    for n in 0..N {
        let x = V::load(x.add(n * LANES));
        taken[n] = V::scale(x, step);
        y[n] = V::scale(x, d);
    }
    for i in 0..shape.n_state {
        let (b, c) = (V::splat(*b.add(i)), V::splat(*c.add(i)));
        for n in 0..N {
            let at = state.add(i * shape.head_dim + n * LANES);
            let s = V::fma(b, taken[n], V::scale(V::load(at), decay));
            V::store(s, at);
            y[n] = V::fma(s, c, y[n]);
        }
    }
    for n in 0..N {
        V::store(y[n], out.add(n * LANES));
    }
}

/// As `step`, for one column alone.
#[inline(always)]
unsafe fn step_column(token: &Token, shape: &Scan, state: *mut f32, column: usize) {
    let &Token { x, b, c, step, decay, d, out } = token;
    let x = *x.add(column);
    let mut y = x * d;
    for i in 0..shape.n_state {
        let s = state.add(i * shape.head_dim);
        *s = *s * decay + *b.add(i) * (x * step);
        y += *s * *c.add(i);
    }
    *out.add(column) = y;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::check::{assert_near, on_each, wave, wide};

    /// The definition, in f64: outputs and state.
    fn reference(shape: &Scan, args: &ScanArgs<'_>, state: &[f32]) -> [Vec<f64>; 2] {
        let Scan { n_heads, head_dim, n_groups, n_state } = *shape;
        let (mut out, mut state) = (Vec::new(), wide(state));
        for (t, row) in args.xbc.chunks_exact(shape.xbc_width()).enumerate() {
            let (x, bc) = row.split_at(shape.x_width());
            for (i, x) in wide(x).into_iter().enumerate() {
                let (head, p) = (i / head_dim, i % head_dim);
                let group = head / (n_heads / n_groups);
                let step = f64::from(args.steps[t * n_heads + head]);
                let mut y = x * f64::from(args.d[head]);
                for n in 0..n_state {
                    let b = f64::from(bc[group * n_state + n]);
                    let c = f64::from(bc[(n_groups + group) * n_state + n]);
                    let s = &mut state[(head * n_state + n) * head_dim + p];
                    *s = *s * (step * f64::from(args.a[head])).exp() + b * step * x;
                    y += *s * c;
                }
                out.push(y);
            }
        }
        [out, state]
    }

    fn shape(n_heads: usize, head_dim: usize, n_groups: usize, n_state: usize) -> Scan {
        Scan { n_heads, head_dim, n_groups, n_state }
    }

    /// xbc, steps, a, d, state.
    fn inputs(shape: &Scan, n_tokens: usize) -> [Vec<f32>; 5] {
        let steps = wave(n_tokens * shape.n_heads, 0.31).into_iter().map(|v| 0.5 + 0.16 * v).collect();
        let a = wave(shape.n_heads, 0.9).into_iter().map(|v| -0.1 - v * v / 9.0).collect();
        let (d, state) = (wave(shape.n_heads, 0.7), wave(shape.state_len(), 0.913));
        [wave(n_tokens * shape.xbc_width(), 0.737), steps, a, d, state]
    }

    #[test]
    fn scan_equals_f64_for_all_sizes() {
        for (shape, n_tokens) in [
            (shape(1, 1, 1, 1), 3),
            (shape(8, 16, 1, 16), 18),
            (shape(8, 16, 2, 16), 5),
            (shape(3, 20, 3, 7), 7),
            (shape(4, 49, 2, 33), 4),
            (shape(4, 64, 2, 128), 70),
            (shape(2, 96, 1, 5), 1),
        ] {
            let [xbc, steps, a, d, state] = inputs(&shape, n_tokens);
            let args = ScanArgs { xbc: &xbc, steps: &steps, a: &a, d: &d };
            let [want, want_state] = reference(&shape, &args, &state);
            on_each(|cpu, on| {
                let (mut state, mut out) = (state.clone(), vec![f32::NAN; n_tokens * shape.x_width()]);
                scan(cpu, &shape, &args, &mut state, &mut out);
                assert_near(&out, &want, 2e-6, &format!("{on}, {shape:?}, outputs"));
                assert_near(&state, &want_state, 2e-6, &format!("{on}, {shape:?}, state"));
            });
        }
    }

    #[test]
    fn tokens_in_parts_are_tokens_at_once() {
        let shape = shape(4, 40, 2, 16);
        let [xbc, steps, a, d, state] = inputs(&shape, 23);
        on_each(|cpu, on| {
            let run = |parts: &[usize]| {
                let (mut state, mut out) = (state.clone(), vec![0.0; 23 * shape.x_width()]);
                let mut t = 0;
                for &n in parts {
                    let xbc = &xbc[t * shape.xbc_width()..(t + n) * shape.xbc_width()];
                    let steps = &steps[t * shape.n_heads..(t + n) * shape.n_heads];
                    let out = &mut out[t * shape.x_width()..(t + n) * shape.x_width()];
                    scan(cpu, &shape, &ScanArgs { xbc, steps, a: &a, d: &d }, &mut state, out);
                    t += n;
                }
                (out, state)
            };
            assert_eq!(run(&[23]), run(&[1, 2, 7, 1, 12]), "{on}");
        });
    }

    #[test]
    fn steps_equal_f64_at_the_ends_too() {
        let dt = [-80.0, -3.0, 0.0, 2.0, 30.0, 100.0];
        on_each(|cpu, on| {
            let mut steps = dt;
            scan_steps(cpu, &mut steps, &[0.5, -0.25]);
            for (i, (got, dt)) in steps.iter().zip(dt).enumerate() {
                let x = f64::from(dt) + [0.5, -0.25][i % 2];
                let want = if x > 30.0 { x } else { x.exp().ln_1p() };
                assert!((f64::from(*got) - want).abs() <= 1e-6 * want, "{on}: {got} {want}");
            }
        });
    }
}
