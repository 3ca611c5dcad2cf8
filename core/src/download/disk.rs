//! The disk as a download sees it: a seam, so that tests can fill it up and damage it.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use fs4::FileExt as _;
use same_file::Handle;

/// What a download needs of a disk.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Bytes that can still be written below `dir`, which may not exist yet.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Bytes that a file takes up already; 0 if there is none.
    fn taken_bytes(&self, path: &Path) -> u64;

    /// Opens a file for reading and writing, making it and its folders if they are not there.
    fn open_part(&self, path: &Path) -> io::Result<Box<dyn PartIo>>;

    /// Takes a folder for this process as long as what comes back lives, making it if need be. `WouldBlock`: another
    /// process has it; any other error: this file system knows no locks.
    fn lock(&self, folder: &Path) -> io::Result<File> {
        lock_folder(folder)
    }
}

/// An open file under way, read and written at any place by several threads.
pub trait PartIo: Send + Sync {
    /// Reads what there is at an offset, at most as much as fits.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes at an offset, at least a byte.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// How long the file is.
    fn n_bytes(&self) -> io::Result<u64>;

    /// Takes the space for so many bytes and makes the file this long; a file system that cannot take space beforehand
    /// only makes it this long. A file that is longer is cut.
    fn reserve(&self, n_bytes: u64) -> io::Result<()>;

    /// Flushes what was written to the disk itself.
    fn sync(&self) -> io::Result<()>;

    /// Whether it is this file that lies there by that name, and no other.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// The real one.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
        fs4::available_space(existing)
    }

    fn taken_bytes(&self, path: &Path) -> u64 {
        File::open(path).and_then(|file| file.allocated_size()).unwrap_or(0)
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
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_at(self, buffer, at);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_read(self, buffer, at);
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_at(self, bytes, at);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_write(self, bytes, at);
    }

    fn n_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn reserve(&self, n_bytes: u64) -> io::Result<()> {
        let before = self.metadata()?.len();
        match self.allocate(n_bytes) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                // What was taken in vain is given back; the first error is the one to tell.
                let _ = self.set_len(before.min(n_bytes));
                Err(error)
            }
            _ => self.set_len(n_bytes),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        match Handle::from_path(path) {
            Ok(there) => Ok(there == Handle::from_file(self.try_clone()?)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Locks the folder itself, which leaves nothing in it; where that cannot be done, as on network shares, a file in it.
fn lock_folder(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    if cfg!(unix) {
        match File::open(folder).and_then(locked) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            locked => return locked,
        }
    }
    File::options().write(true).create(true).truncate(false).open(folder.join(LOCK)).and_then(locked)
}

fn locked(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

const LOCK: &str = ".tandem.lock";
