//! GGUF headers read ahead: the first bytes of a file by range, as many as the header needs, kept on disk.

use std::time::Duration;

use futures_util::future::try_join_all;
use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use tandem_engine::gguf::{GgufError, ModelFacts, Prefix};
use tokio::task::spawn_blocking;

use super::Hub;
use super::error::{HubError, NetworkFault, Oddity};
use super::header_cache::{Kept, Origin, Trust};
use super::http::is_html;
use super::resolve::Resolved;
use crate::wire::{Reading, RepoFile};

impl Hub {
    /// Reads the header of a model from the hub, without its weights: one file, or all shards of one.
    pub async fn header(&self, files: &[RepoFile], reading: Reading) -> Result<ModelFacts, HubError> {
        let mut shards = Vec::new();
        for some in files.chunks(N_SHARDS_AT_ONCE) {
            let facts = try_join_all(some.iter().map(|file| self.file_header(file, reading))).await?;
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

    async fn file_header(&self, file: &RepoFile, reading: Reading) -> Result<ModelFacts, HubError> {
        let kept = self.kept_header(file).await;
        let stale = match (kept, reading) {
            (Some(Kept { facts, trust: Trust::Verified }), _) => return Ok(facts),
            (Some(Kept { facts, trust: Trust::Fresh }), Reading::Kept) => return Ok(facts),
            (kept, Reading::Kept) => kept,
            (_, Reading::Again) => None,
        };
        match (self.fetch_header(file).await, stale) {
            (Ok((facts, bytes)), _) => {
                self.keep_header(file, bytes).await;
                Ok(facts)
            }
            // What the hub said another day is better than nothing.
            (Err(HubError::Network { .. }), Some(kept)) => Ok(kept.facts),
            (Err(error), _) => Err(error),
        }
    }

    async fn kept_header(&self, file: &RepoFile) -> Option<Kept> {
        let (cache, origin) = (self.header_cache.clone()?, Origin::of(self.base_url(), file)?);
        let size_bytes = file.size_bytes;
        spawn_blocking(move || cache.read(&origin, size_bytes)).await.ok().flatten()
    }

    /// What cannot be kept is fetched again.
    async fn keep_header(&self, file: &RepoFile, bytes: Vec<u8>) {
        if let (Some(cache), Some(origin)) = (self.header_cache.clone(), Origin::of(self.base_url(), file)) {
            let _ = spawn_blocking(move || cache.write(&origin, &bytes)).await;
        }
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
                    wanted_bytes = next_bytes(prefix.len() as u64, at_least_bytes, size_bytes);
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

/// How much of a file to read next, when so much of it does not hold all of its header.
pub(super) fn next_bytes(got_bytes: u64, at_least_bytes: u64, file_bytes: u64) -> u64 {
    at_least_bytes.max(got_bytes * 2).min(MAX_BYTES).min(file_bytes)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Shards of one model whose headers are read at a time.
const N_SHARDS_AT_ONCE: usize = 4;
/// Connections that may break before a header counts as unreadable.
const N_TRIES: u32 = 3;
/// Enough for the headers of small vocabularies.
pub(super) const FIRST_BYTES: u64 = 1 << 20;
/// Vocabularies of 260 thousand tokens take about 20 MB.
pub(super) const MAX_BYTES: u64 = 128 << 20;
const CHUNK_TIMEOUT: Duration = Duration::from_secs(20);
