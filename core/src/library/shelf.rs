//! Brings what was found together with what is known: the same file found twice is one model with two places.
//!
//! Files are the same by path, by what their links lead to, by device and number (hard links), and by size and SHA256.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::found::Found;
use super::item::{self, Depth};
use crate::error::Explain;
use crate::wire::{Failure, FileRole, Integrity, LibraryFile, LibraryModel, LibraryPlace, Program};

/// Models while they are sorted.
pub(super) struct Shelf {
    slots: Vec<Slot>,
    by_key: HashMap<Key, usize>,
}

/// A model, and where it was found this time.
struct Slot {
    model: LibraryModel,
    found: Vec<Found>,
    /// Places in folders that were looked into, as they were before.
    before: Vec<LibraryPlace>,
    /// Read anew just now: not looked at a second time.
    is_fresh: bool,
    is_merged_away: bool,
}

/// By what files are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Path(PathBuf),
    #[cfg(unix)]
    Inode(u64, u64),
    Bytes(u64, Vec<String>),
}

impl Shelf {
    /// Puts known models up. What they know of the folders that are looked into this time is to be found again.
    pub(super) fn new(known: Vec<LibraryModel>, looked_into: &[PathBuf]) -> Self {
        let mut shelf = Self { slots: Vec::new(), by_key: HashMap::new() };
        for mut model in known {
            let is_looked_into = |place: &LibraryPlace| {
                place.folder.as_deref().is_some_and(|folder| looked_into.iter().any(|path| path == Path::new(folder)))
            };
            let (before, kept) = std::mem::take(&mut model.places).into_iter().partition(is_looked_into);
            model.places = kept;
            let keys = keys_of_model(&model, &before);
            let index = shelf.slots.len();
            shelf.slots.push(Slot { model, found: Vec::new(), before, is_fresh: false, is_merged_away: false });
            shelf.claim(index, keys);
        }
        shelf
    }

    /// Takes in what was found; the index of its model. Fails if it is new and cannot be read.
    pub(super) fn put(&mut self, found: Found) -> Result<usize, Failure> {
        let keys = keys_of_found(&found);
        if let Some(index) = keys.iter().find_map(|key| self.by_key.get(key)).copied() {
            let place = item::place(&found)?;
            let slot = &mut self.slots[index];
            slot.model.places.retain(|known| !is_same_place(known, &place));
            slot.model.places.push(place);
            slot.found.push(found);
            self.claim(index, keys);
            return Ok(index);
        }
        let model = item::read(&found, self.known_of(&found))?;
        let index = self.slots.len();
        let found = vec![found];
        self.slots.push(Slot { model, found, before: Vec::new(), is_fresh: true, is_merged_away: false });
        self.claim(index, keys);
        Ok(index)
    }

    /// What is known of files that were found as places of models which they have left by now.
    fn known_of(&self, found: &Found) -> Vec<LibraryFile> {
        let known = self.slots.iter().flat_map(|slot| &slot.model.elsewhere);
        known.filter(|file| found.files().any(|found| found.path == Path::new(&file.path))).cloned().collect()
    }

    /// The models by the order in which they were added, each with its state as it is now.
    pub(super) fn settle(self, depth: Depth) -> Vec<LibraryModel> {
        self.slots.into_iter().filter(|slot| !slot.is_merged_away).filter_map(|slot| slot.settle(depth)).collect()
    }

    pub(super) fn model(&self, index: usize) -> &LibraryModel {
        &self.slots[index].model
    }

    /// Marks keys as this model's; another that has one of them is the same model, added later or earlier.
    fn claim(&mut self, index: usize, keys: Vec<Key>) {
        for key in keys {
            match self.by_key.get(&key).copied() {
                Some(other) if other != index && !self.slots[other].is_merged_away => self.merge(other, index),
                Some(_) => {}
                None => {
                    self.by_key.insert(key, index);
                }
            }
        }
    }

    /// Two known models have turned out to be one: the first keeps its identifier.
    fn merge(&mut self, into: usize, from: usize) {
        let (into, from) = (into.min(from), into.max(from));
        let Self { slots, .. } = self;
        let mut places = std::mem::take(&mut slots[from].model.places);
        // What has just shown that they are the same is remembered of the place that was in use.
        let in_use = places.iter_mut().filter(|place| place.path == slots[from].model.path);
        in_use.for_each(|place| place.stamp = item::stamp(Path::new(&place.path)).ok());
        let before = std::mem::take(&mut self.slots[from].before);
        let found = std::mem::take(&mut self.slots[from].found);
        let (files, elsewhere) = {
            let model = &mut self.slots[from].model;
            (std::mem::take(&mut model.files), std::mem::take(&mut model.elsewhere))
        };
        self.slots[from].is_merged_away = true;
        self.by_key.values_mut().filter(|index| **index == from).for_each(|index| *index = into);
        let slot = &mut self.slots[into];
        slot.model.places.extend(places);
        learn(&mut slot.model, files, elsewhere);
        slot.before.extend(before);
        slot.found.extend(found);
    }
}

impl Slot {
    /// The model as it is now; `None` if another program has removed it.
    fn settle(mut self, depth: Depth) -> Option<LibraryModel> {
        if self.is_fresh && self.found.len() == 1 {
            return Some(self.model);
        }
        if self.model.places.is_empty() {
            // What a person had Tandem fetch is missed; what other programs have dropped is not.
            let is_away = |place: &LibraryPlace| !place.folder.as_deref().is_some_and(|path| Path::new(path).is_dir());
            let is_missed = |place: &LibraryPlace| place.program == Program::Tandem || is_away(place);
            if !self.before.is_empty() && !self.before.iter().any(is_missed) {
                return None;
            }
            self.model.places = self.before;
            return Some(gone(self.model));
        }
        sort_places(&mut self.model);
        let in_use = PathBuf::from(&self.model.places[0].path);
        match self.found.into_iter().find(|found| found.first() == in_use) {
            Some(found) => match item::refresh(&mut self.model, &found, depth) {
                Ok(()) => Some(self.model),
                Err(error) => {
                    self.model.refusal = Some(error.explain());
                    Some(self.model)
                }
            },
            None if in_use.is_file() => Some(self.model),
            None => Some(gone(self.model)),
        }
    }
}

/// Takes over what is known of the files of a model that has the same bytes; what was promised of either holds for both.
fn learn(model: &mut LibraryModel, mut files: Vec<LibraryFile>, elsewhere: Vec<LibraryFile>) {
    for (own, other) in model.files.iter_mut().zip(&mut files) {
        let promised = own.expected_sha256.clone().or_else(|| other.expected_sha256.clone());
        if (own.role, own.size_bytes) == (other.role, other.size_bytes) {
            own.expected_sha256.clone_from(&promised);
            other.expected_sha256 = promised;
        }
    }
    model.elsewhere.extend(files.into_iter().chain(elsewhere));
}

fn gone(mut model: LibraryModel) -> LibraryModel {
    model.refusal = Some(item::missing(&model.path));
    model
}

/// The place in use stays in use while it is there; else the app's own, then by program.
fn sort_places(model: &mut LibraryModel) {
    let path = model.path.clone();
    model.places.sort_by_key(|place| (!Path::new(&place.path).is_file(), place.path != path, place.program));
    model.places.dedup_by(|a, b| is_same_place(a, b));
}

fn keys_of_found(found: &Found) -> Vec<Key> {
    let hashes: Option<Vec<String>> =
        found.parts.iter().map(|part| part.sha256.clone().or_else(|| part.expected_sha256.clone())).collect();
    let sizes = found.parts.iter().map(|part| fs::metadata(&part.path).map_or(0, |about| about.len()));
    let mut keys = keys_of_path(found.first());
    keys.extend(hashes.map(|hashes| Key::Bytes(sizes.sum(), hashes)));
    keys
}

fn is_same_place(a: &LibraryPlace, b: &LibraryPlace) -> bool {
    (&a.path, a.program, &a.title) == (&b.path, b.program, &b.title)
}

/// The place in use leads to the model again even if its bytes have changed; other places only while they hold the same,
/// which nobody reads them for: they count as long as neither has been written to.
fn keys_of_model(model: &LibraryModel, before: &[LibraryPlace]) -> Vec<Key> {
    let mut keys = keys_of_path(Path::new(&model.path));
    let is_here = Path::new(&model.path).is_file();
    let is_unchanged = item::is_unchanged(model);
    let holds_the_same = |place: &&LibraryPlace| {
        let is_as_it_was = || place.stamp.is_some() && place.stamp == item::stamp(Path::new(&place.path)).ok();
        place.path != model.path && (!is_here || is_unchanged && is_as_it_was())
    };
    let places = model.places.iter().chain(before).filter(holds_the_same);
    keys.extend(places.flat_map(|place| keys_of_path(Path::new(&place.path))));
    let parts = model.files.iter().filter(|file| file.role == FileRole::Model);
    // What was promised of a file of ours, or of one added by hand, may have been damaged since.
    let is_of_program = model.places.iter().chain(before).any(|place| place.path == model.path && is_of_program(place));
    let promised = |file: &LibraryFile| file.expected_sha256.clone().filter(|_| is_of_program);
    let hashes: Option<Vec<String>> = parts.map(|file| file.sha256.clone().or_else(|| promised(file))).collect();
    let is_known = !model.files.is_empty() && model.integrity != Integrity::Mismatched && is_unchanged;
    keys.extend(hashes.filter(|_| is_known).map(|hashes| Key::Bytes(model.size_bytes, hashes)));
    keys
}

/// Whether it lies in a folder of another program, whose manifest promises the same at each look. LM Studio has none: what
/// was promised of a file there was proven of it once, and it may have changed since.
fn is_of_program(place: &LibraryPlace) -> bool {
    let has_no_manifests = matches!(place.program, Program::Tandem | Program::LmStudio | Program::Other);
    !has_no_manifests && place.folder.is_some()
}

fn keys_of_path(path: &Path) -> Vec<Key> {
    let mut keys = vec![Key::Path(path.to_owned())];
    keys.extend(dunce::canonicalize(path).ok().map(Key::Path));
    #[cfg(unix)]
    if let Ok(about) = fs::metadata(path) {
        use std::os::unix::fs::MetadataExt;
        keys.push(Key::Inode(about.dev(), about.ino()));
    }
    keys
}
