//! Which files make one model: the shards of a split one, and the projector and draft that go with it. Names only; what a
//! header says has the last word.

use std::collections::BTreeMap;

use tandem_engine::gguf::{ShardName, quant_label_from_name};

use crate::wire::FileRole;

/// The files of one model, as indexes into the paths that were asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// One file, or the shards in order.
    pub parts: Vec<usize>,
    /// Paths of shards that are not there; such a model is of no use.
    pub missing: Vec<String>,
    /// Of each role the one file that goes with the model best.
    pub companions: Vec<(FileRole, usize)>,
}

/// Puts paths (`/` between parts) together into models, in the order of their first files. Companions without a model,
/// importance matrices, vocabularies and whatever is not GGUF are left out.
pub fn group(paths: &[&str]) -> Vec<Group> {
    let mut models: BTreeMap<(&str, u32), Vec<(u32, usize)>> = BTreeMap::new();
    let mut companions = Vec::new();
    for (index, path) in paths.iter().copied().enumerate() {
        match role_of(path) {
            Some(FileRole::Model) => {
                let (key, number) = shard_key(path);
                models.entry(key).or_default().push((number, index));
            }
            Some(role) => companions.push((role, index)),
            None => {}
        }
    }
    let mut groups: Vec<Group> = models.into_values().map(|shards| model(paths, shards)).collect();
    groups.sort_by_key(|group| group.parts[0]);
    let names: Vec<Name> = groups.iter().map(|group| Name::of(paths[group.parts[0]])).collect();
    for (group, name) in groups.iter_mut().zip(&names) {
        group.companions = [FileRole::Projector, FileRole::Draft]
            .into_iter()
            .filter_map(|role| Some((role, best_companion(role, name, &names, &companions, paths)?)))
            .collect();
    }
    groups
}

/// What a file is to a model, by its name; `None` if it is no part of one.
pub fn role_of(path: &str) -> Option<FileRole> {
    let name = split_path(path).1.to_ascii_lowercase();
    let is_other = !name.ends_with(".gguf") || name.contains("imatrix") || name.starts_with("ggml-vocab-");
    if is_other {
        None
    } else if name.contains(PROJECTOR_MARK) {
        Some(FileRole::Projector)
    } else if DRAFT_STARTS.iter().any(|start| name.starts_with(start)) {
        Some(FileRole::Draft)
    } else {
        Some(FileRole::Model)
    }
}

/// Folder with its slash, and file name.
pub(super) fn split_path(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

/// What all shards of a model share (path up to the numbers, and count), and which this is.
fn shard_key(path: &str) -> ((&str, u32), u32) {
    let (folder, name) = split_path(path);
    match ShardName::parse(name) {
        Some(shard) => ((&path[..folder.len() + shard.prefix.len()], shard.count), shard.number),
        None => ((path, 0), 1),
    }
}

fn model(paths: &[&str], mut shards: Vec<(u32, usize)>) -> Group {
    shards.sort_unstable();
    let missing = missing_shards(paths[shards[0].1], &shards);
    Group { parts: shards.into_iter().map(|(_, index)| index).collect(), missing, companions: Vec::new() }
}

fn missing_shards(any: &str, shards: &[(u32, usize)]) -> Vec<String> {
    let (folder, name) = split_path(any);
    let Some(pattern) = ShardName::parse(name) else { return Vec::new() };
    let is_here = |number: u32| shards.iter().any(|(here, _)| *here == number);
    // A count beyond any real model would name thousands of files.
    let count = pattern.count.min(MAX_SHARDS);
    (1..=count)
        .filter(|&number| !is_here(number))
        .map(|number| format!("{folder}{}", pattern.sibling(number)))
        .collect()
}

/// A model or companion by its name, taken apart.
struct Name<'a> {
    folder: &'a str,
    /// Letters and digits of the name, without quant label, number of the shard and marks; empty if that says nothing.
    base: String,
    n_bits: u32,
}

impl<'a> Name<'a> {
    fn of(path: &'a str) -> Self {
        let (folder, name) = split_path(path);
        let label = quant_label_from_name(name).or_else(|| quant_label_from_name(folder.trim_end_matches('/')));
        let stem =
            ShardName::parse(name).map_or_else(|| name[..name.len() - ".gguf".len()].to_owned(), |shard| shard.prefix);
        let mut base = stem.to_ascii_lowercase();
        if let Some(label) = &label
            && let Some(at) = base.rfind(&label.to_ascii_lowercase())
        {
            base.replace_range(at..at + label.len(), "");
        }
        for mark in DRAFT_STARTS {
            if let Some(rest) = base.strip_prefix(mark) {
                base = rest.to_owned();
            }
        }
        base = base.replace(PROJECTOR_MARK, "");
        base.retain(char::is_alphanumeric);
        if NAMES_OF_NOTHING.contains(&base.as_str()) {
            base.clear();
        }
        Self { folder, base, n_bits: label.as_deref().map_or(0, n_bits) }
    }

    /// Whether the names begin alike: `mmproj-Qwen3VL-8B` goes with `Qwen3VL-8B-Instruct`.
    fn agrees_with(&self, model: &Name<'_>) -> bool {
        !self.base.is_empty() && (model.base.starts_with(&self.base) || self.base.starts_with(&model.base))
    }
}

/// The companion of a role that lies in the model's folder or above it: one that names the model, or one that names none
/// where there is only one model. Of several the deepest, then the one of the nearest precision, as llama.cpp takes it.
fn best_companion(
    role: FileRole,
    model: &Name<'_>,
    models: &[Name<'_>],
    companions: &[(FileRole, usize)],
    paths: &[&str],
) -> Option<usize> {
    let candidates = companions.iter().filter(|(its_role, _)| *its_role == role).map(|(_, index)| *index);
    let fitting = candidates.filter_map(|index| {
        let name = Name::of(paths[index]);
        if !model.folder.starts_with(name.folder) {
            return None;
        }
        let mut below = models.iter().filter(|other| other.folder.starts_with(name.folder));
        let names_a_model = models.iter().any(|other| name.agrees_with(other));
        let is_for_all = !names_a_model && below.all(|other| other.base == model.base);
        let rank = (usize::MAX - name.folder.len(), name.n_bits.abs_diff(model.n_bits), paths[index]);
        (name.agrees_with(model) || is_for_all).then_some((rank, index))
    });
    fitting.min().map(|(_, index)| index)
}

/// Bits per weight that a label names, roughly.
fn n_bits(label: &str) -> u32 {
    let digits: String = label.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

const PROJECTOR_MARK: &str = "mmproj";
const DRAFT_STARTS: &[&str] = &["mtp-", "draft-", "eagle3-", "dflash-", "dspark-"];
const NAMES_OF_NOTHING: &[&str] = &["model", "ggmlmodel", "ggml"];
const MAX_SHARDS: u32 = 1000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Groups as their files, companions behind a plus.
    fn told(paths: &[&str]) -> Vec<String> {
        let one = |group: Group| {
            let parts: Vec<&str> = group.parts.iter().map(|index| paths[*index]).collect();
            let companions = group.companions.iter().map(|(_, index)| format!(" + {}", paths[*index]));
            let missing = group.missing.iter().map(|path| format!(" - {path}"));
            format!("{}{}", parts.join(" "), companions.chain(missing).collect::<String>())
        };
        group(paths).into_iter().map(one).collect()
    }

    #[test]
    fn roles_follow_from_names() {
        for (path, role) in [
            ("m-Q4_K_M.gguf", Some(FileRole::Model)),
            ("Q8_0/m-00001-of-00002.gguf", Some(FileRole::Model)),
            ("Qwen-35B-MTP-Q4_K_M.gguf", Some(FileRole::Model)),
            ("mmproj-F16.gguf", Some(FileRole::Projector)),
            ("model-mmproj-BF16.GGUF", Some(FileRole::Projector)),
            ("MTP-gemma-Q8_0.gguf", Some(FileRole::Draft)),
            ("eagle3-model.gguf", Some(FileRole::Draft)),
            ("model.imatrix.gguf", None),
            ("ggml-vocab-llama.gguf", None),
            ("model.gguf.part1of2", None),
            ("README.md", None),
            ("", None),
        ] {
            assert_eq!(role_of(path), role, "{path}");
        }
    }

    #[test]
    fn a_projector_goes_with_every_version_and_the_nearest_precision_is_taken() {
        let paths = ["V-8B-Q4_K_M.gguf", "BF16/V-8B-BF16.gguf", "mmproj-Q8_0.gguf", "mmproj-BF16.gguf"];
        assert_eq!(told(&paths), ["V-8B-Q4_K_M.gguf + mmproj-Q8_0.gguf", "BF16/V-8B-BF16.gguf + mmproj-BF16.gguf"]);
    }

    #[test]
    fn companions_go_with_the_model_that_they_name() {
        let paths = [
            "a-7B-Q4_0.gguf",
            "b-vl-8b-instruct-Q4_0.gguf",
            "mmproj-b-vl-8B-f16.gguf",
            "mtp-a-7B-Q8_0.gguf",
            "mmproj-model-f16.gguf",
        ];
        let expected = ["a-7B-Q4_0.gguf + mtp-a-7B-Q8_0.gguf", "b-vl-8b-instruct-Q4_0.gguf + mmproj-b-vl-8B-f16.gguf"];
        assert_eq!(told(&paths), expected, "one that names nothing is nobody's among several");
    }

    #[test]
    fn companions_lie_beside_their_model_or_above_it() {
        let paths = ["p/a/m-Q4_0.gguf", "p/b/mmproj-F16.gguf", "p/a/mmproj-F32.gguf", "p/mmproj-F16.gguf"];
        assert_eq!(told(&paths), ["p/a/m-Q4_0.gguf + p/a/mmproj-F32.gguf"]);
    }

    #[test]
    fn shards_are_one_model_and_missing_ones_are_named() {
        let paths = ["x/m-Q8_0-00003-of-00004.gguf", "x/m-Q8_0-00002-of-00004.gguf", "x/mmproj-F16.gguf"];
        assert_eq!(
            told(&paths),
            ["x/m-Q8_0-00002-of-00004.gguf x/m-Q8_0-00003-of-00004.gguf + x/mmproj-F16.gguf \
              - x/m-Q8_0-00001-of-00004.gguf - x/m-Q8_0-00004-of-00004.gguf"]
        );
        assert!(group(&["m-00001-of-99999.gguf"])[0].missing.len() < 1001);
    }

    proptest! {
        #[test]
        fn every_model_file_is_in_exactly_one_group(paths in prop::collection::vec("([ab]/)?(mmproj-|mtp-)?[mn](-Q4_0)?(-0000[1-3]-of-00003)?\\.gguf", 0..12)) {
            let paths: std::collections::BTreeSet<&str> = paths.iter().map(String::as_str).collect();
            let paths: Vec<&str> = paths.into_iter().collect();
            let mut parts: Vec<usize> = group(&paths).into_iter().flat_map(|group| group.parts).collect();
            parts.sort_unstable();
            let models: Vec<usize> = (0..paths.len()).filter(|i| role_of(paths[*i]) == Some(FileRole::Model)).collect();
            prop_assert_eq!(parts, models);
        }
    }
}
