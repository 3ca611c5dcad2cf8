//! The versions of a model that a repo offers: GGUF files by quantisation, each with the files that belong to it.

use tandem_engine::gguf::quant_label_from_name;

use super::grouping::{Group, group, split_path};
use crate::wire::{Companion, ErrorCode, Failure, RepoFile, Text};

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
    /// Projector and draft that go with it; not counted in its size.
    pub companions: Vec<Companion>,
}

impl Version {
    /// Why a version that lacks shards is of no use.
    pub fn refusal(&self) -> Option<Failure> {
        let names: Vec<&str> = self.missing.iter().map(|path| split_path(path).1).collect();
        let (missing, count, names) = (names.len(), self.files.len() + names.len(), names.join(", "));
        (missing > 0).then(|| {
            Failure::new(
                ErrorCode::NotFound,
                Text::new(
                    format!("the repository lacks {missing} of this version's {count} files: `{names}`"),
                    format!("此版本共 {count} 个文件，仓库中缺少 {missing} 个：`{names}`"),
                ),
                Text::new("choose another version of this model", "请选择该模型的其他版本"),
            )
        })
    }
}

/// Groups a repo's files into versions, smallest first. Importance matrices, vocabularies, hidden files, which no library
/// shows, and whatever is not GGUF are left out.
pub fn versions(files: &[RepoFile]) -> Vec<Version> {
    let is_hidden = |file: &&RepoFile| file.path.split('/').any(|part| part.starts_with('.'));
    let files: Vec<RepoFile> = files.iter().filter(|file| !is_hidden(file)).cloned().collect();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut found: Vec<Version> = group(&paths).into_iter().map(|group| version(group, &files)).collect();
    found.sort_by(|a, b| a.size_bytes.cmp(&b.size_bytes).then_with(|| a.files[0].path.cmp(&b.files[0].path)));
    found
}

fn version(group: Group, all: &[RepoFile]) -> Version {
    let files: Vec<RepoFile> = group.parts.iter().map(|index| all[*index].clone()).collect();
    let (folder, name) = split_path(&files[0].path);
    let quant = quant_label_from_name(name).or_else(|| quant_label_from_name(folder.trim_end_matches('/')));
    let companions = group.companions.iter().map(|(role, index)| Companion { role: *role, file: all[*index].clone() });
    Version {
        quant: quant.unwrap_or_else(|| "GGUF".to_owned()),
        size_bytes: files.iter().map(|file| file.size_bytes).sum(),
        missing: group.missing,
        companions: companions.collect(),
        files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HashWord;

    fn file(path: &str, size_bytes: u64) -> RepoFile {
        RepoFile {
            repo: "a/b".into(),
            commit: "c".into(),
            path: path.into(),
            size_bytes,
            sha256: None,
            hash_word: HashWord::Unknown,
        }
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
            (".hidden-Q4_0.gguf", 30),
            (".cache/model-Q5_0.gguf", 30),
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
        let files = [file("x/m-Q8_0-00002-of-00002.gguf", 1)];
        let refusal = super::versions(&files)[0].refusal().unwrap();
        assert!(
            refusal.message.en.contains("1 of this version's 2 files: `m-Q8_0-00001-of-00002.gguf`"),
            "{refusal:?}"
        );
        assert_eq!(versions[0].3, ["x/m-Q8_0-00001-of-00004.gguf", "x/m-Q8_0-00004-of-00004.gguf"]);
    }

    #[test]
    fn companions_belong_to_a_version_and_are_none_themselves() {
        let files: Vec<RepoFile> = ["m-Q4_0.gguf", "mmproj-F16.gguf", "mtp-m-Q8_0.gguf", "m.imatrix.gguf", "README.md"]
            .map(|path| file(path, 7))
            .into();
        let versions = versions(&files);
        let companions: Vec<&str> =
            versions[0].companions.iter().map(|companion| companion.file.path.as_str()).collect();
        assert_eq!(companions, ["mmproj-F16.gguf", "mtp-m-Q8_0.gguf"]);
        assert_eq!((versions.len(), versions[0].size_bytes), (1, 7));
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
