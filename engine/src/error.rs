//! What can go wrong between a file and its tokens, as data. Explaining it to a person, in two languages, is the app's business.

use crate::cpu::CpuError;
use crate::cuda::CudaError;
use crate::gguf::{GgufError, TensorType};
use crate::kv::KvType;
use crate::place::Device;
use crate::token::TokenizerError;

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file cannot be read, or a key is absent or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer is damaged or of an unknown kind.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The architecture is not in the registry.
    #[error("architecture `{architecture}` is not supported")]
    ArchitectureUnsupported {
        /// `general.architecture` of the file.
        architecture: String,
    },
    /// The architecture is known, but this file uses a part of it that is not.
    #[error("architecture `{architecture}` with {feature} is not supported")]
    FeatureUnsupported {
        /// `general.architecture` of the file.
        architecture: String,
        /// What is not supported.
        feature: &'static str,
    },
    /// A hyperparameter makes no sense.
    #[error("key `{key}` of the model file is {got}, expected {expected}")]
    KeyInvalid {
        /// Full name of the key.
        key: String,
        /// What would have been right.
        expected: String,
        /// What it is.
        got: String,
    },
    /// The tokenizer's list and the embedding disagree.
    #[error("the vocabulary has {n_tokens} tokens, the embedding {n_rows} rows")]
    VocabularyMismatch {
        /// Tokens of the vocabulary.
        n_tokens: usize,
        /// Rows of the embedding.
        n_rows: usize,
    },
    /// A weight is absent.
    #[error("the model file lacks the tensor `{tensor}`")]
    TensorMissing {
        /// Its name.
        tensor: String,
    },
    /// A weight has a shape that the hyperparameters do not allow.
    #[error("tensor `{tensor}` has the shape {got:?}, expected {expected:?}")]
    TensorShape {
        /// Its name.
        tensor: String,
        /// Row-major shape by the hyperparameters.
        expected: Vec<u64>,
        /// Row-major shape in the file.
        got: Vec<u64>,
    },
    /// A weight has a type that the engine does not compute with.
    #[error("tensor `{tensor}` has the type {tensor_type}, which is not supported")]
    TensorTypeUnsupported {
        /// Its name.
        tensor: String,
        /// Its type.
        tensor_type: TensorType,
    },
    /// A weight holds something that is no number.
    #[error("element {elem} of tensor `{tensor}` is not a number")]
    WeightNotFinite {
        /// Its name.
        tensor: String,
        /// Index of the first such element.
        elem: usize,
    },
    /// A quantised cache does not take the model's heads.
    #[error("a cache of type `{kv_type}` does not take heads of {head_dim} elements: they are no multiple of 32")]
    KvTypeUnsupported {
        /// The type.
        kv_type: KvType,
        /// Elements of a head.
        head_dim: usize,
    },
    /// The placement was made for another model.
    #[error("the placement has {got} layers, the model {expected}")]
    PlacementLayers {
        /// Layers of the model.
        expected: usize,
        /// Layers of the placement.
        got: usize,
    },
    /// The placement names a device that was not opened.
    #[error("device {device} is not open")]
    DeviceUnsupported {
        /// The device.
        device: Device,
    },
    /// The placement keeps a layer's cache elsewhere than what reads it.
    #[error("layer {layer} computes on {mixer}, but the cache that it reads is on {kv}")]
    CacheApart {
        /// The layer.
        layer: usize,
        /// Where it computes.
        mixer: Device,
        /// Where the cache is.
        kv: Device,
    },
    /// The placement keeps copies of experts that the processor does not have, or not on a GPU.
    #[error(
        "layer {layer} keeps copies of experts of {routed} on {device}: only those of the processor have copies on a card"
    )]
    ExpertCopies {
        /// The layer.
        layer: usize,
        /// Where the experts are.
        routed: Device,
        /// Where the copies would be.
        device: Device,
    },
    /// The placement puts a weight on a GPU that has no kernel for its type.
    #[error("tensor `{tensor}` of type {tensor_type} cannot be on {device}: there is no kernel for it")]
    GpuTypeUnsupported {
        /// The device.
        device: Device,
        /// The tensor.
        tensor: String,
        /// Its type.
        tensor_type: TensorType,
    },
    /// The placement puts a block on a GPU that has no kernel for its shape.
    #[error("layer {layer} cannot be on {device}: {what} is {got}, kernels take at most {most}")]
    GpuShapeUnsupported {
        /// The device.
        device: Device,
        /// The layer.
        layer: usize,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        got: usize,
        /// How large it may be.
        most: usize,
    },
    /// A GPU failed, or could not be opened.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The placement needs more than the plan allows.
    #[error("caches and buffers need {needed_bytes} bytes on {device}, the plan gives {available_bytes}")]
    DoesNotFit {
        /// The device.
        device: Device,
        /// What is needed there.
        needed_bytes: u64,
        /// What may be used there.
        available_bytes: u64,
    },
    /// The system gave no memory.
    #[error("no memory for {what}: {bytes} bytes")]
    OutOfMemory {
        /// What it was for.
        what: &'static str,
        /// How much was asked for.
        bytes: u64,
    },
    /// The context asked for cannot be had.
    #[error("a context of {asked} tokens is not possible")]
    ContextLength {
        /// Tokens asked for.
        asked: usize,
    },
    /// The tokens do not fit into the context.
    #[error("{n_tokens} tokens do not fit into a context of {context_length}: {n_over} too many")]
    ContextOverflow {
        /// Tokens given.
        n_tokens: usize,
        /// Tokens that fit.
        context_length: usize,
        /// Tokens that do not.
        n_over: usize,
    },
    /// Nothing to compute.
    #[error("no tokens were given")]
    NoTokens,
    /// A token that the vocabulary does not have.
    #[error("token {token} is outside the vocabulary of {n_vocab}")]
    TokenUnknown {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The model computed something that is no number.
    #[error("the model computed values that are not numbers (token {token}): its weights are damaged")]
    LogitsNotFinite {
        /// First token whose logit is not a number.
        token: u32,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// No model is loaded.
    #[error("no model is loaded")]
    NotLoaded,
    /// The engine has a bug; the thread lives on.
    #[error("the engine failed: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// The instruction set is missing, or a compute thread could not be started.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The engine's thread could not be started.
    #[error("the engine's thread could not be started")]
    Thread(#[source] std::io::Error),
}
