//! GGUF headers read ahead: the first bytes of a file by range, as many as the header needs, kept on disk by SHA256.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use tandem_engine::gguf::{GgufError, ModelFacts, Prefix};
use tokio::task::spawn_blocking;

use super::Hub;
use super::error::{HubError, NetworkFault, Oddity};
use super::http::is_html;
use super::resolve::Resolved;
use crate::wire::RepoFile;

impl Hub {
    /// Reads the header of a model from the hub, without its weights: one file, or all shards of one.
    pub async fn header(&self, files: &[RepoFile]) -> Result<ModelFacts, HubError> {
        let mut shards = Vec::new();
        for some in files.chunks(N_SHARDS_AT_ONCE) {
            let facts = try_join_all(some.iter().map(|file| self.file_header(file))).await?;
            shards.extend(some.iter().map(|file| file_name(&file.path).to_owned()).zip(facts));
        }
        match <[(String, ModelFacts); 1]>::try_from(shards) {
            Ok([(name, facts)]) => Ok(facts.with_file_name(&name)),
            Err(shards) => {
                let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
                ModelFacts::from_shards(shards).map_err(|source| HubError::BadHeader { path, source })
            }
        }
    }

    async fn file_header(&self, file: &RepoFile) -> Result<ModelFacts, HubError> {
        let kept = match (&self.header_cache, &file.sha256) {
            (Some(cache), Some(sha256)) => Some((cache.clone(), sha256.clone())),
            _ => None,
        };
        let (kept_again, size_bytes) = (kept.clone(), file.size_bytes);
        let bytes = match kept {
            Some((cache, sha256)) => spawn_blocking(move || cache.read(&sha256)).await.ok().flatten(),
            None => None,
        };
        if let Some(Ok(Prefix::Complete(facts))) = bytes.map(|bytes| ModelFacts::from_prefix(&bytes, size_bytes)) {
            return Ok(facts);
        }
        let (facts, bytes) = self.fetch_header(file).await?;
        if let Some((cache, sha256)) = kept_again {
            // What cannot be kept is fetched again.
            let _ = spawn_blocking(move || cache.write(&sha256, &bytes)).await;
        }
        Ok(facts)
    }

    async fn fetch_header(&self, file: &RepoFile) -> Result<(ModelFacts, Vec<u8>), HubError> {
        let resolved = self.resolve(file).await?;
        let bad = |source: GgufError| HubError::BadHeader { path: file.path.clone(), source };
        let mut bytes = Vec::new();
        let mut wanted_bytes = FIRST_BYTES.min(resolved.size_bytes);
        loop {
            self.extend_patiently(file, &resolved, &mut bytes, wanted_bytes).await?;
            let size_bytes = resolved.size_bytes;
            let parsed = spawn_blocking(move || (ModelFacts::from_prefix(&bytes, size_bytes), bytes)).await;
            let (parsed, prefix) = parsed.expect("the parser does not panic");
            match parsed.map_err(bad)? {
                Prefix::Complete(facts) => return Ok((facts, prefix)),
                Prefix::NeedMore { at_least_bytes } if prefix.len() as u64 >= size_bytes.min(MAX_BYTES) => {
                    let what = "header";
                    return Err(bad(GgufError::Truncated {
                        what,
                        needed_bytes: at_least_bytes,
                        file_bytes: size_bytes,
                    }));
                }
                Prefix::NeedMore { at_least_bytes } => {
                    let doubled = prefix.len() as u64 * 2;
                    wanted_bytes = at_least_bytes.max(doubled).min(MAX_BYTES).min(size_bytes);
                    bytes = prefix;
                }
            }
        }
    }

    /// The same as `extend_prefix`, again from where it stopped when the connection breaks.
    async fn extend_patiently(
        &self,
        file: &RepoFile,
        resolved: &Resolved,
        bytes: &mut Vec<u8>,
        wanted_bytes: u64,
    ) -> Result<(), HubError> {
        let mut n_left = N_TRIES;
        loop {
            n_left -= 1;
            match self.extend_prefix(file, resolved, bytes, wanted_bytes).await {
                Err(HubError::Network { fault: NetworkFault::Lost | NetworkFault::TimedOut, .. }) if n_left > 0 => {}
                ended => return ended,
            }
        }
    }

    /// Fetches what is missing of the first `wanted_bytes`.
    async fn extend_prefix(
        &self,
        file: &RepoFile,
        resolved: &Resolved,
        bytes: &mut Vec<u8>,
        wanted_bytes: u64,
    ) -> Result<(), HubError> {
        let first = bytes.len() as u64;
        if first >= wanted_bytes {
            return Ok(());
        }
        let mut response = self.open(&resolved.url, first..wanted_bytes, None).await?;
        let odd = |oddity| HubError::odd(&resolved.url, oddity);
        let is_whole = response.status() == StatusCode::OK;
        if !is_whole && response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(self.file_refusal(&response, file));
        }
        if is_html(response.headers()) {
            return Err(odd(Oddity::Html));
        }
        let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
        if !is_whole && !range.starts_with(&format!("bytes {first}-")) {
            return Err(odd(Oddity::WrongRange));
        }
        if is_whole {
            bytes.clear();
        }
        while (bytes.len() as u64) < wanted_bytes {
            let chunk = match tokio::time::timeout(CHUNK_TIMEOUT, response.chunk()).await {
                Ok(chunk) => chunk.map_err(|error| HubError::from_reqwest(&resolved.url, &error))?,
                Err(_) => return Err(HubError::network(&resolved.url, NetworkFault::TimedOut, "no data in time")),
            };
            let Some(chunk) = chunk else { return Err(odd(Oddity::WrongRange)) };
            let room = usize::try_from(wanted_bytes).unwrap_or(usize::MAX) - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Ok(())
    }
}

/// Headers on disk, one file each; the oldest go when there are too many bytes.
#[derive(Clone, Debug)]
pub(super) struct HeaderCache {
    dir: PathBuf,
}

impl HeaderCache {
    pub(super) fn new(cache_dir: PathBuf) -> Self {
        Self { dir: cache_dir.join("headers") }
    }

    fn read(&self, sha256: &str) -> Option<Vec<u8>> {
        fs::read(self.path(sha256)).ok()
    }

    fn write(&self, sha256: &str, bytes: &[u8]) -> std::io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let unfinished = self.dir.join(format!("{sha256}.{}.new", std::process::id()));
        fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, self.path(sha256))).inspect_err(|_| {
            // Half a header is of no use to anyone.
            let _ = fs::remove_file(&unfinished);
        })?;
        self.shrink(MAX_CACHE_BYTES)
    }

    /// Removes the oldest until no more than `max_bytes` are left.
    fn shrink(&self, max_bytes: u64) -> std::io::Result<()> {
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

    fn path(&self, sha256: &str) -> PathBuf {
        self.dir.join(Path::new(sha256).with_extension("header"))
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Shards of one model whose headers are read at a time.
const N_SHARDS_AT_ONCE: usize = 4;
/// Connections that may break before a header counts as unreadable.
const N_TRIES: u32 = 3;
/// Enough for the headers of small vocabularies.
const FIRST_BYTES: u64 = 1 << 20;
/// Vocabularies of 260 thousand tokens take about 20 MB.
const MAX_BYTES: u64 = 128 << 20;
const MAX_CACHE_BYTES: u64 = 256 << 20;
const CHUNK_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_headers_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = HeaderCache::new(dir.path().to_owned());
        for (age, name) in [(3, "old"), (2, "middle"), (1, "new")] {
            cache.write(name, &[0; 100]).unwrap();
            let file = fs::File::options().write(true).open(cache.path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 60)).unwrap();
        }
        cache.shrink(250).unwrap();
        assert_eq!(["old", "middle", "new"].map(|name| cache.read(name).is_some()), [false, true, true]);
        assert_eq!(fs::read_dir(&cache.dir).unwrap().count(), 2, "nothing else is left behind");
    }
}
