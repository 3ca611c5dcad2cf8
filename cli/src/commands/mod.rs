//! One file per command.
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod library;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod plan;
pub(crate) mod predictions;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod tokenize;
pub(crate) mod tune;
