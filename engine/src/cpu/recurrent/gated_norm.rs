//! Norms that share their place with a gate: the output of a recurrent block, head by head or group by group.
use crate::cpu::Cpu;
use crate::cpu::isa::per_isa;
use crate::cpu::math::exp;
use crate::cpu::norm::norm_scale;
use crate::cpu::ops::by_rows;

/// A norm by the root mean square of each group, and a gate.
#[derive(Clone, Copy)]
pub struct GatedNorm<'a> {
    /// Elements that are normalised together.
    pub group: usize,
    /// [group], the same for every group, or [n_groups, group]
    pub weight: &'a [f32],
    /// What is put into the square root.
    pub eps: f32,
    /// Which comes first.
    pub order: GateOrder,
}

/// Whether the gate is part of what is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOrder {
    /// rms(x) * weight * silu(gate): gated delta net.
    NormFirst,
    /// rms(x * silu(gate)) * weight: Mamba-2.
    GateFirst,
}

/// Normalises groups by their root mean square and multiplies with silu(gate), before or after.
///
/// x        [n_tokens, n_groups, group] f32, changed in place
/// gate     as `x`
/// Errors   none; panics if shapes do not fit
/// Cost     O(len of x), no allocation; the same bits on every ISA
/// Source   Yang et al. 2024 (gated delta net); Dao, Gu 2024 section 7.1 (Mamba-2)
pub fn gated_norm(cpu: &Cpu, norm: &GatedNorm<'_>, x: &mut [f32], gate: &[f32]) {
    assert_eq!(x.len(), gate.len());
    assert!(norm.group > 0 && norm.weight.len().is_multiple_of(norm.group), "weights");
    // rows of the weights, so that each starts at their beginning
    by_rows(cpu, x, norm.weight.len(), &|rows, first| {
        // SAFETY: the ISA of a `Cpu` is present.
        unsafe { norm_rows(cpu.isa(), norm, rows, &gate[first..first + rows.len()]) }
    });
}

per_isa! {
    unsafe fn norm_rows<V>(norm: &GatedNorm<'_>, x: &mut [f32], gate: &[f32]) {
        let weights = norm.weight.chunks_exact(norm.group).cycle();
        let groups = x.chunks_exact_mut(norm.group).zip(gate.chunks_exact(norm.group));
        for ((x, gate), weight) in groups.zip(weights) {
            match norm.order {
                GateOrder::NormFirst => {
                    let scale = norm_scale(x, norm.eps);
                    for ((x, g), w) in x.iter_mut().zip(gate).zip(weight) {
                        *x = *x * scale * w * (g / (1.0 + exp(-g)));
                    }
                }
                GateOrder::GateFirst => {
                    for (x, g) in x.iter_mut().zip(gate) {
                        *x *= g / (1.0 + exp(-g));
                    }
                    let scale = norm_scale(x, norm.eps);
                    for (x, w) in x.iter_mut().zip(weight) {
                        *x = *x * scale * w;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::check::{assert_near, on_each, wave, wide};

    fn reference(norm: &GatedNorm<'_>, x: &[f32], gate: &[f32]) -> Vec<f64> {
        let silu: Vec<f64> = wide(gate).iter().map(|g| g / (1.0 + (-g).exp())).collect();
        let mut y = wide(x);
        if norm.order == GateOrder::GateFirst {
            y.iter_mut().zip(&silu).for_each(|(y, s)| *y *= s);
        }
        for (g, y) in y.chunks_exact_mut(norm.group).enumerate() {
            let mean = y.iter().map(|v| v * v).sum::<f64>() / norm.group as f64;
            for (i, y) in y.iter_mut().enumerate() {
                let w = norm.weight[(g * norm.group + i) % norm.weight.len()];
                *y = *y / (mean + f64::from(norm.eps)).sqrt() * f64::from(w);
            }
        }
        if norm.order == GateOrder::NormFirst {
            y.iter_mut().zip(&silu).for_each(|(y, s)| *y *= s);
        }
        y
    }

    #[test]
    fn gated_norm_equals_f64_in_both_orders() {
        for (n_rows, group, n_weights) in [(1, 1, 1), (5, 7, 7), (6, 16, 48), (3, 33, 33), (300, 128, 128)] {
            let (x, gate, weight) = (wave(n_rows * group, 0.37), wave(n_rows * group, 1.7), wave(n_weights, 0.11));
            for order in [GateOrder::NormFirst, GateOrder::GateFirst] {
                let norm = GatedNorm { group, weight: &weight, eps: 1e-6, order };
                let want = reference(&norm, &x, &gate);
                on_each(|cpu, on| {
                    let mut y = x.clone();
                    gated_norm(cpu, &norm, &mut y, &gate);
                    assert_near(&y, &want, 2e-6, &format!("{on}, {n_rows} x {group}, {order:?}"));
                });
            }
        }
    }
}
