//! The models folder, taken by one process at a time: two that write the same files would mix them, and take each other's
//! writing for damage. The system lets go of it when the process ends, however it ends.
//!
//! Where a file system knows no locks, two may write at once. Then neither writes into a file that the other has made, and
//! each asks its journal, which names who writes, before it vouches for anything or gives a file its final name.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;

use super::disk::Disk;

/// The right to write into a models folder, as long as this lives.
#[derive(Debug)]
pub(super) struct FolderClaim {
    /// `None`: a file system without locks, which is used all the same.
    lock: Option<File>,
}

impl FolderClaim {
    /// Takes the folder, making it if need be; `None` if another process has it.
    pub(super) fn take(disk: &dyn Disk, folder: &Path) -> Option<Self> {
        match disk.lock(folder) {
            Ok(file) => Some(Self { lock: Some(file) }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the models folder cannot be locked");
                Some(Self { lock: None })
            }
        }
    }

    /// Whether nobody else writes here for certain.
    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }
}

/// A name for whoever writes that nobody else has: of no use to guess, so that the system's randomness for maps will do.
pub(super) fn writer_name() -> String {
    format!("{:016x}{:016x}", RandomState::new().build_hasher().finish(), u64::from(std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::disk::RealDisk;
    use super::*;

    #[test]
    fn one_at_a_time_by_whatever_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("模型/new");
        let claim = FolderClaim::take(&RealDisk, &folder).unwrap();
        assert!(claim.is_locked());
        assert!(FolderClaim::take(&RealDisk, &folder).is_none());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&folder, root.path().join("link")).unwrap();
            assert!(FolderClaim::take(&RealDisk, &root.path().join("link")).is_none());
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        drop(claim);
        assert!(FolderClaim::take(&RealDisk, &folder).is_some());
    }

    #[test]
    fn every_writer_has_a_name_of_its_own() {
        assert_ne!(writer_name(), writer_name());
    }
}
