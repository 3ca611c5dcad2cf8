//! Headers on disk by the SHA256 of their file. Nobody can hold the beginning of a file to a SHA256: what a hub sent is believed
//! for a day, of the same commit, from that hub alone; what was read from a file that has this SHA256, for ever.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tandem_engine::gguf::{ModelFacts, Prefix};

use super::header::{FIRST_BYTES, MAX_BYTES, next_bytes};
use crate::wire::RepoFile;

/// Headers, one file each; the oldest go when there are too many bytes.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCache {
    dir: PathBuf,
}

/// A header that was kept.
pub(super) struct Kept {
    pub(super) facts: ModelFacts,
    pub(super) trust: Trust,
}

/// How far a kept header can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Its file was here, whole, and had the SHA256.
    Verified,
    /// The same hub sent it today.
    Fresh,
    /// The same hub sent it another day.
    Stale,
}

/// Where a header comes from.
pub(super) struct Origin {
    sha256: String,
    /// Hub, repo, commit and path, as one name.
    from: String,
}

impl Origin {
    /// `None` of a file whose SHA256 nobody tells.
    pub(super) fn of(hub_url: &str, file: &RepoFile) -> Option<Self> {
        let from = [hub_url, &file.repo, &file.commit, &file.path].join("\n");
        let digest = Sha256::digest(from);
        let from = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { sha256: file.sha256.clone()?, from })
    }
}

impl HeaderCache {
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Self { dir: cache_dir.join("headers") }
    }

    /// What is known of a file: by its bytes if they were here, else from its origin.
    pub(super) fn read(&self, origin: &Origin, file_bytes: u64) -> Option<Kept> {
        let read = |path: &Path| match ModelFacts::from_prefix(&fs::read(path).ok()?, file_bytes) {
            Ok(Prefix::Complete(facts)) => Some(facts),
            _ => None,
        };
        if let Some(facts) = read(&self.verified(&origin.sha256)) {
            return Some(Kept { facts, trust: Trust::Verified });
        }
        let path = self.sent(origin);
        let facts = read(&path)?;
        let age = fs::metadata(&path).and_then(|about| about.modified()).ok()?.elapsed();
        let trust = if age.is_ok_and(|age| age < MAX_AGE) { Trust::Fresh } else { Trust::Stale };
        Some(Kept { facts, trust })
    }

    /// Keeps what a hub sent.
    pub(super) fn write(&self, origin: &Origin, bytes: &[u8]) -> io::Result<()> {
        self.put(&self.sent(origin), bytes)
    }

    /// Takes the header of a file that has this SHA256 in the place of whatever hubs sent.
    pub(crate) fn keep_verified(&self, sha256: &str, file: &Path) -> io::Result<()> {
        let Some(bytes) = header_bytes(file)? else { return Ok(()) };
        self.put(&self.verified(sha256), &bytes)?;
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(sha256) && name.ends_with(SENT) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path)).inspect_err(|_| {
            // Half a header is of no use to anyone.
            let _ = fs::remove_file(&unfinished);
        })?;
        self.shrink(MAX_CACHE_BYTES)
    }

    /// Removes the oldest until no more than `max_bytes` are left.
    fn shrink(&self, max_bytes: u64) -> io::Result<()> {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            kept.push((about.modified().unwrap_or(SystemTime::UNIX_EPOCH), about.len(), entry.path()));
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, n_bytes, _)| n_bytes).sum();
        for (_, n_bytes, path) in kept {
            if total <= max_bytes {
                break;
            }
            fs::remove_file(path)?;
            total -= n_bytes;
        }
        Ok(())
    }

    fn sent(&self, origin: &Origin) -> PathBuf {
        self.dir.join(format!("{}.{}{SENT}", origin.sha256, origin.from))
    }

    fn verified(&self, sha256: &str) -> PathBuf {
        self.dir.join(format!("{sha256}.verified"))
    }
}

/// The beginning of a file up to its weights; `None` of what is no model.
fn header_bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut input = File::open(path)?;
    let file_bytes = input.metadata()?.len();
    let (mut bytes, mut wanted_bytes) = (Vec::new(), FIRST_BYTES);
    loop {
        let got_bytes = bytes.len() as u64;
        input.by_ref().take(wanted_bytes - got_bytes).read_to_end(&mut bytes)?;
        match ModelFacts::from_prefix(&bytes, file_bytes) {
            Ok(Prefix::Complete(facts)) => {
                bytes.truncate(usize::try_from(facts.data_offset_bytes).unwrap_or(usize::MAX));
                return Ok(Some(bytes));
            }
            Ok(Prefix::NeedMore { at_least_bytes }) if wanted_bytes < file_bytes.min(MAX_BYTES) => {
                wanted_bytes = next_bytes(wanted_bytes, at_least_bytes, file_bytes);
            }
            _ => return Ok(None),
        }
    }
}

const SENT: &str = ".sent";
/// As long as a hub is believed.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_CACHE_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_headers_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = HeaderCache::new(dir.path());
        for (age, name) in [(3, "old"), (2, "middle"), (1, "new")] {
            cache.put(&cache.verified(name), &[0; 100]).unwrap();
            let file = File::options().write(true).open(cache.verified(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 60)).unwrap();
        }
        cache.shrink(250).unwrap();
        assert_eq!(["old", "middle", "new"].map(|name| cache.verified(name).is_file()), [false, true, true]);
        assert_eq!(fs::read_dir(&cache.dir).unwrap().count(), 2, "nothing else is left behind");
    }
}
