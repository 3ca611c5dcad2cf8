//! What recurrent blocks compute between their products: a convolution over time, the gated delta rule, the selective scan,
//! and norms with a gate. Each carries what it must remember in a state that the caller keeps from step to step.
//!
//! States are plain f32: they add up over the whole conversation, and 16 bits would not.
mod conv;
mod delta_net;
mod gated_norm;
mod mamba2;

pub use conv::{CausalConv, ConvActivation, MAX_TAPS, causal_conv};
pub use delta_net::{DeltaNet, KeyHeads, delta_net, delta_net_gates};
pub use gated_norm::{GateOrder, GatedNorm, gated_norm};
pub use mamba2::{Scan, ScanArgs, scan, scan_steps};

/// ln(1 + e^x); x itself where the rest is lost in rounding.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Columns of a state that go through time together: so many rows of 128 fit into the first cache.
const COLUMNS: usize = 2 * super::isa::LANES;

/// Inputs and checks of the tests of this folder.
#[cfg(test)]
mod testing {
    use crate::cpu::{Cpu, Isa};

    /// Numbers in -1..1 that repeat late.
    pub(super) fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step + 0.3).sin()).collect()
    }

    /// Runs `f` on every ISA, on one and on several threads.
    pub(super) fn on_all(mut f: impl FnMut(&Cpu, &str)) {
        for isa in Isa::present() {
            for n_threads in [1, 3] {
                f(&Cpu::new(isa, n_threads).unwrap(), &format!("{isa}, {n_threads} threads"));
            }
        }
    }

    /// Differences relative to the largest value, since sums of many terms cancel.
    pub(super) fn assert_near(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
        assert_eq!(got.len(), want.len(), "{what}");
        let largest = want.iter().fold(1e-9f64, |max, w| max.max(w.abs()));
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert!((f64::from(*g) - w).abs() <= tolerance * largest, "{what}, {i}: {g} {w}, largest {largest}");
        }
    }

    /// As f64.
    pub(super) fn wide(x: &[f32]) -> Vec<f64> {
        x.iter().map(|v| f64::from(*v)).collect()
    }
}
