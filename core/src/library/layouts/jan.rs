//! Jan's store: `<data>/llamacpp/models/<id>/model.yml` names the model, its file and its projector, by paths below the
//! data folder or, for imported ones, anywhere. Older versions kept plain files in `<data>/models`.
//!
//! Source: `extensions/llamacpp-extension/src/index.ts` of Jan.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::plain::{below, beside, grouped, is_gguf};
use super::walk::Walk;
use super::{Seen, sha256_in, small_text};
use crate::library::found::{Found, FoundFile};
use crate::wire::{FileRole, Program};

pub(super) fn look(folder: &Path) -> Seen {
    let walk = Walk::below(folder, MAX_DEPTH, |name| name == NOTE || is_gguf(name));
    let (notes, files): (Vec<PathBuf>, Vec<PathBuf>) = walk.files.into_iter().partition(|path| path.ends_with(NOTE));
    let data = folder.ancestors().nth(if folder.ends_with("llamacpp/models") { 2 } else { 1 }).unwrap_or(folder);
    let mut found: Vec<Found> = notes.iter().filter_map(|note| read(folder, data, note)).collect();
    let is_named = |path: &PathBuf| found.iter().any(|found| found.paths().any(|named| named == path));
    let rest: Vec<PathBuf> = files.into_iter().filter(|path| !is_named(path)).collect();
    let names: Vec<String> = rest.iter().map(|path| below(folder, path)).collect();
    found.extend(grouped(Program::Jan, folder, &rest, &names));
    Seen { found, problems: walk.problems, ..Seen::default() }
}

fn read(folder: &Path, data: &Path, note: &Path) -> Option<Found> {
    let values = top_level_values(&small_text(note)?);
    let path = |key: &str| values.get(key).map(|path| data.join(path)).filter(|path| path.is_file());
    let hash = |key: &str| values.get(key).and_then(|text| sha256_in(text));
    let file = path("model_path")?;
    let mut found = beside(Program::Jan, Some(folder), &file);
    found.companions.clear();
    if let [only] = found.parts.as_mut_slice() {
        only.expected_sha256 = hash("model_sha256");
    }
    if let Some(projector) = path("mmproj_path") {
        let projector = FoundFile::new(projector, FileRole::Projector).expecting(hash("mmproj_sha256"));
        found.companions.push(projector);
    }
    found.file_name = values.get("name").and_then(|name| name.rsplit('/').next()).map(|name| format!("{name}.gguf"));
    found.extras = vec![note.to_owned()];
    Some(found)
}

/// `key: value` lines of a YAML file that begin a line, which is all that is needed of it.
fn top_level_values(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter(|line| !line.starts_with([' ', '-', '#'])).filter_map(|line| line.split_once(": "));
    pairs.map(|(key, value)| (key.to_owned(), unquoted(value.trim()).to_owned())).collect()
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

const NOTE: &str = "model.yml";
const MAX_DEPTH: usize = 6;
