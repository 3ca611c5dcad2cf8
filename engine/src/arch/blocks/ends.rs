//! The two ends of a model: the token embedding and the output head.

use std::ops::Range;

use super::super::Loader;
use super::{Buffers, Norm, Step};
use crate::error::EngineError;
use crate::tensor::Weight;

/// Rows of the embedding, by token.
#[derive(Debug)]
pub(crate) struct Embedding {
    weight: Weight,
}

/// The output norm and the product with the vocabulary.
#[derive(Debug)]
pub(crate) struct Head {
    norm: Norm,
    weight: Weight,
}

impl Embedding {
    /// Errors   a vocabulary that disagrees with the embedding, or nothing in it
    pub(crate) fn load(loader: &Loader, n_embd: usize) -> Result<Self, EngineError> {
        let part = loader.embed();
        let shape = part.shape("token_embd.weight")?;
        let n_vocab = shape.first().copied().unwrap_or(0) as usize;
        let weight = part.weight("token_embd.weight", [n_vocab, n_embd])?;
        let facts = loader.facts();
        let n_tokens = facts.metadata.get_array("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
        let n_expected = match n_tokens {
            Some(n_tokens) => n_tokens,
            None => loader.count_or("vocab_size", n_vocab)?,
        };
        if n_vocab != n_expected || n_vocab == 0 {
            return Err(EngineError::VocabularyMismatch { n_tokens: n_expected, n_rows: n_vocab });
        }
        Ok(Self { weight })
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.weight.n_rows()
    }

    pub(crate) fn n_embd(&self) -> usize {
        self.weight.n_cols()
    }

    /// tokens -> x
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        let x = &mut step.buffers.x;
        x.reshape(step.tokens.len(), self.weight.n_cols());
        step.ops.rows_of(&self.weight, step.tokens, x);
    }
}

impl Head {
    /// The file's own head, or the embedding where the file has none.
    pub(crate) fn load(loader: &Loader, embedding: &Embedding, eps: f32) -> Result<Self, EngineError> {
        let part = loader.head();
        let n_embd = embedding.n_embd();
        let name = if part.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        let weight = part.weight(name, [embedding.n_vocab(), n_embd])?;
        Ok(Self { norm: Norm::load(&part, "output_norm.weight", n_embd, eps)?, weight })
    }

    /// rows of x -> logits
    pub(crate) fn run(&self, rows: Range<usize>, step: &mut Step<'_>) {
        self.norm.run_rows(rows.clone(), step);
        let Buffers { h, input, logits, .. } = &mut *step.buffers;
        step.ops.prepare(h, input);
        logits.reshape(rows.len(), self.weight.n_rows());
        step.ops.products([(&self.weight, logits)], input);
    }
}
