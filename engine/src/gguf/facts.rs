//! What a model's header says, all files of it merged: metadata, tensor table, and typed access to both.

use std::path::Path;

use super::cursor::Stop;
use super::error::GgufError;
use super::value::{Metadata, Value};
use super::{TensorType, header, label, mapped, shards};

/// What is known of a model without reading its weights.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Keys and values, of the first file where there are several.
    pub metadata: Metadata,
    /// All tensors, file by file, in the order of the tables.
    pub tensors: Vec<TensorFacts>,
    /// The files, in order.
    pub files: Vec<FileFacts>,
    /// Where the first file's tensor data starts.
    pub data_offset_bytes: u64,
    /// Size of all files together.
    pub file_bytes: u64,
    /// Indices of `tensors`, by name.
    by_name: Vec<u32>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFacts {
    /// GGUF's name for it.
    pub name: String,
    /// Row-major: the last dimension is contiguous. GGUF's reversal is undone here and nowhere else.
    pub shape: Vec<u64>,
    /// How its elements are stored.
    pub tensor_type: TensorType,
    /// Index of its file in `ModelFacts::files`.
    pub file: usize,
    /// Where its data starts, from the start of that file.
    pub offset_bytes: u64,
    /// Size of its data.
    pub n_bytes: u64,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// File name without folders; empty if the header came from bytes alone.
    pub name: String,
    /// Its size.
    pub file_bytes: u64,
    /// Where its tensor data starts.
    pub data_offset_bytes: u64,
}

/// What a prefix of a file is good for.
#[derive(Clone, Debug)]
pub enum Prefix {
    /// The whole header was in it.
    Complete(ModelFacts),
    /// The header goes on.
    NeedMore {
        /// Length of the prefix to try next; at least twice this one's, so that a few tries do.
        at_least_bytes: u64,
    },
}

impl TensorFacts {
    /// Number of elements.
    pub fn n_elems(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl ModelFacts {
    /// Reads the header of a file, and of all others if the model comes in several; any of them may be named.
    /// All tensor data lies inside the files when this succeeds.
    pub fn from_file(path: &Path) -> Result<Self, GgufError> {
        mapped::MappedModel::open(path).map(|model| model.facts)
    }

    /// Reads the header from the first bytes of a file of `file_bytes`; never looks for other files of the model.
    pub fn from_prefix(bytes: &[u8], file_bytes: u64) -> Result<Prefix, GgufError> {
        let at_hand = &bytes[..bytes.len().min(usize::try_from(file_bytes).unwrap_or(usize::MAX))];
        match header::read(at_hand, file_bytes) {
            Ok(header) => {
                let file = FileFacts { name: String::new(), file_bytes, data_offset_bytes: header.data_offset_bytes };
                Self::new(header.metadata, header.tensors, vec![file]).map(Prefix::Complete)
            }
            Err(Stop::NeedMore { at_least_bytes }) => {
                let doubled = (at_hand.len() as u64).saturating_mul(2);
                Ok(Prefix::NeedMore { at_least_bytes: at_least_bytes.max(doubled).min(file_bytes) })
            }
            Err(Stop::Bad(error)) => Err(error),
        }
    }

    /// Joins the headers of a model's files, each with its file's name, given in any order.
    pub fn from_shards(shards: Vec<(String, Self)>) -> Result<Self, GgufError> {
        shards::merge(shards)
    }

    pub(super) fn new(metadata: Metadata, tensors: Vec<TensorFacts>, files: Vec<FileFacts>) -> Result<Self, GgufError> {
        let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
        by_name.sort_unstable_by_key(|i| &tensors[*i as usize].name);
        let name = |i: u32| &tensors[i as usize].name;
        if let Some(pair) = by_name.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
            return Err(GgufError::DuplicateTensor { tensor: name(pair[0]).clone() });
        }
        let data_offset_bytes = files.first().map_or(0, |file| file.data_offset_bytes);
        let file_bytes = files.iter().map(|file| file.file_bytes).sum();
        let facts = Self { metadata, tensors, files, data_offset_bytes, file_bytes, by_name };
        facts.check_limits()?;
        Ok(facts)
    }

    /// Says which file this came from, for the label and for messages.
    pub fn with_file_name(mut self, name: &str) -> Self {
        if let Some(file) = self.files.first_mut() {
            file.name = name.to_owned();
        }
        self
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorFacts> {
        let found = self.by_name.binary_search_by_key(&name, |i| &self.tensors[*i as usize].name).ok()?;
        self.tensors.get(self.by_name[found] as usize)
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.get_str(ARCHITECTURE)?.ok_or_else(|| missing(ARCHITECTURE))
    }

    /// `general.name`, if it says anything.
    pub fn name(&self) -> Option<&str> {
        self.get_str("general.name").ok().flatten().filter(|name| !name.trim().is_empty())
    }

    /// Elements over all tensors.
    pub fn n_params(&self) -> u64 {
        self.tensors.iter().fold(0, |n, tensor| n.saturating_add(tensor.n_elems()))
    }

    /// Layers that every token goes through: the header's blocks without those that predict tokens further ahead, which
    /// stand at the end.
    pub fn n_layers(&self) -> Result<u32, GgufError> {
        let n_ahead = self.arch_u32_or("nextn_predict_layers", 0)?;
        match self.arch_u32("block_count")?.checked_sub(n_ahead) {
            Some(n_layers) if n_layers > 0 || n_ahead == 0 => Ok(n_layers),
            _ => {
                let key = self.arch_key("nextn_predict_layers")?;
                Err(GgufError::BadValue { key, value: n_ahead.into(), why: "no layers are left" })
            }
        }
    }

    /// The layer that a tensor belongs to, with the rest of its name: 7 and `attn_q.weight` for `blk.7.attn_q.weight`.
    pub fn layer_of(name: &str) -> Option<(usize, &str)> {
        let (index, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        Some((index.parse().ok()?, rest))
    }

    /// Trained context length in tokens.
    pub fn context_length(&self) -> Result<u32, GgufError> {
        self.arch_u32("context_length")
    }

    /// The model's own chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.get_str("tokenizer.chat_template").ok().flatten().filter(|template| !template.trim().is_empty())
    }

    /// What people call this quantisation: from the file name, else from `general.file_type`, else the type that most
    /// bytes have.
    pub fn quant_label(&self) -> String {
        label::of_facts(self)
    }

    /// An integer, if the key is there.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.metadata.get_u32(key)
    }

    /// An integer, if the key is there.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.metadata.get_u64(key)
    }

    /// A float, if the key is there.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.metadata.get_f32(key)
    }

    /// A boolean, if the key is there.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.metadata.get_bool(key)
    }

    /// A string, if the key is there.
    pub fn get_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.metadata.get_str(key)
    }

    /// The full key of one of this architecture's, such as `llama.block_count`.
    pub fn arch_key(&self, key: &str) -> Result<String, GgufError> {
        Ok(format!("{}.{key}", self.architecture()?))
    }

    /// An integer of this architecture's that must be there.
    pub fn arch_u32(&self, key: &str) -> Result<u32, GgufError> {
        let key = self.arch_key(key)?;
        self.get_u32(&key)?.ok_or_else(|| missing(&key))
    }

    /// An integer of this architecture's, or what its absence means.
    pub fn arch_u32_or(&self, key: &str, absent: u32) -> Result<u32, GgufError> {
        Ok(self.get_u32(&self.arch_key(key)?)?.unwrap_or(absent))
    }

    /// A float of this architecture's that must be there.
    pub fn arch_f32(&self, key: &str) -> Result<f32, GgufError> {
        let key = self.arch_key(key)?;
        self.get_f32(&key)?.ok_or_else(|| missing(&key))
    }

    /// A float of this architecture's, or what its absence means.
    pub fn arch_f32_or(&self, key: &str, absent: f32) -> Result<f32, GgufError> {
        Ok(self.get_f32(&self.arch_key(key)?)?.unwrap_or(absent))
    }

    /// A boolean of this architecture's, or what its absence means.
    pub fn arch_bool_or(&self, key: &str, absent: bool) -> Result<bool, GgufError> {
        Ok(self.get_bool(&self.arch_key(key)?)?.unwrap_or(absent))
    }

    /// A string of this architecture's, if there.
    pub fn arch_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.get_str(&self.arch_key(key)?)
    }

    /// One integer per layer, from an array of at least that many or from one value for all; `None` if the key is absent.
    pub fn arch_u32_per_layer(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        let key = self.arch_key(key)?;
        let n_layers = self.n_layers()? as usize;
        let Some(Value::Array(array)) = self.metadata.get(&key) else {
            return Ok(self.get_u32(&key)?.map(|value| vec![value; n_layers]));
        };
        if array.len() < n_layers {
            let value = array.len() as u64;
            return Err(GgufError::BadValue { key, value, why: "fewer elements than layers" });
        }
        let mut values = self.metadata.get_u32s(&key)?.unwrap_or_default();
        values.truncate(n_layers);
        Ok(Some(values))
    }

    /// Limits that hold for every architecture. Source: `LLAMA_MAX_LAYERS`, `LLAMA_MAX_EXPERTS` of llama.cpp.
    fn check_limits(&self) -> Result<(), GgufError> {
        const MAX_LAYERS: u32 = 512;
        const MAX_EXPERTS: u32 = 1024;
        if !self.metadata.contains(ARCHITECTURE) {
            return Ok(());
        }
        let check = |key: &str, is_good: &dyn Fn(u32) -> bool, why| {
            let key = self.arch_key(key)?;
            // Some keys may be arrays, one value per layer; those are checked where they are read.
            match self.metadata.get(&key).and_then(Value::as_integer) {
                Some(_) => match self.get_u32(&key)? {
                    Some(value) if !is_good(value) => Err(GgufError::BadValue { key, value: value.into(), why }),
                    _ => Ok(()),
                },
                None => Ok(()),
            }
        };
        let n_experts = self.arch_u32_or("expert_count", 0)?;
        check("block_count", &|n| n <= MAX_LAYERS, "more than 512 layers")?;
        check("expert_count", &|n| n <= MAX_EXPERTS, "more than 1024 experts")?;
        check("expert_used_count", &|n| n <= n_experts, "more experts used than there are")?;
        check("attention.head_count", &|n| n > 0, "no attention heads")
    }
}

const ARCHITECTURE: &str = "general.architecture";

fn missing(key: &str) -> GgufError {
    GgufError::MissingKey { key: key.to_owned() }
}
