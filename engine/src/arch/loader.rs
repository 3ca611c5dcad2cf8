//! What a family reads its file through: hyperparameters that make sense, and weights by name with the shape they must have,
//! each on the device that the placement says.

use std::ops::Range;
use std::sync::Arc;

use crate::error::EngineError;
use crate::gguf::{MappedModel, ModelFacts, TensorFacts};
use crate::place::{Device, Placement};
use crate::tensor::{self, Vector, Weight};

/// A file and where its parts go.
#[derive(Debug)]
pub(crate) struct Loader {
    model: Arc<MappedModel>,
    placement: Placement,
}

/// One part of the model: a prefix of tensor names and a device.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    loader: &'a Loader,
    prefix: String,
    device: Device,
}

impl Loader {
    pub(crate) fn new(model: Arc<MappedModel>, placement: Placement) -> Self {
        Self { model, placement }
    }

    /// What the header says.
    pub(crate) fn facts(&self) -> &ModelFacts {
        &self.model.facts
    }

    /// The mixing half of a layer.
    pub(crate) fn mixer(&self, layer: usize) -> Part<'_> {
        self.part(format!("blk.{layer}."), self.placement.layers[layer].mixer)
    }

    /// The feed-forward half of a layer, without its routed experts.
    pub(crate) fn ffn(&self, layer: usize) -> Part<'_> {
        self.part(format!("blk.{layer}."), self.placement.layers[layer].ffn.home())
    }

    /// The token embedding.
    pub(crate) fn embed(&self) -> Part<'_> {
        self.part(String::new(), self.placement.embed)
    }

    /// The output norm and head.
    pub(crate) fn head(&self) -> Part<'_> {
        self.part(String::new(), self.placement.head)
    }

    fn part(&self, prefix: String, device: Device) -> Part<'_> {
        Part { loader: self, prefix, device }
    }

    /// A hyperparameter that counts something, so one at least.
    pub(crate) fn count(&self, key: &str) -> Result<usize, EngineError> {
        self.positive(key, self.facts().arch_u32(key)?)
    }

    /// The same with what its absence means.
    pub(crate) fn count_or(&self, key: &str, absent: usize) -> Result<usize, EngineError> {
        let absent = u32::try_from(absent).unwrap_or(u32::MAX);
        self.positive(key, self.facts().arch_u32_or(key, absent)?)
    }

    fn positive(&self, key: &str, value: u32) -> Result<usize, EngineError> {
        if value == 0 { Err(self.invalid(key, "1 or more", value)) } else { Ok(value as usize) }
    }

    /// A hyperparameter that is a finite number above zero.
    pub(crate) fn scale_or(&self, key: &str, absent: f32) -> Result<f32, EngineError> {
        let value = self.facts().arch_f32_or(key, absent)?;
        if value.is_finite() && value > 0.0 { Ok(value) } else { Err(self.invalid(key, "a number above 0", value)) }
    }

    /// What is put into the square root of a norm.
    pub(crate) fn norm_eps(&self, key: &str) -> Result<f32, EngineError> {
        let value = self.facts().arch_f32(key)?;
        if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(self.invalid(key, "a number, 0 or more", value)) }
    }

    /// The error for a hyperparameter that contradicts another.
    pub(crate) fn invalid(&self, key: &str, expected: impl ToString, got: impl ToString) -> EngineError {
        let key = self.facts().arch_key(key).unwrap_or_else(|_| key.to_owned());
        EngineError::KeyInvalid { key, expected: expected.to_string(), got: got.to_string() }
    }

    /// The error for a part of the architecture that is not there yet.
    pub(crate) fn unsupported(&self, feature: &'static str) -> EngineError {
        let architecture = self.facts().architecture().unwrap_or_default().to_owned();
        EngineError::FeatureUnsupported { architecture, feature }
    }
}

impl<'a> Part<'a> {
    /// Whether the file has this tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.loader.facts().tensor(&self.full_name(name)).is_some()
    }

    /// A matrix of weights.
    pub(crate) fn weight(&self, name: &str, shape: [usize; 2]) -> Result<Weight, EngineError> {
        Weight::new(self.device, &self.loader.model, self.tensor(name, &shape)?, None)
    }

    /// Some rows of a matrix, for tensors that hold several.
    pub(crate) fn weight_rows(&self, name: &str, shape: [usize; 2], rows: Range<usize>) -> Result<Weight, EngineError> {
        Weight::new(self.device, &self.loader.model, self.tensor(name, &shape)?, Some(rows))
    }

    /// A vector that must be there.
    pub(crate) fn vector(&self, name: &str, n_elems: usize) -> Result<Vector, EngineError> {
        self.vector_elems(name, n_elems, 0..n_elems)
    }

    /// Some elements of a vector, for tensors that hold several.
    pub(crate) fn vector_elems(&self, name: &str, n_elems: usize, elems: Range<usize>) -> Result<Vector, EngineError> {
        Vector::new(self.device, &self.loader.model, self.tensor(name, &[n_elems])?, elems)
    }

    /// A vector that may be there.
    pub(crate) fn vector_if_there(&self, name: &str, n_elems: usize) -> Result<Option<Vector>, EngineError> {
        self.has(name).then(|| self.vector(name, n_elems)).transpose()
    }

    /// Decoded elements that may be there, for tables made at load.
    pub(crate) fn elems_if_there(&self, name: &str, n_elems: usize) -> Result<Option<Vec<f32>>, EngineError> {
        let elems = || tensor::decode(&self.loader.model, self.tensor(name, &[n_elems])?);
        self.has(name).then(elems).transpose()
    }

    /// A tensor's row-major shape.
    pub(crate) fn shape(&self, name: &str) -> Result<&'a [u64], EngineError> {
        Ok(&self.find(name)?.shape)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<&'a TensorFacts, EngineError> {
        let facts = self.find(name)?;
        if facts.shape.iter().copied().eq(shape.iter().map(|&n| n as u64)) {
            return Ok(facts);
        }
        let expected = shape.iter().map(|&n| n as u64).collect();
        Err(EngineError::TensorShape { tensor: self.full_name(name), expected, got: facts.shape.clone() })
    }

    fn find(&self, name: &str) -> Result<&'a TensorFacts, EngineError> {
        let tensor = self.full_name(name);
        self.loader.model.facts.tensor(&tensor).ok_or(EngineError::TensorMissing { tensor })
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
