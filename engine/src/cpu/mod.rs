//! The CPU backend: instruction sets, compute pool, matrix products, attention and the small operations between them.
//!
//! Everything works on plain slices. What is particular to a block format is in `quant`, to a model in `arch`.
mod activations;
mod altup;
mod attention;
#[cfg(test)]
mod check;
mod float;
mod gate;
pub(crate) mod isa;
mod math;
mod matmul;
mod norm;
mod ops;
mod panel;
mod pool;
mod recurrent;
mod rope;
mod shared;
#[cfg(test)]
mod tests;
mod tile;
mod topology;
mod turn;

pub use activations::{Activations, Rounding};
pub use altup::{MAX_STREAMS, correct_streams, keep_outstanding, match_length, predict_streams};
pub use attention::{AttentionArgs, AttentionOptions, AttentionScratch, KvSlice, attention};
pub use gate::{Gate, gate, relu_squared, sigmoid, sigmoid_mul};
pub use isa::{ISAS, Isa, UnknownIsa};
pub(crate) use matmul::Product;
pub use matmul::{Matrix, MatrixOf, matmul, matmul_groups, matmul_list};
pub use norm::{layer_norm_in_place, rms_norm, rms_norm_in_place};
pub use ops::{add, clamp, multiply, scale, softcap, softmax};
pub use pool::Pool;
pub use recurrent::{
    CausalConv, ConvActivation, DeltaNet, GateOrder, GatedNorm, KeyHeads, MAX_TAPS, Scan, ScanArgs, causal_conv,
    delta_net, delta_net_gates, gated_norm, scan, scan_steps,
};
pub use rope::{Rope, RopeKind, RopeOptions, RopeScaling};
pub use topology::Topology;
pub use turn::{turn, turn_all, turn_run};

/// What every operation runs on: an instruction set that this CPU has, and the threads.
pub struct Cpu {
    isa: Isa,
    /// The compute threads.
    pub pool: Pool,
}

/// Why there is no `Cpu`.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The CPU lacks the instruction set.
    #[error("this CPU does not have the instruction set `{isa}`")]
    IsaMissing {
        /// What was asked for.
        isa: Isa,
    },
    /// The operating system gave no thread.
    #[error("a compute thread could not be started")]
    Thread(#[from] std::io::Error),
}

impl Cpu {
    /// Checks the instruction set and starts the threads, of which the caller of an operation is one.
    pub fn new(isa: Isa, n_threads: usize) -> Result<Cpu, CpuError> {
        if !isa.is_present() {
            return Err(CpuError::IsaMissing { isa });
        }
        Ok(Cpu { isa, pool: Pool::new(n_threads)? })
    }

    /// The instruction set; present on this CPU.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
