//! How fast the disk gives what is not in memory yet: a file is written and read back past the system's cache, where the
//! system allows that.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FILE_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 4 << 20;
/// Reads past the cache want places in memory that are multiples of this.
const ALIGNMENT: usize = 4096;
/// Not on a volume with less free space.
const LEAST_FREE_BYTES: u64 = 1 << 30;

/// Bytes per second of a long read from the volume of `folder`; `None` where it cannot be measured.
pub fn read_rate(folder: &Path) -> Option<f64> {
    if super::disk(folder).free_bytes < LEAST_FREE_BYTES || !folder.is_dir() {
        return None;
    }
    let file = TemporaryFile(folder.join(format!(".tandem-{}-disk", std::process::id())));
    match measure(&file.0) {
        Ok(rate) => Some(rate),
        Err(error) => {
            tracing::debug!(%error, "the disk's speed cannot be measured");
            None
        }
    }
}

fn measure(path: &Path) -> io::Result<f64> {
    let mut file = File::create(path)?;
    let piece = vec![0x5a_u8; PIECE_BYTES];
    for _ in 0..FILE_BYTES / PIECE_BYTES {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    drop(file);
    let mut file = open_uncached(path)?;
    let mut memory = vec![0_u8; PIECE_BYTES + ALIGNMENT];
    let first = memory.as_ptr().align_offset(ALIGNMENT);
    let memory = &mut memory[first..first + PIECE_BYTES];
    let started = Instant::now();
    let mut n_read = 0;
    loop {
        match file.read(memory)? {
            0 => break,
            n => n_read += n,
        }
    }
    Ok(n_read as f64 / started.elapsed().as_secs_f64().max(1e-6))
}

#[cfg(target_os = "linux")]
fn open_uncached(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

#[cfg(windows)]
fn open_uncached(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt as _;
    /// Source: Win32 `FILE_FLAG_NO_BUFFERING`.
    const NO_BUFFERING: u32 = 0x2000_0000;
    OpenOptions::new().read(true).custom_flags(NO_BUFFERING).open(path)
}

#[cfg(not(any(target_os = "linux", windows)))]
fn open_uncached(_: &Path) -> io::Result<File> {
    let _ = OpenOptions::new();
    Err(io::ErrorKind::Unsupported.into())
}

struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Not there if it could not be made.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_gives_no_rate_and_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_rate(&dir.path().join("gone")), None);
        // Some file systems cannot be read past their cache.
        assert!(read_rate(dir.path()).is_none_or(|rate| rate > 0.0));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
