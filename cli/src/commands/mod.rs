//! One file per command.
pub(crate) mod bench;
pub(crate) mod logits;
pub(crate) mod plan;
pub(crate) mod tokenize;
