//! Models on this machine, in place: downloaded ones in the models folder, others wherever they lie.
//!
//! A model is known by its bytes: all shards of one are one model, projector and draft belong to it, and whatever paths and
//! programs lead to it, it is shown once. Files of other programs are read and never changed, unless a person names the
//! program whose files may go; then, as the app's own, they go to the trash.

mod error;
mod found;
mod item;
mod known;
mod layouts;
mod removal;
mod shelf;
mod trash;
mod upstream;
mod verify;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Explain;
use crate::store::Store;
use crate::wire::{AddedPaths, Failure, LibraryFolder, LibraryModel, LibraryPlace, Program, RepoFile};
use found::Found;
use item::Depth;
use layouts::Seen;
use shelf::Shelf;

pub use error::LibraryError;
pub(crate) use item::is_unchanged;
pub use known::{Environment, Os};
pub use trash::Trash;

/// Who hears of changes: all models, each time.
pub type LibrarySink = Box<dyn Fn(Vec<LibraryModel>) + Send + Sync>;

/// The library.
pub struct Library {
    store: Arc<Store>,
    trash: Trash,
    around: Environment,
    models_dir: Mutex<PathBuf>,
    entries: Mutex<Vec<LibraryModel>>,
    folders: Mutex<Vec<UsedFolder>>,
    /// Held while entries are brought together with what lies on the disk.
    sorting: Mutex<()>,
    has_rescanned: AtomicBool,
    /// Checks under way, by model; set to stop one.
    checks: Mutex<HashMap<String, Arc<AtomicBool>>>,
    on_change: LibrarySink,
}

/// A folder of other programs, or one that a person chose, that is used in place.
#[derive(Clone, Debug)]
struct UsedFolder {
    program: Program,
    path: PathBuf,
    /// What could not be read when it was last looked into.
    problems: Vec<Failure>,
}

impl Library {
    /// Reads what is kept and takes in what lies in the models folder. Folders of other programs are not looked into yet.
    pub fn open(
        store: Arc<Store>,
        models_dir: &Path,
        trash: Trash,
        around: Environment,
        on_change: LibrarySink,
    ) -> Result<Self, LibraryError> {
        let entries = store.models()?;
        let kept = store.library_folders()?.into_iter();
        let folders = kept.map(|(path, program)| UsedFolder { program, path, problems: Vec::new() }).collect();
        let library = Self {
            store,
            trash,
            around,
            models_dir: Mutex::new(models_dir.to_owned()),
            entries: Mutex::new(entries),
            folders: Mutex::new(folders),
            sorting: Mutex::default(),
            has_rescanned: AtomicBool::new(false),
            checks: Mutex::default(),
            on_change,
        };
        library.scan(&[library.own_folder()], Depth::Thorough);
        Ok(library)
    }

    /// All models, in the order they were added.
    pub fn list(&self) -> Vec<LibraryModel> {
        lock(&self.entries).clone()
    }

    /// One model.
    pub fn get(&self, id: &str) -> Result<LibraryModel, LibraryError> {
        let found = lock(&self.entries).iter().find(|model| model.id == id).cloned();
        found.ok_or_else(|| LibraryError::Unknown { id: id.to_owned() })
    }

    /// The model that came from this file of a repo, or has its bytes.
    pub fn find(&self, file: &RepoFile) -> Option<LibraryModel> {
        let entries = lock(&self.entries);
        entries.iter().find(|model| upstream::is_of(model, file) && Path::new(&model.path).is_file()).cloned()
    }

    /// Where it is kept.
    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Where removed files go.
    pub(crate) fn trash(&self) -> Trash {
        self.trash.clone()
    }

    /// Whether any folder but the app's own is used.
    pub fn uses_folders(&self) -> bool {
        !lock(&self.folders).is_empty() || lock(&self.entries).iter().flat_map(|model| &model.places).any(is_by_hand)
    }

    /// Takes a file in where it lies, with the shards and companions beside it. Known ones keep their identifier.
    pub fn add(&self, path: &Path) -> Result<LibraryModel, Failure> {
        let path = item::settled(path)?;
        let owner = self.owner_of(&path);
        let (program, folder) = owner.map_or((Program::Other, None), |owner| (owner.program, Some(owner.path)));
        self.take_in(layouts::beside(program, folder.as_deref(), &path))
    }

    /// Takes in what a download has brought and compared with the hub's SHA256.
    pub fn add_download(&self, paths: &[PathBuf], files: &[RepoFile]) -> Result<LibraryModel, Failure> {
        let (Some(first), Some(source)) = (paths.first(), files.first()) else {
            return Err(LibraryError::Unknown { id: String::new() }.explain());
        };
        let own = self.own_folder();
        let mut found = layouts::beside(Program::Tandem, Some(&own.path), &item::settled(first)?);
        for (path, file) in paths.iter().zip(files) {
            let path = item::settled(path)?;
            for file_found in found.parts.iter_mut().chain(&mut found.companions).filter(|found| found.path == path) {
                (file_found.expected_sha256, file_found.sha256) = (file.sha256.clone(), file.sha256.clone());
            }
        }
        found.source = Some(source.clone());
        self.take_in(found)
    }

    /// Takes in files and folders together; what cannot be added does not keep the others from it.
    pub fn add_paths(&self, paths: &[PathBuf]) -> AddedPaths {
        let mut added = AddedPaths::default();
        for path in paths {
            let failure = if path.is_dir() {
                self.use_folder(path).map(|folder| added.folders.push(folder)).err()
            } else {
                self.add(path).map(|model| added.models.push(model)).err()
            };
            added.failures.extend(failure);
        }
        added
    }

    /// Folders of other programs that are there, and those in use, each with what it holds.
    pub fn folders(&self) -> Vec<LibraryFolder> {
        let used = lock(&self.folders).clone();
        let is_used = |path: &Path| used.iter().any(|folder| folder.path == path);
        let known = known::folders(&self.around).into_iter().filter(|(_, path)| !is_used(path));
        let offered = known.filter_map(|(program, path)| {
            let seen = layouts::look(program, &path);
            (!seen.found.is_empty()).then(|| told(program, &path, false, &seen))
        });
        let used = used.iter().map(|folder| {
            let seen = layouts::look(folder.program, &folder.path);
            LibraryFolder { problems: folder.problems.clone(), ..told(folder.program, &folder.path, true, &seen) }
        });
        used.chain(offered).collect()
    }

    /// From now on uses the models of a folder in place. One of a known program is read as that program keeps it.
    pub fn use_folder(&self, path: &Path) -> Result<LibraryFolder, Failure> {
        let path = item::settled(path)?;
        let path = dunce::canonicalize(&path).unwrap_or(path);
        let known = known::folders(&self.around).into_iter().find(|(_, folder)| *folder == path);
        let program = known.map_or_else(|| layouts::detect(&path), |(program, _)| program);
        self.store.use_folder(&path, program).map_err(LibraryError::Store)?;
        let is_used = lock(&self.folders).iter().any(|folder| folder.path == path);
        let folder = UsedFolder { program, path, problems: Vec::new() };
        if !is_used {
            lock(&self.folders).push(folder.clone());
        }
        let seen = layouts::look(program, &folder.path);
        let answer = told(program, &folder.path, true, &seen);
        self.scan(std::slice::from_ref(&folder), Depth::Quick);
        self.changed();
        Ok(LibraryFolder { problems: self.problems_of(&folder.path), ..answer })
    }

    /// No longer uses a folder: models that lie nowhere else leave the library. No file is touched.
    pub fn drop_folder(&self, path: &Path) -> Result<(), Failure> {
        self.store.drop_folder(path).map_err(LibraryError::Store)?;
        lock(&self.folders).retain(|folder| folder.path != path);
        let is_elsewhere =
            |place: &LibraryPlace| place.folder.as_deref().is_none_or(|folder| Path::new(folder) != path);
        let _one_at_a_time = lock(&self.sorting);
        let mut models = self.list();
        for model in &mut models {
            model.places.retain(is_elsewhere);
        }
        models.retain(|model| !model.places.is_empty());
        self.sort_in(models, &[], Vec::new(), Depth::Quick);
        self.changed();
        Ok(())
    }

    /// From now on downloads lie here; what lies elsewhere stays in the library.
    pub fn set_models_dir(&self, models_dir: &Path) {
        *lock(&self.models_dir) = models_dir.to_owned();
        self.rescan();
    }

    /// Looks at every known file again, and for new ones in all folders in use. One at a time.
    pub fn rescan(&self) {
        let before = self.list();
        let mut folders = vec![self.own_folder()];
        folders.extend(lock(&self.folders).iter().cloned());
        let is_first = !self.has_rescanned.swap(true, Ordering::Relaxed);
        self.scan(&folders, if is_first { Depth::Thorough } else { Depth::Quick });
        if self.list() != before {
            self.changed();
        }
    }

    /// Looks into folders and at files added by hand.
    fn scan(&self, folders: &[UsedFolder], depth: Depth) {
        let _one_at_a_time = lock(&self.sorting);
        let known = self.list();
        let by_hand = known.iter().flat_map(|model| &model.places).filter(|place| is_by_hand(place));
        let by_hand = by_hand.filter(|place| Path::new(&place.path).is_file());
        let mut found: Vec<Found> =
            by_hand.map(|place| layouts::beside(place.program, None, Path::new(&place.path))).collect();
        for folder in folders {
            let Seen { found: inside, problems, .. } = layouts::look(folder.program, &folder.path);
            found.extend(inside);
            self.set_problems(&folder.path, problems);
        }
        let looked_into: Vec<PathBuf> = folders.iter().map(|folder| folder.path.clone()).collect();
        self.sort_in(known, &looked_into, found, depth);
    }

    /// Brings known models together with what was found, and keeps the outcome. The caller holds `sorting`.
    fn sort_in(&self, known: Vec<LibraryModel>, looked_into: &[PathBuf], found: Vec<Found>, depth: Depth) {
        let mut shelf = Shelf::new(known, looked_into);
        for found in found {
            let (path, folder) = (found.first().to_owned(), found.folder.clone());
            if let Err(failure) = shelf.put(found) {
                tracing::warn!(path = %path.display(), message = failure.message.en, "a file is no model");
                self.add_problem(folder.as_deref(), failure);
            }
        }
        self.keep_all(shelf.settle(depth));
    }

    fn take_in(&self, found: Found) -> Result<LibraryModel, Failure> {
        let one_at_a_time = lock(&self.sorting);
        let mut shelf = Shelf::new(self.list(), &[]);
        let index = shelf.put(found)?;
        let id = shelf.model(index).id.clone();
        self.keep_all(shelf.settle(Depth::Quick));
        drop(one_at_a_time);
        self.changed();
        Ok(self.get(&id)?)
    }

    /// Keeps the models: in memory in any case, on disk if that works.
    fn keep_all(&self, models: Vec<LibraryModel>) {
        let before = std::mem::replace(&mut *lock(&self.entries), models.clone());
        let gone = before.iter().filter(|old| models.iter().all(|model| model.id != old.id));
        let written = models.iter().filter(|model| before.iter().all(|old| old != *model));
        let removed = gone.map(|model| self.store.remove_model(&model.id));
        for error in removed.chain(written.map(|model| self.store.put_model(model))).filter_map(Result::err) {
            tracing::warn!(%error, "the library cannot be kept");
        }
    }

    /// Changes one model, if it is still there, and keeps it: in memory in any case, on disk if that works.
    fn update(&self, id: &str, change: impl FnOnce(&mut LibraryModel)) -> Result<LibraryModel, LibraryError> {
        let model = {
            let mut entries = lock(&self.entries);
            let model = entries.iter_mut().find(|model| model.id == id);
            let model = model.ok_or_else(|| LibraryError::Unknown { id: id.to_owned() })?;
            change(model);
            model.clone()
        };
        if let Err(error) = self.store.put_model(&model) {
            tracing::warn!(%error, "the library cannot be kept");
        }
        Ok(model)
    }

    /// The models folder as one that is used.
    fn own_folder(&self) -> UsedFolder {
        let path = lock(&self.models_dir).clone();
        let path = dunce::canonicalize(&path).unwrap_or(path);
        UsedFolder { program: Program::Tandem, path, problems: Vec::new() }
    }

    /// The folder in use that holds a file.
    fn owner_of(&self, path: &Path) -> Option<UsedFolder> {
        let used = lock(&self.folders).clone();
        std::iter::once(self.own_folder()).chain(used).find(|folder| path.starts_with(&folder.path))
    }

    fn set_problems(&self, path: &Path, problems: Vec<Failure>) {
        if let Some(folder) = lock(&self.folders).iter_mut().find(|folder| folder.path == path) {
            folder.problems = problems;
        }
    }

    fn add_problem(&self, path: Option<&Path>, problem: Failure) {
        if let Some(folder) = lock(&self.folders).iter_mut().find(|folder| Some(folder.path.as_path()) == path) {
            folder.problems.push(problem);
        }
    }

    fn problems_of(&self, path: &Path) -> Vec<Failure> {
        let folders = lock(&self.folders);
        folders.iter().find(|folder| folder.path == path).map(|folder| folder.problems.clone()).unwrap_or_default()
    }

    fn changed(&self) {
        (self.on_change)(self.list());
    }
}

/// A folder as its names tell, with no file opened.
fn told(program: Program, path: &Path, is_used: bool, seen: &Seen) -> LibraryFolder {
    let files: std::collections::BTreeSet<&Path> =
        seen.found.iter().flat_map(Found::files).map(|file| file.path.as_path()).collect();
    let real: std::collections::BTreeSet<PathBuf> =
        files.iter().filter_map(|path| dunce::canonicalize(path).ok()).collect();
    let models: std::collections::BTreeSet<PathBuf> =
        seen.found.iter().filter_map(|found| dunce::canonicalize(found.first()).ok()).collect();
    LibraryFolder {
        path: path.to_string_lossy().into_owned(),
        program,
        is_used,
        n_models: models.len(),
        size_bytes: real.iter().filter_map(|path| path.metadata().ok()).map(|about| about.len()).sum(),
        problems: seen.problems.clone(),
    }
}

fn is_by_hand(place: &LibraryPlace) -> bool {
    place.folder.is_none()
}

/// A panic while holding one of these leaves nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
