//! The versions of a model that a repo offers: GGUF files by quantisation, shards put together, companions left out.

use std::collections::BTreeMap;

use tandem_engine::gguf::{ShardName, quant_label_from_name};

use crate::wire::RepoFile;

/// One quantised version of a model: one file, or all shards of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Quantisation label from the names, such as `Q4_K_M`; `GGUF` if they tell none.
    pub quant: String,
    /// One file, or the shards in order.
    pub files: Vec<RepoFile>,
    /// Of all files.
    pub size_bytes: u64,
    /// Paths of shards that the repo lacks; such a version is of no use.
    pub missing: Vec<String>,
}

/// Groups a repo's files into versions, smallest first. Projectors, importance matrices, draft models, vocabularies and
/// whatever is not GGUF are left out.
pub fn versions(files: &[RepoFile]) -> Vec<Version> {
    let mut groups: BTreeMap<(String, u32), Vec<(u32, &RepoFile)>> = BTreeMap::new();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_chat_model(&file.path)) {
        let (folder, name) = split_path(&file.path);
        match ShardName::parse(name) {
            Some(shard) => {
                let group = (format!("{folder}{}", shard.prefix), shard.count);
                groups.entry(group).or_default().push((shard.number, file));
            }
            None => found.push(version(vec![file.clone()], Vec::new())),
        }
    }
    for mut shards in groups.into_values() {
        shards.sort_by_key(|(number, _)| *number);
        let missing = missing_shards(&shards);
        found.push(version(shards.into_iter().map(|(_, file)| file.clone()).collect(), missing));
    }
    found.sort_by(|a, b| a.size_bytes.cmp(&b.size_bytes).then_with(|| a.files[0].path.cmp(&b.files[0].path)));
    found
}

fn version(files: Vec<RepoFile>, missing: Vec<String>) -> Version {
    let (folder, name) = split_path(&files[0].path);
    let quant = quant_label_from_name(name).or_else(|| quant_label_from_name(folder.trim_end_matches('/')));
    let size_bytes = files.iter().map(|file| file.size_bytes).sum();
    Version { quant: quant.unwrap_or_else(|| "GGUF".to_owned()), files, size_bytes, missing }
}

fn missing_shards(shards: &[(u32, &RepoFile)]) -> Vec<String> {
    let Some((_, first)) = shards.first() else { return Vec::new() };
    let (folder, name) = split_path(&first.path);
    let Some(pattern) = ShardName::parse(name) else { return Vec::new() };
    let is_here = |number: u32| shards.iter().any(|(here, _)| *here == number);
    // A count beyond any real model would name thousands of files.
    let count = pattern.count.min(MAX_SHARDS);
    (1..=count)
        .filter(|&number| !is_here(number))
        .map(|number| format!("{folder}{}", pattern.sibling(number)))
        .collect()
}

/// Whether a file can be a model that chats, by its name alone; the header has the last word.
fn is_chat_model(path: &str) -> bool {
    let name = split_path(path).1.to_ascii_lowercase();
    name.ends_with(".gguf")
        && !COMPANION_MARKS.iter().any(|mark| name.contains(mark))
        && !COMPANION_STARTS.iter().any(|start| name.starts_with(start))
}

/// Folder with its slash, and file name.
fn split_path(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

const COMPANION_MARKS: &[&str] = &["mmproj", "imatrix"];
const COMPANION_STARTS: &[&str] = &["mtp-", "draft-", "eagle3-", "dflash-", "dspark-", "ggml-vocab-"];
const MAX_SHARDS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size_bytes: u64) -> RepoFile {
        RepoFile { repo: "a/b".into(), commit: "c".into(), path: path.into(), size_bytes, sha256: None }
    }

    fn grouped(paths: &[(&str, u64)]) -> Vec<(String, Vec<String>, u64, Vec<String>)> {
        let files: Vec<RepoFile> = paths.iter().map(|(path, n_bytes)| file(path, *n_bytes)).collect();
        let in_short = |version: Version| {
            let paths = version.files.into_iter().map(|file| file.path).collect();
            (version.quant, paths, version.size_bytes, version.missing)
        };
        versions(&files).into_iter().map(in_short).collect()
    }

    #[test]
    fn files_become_versions_smallest_first() {
        let versions = grouped(&[
            ("README.md", 1),
            ("model-Q8_0.gguf", 80),
            ("model-Q4_K_M.gguf", 40),
            ("UD-Q4_K_XL/model-UD-Q4_K_XL.gguf", 42),
            ("model.safetensors", 160),
            ("model.gguf", 50),
            ("BF16/model.gguf", 160),
        ]);
        let short: Vec<(&str, u64)> =
            versions.iter().map(|(quant, _, n_bytes, _)| (quant.as_str(), *n_bytes)).collect();
        assert_eq!(short, [("Q4_K_M", 40), ("UD-Q4_K_XL", 42), ("GGUF", 50), ("Q8_0", 80), ("BF16", 160)]);
    }

    #[test]
    fn shards_are_one_version_in_order() {
        let versions = grouped(&[
            ("Q4_K_M/m-Q4_K_M-00003-of-00003.gguf", 3),
            ("Q4_K_M/m-Q4_K_M-00001-of-00003.gguf", 5),
            ("Q4_K_M/m-Q4_K_M-00002-of-00003.gguf", 5),
        ]);
        assert_eq!(versions.len(), 1);
        let (quant, paths, size_bytes, missing) = &versions[0];
        assert_eq!((quant.as_str(), *size_bytes, missing.len()), ("Q4_K_M", 13, 0));
        assert!(paths.is_sorted() && paths.len() == 3);
    }

    #[test]
    fn missing_shards_are_named() {
        let versions = grouped(&[("x/m-Q8_0-00002-of-00004.gguf", 1), ("x/m-Q8_0-00003-of-00004.gguf", 1)]);
        assert_eq!(versions[0].3, ["x/m-Q8_0-00001-of-00004.gguf", "x/m-Q8_0-00004-of-00004.gguf"]);
        assert!(grouped(&[("m-00001-of-99999.gguf", 1)])[0].3.len() < 1001);
    }

    #[test]
    fn companions_are_no_versions() {
        let companions = [
            "mmproj-F16.gguf",
            "model-mmproj-BF16.gguf",
            "imatrix.gguf",
            "model.imatrix.gguf",
            "mtp-model-Q8_0.gguf",
            "MTP-gemma-Q8_0.gguf",
            "eagle3-model.gguf",
            "draft-model-Q4_0.gguf",
            "ggml-vocab-llama.gguf",
            "imatrix.dat",
            "model.gguf.part1of2",
            "model.Q4_K_M.gguf.txt",
            "",
        ];
        for path in companions {
            assert!(grouped(&[(path, 1)]).is_empty(), "{path}");
        }
        assert_eq!(grouped(&[("Qwen-35B-MTP-Q4_K_M.gguf", 1)]).len(), 1, "a model with its draft layer inside");
    }

    #[test]
    fn same_names_in_two_folders_are_two_versions() {
        let shards = |folder: &str| (1..=2).map(|n| format!("{folder}/m-{n:05}-of-00002.gguf")).collect::<Vec<_>>();
        let paths: Vec<String> = shards("Q4_0").into_iter().chain(shards("Q8_0")).collect();
        let sized: Vec<(&str, u64)> = paths.iter().map(|path| (path.as_str(), 1)).collect();
        let versions = grouped(&sized);
        assert_eq!(versions.iter().map(|version| version.0.as_str()).collect::<Vec<_>>(), ["Q4_0", "Q8_0"]);
    }
}
