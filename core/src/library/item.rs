//! A model as the library lists it: read from what was found, header only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};
use tandem_engine::gguf::{GgufError, ModelFacts, ShardName};

use super::LibraryError;
use super::found::{Found, FoundFile};
use crate::error::{Explain, FileAction, FileError};
use crate::store::now_ms;
use crate::wire::{
    ErrorCode, Failure, FileRole, Integrity, LibraryFile, LibraryModel, LibraryPlace, Program, RepoFile, Text,
};

/// Makes an entry of what was found. Files that cannot be read are an error; a model whose shards are not all there is an
/// entry that says so.
///
/// known    what was known of these files as places of other entries
pub(super) fn read(found: &Found, known: Vec<LibraryFile>) -> Result<LibraryModel, LibraryError> {
    let mut model = LibraryModel {
        id: id_of(found.first())?,
        name: String::new(),
        quant: String::new(),
        architecture: String::new(),
        path: text(found.first())?,
        size_bytes: 0,
        n_params: 0,
        context_length: 0,
        integrity: Integrity::Unverified,
        source: None,
        refusal: None,
        added_at_ms: now_ms(),
        files: Vec::new(),
        places: vec![place(found)?],
        newer: None,
        elsewhere: known,
    };
    refresh(&mut model, found, Depth::Thorough)?;
    Ok(model)
}

/// How closely files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Headers of changed files, and of those that could not be used: this version of the app may know more than the last.
    Thorough,
    /// Headers of changed files.
    Quick,
}

/// Looks at an entry's files again as they were found: what is unchanged keeps what is known of it.
pub(super) fn refresh(model: &mut LibraryModel, found: &Found, depth: Depth) -> Result<(), LibraryError> {
    let before = std::mem::take(&mut model.files);
    let files = found.files().enumerate().map(|(n, file)| {
        // Another place of the same bytes: what was promised of them holds there too.
        let promised = before.get(n).filter(|_| Path::new(&model.path) != found.first());
        looked_at(file, found.program, &before, &model.elsewhere, promised)
    });
    let files: Result<Vec<LibraryFile>, LibraryError> = files.collect();
    model.files = files.inspect_err(|_| model.files.clone_from(&before))?;
    remember_elsewhere(model, &before);
    let parts = |files: &[LibraryFile]| -> Vec<(u64, i64)> {
        let parts = files.iter().filter(|file| file.role == FileRole::Model);
        parts.map(|file| (file.size_bytes, file.modified_ms)).collect()
    };
    let size_bytes: u64 = parts(&model.files).iter().map(|(size_bytes, _)| size_bytes).sum();
    // Entries of older versions know their size alone.
    let is_same =
        if before.is_empty() { size_bytes == model.size_bytes } else { parts(&before) == parts(&model.files) };
    let path = text(found.first())?;
    let is_settled = model.refusal.as_ref().is_none_or(|refusal| depth == Depth::Quick && is_of_contents(refusal.code));
    let is_read = is_same && is_settled && !model.name.is_empty();
    model.path = path;
    if !is_same && !is_still_promised(model) {
        (model.source, model.newer) = (None, None);
    }
    if !is_read {
        read_header(model, found)?;
    }
    let promised = model.source.take().filter(|source| source.sha256.is_some() || found.source.is_none());
    model.source = promised.or_else(|| found.source.clone());
    if before.is_empty() && is_same && model.integrity == Integrity::Verified {
        remember_verified(model);
    }
    model.integrity = integrity(&model.files);
    Ok(())
}

/// Keeps what was known of files that are not in use, as long as nobody has written to them.
pub(super) fn remember_elsewhere(model: &mut LibraryModel, others: &[LibraryFile]) {
    let mut known = std::mem::take(&mut model.elsewhere);
    known.extend(others.iter().cloned());
    let is_unchanged = |file: &LibraryFile| {
        stamp(Path::new(&file.path)).is_ok_and(|stamp| stamp == (file.size_bytes, file.modified_ms))
    };
    for file in known {
        let is_told = model.files.iter().chain(&model.elsewhere).any(|other| other.path == file.path);
        if !is_told && is_unchanged(&file) {
            model.elsewhere.push(file);
        }
    }
}

/// Whether the file that has changed is still held to the hash that its source names.
fn is_still_promised(model: &LibraryModel) -> bool {
    let promised = model.source.as_ref().and_then(|source| source.sha256.as_ref());
    promised.is_some() && model.files.iter().any(|file| file.expected_sha256.as_ref() == promised)
}

/// Whether a refusal follows from what is in the file, so that only another file or another version of the app ends it.
fn is_of_contents(code: ErrorCode) -> bool {
    use ErrorCode::{NotAChatModel, UnknownArchitecture, UnknownTensorType, UnknownTokenizer};
    matches!(code, UnknownArchitecture | UnknownTensorType | UnknownTokenizer | NotAChatModel)
}

/// Whether all parts were compared and equal, or any file was and is not.
pub(super) fn integrity(files: &[LibraryFile]) -> Integrity {
    let is_compared = |file: &LibraryFile| file.sha256.is_some() && file.expected_sha256.is_some();
    if files.iter().any(|file| is_compared(file) && file.sha256 != file.expected_sha256) {
        Integrity::Mismatched
    } else if !files.is_empty() && files.iter().filter(|file| file.role == FileRole::Model).all(is_compared) {
        Integrity::Verified
    } else {
        Integrity::Unverified
    }
}

/// Whether nobody has written to any file since it was looked at.
pub(crate) fn is_unchanged(model: &LibraryModel) -> bool {
    let is_same = |file: &LibraryFile| {
        stamp(Path::new(&file.path)).is_ok_and(|stamp| stamp == (file.size_bytes, file.modified_ms))
    };
    model.files.iter().all(is_same)
}

/// Where a model was found.
pub(super) fn place(found: &Found) -> Result<LibraryPlace, LibraryError> {
    let folder = found.folder.as_deref().map(text).transpose()?;
    let (path, title, stamp) = (text(found.first())?, found.title.clone(), stamp(found.first()).ok());
    Ok(LibraryPlace { path, program: found.program, folder, title, stamp })
}

/// The entry's file is not there any more.
pub(super) fn missing(path: &str) -> Failure {
    Failure::new(
        ErrorCode::ModelMissing,
        Text::new(format!("`{path}` is not there any more"), format!("`{path}` 已不存在")),
        Text::new(
            "put the file back or connect its drive; or take the model out of the library",
            "放回文件或连接磁盘；也可将其移出模型库",
        ),
    )
}

/// Follows links in the folder, but keeps the name: linked caches have names that say nothing.
pub(super) fn settled(path: &Path) -> Result<PathBuf, LibraryError> {
    let absolute = std::path::absolute(path).map_err(FileError::at(FileAction::Read, path))?;
    let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(GgufError::NotAFile { path: absolute }.into());
    };
    let folder = dunce::canonicalize(folder).map_err(FileError::at(FileAction::Read, &absolute))?;
    let path = folder.join(name);
    text(&path)?;
    fs::metadata(&path).map_err(FileError::at(FileAction::Read, &path))?;
    Ok(path)
}

/// Identifier that follows from where a model's first file really lies.
fn id_of(path: &Path) -> Result<String, LibraryError> {
    let mut first = path.to_owned();
    if let Some(shard) = ShardName::parse(&path.file_name().unwrap_or_default().to_string_lossy()) {
        first.set_file_name(shard.sibling(1));
    }
    let real = dunce::canonicalize(&first).or_else(|_| dunce::canonicalize(path));
    let real = real.map_err(FileError::at(FileAction::Read, path))?;
    Ok(Sha256::digest(real.as_os_str().as_encoded_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn text(path: &Path) -> Result<String, LibraryError> {
    path.to_str().map(str::to_owned).ok_or_else(|| LibraryError::PathNotUnicode { path: path.to_owned() })
}

/// A file as it is now, with what is known of it if it is unchanged, wherever it lies by now. What was promised of it
/// outlives a change that leaves its size, as damage does; of the app's own files, any change.
///
/// elsewhere  what is known of other places; it holds for the same path alone
/// promised   the file in whose place this one is used now, which has the same bytes
fn looked_at(
    found: &FoundFile,
    program: Program,
    before: &[LibraryFile],
    elsewhere: &[LibraryFile],
    promised: Option<&LibraryFile>,
) -> Result<LibraryFile, LibraryError> {
    let (size_bytes, modified_ms) = stamp(&found.path).map_err(FileError::at(FileAction::Read, &found.path))?;
    let path = text(&found.path)?;
    let is_same = |file: &&LibraryFile| (file.size_bytes, file.modified_ms) == (size_bytes, modified_ms);
    let other = elsewhere.iter().find(|file| file.path == path);
    let known = before.iter().chain(other).filter(is_same).max_by_key(|file| file.path == path);
    let known = known.filter(|file| file.path == path || file.role == found.role);
    let is_held_to =
        |file: &&LibraryFile| file.path == path && (file.size_bytes == size_bytes || program == Program::Tandem);
    let instead = promised.filter(|file| (file.role, file.size_bytes) == (found.role, size_bytes));
    let held_to = before.iter().chain(other).find(is_held_to);
    let promises = [known, held_to, instead].into_iter().flatten();
    let promised = promises.filter_map(|file| file.expected_sha256.clone()).next();
    let sha256 = known.map(|file| &file.sha256);
    Ok(LibraryFile {
        role: found.role,
        size_bytes,
        modified_ms,
        expected_sha256: found.expected_sha256.clone().or(promised),
        sha256: found.sha256.clone().or_else(|| sha256.cloned().flatten()),
        path,
    })
}

/// Size, and time of the last change: equal as long as nobody writes to the file.
pub(super) fn stamp(path: &Path) -> io::Result<(u64, i64)> {
    let about = fs::metadata(path)?;
    let modified_ms = about.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64);
    Ok((about.len(), modified_ms))
}

fn read_header(model: &mut LibraryModel, found: &Found) -> Result<(), LibraryError> {
    let own_name = found.first().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file_name = found.file_name.clone().unwrap_or(own_name);
    let stem = ShardName::parse(&file_name)
        .map_or_else(|| file_name.trim_end_matches(".gguf").to_owned(), |shard| shard.prefix);
    model.size_bytes = model.files.iter().filter(|file| file.role == FileRole::Model).map(|file| file.size_bytes).sum();
    if !found.missing.is_empty() {
        let count = (found.parts.len() + found.missing.len()) as u32;
        let lacking = GgufError::MissingShards { missing: found.missing.clone(), count };
        model.quant = tandem_engine::gguf::quant_label_from_name(&file_name).unwrap_or_default();
        model.name = found.title.clone().unwrap_or_else(|| display_name(&stem, &model.quant, None));
        model.refusal = Some(lacking.explain());
        return Ok(());
    }
    let facts = ModelFacts::from_file(found.first())?;
    model.quant = facts.quant_label();
    model.name = found.title.clone().unwrap_or_else(|| display_name(&stem, &model.quant, facts.name()));
    model.architecture = facts.architecture().unwrap_or_default().to_owned();
    model.n_params = facts.n_params();
    model.context_length = facts.context_length().unwrap_or_default().into();
    model.refusal = facts.refusal().err().map(|refusal| refusal.explain());
    Ok(())
}

/// What an older version called verified stays so: the hash that it had compared is the one that was promised.
fn remember_verified(model: &mut LibraryModel) {
    let promised = model.source.as_ref().and_then(|source: &RepoFile| source.sha256.clone());
    if let ([file], Some(sha256)) = (model.files.as_mut_slice(), promised) {
        (file.expected_sha256, file.sha256) = (Some(sha256.clone()), Some(sha256));
    }
}

/// What people call a model: its file's name without the quant label. `general.name` often holds what a training run was
/// called, so it only serves where the file's name says nothing.
pub(super) fn display_name(stem: &str, quant: &str, general_name: Option<&str>) -> String {
    let cut = stem.len().saturating_sub(quant.len());
    let bare = match stem.get(cut..) {
        Some(end) if end.eq_ignore_ascii_case(quant) => stem[..cut].trim_end_matches(['-', '.', '_']),
        _ => stem,
    };
    let is_digest =
        bare.trim_start_matches("sha256-").len() == 64 && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let says_nothing = is_digest || ["", "model", "ggml-model"].contains(&bare.to_ascii_lowercase().as_str());
    match general_name {
        Some(name) if says_nothing => name.to_owned(),
        _ if bare.is_empty() => stem.to_owned(),
        _ => bare.to_owned(),
    }
}
