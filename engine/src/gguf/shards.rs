//! Models in several files: names, and joining their headers. Names follow `<prefix>-<number>-of-<count>.gguf`, both of
//! five digits, numbers from 1; inside, `split.no` counts from 0.

use super::error::GgufError;
use super::facts::{FileFacts, ModelFacts};
use super::value::Metadata;

/// A file name of a model in several files, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    /// What comes before the numbers.
    pub prefix: String,
    /// Which file, from 1.
    pub number: u32,
    /// How many files.
    pub count: u32,
}

impl ShardName {
    /// Takes a file name apart; `None` if it is not one of several.
    pub fn parse(file_name: &str) -> Option<Self> {
        let (rest, count) = split_digits(strip_extension(file_name)?)?;
        let (prefix, number) = split_digits(rest.strip_suffix("-of-")?)?;
        let prefix = prefix.strip_suffix('-').filter(|prefix| !prefix.is_empty())?;
        (1..=count).contains(&number).then(|| Self { prefix: prefix.to_owned(), number, count })
    }

    /// The name of another file of the same model.
    pub fn sibling(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }

    /// The names of all files, in order.
    pub fn all(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|number| self.sibling(number))
    }
}

/// Joins the headers of all files of a model, given in any order; names every file that is missing, doubled or not what
/// its name says.
pub(super) fn merge(shards: Vec<(String, ModelFacts)>) -> Result<ModelFacts, GgufError> {
    let Some((first_name, first)) = shards.first() else {
        return Err(GgufError::MissingShards { missing: vec![], count: 0 });
    };
    let count = part(first_name, first)?.1;
    let mut parts: Vec<Option<(String, ModelFacts)>> = (0..count).map(|_| None).collect();
    for (name, facts) in shards {
        let (number, its_count) = part(&name, &facts)?;
        if its_count != count {
            return Err(GgufError::WrongShard {
                file: name,
                expected: number,
                count,
                got: number,
                got_count: its_count,
            });
        }
        match &mut parts[number as usize - 1] {
            Some((first, _)) => return Err(GgufError::DoubledShard { first: first.clone(), second: name, number }),
            empty => *empty = Some((name, facts)),
        }
    }
    let names: Vec<&str> = parts.iter().flatten().map(|(name, _)| name.as_str()).collect();
    if names.len() < count as usize {
        let pattern = names.iter().find_map(|name| ShardName::parse(name));
        let name_of = |number| pattern.as_ref().map_or_else(|| format!("part {number}"), |name| name.sibling(number));
        let missing = (1..=count).filter(|number| parts[*number as usize - 1].is_none()).map(name_of).collect();
        return Err(GgufError::MissingShards { missing, count });
    }
    join(parts.into_iter().flatten())
}

fn join(parts: impl Iterator<Item = (String, ModelFacts)>) -> Result<ModelFacts, GgufError> {
    let (mut metadata, mut tensors, mut files) = (Metadata::default(), Vec::new(), Vec::new());
    for (i, (name, facts)) in parts.enumerate() {
        if i == 0 {
            metadata = facts.metadata;
        }
        tensors.extend(facts.tensors.into_iter().map(|mut tensor| {
            tensor.file = i;
            tensor
        }));
        files.extend(facts.files.into_iter().map(|file| FileFacts { name: name.clone(), ..file }));
    }
    let got = tensors.len() as u64;
    match metadata.get_u64(TENSOR_COUNT)? {
        Some(expected) if files.len() > 1 && expected != got => Err(GgufError::ShardTensorCount { expected, got }),
        _ => ModelFacts::new(metadata, tensors, files),
    }
}

/// Which part of how many a file is: by its contents, which its name must not contradict.
fn part(file: &str, facts: &ModelFacts) -> Result<(u32, u32), GgufError> {
    let in_file = |source| GgufError::InShard { file: file.to_owned(), source: Box::new(source) };
    let got_count = facts.get_u32(COUNT).map_err(in_file)?.unwrap_or(1).max(1);
    let index = facts.get_u32(NUMBER).map_err(in_file)?.unwrap_or(0);
    if got_count > MAX_SHARDS {
        let source = GgufError::BadValue {
            key: COUNT.to_owned(),
            value: got_count.into(),
            why: "more files than any model has",
        };
        return Err(in_file(source));
    }
    if index >= got_count {
        let source =
            GgufError::BadValue { key: NUMBER.to_owned(), value: index.into(), why: "not below the number of files" };
        return Err(in_file(source));
    }
    let got = index + 1;
    match ShardName::parse(file) {
        Some(name) if (name.number, name.count) != (got, got_count) => Err(GgufError::WrongShard {
            file: file.to_owned(),
            expected: name.number,
            count: name.count,
            got,
            got_count,
        }),
        _ => Ok((got, got_count)),
    }
}

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSOR_COUNT: &str = "split.tensors.count";
const MAX_SHARDS: u32 = 1000;

/// The five digits at the end, and what comes before them.
fn split_digits(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(5)?)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((rest, digits.parse().ok()?))
}

pub(super) fn strip_extension(file_name: &str) -> Option<&str> {
    let (stem, extension) = file_name.split_at_checked(file_name.len().checked_sub(5)?)?;
    extension.eq_ignore_ascii_case(".gguf").then_some(stem)
}
