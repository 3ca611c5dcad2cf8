//! GGUF file and placement in, tokens out: Tandem's inference engine. No network, async runtime, window or database.
pub mod arch;
pub mod cpu;
pub mod error;
pub mod gguf;
pub mod kv;
pub mod model;
pub mod ops;
pub mod place;
pub mod quant;
pub mod sample;
pub mod session;
pub mod tensor;
pub mod token;
pub mod worker;

/// What a callback answers: go on, or stop at the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Go on.
    Continue,
    /// Stop.
    Break,
}
