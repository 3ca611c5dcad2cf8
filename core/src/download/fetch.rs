//! Fetches the bytes of one file that are not here yet: attempt after attempt, each going on where the last one stopped.

use std::time::Duration;

use reqwest::{Response, Url};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::answer::{Source, Verdict, judge};
use super::error::DownloadError;
use super::part::PartFile;
use super::run::{Run, Stop};
use crate::error::Explain;
use crate::hub::{ByteRange, HubError, NetworkFault, Oddity};
use crate::wire::{DownloadState, RepoFile};

/// Why an attempt ended before the file did.
enum Fault {
    /// No attempt more.
    Stop(Stop),
    /// Another attempt may do better.
    Again { error: HubError, pause: Pause },
}

/// What to wait for before the next attempt.
enum Pause {
    Nothing,
    Backoff,
    /// As long as the hub asks, if it says.
    Asked(Option<Duration>),
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Network { .. } | HubError::NotAHub { .. } => Self::Again { error, pause: Pause::Backoff },
            HubError::Refused { status: 408 | 425 | 500..=599, .. } => Self::Again { error, pause: Pause::Backoff },
            HubError::RateLimited { wait } => Self::Again { error, pause: Pause::Asked(wait) },
            _ => Self::Stop(Stop::from(error)),
        }
    }
}

impl Run<'_> {
    /// Fetches what is missing; the SHA256 that the whole must have.
    pub(super) async fn fetch(&mut self, mut part: PartFile, mut file: RepoFile) -> (PartFile, Result<String, Stop>) {
        let (mut n_failed, mut most_bytes) = (0, part.n_bytes());
        loop {
            if let Some(sha256) = file.sha256.clone().filter(|_| part.n_bytes() == file.size_bytes) {
                return (part, Ok(sha256));
            }
            let (back, ended) = self.attempt(part, &mut file).await;
            part = back;
            let (error, pause) = match ended {
                Ok(()) => continue,
                Err(Fault::Stop(stop)) => return (part, Err(stop)),
                Err(Fault::Again { error, pause }) => (error, pause),
            };
            if part.n_bytes() > most_bytes {
                (n_failed, most_bytes) = (0, part.n_bytes());
            }
            n_failed += 1;
            let Some(backoff) = self.shared.options.backoff.wait(n_failed) else {
                return (part, Err(Stop::from(error)));
            };
            tracing::info!(download = %self.id, n_failed, %error, "trying again");
            if let Err(stop) = self.pause(&error, pause, backoff).await {
                return (part, Err(stop));
            }
        }
    }

    async fn pause(&mut self, error: &HubError, pause: Pause, backoff: Duration) -> Result<(), Stop> {
        let wait = match pause {
            Pause::Nothing => return Ok(()),
            Pause::Backoff => backoff,
            Pause::Asked(wait) => wait.unwrap_or(DEFAULT_ASKED_WAIT).max(backoff).min(LONGEST_ASKED_WAIT),
        };
        self.shared.table().set_state(self.id, DownloadState::Retrying, Some(error.explain()));
        self.unless_asked(sleep(wait)).await?;
        self.set_state(DownloadState::Running);
        Ok(())
    }

    /// One request and its answer.
    async fn attempt(&mut self, mut part: PartFile, file: &mut RepoFile) -> (PartFile, Result<(), Fault>) {
        let (url, source) = match self.locate(file).await {
            Ok(located) => located,
            Err(fault) => return (part, Err(fault)),
        };
        if part.n_bytes() == file.size_bytes {
            // Only its hash was not known yet.
            return (part, Ok(()));
        }
        let hub = self.shared.hub();
        let asked = self.unless_asked(hub.open(&url, ByteRange::From(part.n_bytes()))).await;
        let response = match asked {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return (part, Err(error.into())),
            Err(stop) => return (part, Err(Fault::Stop(stop))),
        };
        match judge(response.status(), response.headers(), source, part.n_bytes(), file.size_bytes) {
            Verdict::GoesOn => {}
            Verdict::StartsOver => {
                let started_over = spawn_blocking(move || {
                    let done = part.start_over();
                    (part, done)
                });
                let (back, done) = started_over.await.expect("emptying a file does not panic");
                part = back;
                if let Err(error) = done {
                    return (part, Err(Fault::Stop(Stop::from(error))));
                }
            }
            Verdict::Expired => {
                let error = HubError::Refused { status: response.status().as_u16(), message: String::new() };
                return (part, Err(Fault::Again { error, pause: Pause::Nothing }));
            }
            Verdict::Odd(oddity) => return (part, Err(HubError::odd(&url, oddity).into())),
            Verdict::Refused => return (part, Err(hub.file_refusal(&response, file).into())),
        }
        self.pour(part, response, file.size_bytes).await
    }

    /// Asks where the file is, and makes sure that it is still the file that was begun.
    async fn locate(&mut self, file: &mut RepoFile) -> Result<(Url, Source), Fault> {
        let hub = self.shared.hub();
        let resolved = self.unless_asked(hub.resolve(file)).await.map_err(Fault::Stop)??;
        let is_other = matches!((&resolved.sha256, &file.sha256), (Some(now), Some(then)) if now != then);
        if is_other || resolved.size_bytes != file.size_bytes {
            return Err(Fault::Stop(Stop::from(DownloadError::ChangedUpstream { path: file.path.clone() })));
        }
        if file.sha256.is_none() {
            file.sha256 = resolved.sha256;
        }
        if file.sha256.is_none() {
            // What cannot be checked is not kept.
            let oddity = Oddity::NoHeader { name: "x-linked-etag" };
            return Err(Fault::Stop(Stop::from(HubError::odd(&resolved.url, oddity))));
        }
        let source = if hub.is_own(&resolved.url) { Source::Hub } else { Source::Elsewhere };
        Ok((resolved.url, source))
    }

    /// Hands a body to the disk, chunk by chunk, no further than the file's end.
    async fn pour(&mut self, part: PartFile, mut response: Response, size_bytes: u64) -> (PartFile, Result<(), Fault>) {
        let mut left_bytes = size_bytes - part.n_bytes();
        let url = response.url().clone();
        let again = |error: HubError| Err(Fault::from(error));
        let (to_disk, mut from_net) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let save_every_bytes = self.shared.options.save_every_bytes;
        let writing = spawn_blocking(move || {
            let mut part = part;
            let written = part.write_from(&mut from_net, save_every_bytes);
            (part, written)
        });
        let read = loop {
            if left_bytes == 0 {
                break Ok(());
            }
            let stall = self.shared.options.stall;
            let mut chunk = match self.unless_asked(timeout(stall, response.chunk())).await {
                Ok(Ok(Ok(Some(chunk)))) => chunk,
                Ok(Ok(Ok(None))) => break again(HubError::network(&url, NetworkFault::Lost, "the answer ended early")),
                Ok(Ok(Err(error))) => break again(HubError::from_reqwest(&url, &error)),
                Ok(Err(_)) => break again(HubError::network(&url, NetworkFault::TimedOut, "no data in time")),
                Err(stop) => break Err(Fault::Stop(stop)),
            };
            chunk.truncate(usize::try_from(left_bytes).unwrap_or(usize::MAX));
            left_bytes -= chunk.len() as u64;
            if to_disk.send(chunk).await.is_err() {
                // The disk has failed, and says why below.
                break Ok(());
            }
        };
        drop(to_disk);
        let (part, written) = writing.await.expect("writing does not panic");
        match written {
            Ok(()) => (part, read),
            Err(error) => (part, Err(Fault::Stop(Stop::from(error)))),
        }
    }
}

/// Between network and disk; a chunk is at most some hundred kilobytes.
const CHUNKS_IN_FLIGHT: usize = 32;
const DEFAULT_ASKED_WAIT: Duration = Duration::from_secs(60);
/// The hub's windows are of five minutes.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(600);
