//! The disk as a download sees it: a seam, so that tests can fill it up.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// What a download needs of a disk.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Bytes that can still be written below `dir`, which may not exist yet.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Opens a file for reading and writing, making it and its folders if they are not there.
    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>>;
}

/// An open file under way.
pub trait PartIo: Read + Write + Seek + Send {
    /// Makes the file this long.
    fn set_len(&mut self, n_bytes: u64) -> io::Result<()>;

    /// Flushes what was written to the disk itself.
    fn sync(&mut self) -> io::Result<()>;
}

/// The real one.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
        fs4::available_space(existing)
    }

    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Box::new(file))
    }
}

impl PartIo for File {
    fn set_len(&mut self, n_bytes: u64) -> io::Result<()> {
        Self::set_len(self, n_bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
