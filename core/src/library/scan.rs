//! Finds model files below a folder. Names only: nothing is opened.

use std::fs;
use std::path::{Path, PathBuf};

use tandem_engine::gguf::ShardName;

/// `publisher/repo/folder in the repo/file`, and one to spare.
const MAX_DEPTH: usize = 5;

/// Files that end in `.gguf`, of several shards the first, in order of their paths. Hidden folders are left out.
pub(super) fn models_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(folder, MAX_DEPTH, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, found);
            }
        } else if name.to_ascii_lowercase().ends_with(".gguf")
            && ShardName::parse(&name).is_none_or(|shard| shard.number == 1)
        {
            found.push(path);
        }
    }
}
