//! The gated delta rule: per head a matrix from keys to values that decays, is corrected towards each new value, and is read
//! by the query.
//!
//! Columns of the matrix do not know of each other, so a task takes some columns of one head through all tokens: they stay in
//! the first cache, and main memory sees the state once per step, however many tokens there are.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of every unsafe fn here is that of `columns_through_time`")]
#![expect(clippy::needless_range_loop, reason = "kernels walk several register arrays in lock step")]

use super::{COLUMNS, softplus};
use crate::cpu::Cpu;
use crate::cpu::isa::{LANES, Vector, per_isa};
use crate::cpu::math::exp;
use crate::cpu::ops::sum_of;
use crate::cpu::shared::SharedSlice;

/// The shape of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNet {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values, a multiple of `n_k_heads`; each has a state.
    pub n_v_heads: usize,
    /// Elements of a head of queries, keys and values.
    pub head_dim: usize,
    /// Which keys a head of values goes with.
    pub key_heads: KeyHeads,
}

/// Which head of queries and keys serves value head h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeads {
    /// h mod n_k_heads
    Tiled,
    /// h / (n_v_heads / n_k_heads)
    Grouped,
}

impl DeltaNet {
    /// Elements of q, k and v of a token.
    pub fn qkv_width(&self) -> usize {
        (2 * self.n_k_heads + self.n_v_heads) * self.head_dim
    }

    /// Elements of the values of a token.
    pub fn v_width(&self) -> usize {
        self.n_v_heads * self.head_dim
    }

    /// Elements of the state: [n_v_heads, head_dim (key), head_dim (value)].
    pub fn state_len(&self) -> usize {
        self.v_width() * self.head_dim
    }

    fn k_head(&self, v_head: usize) -> usize {
        match self.key_heads {
            KeyHeads::Tiled => v_head % self.n_k_heads,
            KeyHeads::Grouped => v_head / (self.n_v_heads / self.n_k_heads),
        }
    }
}

/// What the gates are from what the products gave: beta = sigmoid(beta), decay = e^(a * softplus(alpha + dt_bias)).
///
/// beta     [n_tokens, n_v_heads] f32, changed in place
/// alpha    as `beta`; becomes the decay, 0 to 1 where `a` is negative
/// dt_bias  [n_v_heads]
/// a        [n_v_heads]
/// Errors   none; panics if shapes do not fit
/// Source   Yang et al. 2024 section 3.1
pub fn delta_net_gates(cpu: &Cpu, beta: &mut [f32], alpha: &mut [f32], dt_bias: &[f32], a: &[f32]) {
    /// Elements per task: each costs about 50 ns.
    const GRAIN: usize = 256;
    let n_heads = a.len();
    assert!(n_heads > 0 && beta.len() == alpha.len() && beta.len().is_multiple_of(n_heads), "gates");
    assert_eq!(dt_bias.len(), n_heads, "bias");
    let n_tokens = beta.len() / n_heads;
    let (beta, alpha) = (SharedSlice::new(beta), SharedSlice::new(alpha));
    cpu.pool.split(n_tokens, GRAIN.div_ceil(n_heads), &|tokens| {
        let range = tokens.start * n_heads..tokens.end * n_heads;
        // SAFETY: `split` hands each token to one task.
        let (beta, alpha) = unsafe { (beta.part(range.clone()), alpha.part(range)) };
        for (i, (beta, alpha)) in beta.iter_mut().zip(alpha).enumerate() {
            let head = i % n_heads;
            *beta = 1.0 / (1.0 + exp(-*beta));
            *alpha = exp(a[head] * softplus(*alpha + dt_bias[head]));
        }
    });
}

/// For every token and value head: state = decay * state; state += k (beta * (v - state^T k))^T; out = state^T q. Before,
/// q and k are brought to length 1, and q is divided by sqrt(head_dim).
///
/// qkv      [n_tokens, qkv_width] f32, all heads of q, then of k, then of v; q and k are changed in place
/// beta     [n_tokens, n_v_heads]
/// decay    [n_tokens, n_v_heads]
/// eps      joins the square of the length
/// state    [state_len], carried from step to step
/// out      [n_tokens, v_width]
/// Errors   none; panics if shapes do not fit
/// Cost     O(n_tokens * state_len), no allocation; on one ISA the same bits for every split of the tokens
/// Source   Yang et al. 2024 equation 10
pub fn delta_net(
    cpu: &Cpu,
    net: &DeltaNet,
    qkv: &mut [f32],
    [beta, decay]: [&[f32]; 2],
    eps: f32,
    state: &mut [f32],
    out: &mut [f32],
) {
    let (row, dim) = (net.qkv_width(), net.head_dim);
    assert!(row > 0 && qkv.len().is_multiple_of(row) && net.n_v_heads.is_multiple_of(net.n_k_heads), "heads");
    let n_tokens = qkv.len() / row;
    assert_eq!(out.len(), n_tokens * net.v_width(), "outputs");
    assert!(beta.len() == n_tokens * net.n_v_heads && decay.len() == beta.len(), "gates");
    assert_eq!(state.len(), net.state_len(), "state");
    normalise(cpu, net, qkv, eps);
    let (state, out) = (SharedSlice::new(state), SharedSlice::new(out));
    let job = Job { net, n_tokens, qkv, beta, decay, state: &state, out: &out };
    let n_blocks = dim.div_ceil(COLUMNS);
    cpu.pool.split(net.n_v_heads * n_blocks, 1, &|tasks| {
        for task in tasks {
            // SAFETY: the ISA of a `Cpu` is present; lengths were checked; each task has its own head and columns.
            unsafe { columns_through_time(cpu.isa(), &job, task / n_blocks, task % n_blocks * COLUMNS) };
        }
    });
}

/// Brings q to length 1 / sqrt(head_dim) and k to length 1.
fn normalise(cpu: &Cpu, net: &DeltaNet, qkv: &mut [f32], eps: f32) {
    /// Elements per task.
    const GRAIN: usize = 4096;
    let (row, n_qk, dim) = (net.qkv_width(), net.n_k_heads * net.head_dim, net.head_dim);
    let q_scale = 1.0 / (dim as f32).sqrt();
    let n_tokens = qkv.len() / row;
    let qkv = SharedSlice::new(qkv);
    cpu.pool.split(n_tokens, GRAIN.div_ceil(2 * n_qk), &|tokens| {
        for t in tokens {
            // SAFETY: the ISA of a `Cpu` is present; `split` hands each token to one task.
            unsafe {
                normalise_heads(cpu.isa(), qkv.part(t * row..t * row + n_qk), dim, eps, q_scale);
                normalise_heads(cpu.isa(), qkv.part(t * row + n_qk..t * row + 2 * n_qk), dim, eps, 1.0);
            }
        }
    });
}

per_isa! {
    unsafe fn normalise_heads<V>(x: &mut [f32], dim: usize, eps: f32, length: f32) {
        for head in x.chunks_exact_mut(dim) {
            let scale = length / (sum_of(head, |v| v * v) + eps).sqrt();
            for v in head {
                *v *= scale;
            }
        }
    }
}

/// Checked operands; the meaning is that of `delta_net`.
struct Job<'a> {
    net: &'a DeltaNet,
    n_tokens: usize,
    qkv: &'a [f32],
    beta: &'a [f32],
    decay: &'a [f32],
    state: &'a SharedSlice<'a, f32>,
    out: &'a SharedSlice<'a, f32>,
}

/// What one token brings to one head.
struct Token {
    /// [head_dim]
    q: *const f32,
    /// [head_dim]
    k: *const f32,
    /// [head_dim]
    v: *const f32,
    beta: f32,
    decay: f32,
    /// [head_dim]
    out: *mut f32,
}

per_isa! {
    /// All tokens of at most `COLUMNS` columns of a head's state.
    ///
    /// Lengths were checked by `delta_net`; nobody else touches these columns of `state` and `out`.
    unsafe fn columns_through_time<V>(job: &Job<'_>, head: usize, first: usize) {
        let dim = job.net.head_dim;
        let state = job.state.ptr(head * dim * dim + first);
        let (n_vectors, n_rest) = ((dim - first).min(COLUMNS) / LANES, (dim - first).min(COLUMNS) % LANES);
        for t in 0..job.n_tokens {
            let token = job.token(t, head, first);
            match n_vectors {
                2 => step::<V, 2>(&token, dim, state),
                1 => step::<V, 1>(&token, dim, state),
                _ => {}
            }
            for c in n_vectors * LANES..n_vectors * LANES + n_rest {
                step_column(&token, dim, state.add(c), c);
            }
        }
    }
}

impl Job<'_> {
    /// Pointers for token `t`; those to v and out are at column `first`.
    #[inline(always)]
    unsafe fn token(&self, t: usize, head: usize, first: usize) -> Token {
        let DeltaNet { n_k_heads, n_v_heads, head_dim, .. } = *self.net;
        let k_head = self.net.k_head(head);
        let row = self.qkv.as_ptr().add(t * self.net.qkv_width());
        Token {
            q: row.add(k_head * head_dim),
            k: row.add((n_k_heads + k_head) * head_dim),
            v: row.add((2 * n_k_heads + head) * head_dim + first),
            beta: self.beta[t * n_v_heads + head],
            decay: self.decay[t * n_v_heads + head],
            out: self.out.ptr((t * n_v_heads + head) * head_dim + first),
        }
    }
}

/// One token, N vectors of columns. The state is read for k and q at once: with delta = beta (v - decay * state^T k), what q
/// reads after the update is decay * state^T q + (k . q) delta.
#[inline(always)]
unsafe fn step<V: Vector, const N: usize>(token: &Token, dim: usize, state: *mut f32) {
    let &Token { q, k, v, beta, decay, out } = token;
    let (mut from_k, mut from_q) = ([V::zero(); N], [V::zero(); N]);
    for i in 0..dim {
        let (k, q) = (V::splat(*k.add(i)), V::splat(*q.add(i)));
        for n in 0..N {
            let m = V::load(state.add(i * dim + n * LANES));
            from_k[n] = V::fma(m, k, from_k[n]);
            from_q[n] = V::fma(m, q, from_q[n]);
        }
    }
    let k_dot_q = V::splat(dot::<V>(k, q, dim));
    let mut delta = [V::zero(); N];
    for n in 0..N {
        let missing = V::fma(V::splat(-decay), from_k[n], V::load(v.add(n * LANES)));
        delta[n] = V::scale(missing, beta);
        V::store(V::fma(k_dot_q, delta[n], V::scale(from_q[n], decay)), out.add(n * LANES));
    }
    for i in 0..dim {
        let k = V::splat(*k.add(i));
        for n in 0..N {
            let m = state.add(i * dim + n * LANES);
            V::store(V::fma(k, delta[n], V::scale(V::load(m), decay)), m);
        }
    }
}

/// As `step`, for column `c` alone.
#[inline(always)]
unsafe fn step_column(token: &Token, dim: usize, state: *mut f32, c: usize) {
    let &Token { q, k, v, beta, decay, out } = token;
    let mut from_k = 0.0;
    for i in 0..dim {
        let m = state.add(i * dim);
        *m *= decay;
        from_k += *m * *k.add(i);
    }
    let delta = beta * (*v.add(c) - from_k);
    let mut from_q = 0.0;
    for i in 0..dim {
        let m = state.add(i * dim);
        *m += *k.add(i) * delta;
        from_q += *m * *q.add(i);
    }
    *out.add(c) = from_q;
}

#[inline(always)]
unsafe fn dot<V: Vector>(a: *const f32, b: *const f32, n: usize) -> f32 {
    let whole = n - n % LANES;
    let mut sums = V::zero();
    for i in (0..whole).step_by(LANES) {
        sums = V::fma(V::load(a.add(i)), V::load(b.add(i)), sums);
    }
    let mut sum = V::sum(sums);
    for i in whole..n {
        sum += *a.add(i) * *b.add(i);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::check::{assert_near, on_each, wave, wide};

    /// The definition, in f64: outputs and state.
    fn reference(net: &DeltaNet, qkv: &[f32], [beta, decay]: [&[f32]; 2], state: &[f32]) -> [Vec<f64>; 2] {
        let (dim, n_k) = (net.head_dim, net.n_k_heads);
        let (mut out, mut state) = (Vec::new(), wide(state));
        let unit = |x: &[f64]| {
            let length = (x.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|v| v / length).collect::<Vec<f64>>()
        };
        for (t, row) in qkv.chunks_exact(net.qkv_width()).enumerate() {
            let heads: Vec<Vec<f64>> = row.chunks_exact(dim).map(wide).collect();
            for head in 0..net.n_v_heads {
                let key = match net.key_heads {
                    KeyHeads::Tiled => head % n_k,
                    KeyHeads::Grouped => head / (net.n_v_heads / n_k),
                };
                let (q, k, v) = (unit(&heads[key]), unit(&heads[n_k + key]), &heads[2 * n_k + head]);
                let gate = t * net.n_v_heads + head;
                for c in 0..dim {
                    let mut column: Vec<f64> = (0..dim).map(|i| state[(head * dim + i) * dim + c]).collect();
                    column.iter_mut().for_each(|m| *m *= f64::from(decay[gate]));
                    let seen: f64 = column.iter().zip(&k).map(|(m, k)| m * k).sum();
                    let delta = f64::from(beta[gate]) * (v[c] - seen);
                    column.iter_mut().zip(&k).for_each(|(m, k)| *m += k * delta);
                    out.push(column.iter().zip(&q).map(|(m, q)| m * q / (dim as f64).sqrt()).sum());
                    (0..dim).for_each(|i| state[(head * dim + i) * dim + c] = column[i]);
                }
            }
        }
        [out, state]
    }

    fn shape(n_k_heads: usize, n_v_heads: usize, head_dim: usize, key_heads: KeyHeads) -> DeltaNet {
        DeltaNet { n_k_heads, n_v_heads, head_dim, key_heads }
    }

    /// q, k and v; beta; decay; state.
    fn inputs(net: &DeltaNet, n_tokens: usize) -> [Vec<f32>; 4] {
        let gates = |step| wave(n_tokens * net.n_v_heads, step).into_iter().map(|v| 0.5 + 0.16 * v).collect();
        [wave(n_tokens * net.qkv_width(), 0.737), gates(0.31), gates(0.57), wave(net.state_len(), 0.913)]
    }

    #[test]
    fn recurrence_equals_f64_for_all_sizes() {
        for (net, n_tokens) in [
            (shape(1, 1, 1, KeyHeads::Tiled), 3),
            (shape(2, 4, 16, KeyHeads::Tiled), 18),
            (shape(2, 6, 16, KeyHeads::Grouped), 5),
            (shape(1, 3, 20, KeyHeads::Tiled), 7),
            (shape(3, 3, 49, KeyHeads::Grouped), 4),
            (shape(2, 4, 128, KeyHeads::Tiled), 70),
            (shape(2, 4, 96, KeyHeads::Grouped), 1),
        ] {
            let [qkv, beta, decay, state] = inputs(&net, n_tokens);
            let [want, want_state] = reference(&net, &qkv, [&beta, &decay], &state);
            on_each(|cpu, on| {
                let (mut qkv, mut state) = (qkv.clone(), state.clone());
                let mut out = vec![f32::NAN; n_tokens * net.v_width()];
                delta_net(cpu, &net, &mut qkv, [&beta, &decay], 1e-6, &mut state, &mut out);
                // rounding adds up over tokens, and terms of a sum cancel
                assert_near(&out, &want, 5e-6, &format!("{on}, {net:?}, outputs"));
                assert_near(&state, &want_state, 5e-6, &format!("{on}, {net:?}, state"));
            });
        }
    }

    #[test]
    fn tokens_in_parts_are_tokens_at_once() {
        let net = shape(2, 4, 40, KeyHeads::Tiled);
        let [qkv, beta, decay, state] = inputs(&net, 23);
        on_each(|cpu, on| {
            let run = |parts: &[usize]| {
                let (mut qkv, mut state, mut out) = (qkv.clone(), state.clone(), vec![0.0; 23 * net.v_width()]);
                let mut t = 0;
                for &n in parts {
                    let gates = t * net.n_v_heads..(t + n) * net.n_v_heads;
                    delta_net(
                        cpu,
                        &net,
                        &mut qkv[t * net.qkv_width()..(t + n) * net.qkv_width()],
                        [&beta[gates.clone()], &decay[gates]],
                        1e-6,
                        &mut state,
                        &mut out[t * net.v_width()..(t + n) * net.v_width()],
                    );
                    t += n;
                }
                (out, state)
            };
            assert_eq!(run(&[23]), run(&[1, 2, 7, 1, 12]), "{on}");
        });
    }

    #[test]
    fn gates_equal_f64_at_the_ends_too() {
        let (alpha, beta) = ([-100.0, -3.0, 0.0, 2.0, 30.0, 100.0], [-100.0, -1.0, 0.0, 1.0, 5.0, 100.0]);
        let (bias, a) = ([0.5, -0.25], [-0.1, -2.0]);
        on_each(|cpu, on| {
            let (mut got_beta, mut decay) = (beta, alpha);
            delta_net_gates(cpu, &mut got_beta, &mut decay, &bias, &a);
            let want: Vec<f64> = wide(&beta).iter().map(|b| 1.0 / (1.0 + (-b).exp())).collect();
            assert_near(&got_beta, &want, 1e-6, on);
            let want: Vec<f64> = (0..alpha.len())
                .map(|i| {
                    let x = f64::from(alpha[i]) + f64::from(bias[i % 2]);
                    (f64::from(a[i % 2]) * if x > 30.0 { x } else { x.exp().ln_1p() }).exp()
                })
                .collect();
            assert_near(&decay, &want, 1e-6, on);
        });
    }
}
