//! Ollama's store: `manifests/<host>/<namespace>/<model>/<tag>` name layers by digest, `blobs/sha256-<hex>` hold them.
//!
//! Source: `server/manifest.go`, `server/modelpath.go` and `types/model/name.go` of Ollama.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Seen, sha256_in, small_text};
use crate::error::{Explain, FileAction, FileError};
use crate::library::found::{Found, FoundFile};
use crate::wire::{ErrorCode, Failure, FileRole, Program, Text};

pub(super) fn look(root: &Path) -> Seen {
    let mut seen = Seen::default();
    for manifest in manifests(&root.join("manifests"), &mut seen.problems) {
        match read(root, &manifest) {
            Ok(found) => seen.found.extend(found),
            Err(failure) => {
                seen.needed.extend(blobs(root, &manifest));
                seen.problems.push(failure);
            }
        }
    }
    seen
}

/// All manifests, four names below the folder.
fn manifests(folder: &Path, problems: &mut Vec<Failure>) -> Vec<PathBuf> {
    let mut level = vec![folder.to_owned()];
    for _ in 0..NAME_PARTS {
        let mut next = Vec::new();
        for folder in level.iter().filter(|path| path.is_dir()) {
            match fs::read_dir(folder) {
                Ok(entries) => next.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) => problems.push(FileError::at(FileAction::Read, folder)(error).explain()),
            }
        }
        next.retain(|path| !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.'));
        next.sort();
        level = next;
    }
    level.retain(|path| path.is_file());
    level
}

/// A model by its manifest; `None` for one that is not GGUF.
fn read(root: &Path, path: &Path) -> Result<Option<Found>, Failure> {
    let text = small_text(path).unwrap_or_default();
    let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else { return Err(unreadable(path)) };
    let blob = |layer: &Layer| blob(root, layer);
    let files = |kind: &str, role: FileRole| -> Result<Vec<FoundFile>, Failure> {
        let layers = manifest.layers.iter().filter(|layer| layer.media_type == format!("{MEDIA_TYPE}{kind}"));
        let one = |(sha256, file): (String, Option<PathBuf>)| match file {
            Some(file) => Ok(FoundFile::new(file, role).expecting(Some(sha256))),
            None => Err(absent_blob(&title(path), &sha256)),
        };
        layers.filter_map(&blob).map(one).collect()
    };
    let parts = files("model", FileRole::Model)?;
    if parts.is_empty() {
        return Ok(None);
    }
    if manifest.layers.iter().any(|layer| layer.media_type == format!("{MEDIA_TYPE}adapter")) {
        return Err(adapted(&title(path)));
    }
    let mut found = Found::new(Program::Ollama, Some(root), parts);
    found.companions = files("projector", FileRole::Projector)?;
    found.companions.extend(files("draft", FileRole::Draft)?);
    found.title = Some(title(path));
    let all = manifest.layers.iter().chain(&manifest.config).filter_map(&blob).filter_map(|(_, path)| path);
    let others: Vec<PathBuf> = all.filter(|path| found.files().all(|file| file.path != *path)).collect();
    found.extras = std::iter::once(path.to_owned()).chain(others).collect();
    Ok(Some(found))
}

/// Blobs of a manifest that are there.
fn blobs(root: &Path, manifest: &Path) -> Vec<PathBuf> {
    let text = small_text(manifest).unwrap_or_default();
    let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else { return Vec::new() };
    let layers = manifest.layers.iter().chain(&manifest.config);
    layers.filter_map(|layer| blob(root, layer)?.1).collect()
}

/// Hash of a layer, and its blob if that is there.
fn blob(root: &Path, layer: &Layer) -> Option<(String, Option<PathBuf>)> {
    let sha256 = sha256_in(layer.digest.strip_prefix("sha256:")?)?;
    let names = [format!("sha256-{sha256}"), format!("sha256:{sha256}")];
    let path = names.iter().map(|name| root.join("blobs").join(name)).find(|path| path.is_file());
    Some((sha256, path))
}

/// What Ollama calls a model: parts that it assumes are left out.
fn title(manifest: &Path) -> String {
    let mut parts: Vec<String> =
        manifest.iter().rev().take(NAME_PARTS).map(|part| part.to_string_lossy().into_owned()).collect();
    parts.reverse();
    let [host, namespace, model, tag] = <[String; NAME_PARTS]>::try_from(parts).unwrap_or_default();
    match (host.as_str(), namespace.as_str()) {
        ("registry.ollama.ai", "library") => format!("{model}:{tag}"),
        ("registry.ollama.ai", _) => format!("{namespace}/{model}:{tag}"),
        _ => format!("{host}/{namespace}/{model}:{tag}"),
    }
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
    #[serde(default)]
    config: Option<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
}

fn unreadable(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        ErrorCode::Io,
        Text::new(format!("`{path}` is no manifest of Ollama"), format!("`{path}` 不是 Ollama 的清单文件")),
        Text::new("pull the model again in Ollama", "在 Ollama 中重新拉取该模型"),
    )
}

fn adapted(title: &str) -> Failure {
    Failure::new(
        ErrorCode::NotAChatModel,
        Text::new(
            format!("Ollama's `{title}` is a model with an adapter (LoRA), which Tandem does not apply"),
            format!("Ollama 的 `{title}` 是带适配器（LoRA）的模型，Tandem 不支持应用适配器"),
        ),
        Text::new(
            "use the model without it, or one with the adapter merged in",
            "请使用不带适配器的模型，或已合并适配器的模型",
        ),
    )
}

fn absent_blob(title: &str, sha256: &str) -> Failure {
    Failure::new(
        ErrorCode::NotFound,
        Text::new(
            format!("Ollama's `{title}` is not whole: the blob `sha256-{sha256}` is not there"),
            format!("Ollama 的 `{title}` 不完整：缺少数据块 `sha256-{sha256}`"),
        ),
        Text::new("pull the model again in Ollama", "在 Ollama 中重新拉取该模型"),
    )
}

const MEDIA_TYPE: &str = "application/vnd.ollama.image.";
/// Host, namespace, model and tag.
const NAME_PARTS: usize = 4;
