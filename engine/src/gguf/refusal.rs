//! Whether a model can chat here: decided from its header, before a download where possible, and refused by name.

use std::sync::Arc;

use super::TensorType;
use super::facts::ModelFacts;
use crate::error::EngineError;
use crate::{arch, quant, token};

/// Why the engine does not run a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The header names no architecture.
    #[error("the file names no architecture")]
    NoArchitecture,
    /// A file that goes with a model, or a model that does not chat.
    #[error("not a chat model but {kind}")]
    NotAChatModel {
        /// What it is.
        kind: NotChat,
    },
    /// An architecture the engine does not have.
    #[error("unknown architecture `{architecture}`")]
    UnknownArchitecture {
        /// As the file says.
        architecture: String,
    },
    /// Tensor types the engine does not have.
    #[error("tensor `{tensor}` has type {tensor_type}, which this engine does not run")]
    UnknownTensorType {
        /// The first such tensor.
        tensor: String,
        /// Its type.
        tensor_type: TensorType,
    },
    /// A file without a vocabulary.
    #[error("the file has no tokenizer")]
    NoTokenizer,
    /// A vocabulary or pre-tokenizer the engine does not have.
    #[error("unknown tokenizer `{model}`{}", pre.as_ref().map(|pre| format!(" with pre-tokenizer `{pre}`")).unwrap_or_default())]
    UnknownTokenizer {
        /// `tokenizer.ggml.model`.
        model: String,
        /// `tokenizer.ggml.pre`.
        pre: Option<String>,
    },
    /// An architecture that the engine has, but a header that it cannot use.
    #[error(transparent)]
    Unsound(#[from] Unsound),
}

/// What a load of the file would fail with.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unsound(Arc<EngineError>);

impl Unsound {
    /// The error.
    pub fn error(&self) -> &EngineError {
        &self.0
    }
}

impl PartialEq for Unsound {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Unsound {}

/// A GGUF file that is no chat model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChat {
    /// Images or sound to embeddings, for another model.
    #[error("a projector for images or sound")]
    Projector,
    /// A LoRA or control vector.
    #[error("an adapter for another model")]
    Adapter,
    /// A draft model or prediction head, for another model.
    #[error("a draft head for another model")]
    Draft,
    /// Statistics for quantising.
    #[error("an importance matrix")]
    ImportanceMatrix,
    /// Text to a vector or a score.
    #[error("an embedding or reranking model")]
    Embedding,
    /// A vocabulary without weights.
    #[error("a vocabulary without weights")]
    VocabularyOnly,
}

impl ModelFacts {
    /// Says why the engine does not chat with this model, if it does not.
    pub fn refusal(&self) -> Result<(), Refusal> {
        self.refusal_by_kind()?;
        let model = self.get_str("tokenizer.ggml.model").ok().flatten().unwrap_or_default();
        let pre = self.get_str("tokenizer.ggml.pre").ok().flatten();
        if token::is_absent(model) {
            return Err(Refusal::NoTokenizer);
        }
        if !token::supports(model, pre) {
            return Err(Refusal::UnknownTokenizer { model: model.to_owned(), pre: pre.map(str::to_owned) });
        }
        self.refusal_by_contents()
    }

    /// Says why the engine does not compute this model from token ids, if it does not. A tokenizer is not asked for.
    pub fn refusal_to_compute(&self) -> Result<(), Refusal> {
        self.refusal_by_kind()?;
        self.refusal_by_contents()
    }

    fn refusal_by_kind(&self) -> Result<(), Refusal> {
        let architecture = self.architecture().map_err(|_| Refusal::NoArchitecture)?;
        if let Some(kind) = self.not_chat(architecture) {
            return Err(Refusal::NotAChatModel { kind });
        }
        if !arch::supports(architecture) {
            return Err(Refusal::UnknownArchitecture { architecture: architecture.to_owned() });
        }
        match self.tensors.iter().find(|tensor| !quant::supports(tensor.tensor_type)) {
            Some(tensor) => {
                let (tensor, tensor_type) = (tensor.name.clone(), tensor.tensor_type);
                Err(Refusal::UnknownTensorType { tensor, tensor_type })
            }
            None => Ok(()),
        }
    }

    fn refusal_by_contents(&self) -> Result<(), Refusal> {
        match arch::survey(self) {
            Ok(_) => Ok(()),
            Err(error) => Err(Unsound(Arc::new(error)).into()),
        }
    }

    fn not_chat(&self, architecture: &str) -> Option<NotChat> {
        let has_tensor = |part: &str| self.tensors.iter().any(|tensor| tensor.name.contains(part));
        let file = self.files.first().map_or("", |file| &file.name).to_ascii_lowercase();
        let general_type = self.get_str("general.type").ok().flatten().unwrap_or("model");
        let pooling = self.get_u32(&format!("{architecture}.pooling_type")).ok().flatten().unwrap_or(0);
        if architecture == "clip" || matches!(general_type, "mmproj" | "projector") {
            Some(NotChat::Projector)
        } else if general_type == "adapter" || self.metadata.contains("adapter.type") || architecture == "controlvector"
        {
            Some(NotChat::Adapter)
        } else if general_type == "imatrix" || self.metadata.contains("imatrix.datasets") {
            Some(NotChat::ImportanceMatrix)
        } else if self.tensors.is_empty() {
            Some(NotChat::VocabularyOnly)
        } else if DRAFT_MARKS.iter().any(|mark| architecture.contains(mark) || file.starts_with(&format!("{mark}-")))
            || has_tensor(".nextn.") && !has_tensor("blk.0.")
        {
            Some(NotChat::Draft)
        } else if EMBEDDERS.contains(&architecture) || (1..=4).contains(&pooling) {
            Some(NotChat::Embedding)
        } else {
            None
        }
    }
}

/// Marks of draft heads, in architectures and at the start of file names.
const DRAFT_MARKS: &[&str] = &["assistant", "mtp", "eagle3", "dflash", "dspark"];

/// Architectures that only embed. Source: `llama-arch.cpp` of llama.cpp.
#[rustfmt::skip]
const EMBEDDERS: &[&str] = &[
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert", "jina-bert-v2", "jina-bert-v3", "gemma-embedding",
    "llama-embed", "t5encoder",
];
