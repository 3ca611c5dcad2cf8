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
