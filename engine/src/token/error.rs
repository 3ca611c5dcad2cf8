//! What can be wrong with a vocabulary.

use crate::gguf::GgufError;

/// A vocabulary that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file without a vocabulary.
    #[error("the file has no tokenizer")]
    Absent,
    /// A kind of vocabulary the engine does not have.
    #[error("unknown tokenizer `{model}`")]
    UnknownModel {
        /// `tokenizer.ggml.model`.
        model: String,
    },
    /// A pre-tokenizer the engine does not have.
    #[error("unknown pre-tokenizer `{pre}`")]
    UnknownPre {
        /// `tokenizer.ggml.pre`.
        pre: String,
    },
    /// A vocabulary without tokens.
    #[error("the vocabulary has no tokens")]
    NoTokens,
    /// A vocabulary of merges without any.
    #[error("the vocabulary has no merges")]
    NoMerges,
    /// A list that should have an entry per token.
    #[error("`{key}` has {got} entries for {n_tokens} tokens")]
    TooShort {
        /// Which list.
        key: &'static str,
        /// Its entries.
        got: usize,
        /// Tokens in the vocabulary.
        n_tokens: usize,
    },
    /// Two tokens with the same text.
    #[error("tokens {first} and {second} are both `{text}`")]
    DoubledToken {
        /// The text.
        text: String,
        /// Id of one.
        first: u32,
        /// Id of the other.
        second: u32,
    },
    /// A merge that is not two pieces.
    #[error("merge {index} is `{text}`, not two pieces")]
    BadMerge {
        /// Its place in the list.
        index: usize,
        /// As the file says.
        text: String,
    },
}
