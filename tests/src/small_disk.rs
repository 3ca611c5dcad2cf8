//! A real file system of 64 MiB, to be filled up. Takes root, on Linux; tests that get none say so.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; unmounted when dropped.
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one; `None`, said aloud, where that is not allowed.
    pub fn mount(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder to mount at");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(folder.path()).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        eprintln!("SKIPPED {test}: mounting a tmpfs takes root");
        None
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file until not a byte more fits; removing it frees the disk.
    pub fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut file = File::create(&path).expect("a name takes no space");
        for chunk in [1 << 20, 4096, 1] {
            let chunk = vec![0x5a; chunk];
            let full = loop {
                match file.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: whatever still holds a file there lets go of it later.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
