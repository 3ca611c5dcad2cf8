//! What the hub has: models, versions, files.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, FileRole, Hardware, HashWord, Plan, Text, Wishes};

/// A search on the hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct SearchRequest {
    /// Free text; empty lists the most downloaded.
    pub query: String,
    /// Continue a page: what `SearchPage::next` said.
    pub cursor: Option<String>,
}

/// One page of search results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SearchPage {
    /// Repos, in the hub's order.
    pub models: Vec<HubModel>,
    /// More, if any.
    pub next: Option<String>,
}

/// A repo on the hub, as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct HubModel {
    /// `publisher/name`.
    pub id: String,
    /// Downloads in 30 days.
    #[ts(type = "number")]
    pub downloads: u64,
    /// Likes.
    #[ts(type = "number")]
    pub likes: u64,
    /// Whether a licence must be accepted first.
    pub gated: bool,
    /// ISO 8601, as the hub says.
    pub last_modified: Option<String>,
    /// Tags, as the hub says.
    pub tags: Vec<String>,
    /// Licence identifier, from the tags.
    pub license: Option<String>,
    /// `general.architecture`, from the hub's own parse.
    pub architecture: Option<String>,
    /// Parameters, from the hub's own parse.
    #[ts(type = "number | null")]
    pub n_params: Option<u64>,
    /// Trained context length in tokens, from the hub's own parse.
    #[ts(type = "number | null")]
    pub context_length: Option<u64>,
}

/// One file of a repo at a commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
pub struct RepoFile {
    /// `publisher/name`.
    pub repo: String,
    /// Commit the answer was pinned to.
    pub commit: String,
    /// Path in the repo, `/` between parts.
    pub path: String,
    /// Size.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// SHA256 in hex, where the hub tells it.
    pub sha256: Option<String>,
    /// Whose word the SHA256 is.
    #[serde(default)]
    pub hash_word: HashWord,
}

/// What a model's page shows; plans follow from `plan_versions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelPage {
    /// The repo.
    pub model: HubModel,
    /// Commit everything here is pinned to.
    pub commit: String,
    /// Quantised versions, smallest first; shards are one version.
    pub versions: Vec<ModelVersion>,
    /// Why there are none, or why none can be used.
    pub refusal: Option<Failure>,
    /// What the repo holds instead of GGUF files.
    pub foreign: Option<ForeignModel>,
}

/// A model in formats that do not run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ForeignModel {
    /// Formats, the one that says most first.
    pub formats: Vec<ModelFormat>,
    /// Why the first does not run here.
    pub why: Text,
    /// Engines that run it.
    pub engines: Vec<ExternalEngine>,
}

/// A format of model files that this engine does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ModelFormat {
    /// GPTQ.
    Gptq,
    /// AWQ.
    Awq,
    /// EXL2 and EXL3.
    Exl,
    /// Apple's MLX.
    Mlx,
    /// bitsandbytes, packed for PyTorch.
    BitsAndBytes,
    /// Eight-bit floats.
    Fp8,
    /// compressed-tensors, vLLM's packed formats.
    CompressedTensors,
    /// ONNX.
    Onnx,
    /// Unpacked safetensors.
    Safetensors,
    /// PyTorch's pickle files.
    Pickle,
}

/// Another program that runs models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ExternalEngine {
    /// Its name.
    pub name: String,
    /// Its page.
    pub url: String,
    /// What it needs.
    pub needs: Text,
}

/// One quantised version of a model: one file, or all shards of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelVersion {
    /// Quantisation label, such as `Q4_K_M`.
    pub quant: String,
    /// One file, or the shards in order.
    pub files: Vec<RepoFile>,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// Why it is of no use, as far as the list of files tells: it lacks shards.
    pub refusal: Option<Failure>,
    /// Projector and draft that go with it; not counted in its size.
    pub companions: Vec<Companion>,
    /// Where this version stands on this machine.
    pub presence: Presence,
}

/// A file that goes with a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Companion {
    /// What it is to the model.
    pub role: FileRole,
    /// The file.
    pub file: RepoFile,
}

/// Where a version stands on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Presence {
    /// Not here.
    Absent,
    /// Being downloaded.
    Downloading {
        /// Download to look at.
        download_id: String,
    },
    /// In the library.
    Here {
        /// Library model to use.
        model_id: String,
    },
}

/// Asks for plans of all versions of a repo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct PlanVersionsRequest {
    /// `publisher/name`.
    pub repo: String,
    /// Constraints.
    pub wishes: Wishes,
    /// Another machine than this one.
    pub machine: Option<Box<Hardware>>,
    /// Plan as if the graphics card computed even where it cannot.
    pub card_computes: bool,
    /// Where the headers come from.
    pub headers: Reading,
}

/// Whether what was read of a hub before will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// It will, for a day.
    #[default]
    Kept,
    /// Everything is read again that no file here has proved.
    Again,
}

/// Plans of all versions of a repo, from their headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlannedVersions {
    /// In the order of `ModelPage::versions`.
    pub versions: Vec<PlannedVersion>,
    /// Index of the version to take here, if any runs.
    #[ts(type = "number | null")]
    pub recommended: Option<usize>,
    /// Why that one, and what the next better and next smaller would cost.
    pub reason: Text,
}

/// One version's plan, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PlannedVersion {
    /// Path of its first file.
    pub path: String,
    /// The plan.
    pub plan: Option<Plan>,
    /// Why it cannot run here at all.
    pub refusal: Option<Failure>,
}
