//! Models on this machine, in place: downloaded ones in the models folder, others wherever they lie.
//!
//! A model is known by its file (all shards of one are one model) and shown once, whatever path leads to it. Files of
//! other programs are never touched; the app's own go to the trash.

mod scan;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};
use tandem_engine::gguf::{GgufError, ModelFacts, ShardName};

use crate::error::{Explain, FileAction, FileError};
use crate::store::{Store, StoreError, StoredModel, now_ms};
use crate::wire::{ErrorCode, Failure, Integrity, LibraryModel, RepoFile, Text};

/// The library.
pub struct Library {
    store: Arc<Store>,
    trash: Trash,
    models_dir: Mutex<PathBuf>,
    entries: Mutex<Vec<StoredModel>>,
    on_change: Box<dyn Fn(Vec<LibraryModel>) + Send + Sync>,
}

/// Where removed models go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trash {
    /// The system's trash, from which a person can take them back.
    System,
    /// A folder.
    Folder(PathBuf),
}

/// Why the library did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The file cannot be reached, or not be moved.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is no model.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The path is not Unicode, so that it cannot be shown or kept.
    #[error("path is not Unicode: `{}`", path.display())]
    PathNotUnicode {
        /// Which path.
        path: PathBuf,
    },
    /// No model of this identifier.
    #[error("no model `{id}` in the library")]
    Unknown {
        /// What was asked for.
        id: String,
    },
    /// The system's trash does not take the file.
    #[error("cannot move `{}` to the trash: {source}", path.display())]
    Trash {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: trash::Error,
    },
    /// It could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Library {
    /// Reads what is kept, looks at every file again, and takes in what lies in the models folder.
    pub fn open(
        store: Arc<Store>,
        models_dir: &Path,
        trash: Trash,
        on_change: Box<dyn Fn(Vec<LibraryModel>) + Send + Sync>,
    ) -> Result<Self, LibraryError> {
        let entries = store.models()?;
        let library = Self {
            store,
            trash,
            models_dir: Mutex::new(models_dir.to_owned()),
            entries: Mutex::new(entries),
            on_change,
        };
        library.rescan();
        Ok(library)
    }

    /// All models, in the order they were added.
    pub fn list(&self) -> Vec<LibraryModel> {
        self.entries().iter().map(|entry| entry.model.clone()).collect()
    }

    /// One model.
    pub fn get(&self, id: &str) -> Result<LibraryModel, LibraryError> {
        let found = self.entries().iter().find(|entry| entry.model.id == id).map(|entry| entry.model.clone());
        found.ok_or_else(|| LibraryError::Unknown { id: id.to_owned() })
    }

    /// The model that came from this file of a repo, or has its bytes.
    pub fn find(&self, file: &RepoFile) -> Option<LibraryModel> {
        let is_same = |source: &RepoFile| match (&source.sha256, &file.sha256) {
            (Some(a), Some(b)) => a == b,
            _ => source.repo == file.repo && source.path == file.path && source.size_bytes == file.size_bytes,
        };
        self.entries()
            .iter()
            .map(|entry| &entry.model)
            .find(|model| model.source.as_ref().is_some_and(is_same) && Path::new(&model.path).is_file())
            .cloned()
    }

    /// Takes a file in where it lies. Known ones are read again and keep their identifier.
    pub fn add(&self, path: &Path) -> Result<LibraryModel, LibraryError> {
        self.take_in(path, None)
    }

    /// Takes in what a download has brought and compared with the hub's SHA256.
    pub fn add_download(&self, path: &Path, source: &RepoFile) -> Result<LibraryModel, LibraryError> {
        self.take_in(path, Some(source))
    }

    /// Takes a model out. Its files go to the trash if they are the app's own, else they stay as they are.
    pub fn remove(&self, id: &str) -> Result<(), LibraryError> {
        let model = self.get(id)?;
        let path = Path::new(&model.path);
        if self.is_own(path) {
            for file in files_of(path) {
                if file.exists() {
                    self.trash.take(&file)?;
                }
            }
            self.remove_empty_folders(path);
        }
        self.store.remove_model(id)?;
        self.entries().retain(|entry| entry.model.id != id);
        self.changed();
        Ok(())
    }

    /// From now on downloads lie here; what lies elsewhere stays in the library.
    pub fn set_models_dir(&self, models_dir: &Path) {
        *self.lock_models_dir() = models_dir.to_owned();
        self.rescan();
    }

    /// Looks at every known file again, and for new ones in the models folder.
    pub fn rescan(&self) {
        let known: Vec<StoredModel> = self.entries().clone();
        for entry in known {
            self.look_again(entry);
        }
        let models_dir = self.lock_models_dir().clone();
        for path in scan::models_below(&models_dir) {
            let is_known = unique(&path).is_ok_and(|place| self.get(&place.id).is_ok());
            if !is_known && let Err(error) = self.insert(&path, None) {
                tracing::warn!(%error, path = %path.display(), "a file in the models folder is no model");
            }
        }
        self.changed();
    }

    fn take_in(&self, path: &Path, source: Option<&RepoFile>) -> Result<LibraryModel, LibraryError> {
        let model = self.insert(path, source)?;
        self.changed();
        Ok(model)
    }

    fn insert(&self, path: &Path, source: Option<&RepoFile>) -> Result<LibraryModel, LibraryError> {
        let place = unique(path)?;
        let before = self.entries().iter().find(|entry| entry.model.id == place.id).cloned();
        let stamp = stamp(&place.path).map_err(FileError::at(FileAction::Read, &place.path))?;
        let unchanged = before.filter(|entry| entry.stamp == stamp);
        let verified = source.is_some_and(|file| file.sha256.is_some());
        let mut model = read(&place)?;
        model.added_at_ms = unchanged.as_ref().map_or_else(now_ms, |entry| entry.model.added_at_ms);
        model.integrity = match &unchanged {
            _ if verified => Integrity::Verified,
            Some(entry) => entry.model.integrity,
            None => Integrity::Unverified,
        };
        model.source = source.cloned().or_else(|| unchanged.and_then(|entry| entry.model.source));
        self.keep(StoredModel { stamp, model: model.clone() })?;
        Ok(model)
    }

    /// Says what has become of a known file: gone, changed, or runnable by now.
    fn look_again(&self, mut entry: StoredModel) {
        let path = PathBuf::from(&entry.model.path);
        let now = stamp(&path);
        if now.as_ref().is_ok_and(|now| *now == entry.stamp) && entry.model.refusal.is_none() {
            return;
        }
        match now {
            Err(_) => entry.model.refusal = Some(missing(&path)),
            Ok(now) => {
                let place = Place { id: entry.model.id.clone(), path };
                match read(&place) {
                    Ok(mut fresh) => {
                        let is_changed = now != entry.stamp;
                        fresh.added_at_ms = entry.model.added_at_ms;
                        fresh.integrity = if is_changed { Integrity::Unverified } else { entry.model.integrity };
                        fresh.source = entry.model.source.take().filter(|_| !is_changed);
                        entry = StoredModel { stamp: now, model: fresh };
                    }
                    Err(error) => entry.model.refusal = Some(error.explain()),
                }
            }
        }
        if let Err(error) = self.keep(entry) {
            tracing::warn!(%error, "the library cannot be kept");
        }
    }

    /// Keeps an entry: in memory in any case, on disk if that works.
    fn keep(&self, entry: StoredModel) -> Result<(), LibraryError> {
        {
            let mut entries = self.entries();
            match entries.iter_mut().find(|known| known.model.id == entry.model.id) {
                Some(known) => *known = entry.clone(),
                None => entries.push(entry.clone()),
            }
        }
        Ok(self.store.put_model(&entry)?)
    }

    fn is_own(&self, path: &Path) -> bool {
        dunce::canonicalize(&*self.lock_models_dir()).is_ok_and(|models_dir| path.starts_with(models_dir))
    }

    /// Leaves no empty publisher or repo folders behind.
    fn remove_empty_folders(&self, path: &Path) {
        let Ok(models_dir) = dunce::canonicalize(&*self.lock_models_dir()) else { return };
        let folders = path.ancestors().skip(1).take_while(|dir| dir.starts_with(&models_dir) && **dir != models_dir);
        for folder in folders {
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }

    fn changed(&self) {
        (self.on_change)(self.list());
    }

    fn entries(&self) -> MutexGuard<'_, Vec<StoredModel>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_models_dir(&self) -> MutexGuard<'_, PathBuf> {
        self.models_dir.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trash {
    fn take(&self, file: &Path) -> Result<(), LibraryError> {
        match self {
            Self::System => trash::delete(file).map_err(|source| LibraryError::Trash { path: file.to_owned(), source }),
            Self::Folder(folder) => {
                let name = file.file_name().unwrap_or(file.as_os_str());
                fs::create_dir_all(folder).map_err(FileError::at(FileAction::Write, folder))?;
                Ok(fs::rename(file, folder.join(name)).map_err(FileError::at(FileAction::Move, file))?)
            }
        }
    }
}

impl Explain for LibraryError {
    fn explain(&self) -> Failure {
        match self {
            Self::File(error) => error.explain(),
            Self::Gguf(error) => error.explain(),
            Self::Store(error) => error.explain(),
            Self::PathNotUnicode { path } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("the name `{}` holds bytes that are no text", path.display()),
                    format!("名称 `{}` 含有无法识别的字节", path.display()),
                ),
                Text::new("rename the file or its folder", "重命名该文件或其文件夹"),
            ),
            Self::Unknown { .. } => Failure::new(
                ErrorCode::ModelMissing,
                Text::new("this model is not in the library any more", "该模型已不在模型库中"),
                Text::new("choose another model, or add its file again", "选择其他模型，或者重新添加文件"),
            ),
            Self::Trash { path, source } => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("`{}` cannot be moved to the trash: {source}", path.display()),
                    format!("无法将 `{}` 移到回收站：{source}", path.display()),
                ),
                Text::new("delete the file in the file manager", "在文件管理器中删除该文件"),
            ),
        }
    }
}

/// A model's first file, and the identifier that follows from where it really lies.
struct Place {
    id: String,
    path: PathBuf,
}

/// Follows links for the identifier, but keeps the name: linked caches have names that say nothing.
fn unique(path: &Path) -> Result<Place, LibraryError> {
    let absolute = std::path::absolute(path).map_err(FileError::at(FileAction::Read, path))?;
    let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(GgufError::NotAFile { path: absolute }.into());
    };
    let mut path = dunce::canonicalize(folder).map_err(FileError::at(FileAction::Read, &absolute))?.join(name);
    if let Some(shard) = ShardName::parse(&name.to_string_lossy()) {
        path.set_file_name(shard.sibling(1));
    }
    let real = dunce::canonicalize(&path).map_err(FileError::at(FileAction::Read, &path))?;
    if path.to_str().is_none() {
        return Err(LibraryError::PathNotUnicode { path });
    }
    let digest = Sha256::digest(real.as_os_str().as_encoded_bytes());
    let id = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Place { id, path })
}

/// Reads a model's header. Nothing is known yet of when it came and whether its bytes are right.
fn read(place: &Place) -> Result<LibraryModel, LibraryError> {
    let facts = ModelFacts::from_file(&place.path)?;
    let file_name = place.path.file_name().unwrap_or_default().to_string_lossy();
    let stem = ShardName::parse(&file_name)
        .map_or_else(|| file_name.trim_end_matches(".gguf").to_owned(), |shard| shard.prefix);
    let quant = facts.quant_label();
    Ok(LibraryModel {
        id: place.id.clone(),
        name: display_name(&stem, &quant, facts.name()),
        quant,
        architecture: facts.architecture().unwrap_or_default().to_owned(),
        path: place.path.to_string_lossy().into_owned(),
        size_bytes: facts.file_bytes,
        n_params: facts.n_params(),
        context_length: facts.context_length().unwrap_or_default().into(),
        integrity: Integrity::Unverified,
        source: None,
        refusal: facts.refusal().err().map(|refusal| refusal.explain()),
        added_at_ms: 0,
    })
}

/// What people call a model: its file's name without the quant label. `general.name` often holds what a training run was
/// called, so it only serves where the file's name says nothing.
fn display_name(stem: &str, quant: &str, general_name: Option<&str>) -> String {
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

/// All files of the model whose first file this is.
fn files_of(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match ShardName::parse(&name) {
        Some(shard) => shard.all().map(|name| path.with_file_name(name)).collect(),
        None => vec![path.to_owned()],
    }
}

/// Sizes and times of all files: equal as long as nobody writes to them.
fn stamp(path: &Path) -> io::Result<String> {
    let one = |file: PathBuf| {
        let metadata = fs::metadata(file)?;
        let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Ok(format!("{}@{changed}", metadata.len()))
    };
    Ok(files_of(path).into_iter().map(one).collect::<io::Result<Vec<_>>>()?.join(" "))
}

fn missing(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        ErrorCode::ModelMissing,
        Text::new(format!("`{path}` is not there any more"), format!("`{path}` 已不存在")),
        Text::new(
            "put the file back or connect its drive; or take the model out of the library",
            "放回文件或连接磁盘；也可将其移出模型库",
        ),
    )
}

#[cfg(test)]
mod tests;
