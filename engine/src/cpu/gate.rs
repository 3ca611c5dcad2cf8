//! The functions of gates: what a feed-forward network does to its gate, and products with a sigmoid. Written as in `ops`:
//! every ISA gives the same bits.
use super::Cpu;
use super::isa::per_isa;
use super::math::{self, exp};
use super::ops::by_rows;

/// What a gate goes through before it multiplies the other branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// v / (1 + e^-v). Source: Shazeer 2020 (SwiGLU).
    Silu,
    /// v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3))). Source: Hendrycks, Gimpel 2016.
    Gelu,
    /// min(v, 7) sigmoid(1.702 v), times the other branch within -7..7, plus 1. Source: gpt-oss model card.
    ClampedSwish,
}

/// gate = f(gate) * up.
///
/// gate     [n] f32, changed in place
/// up       [n] f32
/// Cost     O(n), no allocation
pub fn gate(cpu: &Cpu, kind: Gate, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    by_rows(cpu, gate, 1, &|gate, first| {
        let up = &up[first..first + gate.len()];
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe {
            match kind {
                Gate::Silu => silu_slice(cpu.isa(), gate, up),
                Gate::Gelu => gelu_slice(cpu.isa(), gate, up),
                Gate::ClampedSwish => clamped_swish_slice(cpu.isa(), gate, up),
            }
        }
    });
}

/// x = max(0, x)^2.
///
/// x        any number of elements, changed in place
/// Source   So et al. 2021 (Primer)
pub fn relu_squared(cpu: &Cpu, x: &mut [f32]) {
    by_rows(cpu, x, 1, &|x, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { relu_squared_slice(cpu.isa(), x) }
    });
}

/// x = 1 / (1 + e^-x).
///
/// x        any number of elements, changed in place
pub fn sigmoid(cpu: &Cpu, x: &mut [f32]) {
    by_rows(cpu, x, 1, &|x, _| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { sigmoid_slice(cpu.isa(), x) }
    });
}

/// x *= sigmoid(gate), where a gate stands for one element of `x` or for a whole row.
///
/// x        [n_rows, n_cols] f32, changed in place
/// gate     [n_rows, n_cols] or [n_rows]
pub fn sigmoid_mul(cpu: &Cpu, x: &mut [f32], gate: &[f32]) {
    assert!(!gate.is_empty() && x.len().is_multiple_of(gate.len()), "{} elements, {} gates", x.len(), gate.len());
    let n_cols = x.len() / gate.len();
    by_rows(cpu, x, n_cols, &|x, first| {
        let first = first / n_cols;
        let gate = &gate[first..first + x.len() / n_cols];
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { sigmoid_mul_slice(cpu.isa(), x, gate) }
    });
}

per_isa! {
    unsafe fn silu_slice<V>(gate: &mut [f32], up: &[f32]) {
        for (g, u) in gate.iter_mut().zip(up) {
            *g = *g / (1.0 + exp(-*g)) * u;
        }
    }
}

per_isa! {
    unsafe fn gelu_slice<V>(gate: &mut [f32], up: &[f32]) {
        for (g, u) in gate.iter_mut().zip(up) {
            *g = gelu(*g) * u;
        }
    }
}

per_isa! {
    unsafe fn clamped_swish_slice<V>(gate: &mut [f32], up: &[f32]) {
        const LIMIT: f32 = 7.0;
        for (g, u) in gate.iter_mut().zip(up) {
            let v = if *g > LIMIT { LIMIT } else { *g };
            let u = if *u > LIMIT { LIMIT } else { *u };
            let u = if u < -LIMIT { -LIMIT } else { u };
            *g = v * math::sigmoid(1.702 * v) * (u + 1.0);
        }
    }
}

per_isa! {
    unsafe fn relu_squared_slice<V>(x: &mut [f32]) {
        for x in x {
            // What is no number stays none.
            let positive = if *x < 0.0 { 0.0 } else { *x };
            *x = positive * positive;
        }
    }
}

per_isa! {
    unsafe fn sigmoid_slice<V>(x: &mut [f32]) {
        for x in x {
            *x = math::sigmoid(*x);
        }
    }
}

per_isa! {
    unsafe fn sigmoid_mul_slice<V>(x: &mut [f32], gate: &[f32]) {
        let n_cols = x.len() / gate.len();
        if n_cols == 1 {
            for (x, gate) in x.iter_mut().zip(gate) {
                *x *= math::sigmoid(*gate);
            }
        } else {
            for (x, gate) in x.chunks_exact_mut(n_cols).zip(gate) {
                let factor = math::sigmoid(*gate);
                for x in x {
                    *x *= factor;
                }
            }
        }
    }
}

/// The Gaussian error linear unit by its tanh form; (1 + tanh u) / 2 is the sigmoid of 2u, which loses nothing far below 0.
#[inline(always)]
fn gelu(v: f32) -> f32 {
    /// sqrt(2 / pi)
    const ROOT: f32 = 0.797_884_6;
    v * math::sigmoid(2.0 * ROOT * (v + 0.044_715 * v * v * v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::cpu::check::{SIZES, assert_close, on_all, wave};

    #[test]
    fn gates_equal_f64() {
        type Wanted = fn(f64, f64) -> f64;
        let kinds: [(Gate, Wanted); 3] = [
            (Gate::Silu, |g, u| g / (1.0 + (-g).exp()) * u),
            (Gate::Gelu, |g, u| {
                0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))).tanh()) * u
            }),
            (Gate::ClampedSwish, |g, u| {
                let g = g.min(7.0);
                g / (1.0 + (-1.702 * g).exp()) * (u.clamp(-7.0, 7.0) + 1.0)
            }),
        ];
        for (kind, want) in kinds {
            for (rows, cols) in SIZES {
                // reaches beyond the limits of `ClampedSwish`
                let wide = |step| wave(rows * cols, step).iter().map(|v| v * 4.0).collect::<Vec<_>>();
                let (x, up) = (wide(0.9), wide(0.21));
                let got = on_all(|cpu| {
                    let mut x = x.clone();
                    gate(cpu, kind, &mut x, &up);
                    x
                });
                let want = x.iter().zip(&up).map(|(g, u)| want(f64::from(*g), f64::from(*u)));
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    assert!((f64::from(*got) - want).abs() <= 2e-6 * want.abs().max(0.5), "{kind:?} {i}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let x = on_all(|cpu| {
            let mut x: Vec<f32> = [f32::NAN, -2.0, 3.0, -0.0].into_iter().cycle().take(37).collect();
            relu_squared(cpu, &mut x);
            x.iter().map(|v| if v.is_nan() { -1.0 } else { *v }).collect()
        });
        assert_eq!(x[..4], [-1.0, 0.0, 9.0, 0.0]);
    }

    #[test]
    fn gates_of_large_values_are_finite() {
        let cpu = Cpu::new(Isa::best(), 1).unwrap();
        for kind in [Gate::Silu, Gate::Gelu] {
            let mut x = [-1000.0, -100.0, 100.0, 1000.0];
            gate(&cpu, kind, &mut x, &[1.0; 4]);
            assert_eq!(x, [0.0, 0.0, 100.0, 1000.0]);
        }
    }

    #[test]
    fn relu_squared_and_sigmoid_equal_f64() {
        for (rows, cols) in SIZES {
            let x = wave(rows * cols, 0.9);
            let got = on_all(|cpu| {
                let mut x = x.clone();
                relu_squared(cpu, &mut x);
                x
            });
            assert_close(&got, x.iter().map(|v| f64::from(*v).max(0.0).powi(2)), 1e-6);
            for n_gates in [rows * cols, rows] {
                let gates = wave(n_gates, 0.21);
                let got = on_all(|cpu| {
                    let mut x = x.clone();
                    sigmoid_mul(cpu, &mut x, &gates);
                    x
                });
                let per_gate = x.len() / n_gates;
                let sigmoid = |i: usize| 1.0 / (1.0 + (-f64::from(gates[i / per_gate])).exp());
                assert_close(&got, x.iter().enumerate().map(|(i, v)| f64::from(*v) * sigmoid(i)), 1e-6);
            }
        }
    }
}
