//! Tensor tables of real models, read from `models.txt`.
use tandem_engine::gguf::{Array, ModelFacts, TensorType, Writer};

use super::shapes::{read, types_of};

const MODELS: &str = include_str!("models.txt");

/// Names and published parameters, billions.
pub(super) fn models() -> impl Iterator<Item = (&'static str, f64)> {
    MODELS.lines().filter_map(|line| {
        let mut words = line.strip_prefix("model ")?.split(' ');
        let name = words.next()?;
        Some((name, words.nth(1)?.parse().ok()?))
    })
}

/// The header of one of them in a quantisation.
pub(super) fn facts_of(model: &str, quant: &str) -> ModelFacts {
    let start = MODELS.find(&format!("model {model} ")).expect("a model of the table");
    let text = MODELS[start..].split("\n\n").next().expect("a split has a first part");
    let mut lines = text.lines();
    let architecture = lines.next().and_then(|line| line.split(' ').nth(2)).expect("an architecture");
    let table = Table { architecture, kinds: String::new(), quant: types_of(quant), writer: Writer::new(architecture) };
    read(&lines.fold(table, Table::add).writer, &format!("{model}-{quant}.gguf"))
}

struct Table<'a> {
    architecture: &'a str,
    /// One letter per layer.
    kinds: String,
    quant: (TensorType, TensorType),
    writer: Writer,
}

impl Table<'_> {
    fn add(mut self, line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["layers", ..] => {
                for group in &words[1..] {
                    let (n, kinds) = group.split_once('*').expect("a count");
                    self.kinds.push_str(&kinds.repeat(n.parse().expect("a number")));
                }
                let n_layers = self.kinds.len() as u32;
                self.meta("block_count", n_layers)
            }
            ["u32", key, value] => self.meta(key, value.parse::<u32>().expect("a number")),
            ["f32", key, value] => self.meta(key, value.parse::<f32>().expect("a number")),
            ["bool", key, value] => self.meta(key, value == "true"),
            ["each", key, ..] => {
                let of = |kind: char| {
                    let value = words[2..].iter().find_map(|pair| pair.strip_prefix(kind)?.strip_prefix('='));
                    value.and_then(|value| value.parse::<u32>().ok()).expect("a value for each kind")
                };
                let values: Vec<u32> = self.kinds.chars().map(of).collect();
                self.meta(key, Array::from_scalars(&values))
            }
            ["flags", key, kinds] => {
                let values: Vec<bool> = self.kinds.chars().map(|kind| kinds.contains(kind)).collect();
                self.meta(key, Array::from_scalars(&values))
            }
            ["t", kinds, name, shape, tensor_type] => self.tensors(kinds, name, shape, tensor_type),
            _ => panic!("a line that cannot be read: {line}"),
        }
    }

    fn meta(mut self, key: &str, value: impl Into<tandem_engine::gguf::Value>) -> Self {
        self.writer = self.writer.meta(&format!("{}.{key}", self.architecture), value);
        self
    }

    fn tensors(mut self, kinds: &str, name: &str, shape: &str, tensor_type: &str) -> Self {
        let dims: Vec<u64> = shape.split('x').map(|dim| dim.parse().expect("a number")).collect();
        if kinds == "-" {
            let tensor_type = self.fitting(tensor_type, 0, &dims);
            self.writer = self.writer.tensor_absent(name, &dims, tensor_type);
            return self;
        }
        for (i, kind) in self.kinds.clone().chars().enumerate() {
            if kinds == "*" || kinds.contains(kind) {
                let tensor_type = self.fitting(tensor_type, i, &dims);
                self.writer = self.writer.tensor_absent(&format!("blk.{i}.{name}"), &dims, tensor_type);
            }
        }
        self
    }

    /// Rows that are no multiple of a block fall back to a type of 32, as quantisers do.
    fn fitting(&self, name: &str, layer: usize, dims: &[u64]) -> TensorType {
        let (most, high) = self.quant;
        let tensor_type = match name {
            "f32" => TensorType::F32,
            "mxfp4" => TensorType::MXFP4,
            "q8_0" => TensorType::Q8_0,
            "high" => high,
            "down" if layer.is_multiple_of(2) => high,
            "most" | "down" => most,
            other => panic!("no such type: {other}"),
        };
        let n_cols = dims.last().copied().unwrap_or(0);
        if n_cols.is_multiple_of(tensor_type.row().block_elems) { tensor_type } else { TensorType::Q5_0 }
    }
}
