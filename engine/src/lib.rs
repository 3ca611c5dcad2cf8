//! GGUF file and placement in, tokens out: Tandem's inference engine. No network, async runtime, window or database.
pub mod arch;
pub mod cpu;
pub mod cuda;
pub mod error;
pub mod gguf;
pub mod kv;
pub mod model;
pub mod moe;
pub mod ops;
pub mod place;
pub mod quant;
pub mod sample;
pub mod session;
pub mod tensor;
pub mod token;
pub mod worker;
