//! GGUF file and placement in, tokens out: Tandem's inference engine. No network, async runtime, window or database.
//!
//! Read what a file says ([`gguf::ModelFacts`]), decide where its parts go ([`place::Placement`]), open it
//! ([`model::Model`]), and talk to it through a session that is always given the whole sequence of tokens
//! ([`session::Session`]). An app leaves the last two to a thread that reports through sinks ([`worker::Worker`]).
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//! use tandem_engine::{Flow, gguf::ModelFacts, model::{LoadOptions, Model}, session::Session};
//! use tandem_engine::{sample::{Sampler, SamplerSettings}, token::Special};
//!
//! let path = Path::new("SmolLM2-135M-Instruct.Q4_1.gguf");
//! let facts = ModelFacts::from_file(path)?;
//! let options = LoadOptions::all_cpu(&facts, 4, 2048)?;
//! println!("{}", options.placement);
//!
//! let model = Arc::new(Model::load(path, &options, &mut |_done| Flow::Continue)?);
//! let tokenizer = model.tokenizer().expect("a chat model has one").clone();
//! let mut session = Session::new(model)?;
//! let mut sampler = Sampler::new(SamplerSettings::default());
//! let mut tokens = tokenizer.encode("Once upon a time", Special::Literal);
//! for _ in 0..32 {
//!     session.feed(&tokens, &mut |_progress| Flow::Continue)?;
//!     tokens.push(sampler.sample(&mut session.logits().to_vec(), &tokens)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
pub mod arch;
pub mod cpu;
pub mod cuda;
mod damage;
pub mod error;
pub mod gguf;
pub mod kv;
pub mod model;
mod moe;
pub mod ops;
pub mod place;
pub mod probe;
pub mod profile;
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
