//! Removing a model: which files go, what that frees, and what stays.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::found::Found;
use super::item::Depth;
use super::{Library, LibraryError, is_by_hand, layouts, lock};
use crate::wire::{Failure, LibraryModel, LibraryPlace, Program, Removal, RemoveRequest};

impl Library {
    /// What removing a model would do.
    pub fn plan_removal(&self, request: &RemoveRequest) -> Result<Removal, Failure> {
        let model = self.get(&request.model_id)?;
        let doomed = self.doomed(&model, &request.of_programs);
        let (_, mut stays) = split(&model, &request.of_programs);
        stays.retain(|place| !leads_into(place, &doomed));
        let doomed: Vec<PathBuf> = doomed.into_iter().collect();
        let files = doomed.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(Removal { files, freed_bytes: freed_bytes(&doomed), stays })
    }

    /// Takes a model out. The app's own files and those of the programs that are named go to the trash; a file that was
    /// added by hand stays where it is unless `Other` is named. Where the model lies elsewhere too, it stays listed there.
    ///
    /// Errors   it lies with other programs alone; a place that is not named is a link to what would go
    pub fn remove(&self, request: &RemoveRequest) -> Result<Removal, Failure> {
        let model = self.get(&request.model_id)?;
        let removal = self.plan_removal(request)?;
        let (goes, stays) = split(&model, &request.of_programs);
        if goes.is_empty() {
            let programs = stays.iter().map(|place| place.program).collect();
            return Err(LibraryError::OfOthers { name: model.name, programs }.into());
        }
        let doomed = self.doomed(&model, &request.of_programs);
        let only_listed = goes.iter().filter(|place| !may_delete(place, &request.of_programs));
        // A folder that is used twice holds the file itself, not a link.
        let mut kept = stays.iter().chain(only_listed).filter(|place| !doomed.contains(Path::new(&place.path)));
        if let Some(LibraryPlace { path, program, .. }) = kept.find(|place| leads_into(place, &doomed)).cloned() {
            return Err(LibraryError::LinkedFrom { path, program }.into());
        }
        for file in doomed {
            self.trash.take(&file)?;
            self.remove_empty_folders(&file);
        }
        let one_at_a_time = lock(&self.sorting);
        let mut models = self.list();
        match models.iter_mut().find(|known| known.id == model.id) {
            Some(known) if !stays.is_empty() => known.places = stays,
            _ => models.retain(|known| known.id != model.id),
        }
        self.sort_in(models, &[], Vec::new(), Depth::Quick);
        drop(one_at_a_time);
        if self.get(&model.id).is_ok() {
            self.rescan();
        }
        self.changed();
        Ok(removal)
    }

    /// Files that go: those of the model in each place, unless another model there needs them.
    fn doomed(&self, model: &LibraryModel, of_programs: &[Program]) -> BTreeSet<PathBuf> {
        let (goes, _) = split(model, of_programs);
        goes.iter().filter(|place| may_delete(place, of_programs)).flat_map(|place| files_at(place, &goes)).collect()
    }

    /// Leaves no empty publisher or repo folders behind in the app's own folder; others keep theirs.
    fn remove_empty_folders(&self, file: &Path) {
        let own = self.own_folder().path;
        let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(&own) && **folder != own);
        for folder in folders {
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// Places that a removal is about, and those that stay.
fn split(model: &LibraryModel, of_programs: &[Program]) -> (Vec<LibraryPlace>, Vec<LibraryPlace>) {
    let goes = |place: &LibraryPlace| {
        place.program == Program::Tandem || is_by_hand(place) || of_programs.contains(&place.program)
    };
    model.places.iter().cloned().partition(goes)
}

/// A file added by hand only leaves the list, unless the person says that it may go.
fn may_delete(place: &LibraryPlace, of_programs: &[Program]) -> bool {
    !is_by_hand(place) || of_programs.contains(&place.program)
}

/// Whether a file of the model in a place is reached by way of a file that goes.
fn leads_into(place: &LibraryPlace, doomed: &BTreeSet<PathBuf>) -> bool {
    let doomed: BTreeSet<PathBuf> = doomed.iter().map(|path| in_real_folder(path)).collect();
    let found = layouts::beside(place.program, place.folder.as_deref().map(Path::new), Path::new(&place.path));
    found.files().any(|file| {
        let way = std::iter::successors(Some(in_real_folder(&file.path)), |path| {
            let target = fs::read_link(path).ok()?;
            Some(in_real_folder(&path.parent()?.join(target)))
        });
        way.take(MAX_LINKS).any(|path| doomed.contains(&path))
    })
}

/// The path with links in its folder followed, but not one that it is itself.
fn in_real_folder(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| dunce::canonicalize(folder).ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// All that belongs to the model in a place: found anew, so that nothing goes that somebody has put there meanwhile. What
/// another model needs stays; what only other places need that go too does not.
fn files_at(place: &LibraryPlace, goes: &[LibraryPlace]) -> Vec<PathBuf> {
    let path = Path::new(&place.path);
    let Some(folder) = place.folder.as_deref().map(Path::new) else {
        let alone = layouts::beside(place.program, None, path);
        return alone.parts.into_iter().map(|part| part.path).collect();
    };
    let seen = layouts::look(place.program, folder);
    let (it, others): (Vec<Found>, Vec<Found>) = seen.found.into_iter().partition(|found| found.first() == path);
    let stays = |found: &&Found| goes.iter().all(|place| Path::new(&place.path) != found.first());
    let needed = others.iter().filter(stays).flat_map(Found::paths).chain(seen.needed.iter().map(PathBuf::as_path));
    let needed: BTreeSet<&Path> = needed.collect();
    let own = it.iter().flat_map(Found::paths).filter(|path| !needed.contains(path));
    // A manifest may name files anywhere: only what lies in the program's folder is its to give.
    own.filter(|path| path.starts_with(folder)).map(Path::to_owned).collect()
}

/// What is free once the files are gone for good. Bytes that a name outside shares are not freed.
fn freed_bytes(doomed: &[PathBuf]) -> u64 {
    let mut files: HashMap<(u64, u64), (u64, u64, u64)> = HashMap::new();
    for (n, path) in doomed.iter().enumerate() {
        let Ok(about) = fs::symlink_metadata(path) else { continue };
        if about.is_file() {
            let (key, n_names) = identity(&about, n as u64);
            files.entry(key).or_insert((about.len(), n_names, 0)).2 += 1;
        }
    }
    files.into_values().filter(|(_, n_names, n_doomed)| n_doomed >= n_names).map(|(size_bytes, ..)| size_bytes).sum()
}

/// By what names are the same file, and how many names it has.
#[cfg(unix)]
fn identity(about: &fs::Metadata, _: u64) -> ((u64, u64), u64) {
    use std::os::unix::fs::MetadataExt;
    ((about.dev(), about.ino()), about.nlink())
}

/// By what names are the same file: this system does not tell, so each stands for itself.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata, n: u64) -> ((u64, u64), u64) {
    ((0, n), 1)
}

/// As many as Linux follows; more is a circle.
const MAX_LINKS: usize = 40;
