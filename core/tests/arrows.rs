//! Who may use whom: between crates, between core's layers, and between the window and its shell.
//!
//! Reads the sources as text, on purpose: a forbidden line is found even where a build would not reach it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that a member may never name, in its manifest or its sources.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("engine", &["tokio", "reqwest", "rusqlite", "axum", "tauri", "tandem-core", "tandem-desktop", "tandem-cli"]),
    ("core", &["tauri", "tandem-desktop", "tandem-cli", "clap"]),
    ("cli", &["tauri", "tandem-desktop"]),
    ("src-tauri", &["tandem-cli", "rusqlite", "reqwest"]),
];

#[test]
fn crates_name_only_what_lies_below() {
    for (member, forbidden) in FORBIDDEN {
        let dir = root().join(member);
        let named = dependencies(&fs::read_to_string(dir.join("Cargo.toml")).unwrap());
        assert!(!named.is_empty(), "{member} depends on nothing: is its manifest read rightly?");
        for name in *forbidden {
            let is_family = |found: &String| found == name || found.starts_with(&format!("{name}-"));
            assert!(!named.iter().any(is_family), "{member}/Cargo.toml names `{name}`");
            let path = format!("{}::", name.replace('-', "_"));
            for file in sources(&dir.join("src"), &["rs"]) {
                let uses = code(&fs::read_to_string(&file).unwrap()).any(|line| names_path(line, &path));
                assert!(!uses, "{} names `{path}`", file.display());
            }
        }
    }
}

#[test]
fn core_modules_use_only_layers_above_them_in_lib() {
    let src = root().join("core/src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let layers: Vec<&str> = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert!(layers.len() > 10, "lib.rs lists its modules one by one");
    for (rank, module) in layers.iter().enumerate() {
        for file in module_files(&src, module) {
            for used in crate_uses(&fs::read_to_string(&file).unwrap()) {
                let Some(used_rank) = layers.iter().position(|layer| *layer == used) else { continue };
                assert!(used_rank <= rank, "{} uses `crate::{used}`, which lies above `{module}`", file.display());
            }
        }
    }
}

#[test]
fn tauri_is_imported_in_one_ui_file() {
    let is_test = |file: &PathBuf| file.to_string_lossy().ends_with(".test.ts");
    let importing: Vec<PathBuf> = sources(&root().join("ui/src"), &["ts", "svelte", "js"])
        .into_iter()
        .filter(|file| !is_test(file))
        .filter(|file| fs::read_to_string(file).unwrap().contains("@tauri-apps/"))
        .collect();
    assert!(importing.len() <= 1, "@tauri-apps is imported in {importing:?}");
}

#[test]
fn readers_of_this_test_see_what_they_should() {
    let source =
        "use crate::wire::{Text};\nlet x = crate::store::Store; // crate::api\nuse crate::{hub, plan::Plan};\n";
    assert_eq!(crate_uses(source), BTreeSet::from(["wire", "store", "hub", "plan"].map(String::from)));
    assert_eq!(
        dependencies(
            "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n[dependencies.e]\nversion = \"1\"\n"
        ),
        BTreeSet::from(["a", "b", "d", "e"].map(String::from))
    );
    assert!(names_path("let a = tauri::Builder", "tauri::") && !names_path("let a = my_tauri::X", "tauri::"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below `dir` with one of the extensions; none if the folder is not there.
fn sources(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("folder can be read").path()) {
        if path.is_dir() {
            found.extend(sources(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            found.push(path);
        }
    }
    found
}

fn module_files(src: &Path, module: &str) -> Vec<PathBuf> {
    let file = src.join(format!("{module}.rs"));
    if file.is_file() { vec![file] } else { sources(&src.join(module), &["rs"]) }
}

/// Lines without their comments.
fn code(source: &str) -> impl Iterator<Item = &str> {
    source.lines().map(|line| line.split("//").next().unwrap_or_default())
}

/// Whether `path` (`tauri::`) begins a path in the line, and is not the end of a longer name.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Names that follow `crate::`, alone or in braces on the same line.
fn crate_uses(source: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for line in code(source) {
        for (at, start) in line.match_indices("crate::") {
            let rest = &line[at + start.len()..];
            let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or(list));
            let items = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
            for item in items {
                let name: String = item.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if !name.is_empty() {
                    used.insert(name);
                }
            }
        }
    }
    used
}

/// Names in a manifest's dependency tables; development dependencies are free.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut in_table = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            in_table = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
            if let Some((before, name)) = table.rsplit_once('.')
                && before.ends_with("dependencies")
                && !before.ends_with("dev-dependencies")
            {
                names.insert(name.to_owned());
            }
        } else if in_table && line.starts_with(|c: char| c.is_alphanumeric()) {
            names.extend(line.split(['.', '=', ' ']).next().map(str::to_owned));
        }
    }
    names
}
