//! What a family reads its file through: hyperparameters that make sense, and weights by name with the shape they must have,
//! each on the device that the placement says.

use std::ops::Range;
use std::sync::Arc;

use crate::Flow;
use crate::cuda::{Gpu, Gpus};
use crate::error::EngineError;
use crate::gguf::{MappedModel, ModelFacts, TensorFacts, Value};
use crate::model::go_on;
use crate::place::{Device, Ffn, Placement};
use crate::tensor::{self, Vector, Weight, WeightStack};

/// A file and where its parts go.
pub(crate) struct Loader<'a> {
    model: Arc<MappedModel>,
    placement: Placement,
    gpus: Gpus,
    context_length: usize,
    on_copied: &'a dyn Fn(u64) -> Flow,
}

/// One part of the model: where its tensors stand, and a device.
pub(crate) struct Part<'a> {
    loader: &'a Loader<'a>,
    /// Unless it belongs to the whole model.
    layer: Option<usize>,
    device: Device,
}

impl<'a> Loader<'a> {
    /// gpus            those that the placement names
    /// context_length  of the sessions to come, tokens
    /// on_copied       called with the bytes of each matrix that was copied to a GPU; `Break` cancels
    pub(crate) fn new(
        model: Arc<MappedModel>,
        placement: Placement,
        gpus: Gpus,
        context_length: usize,
        on_copied: &'a dyn Fn(u64) -> Flow,
    ) -> Self {
        Self { model, placement, gpus, context_length, on_copied }
    }

    /// Most tokens that a session will hold.
    pub(crate) fn context_length(&self) -> usize {
        self.context_length
    }

    /// What the header says.
    pub(crate) fn facts(&self) -> &ModelFacts {
        &self.model.facts
    }

    /// The layers that compute, in order.
    pub(crate) fn layers(&self) -> Range<usize> {
        0..self.placement.layers.len()
    }

    /// Refuses a file in which a layer lacks tensors that other families can do without.
    pub(crate) fn require(&self, names: &[&str]) -> Result<(), EngineError> {
        for layer in self.layers() {
            for name in names {
                self.ffn(layer).find(name)?;
            }
        }
        Ok(())
    }

    /// Whether the model has experts at all.
    pub(crate) fn has_experts(&self) -> Result<bool, EngineError> {
        Ok(self.facts().arch_u32_or("expert_count", 0)? > 0)
    }

    /// The mixing half of a layer.
    pub(crate) fn mixer(&self, layer: usize) -> Part<'_> {
        self.part(Some(layer), self.placement.layers[layer].mixer)
    }

    /// The feed-forward half of a layer, without its routed experts.
    pub(crate) fn ffn(&self, layer: usize) -> Part<'_> {
        self.part(Some(layer), self.placement.layers[layer].ffn.home())
    }

    /// The routed experts of a layer.
    pub(crate) fn experts(&self, layer: usize) -> Part<'_> {
        self.part(Some(layer), self.placement.layers[layer].ffn.routed())
    }

    /// The GPU that has copies of some of a layer's routed experts, and of how many.
    pub(crate) fn copies(&self, layer: usize) -> Result<Option<(&Arc<Gpu>, usize)>, EngineError> {
        match self.placement.layers[layer].ffn {
            Ffn::Experts { cached: Some((device, n)), .. } if n > 0 => Ok(self.gpus.get(device)?.map(|gpu| (gpu, n))),
            _ => Ok(None),
        }
    }

    /// The token embedding.
    pub(crate) fn embed(&self) -> Part<'_> {
        self.part(None, self.placement.embed)
    }

    /// The output norm and head.
    pub(crate) fn head(&self) -> Part<'_> {
        self.part(None, self.placement.head)
    }

    fn part(&self, layer: Option<usize>, device: Device) -> Part<'_> {
        Part { loader: self, layer, device }
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

    /// The same where absence and zero mean that there is none.
    pub(crate) fn count_or_none(&self, key: &str) -> Result<Option<usize>, EngineError> {
        let value = self.facts().arch_u32_or(key, 0)?;
        Ok((value > 0).then_some(value as usize))
    }

    /// Elements of a head that the rope turns; all of them if the file does not say.
    pub(crate) fn n_rotated(&self, head_dim: usize) -> Result<usize, EngineError> {
        match self.count_or("rope.dimension_count", head_dim)? {
            n_rotated if n_rotated <= head_dim => Ok(n_rotated),
            n_rotated => Err(self.invalid("rope.dimension_count", format!("at most {head_dim}"), n_rotated)),
        }
    }

    /// First layers that keep keys and values of their own; those behind them read the cache of the last or the one before.
    ///
    /// absent   if the file does not say
    /// Errors   fewer than two before others
    pub(crate) fn n_own_caches(&self, absent: usize) -> Result<usize, EngineError> {
        let (key, n_layers) = ("attention.shared_kv_layers", self.layers().len());
        let Some(n_shared) = self.facts().get_u32(&self.facts().arch_key(key)?)? else {
            return Ok(absent.min(n_layers));
        };
        match n_layers.checked_sub(n_shared as usize) {
            Some(n_own) if n_own >= 2 || n_shared == 0 => Ok(n_own),
            _ => Err(self.invalid(key, format!("at least two fewer than the {n_layers} layers"), n_shared)),
        }
    }

    /// Which layers have a sliding window: `sliding_window_pattern` as an array says it for each, as a number how often one
    /// without comes.
    ///
    /// period   if the file does not say
    pub(crate) fn sliding_layers(&self, period: usize) -> Result<Vec<bool>, EngineError> {
        let key = "attention.sliding_window_pattern";
        if let Some(Value::Array(_)) = self.facts().metadata.get(&self.facts().arch_key(key)?)
            && let Some(pattern) = self.flags_per_layer(key)?
        {
            return Ok(pattern);
        }
        let period = self.count_or(key, period)?;
        Ok(self.layers().map(|layer| (layer + 1) % period != 0).collect())
    }

    /// The same from an array with one value per layer, or from one value for all.
    pub(crate) fn count_of_layer(&self, key: &str, layer: usize) -> Result<usize, EngineError> {
        match self.facts().arch_u32_per_layer(key)? {
            Some(values) => self.positive(key, values[layer]),
            None => self.count(key),
        }
    }

    /// The same where all layers that have one at all must have the same.
    pub(crate) fn count_of_all(&self, key: &str) -> Result<usize, EngineError> {
        let Some(values) = self.facts().arch_u32_per_layer(key)? else { return self.count(key) };
        let value = values.iter().copied().find(|value| *value > 0).unwrap_or(0);
        match values.iter().find(|other| **other > 0 && **other != value) {
            None => self.positive(key, value),
            Some(other) => Err(self.invalid(key, format!("{value} in all layers"), other)),
        }
    }

    /// The same with what its absence means.
    pub(crate) fn count_of_layer_or(&self, key: &str, layer: usize, absent: usize) -> Result<usize, EngineError> {
        match self.facts().arch_u32_per_layer(key)? {
            Some(values) => self.positive(key, values[layer]),
            None => Ok(absent),
        }
    }

    /// True or false for each layer, if the key is there.
    ///
    /// Errors   another type, or too few
    pub(crate) fn flags_per_layer(&self, key: &str) -> Result<Option<Vec<bool>>, EngineError> {
        let n_layers = self.layers().len();
        match self.facts().metadata.get_bools(&self.facts().arch_key(key)?)? {
            Some(flags) if flags.len() < n_layers => {
                Err(self.invalid(key, format!("one value for each of {n_layers} layers"), flags.len()))
            }
            flags => Ok(flags.map(|flags| flags[..n_layers].to_vec())),
        }
    }

    fn positive(&self, key: &str, value: u32) -> Result<usize, EngineError> {
        if value == 0 { Err(self.invalid(key, "1 or more", value)) } else { Ok(value as usize) }
    }

    /// A hyperparameter that is a finite number above zero.
    pub(crate) fn scale_or(&self, key: &str, absent: f32) -> Result<f32, EngineError> {
        let value = self.facts().arch_f32_or(key, absent)?;
        if value.is_finite() && value > 0.0 { Ok(value) } else { Err(self.invalid(key, "a number above 0", value)) }
    }

    /// A hyperparameter that is a finite number above zero, where absence and zero mean that there is none.
    pub(crate) fn scale_or_none(&self, key: &str) -> Result<Option<f32>, EngineError> {
        match self.facts().arch_f32_or(key, 0.0)? {
            0.0 => Ok(None),
            value if value.is_finite() && value > 0.0 => Ok(Some(value)),
            value => Err(self.invalid(key, "a number above 0", value)),
        }
    }

    /// What is put into the square root of a norm.
    pub(crate) fn norm_eps(&self, key: &str) -> Result<f32, EngineError> {
        let value = self.facts().arch_f32(key)?;
        if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(self.invalid(key, "a number, 0 or more", value)) }
    }

    /// Elements of a recurrent head along which its state is read.
    ///
    /// Errors   none, or so many that sizes could overflow
    pub(crate) fn state_size(&self) -> Result<usize, EngineError> {
        const KEY: &str = "ssm.state_size";
        const MAX: usize = 1 << 16;
        match self.count(KEY)? {
            n if n <= MAX => Ok(n),
            n => Err(self.invalid(KEY, format!("at most {MAX}"), n)),
        }
    }

    /// Whether a layer has attention: in models with other mixers, those without heads of keys and values have one of those.
    pub(crate) fn has_attention(&self, layer: usize) -> Result<bool, EngineError> {
        let n_kv_heads = self.facts().arch_u32_per_layer("attention.head_count_kv")?;
        Ok(n_kv_heads.is_none_or(|n_kv_heads| n_kv_heads[layer] > 0))
    }

    /// The first layer that has attention.
    pub(crate) fn first_attention_layer(&self) -> Result<Option<usize>, EngineError> {
        for layer in self.layers() {
            if self.has_attention(layer)? {
                return Ok(Some(layer));
            }
        }
        Ok(None)
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
    /// The GPU that this part goes to, unless it stays with the processor.
    fn gpu(&self) -> Result<Option<&'a Arc<Gpu>>, EngineError> {
        self.loader.gpus.get(self.device)
    }

    /// Refuses a shape that the kernels of this part's device do not take.
    ///
    /// most     what a GPU's kernels take; the processor's take anything
    pub(crate) fn check_shape(&self, what: &'static str, got: usize, most: usize) -> Result<(), EngineError> {
        match self.device {
            device @ Device::Cuda(_) if got > most => {
                let layer = self.layer.unwrap_or(0);
                Err(EngineError::GpuShapeUnsupported { device, layer, what, got, most })
            }
            _ => Ok(()),
        }
    }

    /// Refuses to read the cache of a layer that lives elsewhere.
    pub(crate) fn check_cache_of(&self, other: usize) -> Result<(), EngineError> {
        let (mixer, kv) = (self.device, self.loader.placement.layers[other].kv);
        match self.layer {
            Some(layer) if mixer != kv => Err(EngineError::CacheApart { layer, mixer, kv }),
            _ => Ok(()),
        }
    }

    /// Whether the file has this tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.loader.facts().tensor(&self.full_name(name)).is_some()
    }

    /// A matrix of weights.
    pub(crate) fn weight(&self, name: &str, shape: [usize; 2]) -> Result<Weight, EngineError> {
        self.weight_of(name, self.tensor(name, &shape)?, None)
    }

    /// Some rows of a matrix, for tensors that hold several.
    pub(crate) fn weight_rows(&self, name: &str, shape: [usize; 2], rows: Range<usize>) -> Result<Weight, EngineError> {
        self.weight_of(name, self.tensor(name, &shape)?, Some(rows))
    }

    /// Some rows of matrices that lie in one tensor, counted through all of them.
    ///
    /// shape    [n, n_rows, n_cols]
    pub(crate) fn stacked_rows(
        &self,
        name: &str,
        shape: [usize; 3],
        rows: Range<usize>,
    ) -> Result<Weight, EngineError> {
        self.weight_of(name, self.tensor(name, &shape)?, Some(rows))
    }

    /// A vector as a matrix of one row, if it is there.
    pub(crate) fn row_if_there(&self, name: &str, n_cols: usize) -> Result<Option<Weight>, EngineError> {
        if !self.has(name) {
            return Ok(None);
        }
        let tensor = match self.shape(name)? {
            [_] => self.tensor(name, &[n_cols])?,
            _ => self.tensor(name, &[1, n_cols])?,
        };
        self.weight_of(name, tensor, None).map(Some)
    }

    fn weight_of(&self, name: &str, tensor: &TensorFacts, rows: Option<Range<usize>>) -> Result<Weight, EngineError> {
        let weight = Weight::new(self.gpu()?, &self.loader.model, tensor, rows)?;
        self.tell_copied(weight.size().1)?;
        let n_cols = weight.n_cols();
        Ok(weight.scaled(self.scales(name, 1, n_cols)?))
    }

    /// Tells of weights that were copied, if this part is on a GPU.
    fn tell_copied(&self, n_bytes: u64) -> Result<(), EngineError> {
        match self.device {
            Device::Cpu => Ok(()),
            Device::Cuda(_) => go_on((self.loader.on_copied)(n_bytes)),
        }
    }

    /// Factors on the products with `n` matrices: any `name.weight` may have a `name.scale` (NVFP4 does), one for each. One of
    /// another length belongs to what goes into a matrix of that width; the family that has it reads it.
    fn scales(&self, name: &str, n: usize, n_cols: usize) -> Result<Option<Vec<f32>>, EngineError> {
        let name = format!("{}.scale", name.trim_end_matches(".weight"));
        match self.has(&name) && (n > 1 || self.find(&name)?.n_elems() != n_cols as u64) {
            true => self.elems(&name, n).map(Some),
            false => Ok(None),
        }
    }

    /// Matrices of one shape in one tensor `name.weight`; or, in old files, in one tensor each: `name` without `_exps`, and an
    /// index.
    ///
    /// shape    [n, n_rows, n_cols]
    pub(crate) fn stack(&self, name: &str, shape: [usize; 3]) -> Result<WeightStack, EngineError> {
        let whole = format!("{name}.weight");
        let [n, n_rows, n_cols] = shape;
        let piece = |i| format!("{}.{i}.weight", name.trim_end_matches("_exps"));
        let tensors = if !self.has(&whole) && self.has(&piece(0)) {
            (0..n).map(|i| self.tensor(&piece(i), &[n_rows, n_cols])).collect::<Result<Vec<_>, _>>()?
        } else {
            vec![self.tensor(&whole, &shape)?]
        };
        let stack = WeightStack::new(self.gpu()?, &self.loader.model, &tensors, None)?;
        self.tell_copied(stack.n_matrices() as u64 * stack.matrix_size().1)?;
        Ok(stack.scaled(self.scales(name, n, n_cols)?))
    }

    /// Some rows of each of the matrices in one tensor `name.weight`.
    pub(crate) fn stack_rows(
        &self,
        name: &str,
        shape: [usize; 3],
        rows: Range<usize>,
    ) -> Result<WeightStack, EngineError> {
        let tensor = self.tensor(&format!("{name}.weight"), &shape)?;
        let stack = WeightStack::new(self.gpu()?, &self.loader.model, &[tensor], Some(rows))?;
        self.tell_copied(stack.n_matrices() as u64 * stack.matrix_size().1)?;
        Ok(stack.scaled(self.scales(name, shape[0], shape[2])?))
    }

    /// The elements of a small matrix that may be there, row after row.
    pub(crate) fn matrix_elems_if_there(&self, name: &str, shape: [usize; 2]) -> Result<Option<Vector>, EngineError> {
        let elems = || {
            let tensor = self.tensor(name, &shape)?;
            Vector::new(self.gpu()?, &self.loader.model, tensor, 0..shape[0] * shape[1])
        };
        self.has(name).then(elems).transpose()
    }

    /// The elements of a small matrix, column after column: for kernels that walk along its rows.
    ///
    /// shape    [n_rows, n_cols]
    pub(crate) fn columns(&self, name: &str, shape: [usize; 2]) -> Result<Vector, EngineError> {
        let elems = tensor::decode(&self.loader.model, self.tensor(name, &shape)?)?;
        let [n_rows, n_cols] = shape;
        let transposed = (0..n_cols).flat_map(|col| (0..n_rows).map(move |row| row * n_cols + col));
        self.vector_of(transposed.map(|i| elems[i]).collect())
    }

    /// All elements of a small tensor of any shape: files write [n], [n, 1] and [n / m, m] for the same.
    pub(crate) fn flat_vector(&self, name: &str, n_elems: usize) -> Result<Vector, EngineError> {
        let facts = self.find(name)?;
        if facts.n_elems() != n_elems as u64 {
            let expected = vec![n_elems as u64];
            return Err(EngineError::TensorShape { tensor: self.full_name(name), expected, got: facts.shape.clone() });
        }
        Vector::new(self.gpu()?, &self.loader.model, facts, 0..n_elems)
    }

    /// A vector worked out at load.
    pub(crate) fn vector_of(&self, elems: Vec<f32>) -> Result<Vector, EngineError> {
        Vector::of_elems(self.gpu()?, elems)
    }

    /// A vector that must be there.
    pub(crate) fn vector(&self, name: &str, n_elems: usize) -> Result<Vector, EngineError> {
        self.vector_elems(name, n_elems, 0..n_elems)
    }

    /// Some elements of a vector, for tensors that hold several.
    pub(crate) fn vector_elems(&self, name: &str, n_elems: usize, elems: Range<usize>) -> Result<Vector, EngineError> {
        Vector::new(self.gpu()?, &self.loader.model, self.tensor(name, &[n_elems])?, elems)
    }

    /// A vector that may be there.
    pub(crate) fn vector_if_there(&self, name: &str, n_elems: usize) -> Result<Option<Vector>, EngineError> {
        self.has(name).then(|| self.vector(name, n_elems)).transpose()
    }

    /// Decoded elements that must be there, for tables made at load.
    pub(crate) fn elems(&self, name: &str, n_elems: usize) -> Result<Vec<f32>, EngineError> {
        tensor::decode(&self.loader.model, self.tensor(name, &[n_elems])?)
    }

    /// Decoded elements that may be there, for tables made at load.
    pub(crate) fn elems_if_there(&self, name: &str, n_elems: usize) -> Result<Option<Vec<f32>>, EngineError> {
        self.has(name).then(|| self.elems(name, n_elems)).transpose()
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
        match self.layer {
            Some(layer) => format!("blk.{layer}.{name}"),
            None => name.to_owned(),
        }
    }
}
