//! Whether a hub can be used from here: it must list models and give a piece of a file. Both are tried, because a mirror
//! may answer while the host that keeps its files does not.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::error::{HubError, NetworkFault};
use super::{Hub, versions};
use crate::error::Explain;
use crate::wire::{Reach, RepoFile, SearchRequest};

impl Hub {
    /// Tries this hub as a person would use it, for a few seconds at most.
    pub async fn probe(&self) -> Reach {
        match tokio::time::timeout(WHOLE, self.try_out()).await {
            Ok(Ok(reach)) => reach,
            Ok(Err(error)) => Reach::Fails { failure: error.explain() },
            Err(_) => Reach::Fails { failure: self.too_slow().explain() },
        }
    }

    async fn try_out(&self) -> Result<Reach, HubError> {
        let began = Instant::now();
        let answer = tokio::time::timeout(FIRST_ANSWER, self.search(&SearchRequest::default())).await;
        let page = answer.map_err(|_| self.too_slow())??;
        let answer_ms = began.elapsed().as_millis() as u64;
        let open = page.models.iter().find(|model| !model.gated);
        let file = match open {
            Some(model) => smallest_file(self.model(&model.id).await?.files),
            None => None,
        };
        let bytes_per_s = match file {
            Some(file) => Some(self.rate_of(&file).await?),
            None => None,
        };
        Ok(Reach::Works { answer_ms, bytes_per_s })
    }

    /// Rate of the first bytes of a file, from the request on.
    async fn rate_of(&self, file: &RepoFile) -> Result<f64, HubError> {
        let resolved = self.resolve(file).await?;
        let began = Instant::now();
        let wanted_bytes = PIECE_BYTES.min(resolved.size_bytes.max(1));
        let mut response = self.open(&resolved.url, 0..wanted_bytes, None).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(self.file_refusal(&response, file));
        }
        let mut n_bytes = 0;
        while n_bytes < wanted_bytes && (n_bytes == 0 || began.elapsed() < PIECE) {
            match response.chunk().await.map_err(|error| HubError::from_reqwest(&resolved.url, &error))? {
                Some(chunk) => n_bytes += chunk.len() as u64,
                None => break,
            }
        }
        Ok(n_bytes as f64 / began.elapsed().as_secs_f64().max(1e-6))
    }

    fn too_slow(&self) -> HubError {
        HubError::network(&self.base, NetworkFault::TimedOut, "no answer in time")
    }
}

fn smallest_file(files: Vec<RepoFile>) -> Option<RepoFile> {
    versions(&files).into_iter().next()?.files.into_iter().next()
}

/// A person waits for this at the first start.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(10);
const PIECE: Duration = Duration::from_secs(2);
const PIECE_BYTES: u64 = 1 << 20;
