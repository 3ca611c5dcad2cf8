//! The models folder, taken by one process at a time: two that write the same files would mix them, and take each other's
//! writing for damage. The system lets go of it when the process ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

/// The right to write into a models folder, as long as this lives.
#[derive(Debug)]
pub(super) struct FolderClaim {
    /// `None`: a file system without locks, which is used all the same.
    _lock: Option<File>,
}

impl FolderClaim {
    /// Takes the folder, making it if need be; `None` if another process has it.
    pub(super) fn take(folder: &Path) -> Option<Self> {
        let locked = open(folder).and_then(|file| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        });
        match locked {
            Ok(file) => Some(Self { _lock: Some(file) }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the models folder cannot be locked");
                Some(Self { _lock: None })
            }
        }
    }
}

/// The folder itself: nothing is left in it.
#[cfg(unix)]
fn open(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    File::open(folder)
}

/// A file in it: this system locks no folders.
#[cfg(not(unix))]
fn open(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    File::options().write(true).create(true).truncate(false).open(folder.join(".tandem.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_by_whatever_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("模型/new");
        let claim = FolderClaim::take(&folder).unwrap();
        assert!(FolderClaim::take(&folder).is_none());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&folder, root.path().join("link")).unwrap();
            assert!(FolderClaim::take(&root.path().join("link")).is_none());
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        drop(claim);
        assert!(FolderClaim::take(&folder).is_some());
    }
}
