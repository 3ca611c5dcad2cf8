//! The two ends of a model: the token embedding and the output head.

use std::ops::Range;

use super::super::Loader;
use super::{Buffers, Norm, Step};
use crate::error::EngineError;
use crate::tensor::{Vector, Weight};

/// Rows of the embedding, by token.
#[derive(Debug)]
pub(crate) struct Embedding {
    weight: Weight,
    scale: f32,
}

/// The output norm and the product with the vocabulary.
#[derive(Debug)]
pub(crate) struct Head {
    norm: Norm,
    weight: Weight,
    bias: Option<Vector>,
    /// Factor on the logits.
    scale: f32,
    /// Logits become `cap · tanh(logit / cap)`.
    softcap: Option<f32>,
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
        Ok(Self { weight, scale: 1.0 })
    }

    /// The same with a factor on what it yields.
    pub(crate) fn scaled(self, scale: f32) -> Self {
        Self { scale, ..self }
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
        step.ops.scale(x, self.scale);
    }
}

impl Head {
    /// The file's own head, or the embedding where the file has none, behind a norm by root mean square.
    pub(crate) fn load(loader: &Loader, embedding: &Embedding, eps: f32) -> Result<Self, EngineError> {
        let norm = Norm::load(&loader.head(), "output_norm.weight", embedding.n_embd(), eps)?;
        Self::with_norm(loader, embedding, norm)
    }

    /// The same behind another norm.
    pub(crate) fn with_norm(loader: &Loader, embedding: &Embedding, norm: Norm) -> Result<Self, EngineError> {
        let part = loader.head();
        let n_vocab = embedding.n_vocab();
        let name = if part.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        let softcap = loader.scale_or_none("final_logit_softcapping")?;
        Ok(Self {
            norm,
            weight: part.weight(name, [n_vocab, embedding.n_embd()])?,
            bias: part.vector_if_there("output.bias", n_vocab)?,
            scale: 1.0,
            softcap,
        })
    }

    /// The same with a factor on the logits.
    pub(crate) fn scaled(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// The same with a soft cap, unless the file has one of its own.
    pub(crate) fn capped(self, cap: f32) -> Self {
        Self { softcap: self.softcap.or(Some(cap)), ..self }
    }

    /// rows of x -> logits
    pub(crate) fn run(&self, rows: Range<usize>, step: &mut Step<'_>) {
        self.norm.run_rows(rows.clone(), step);
        let Buffers { h, input, logits, .. } = &mut *step.buffers;
        step.ops.prepare(h, input);
        logits.reshape(rows.len(), self.weight.n_rows());
        step.ops.products([(&self.weight, &mut *logits)], input);
        step.ops.add_bias(logits, self.bias.as_ref());
        step.ops.scale(logits, self.scale);
        if let Some(cap) = self.softcap {
            step.ops.softcap(logits, cap);
        }
    }
}
