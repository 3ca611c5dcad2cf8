//! One connection: asks for the bytes of its pieces, judges the answer, and hands them to the disk as they come.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::{Response, StatusCode, Url};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::answer::{Asked, Source, Verdict, judge, strong_etag};
use super::fault::{Fault, Pause};
use super::part::{Claim, PartFile};
use super::pieces::{PieceHash, PieceHasher};
use super::run::Stop;
use crate::hub::{Hub, HubError, NetworkFault};
use crate::wire::RepoFile;

/// Where a file's bytes are to be had, as long as a signed URL is good.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) url: Url,
    /// What the host calls the file.
    etag: OnceLock<HeaderValue>,
    /// Whether it has given what was asked for.
    pub(super) has_answered: AtomicBool,
    /// Whether it gives whole files only.
    pub(super) knows_no_ranges: AtomicBool,
}

/// What a connection and whoever gave it its work tell each other.
#[derive(Debug, Default)]
pub(super) struct Signal {
    n_bytes: AtomicU64,
    n_bytes_measured: AtomicU64,
    n_bytes_looked_at: AtomicU64,
    n_looks: AtomicU64,
    /// Rung when the connection is to end.
    pub(super) retire: Notify,
}

/// One connection.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) hub: Arc<Hub>,
    pub(super) link: Arc<Link>,
    pub(super) part: Arc<PartFile>,
    pub(super) file: RepoFile,
    pub(super) signal: Arc<Signal>,
}

impl Link {
    pub(super) fn new(url: Url) -> Self {
        let (etag, has_answered) = (OnceLock::new(), AtomicBool::new(false));
        Self { url, etag, has_answered, knows_no_ranges: AtomicBool::new(false) }
    }

    /// What is known of a host stays known when its URL is signed again.
    pub(super) fn remember(self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.url.origin() == self.url.origin())
            && let Some(etag) = before.etag.get()
        {
            // It is empty: the link is new.
            let _ = self.etag.set(etag.clone());
        }
        self
    }
}

impl Signal {
    /// Bytes since the last measurement.
    pub(super) fn take_measured(&self) -> u64 {
        let n_bytes = self.n_bytes.load(Ordering::Acquire);
        n_bytes - self.n_bytes_measured.swap(n_bytes, Ordering::AcqRel)
    }

    /// Bytes since the last look at whether it is slow; `None` at the first, when it may just have begun.
    pub(super) fn take_looked_at(&self) -> Option<u64> {
        let n_bytes = self.n_bytes.load(Ordering::Acquire);
        let before = self.n_bytes_looked_at.swap(n_bytes, Ordering::AcqRel);
        (self.n_looks.fetch_add(1, Ordering::AcqRel) > 0).then(|| n_bytes - before)
    }
}

impl Connection {
    /// Fetches the pieces claimed; ends early without a fault when it is retired. The claim comes back: whoever hears of
    /// a fault must hear it before another connection takes the pieces over.
    pub(super) async fn fill(self, mut claim: Claim) -> (Claim, Result<(), Fault>) {
        let (claim, wanted) = blocking(move || {
            let wanted = claim.prepare();
            (claim, wanted)
        })
        .await;
        let wanted = match wanted {
            Ok(wanted) if wanted.is_empty() => return (claim, Ok(())),
            Ok(wanted) => wanted,
            Err(error) => return (claim, Err(stop(error))),
        };
        match self.ask(&wanted).await {
            Ok(Some((response, given))) => self.pour(claim, response, given).await,
            Ok(None) => (claim, Ok(())),
            Err(fault) => (claim, Err(fault)),
        }
    }

    /// Hands a body to the disk, chunk by chunk.
    async fn pour(&self, mut claim: Claim, response: Response, given: Range<u64>) -> (Claim, Result<(), Fault>) {
        claim.begin_at(given.start);
        let mut body = Body::new(self, response, given.end - given.start);
        let (to_disk, mut from_net) = mpsc::channel::<(OwnedSemaphorePermit, Bytes)>(CHUNKS_IN_FLIGHT);
        let writing = spawn_blocking(move || {
            while let Some((_permit, chunk)) = from_net.blocking_recv() {
                match claim.write(&chunk) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return (claim, Err(error)),
                }
            }
            (claim, Ok(()))
        });
        let read = loop {
            let chunk = match body.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            };
            let memory = Arc::clone(&self.shared.memory);
            let n_bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX).min(MEMORY_BYTES);
            let permit = memory.acquire_many_owned(n_bytes).await.expect("the semaphore is never closed");
            if to_disk.send((permit, chunk)).await.is_err() {
                // The disk has failed, and says why below; or there is no use for more.
                break Ok(());
            }
        };
        drop(to_disk);
        let (claim, written) = writing.await.expect("writing does not panic");
        (claim, written.map_err(stop).and(read))
    }

    /// Fetches a range once more without keeping it; its hash, or `None` if the connection was retired.
    pub(super) async fn compare(self, span: Range<u64>) -> Result<Option<PieceHash>, Fault> {
        let Some((response, given)) = self.ask(&span).await? else { return Ok(None) };
        let mut body = Body::new(&self, response, span.end - given.start);
        let (mut hasher, mut at) = (PieceHasher::default(), given.start);
        while let Some(chunk) = body.next().await? {
            let skipped = usize::try_from(span.start.saturating_sub(at)).unwrap_or(usize::MAX).min(chunk.len());
            hasher.update(&chunk[skipped..]);
            at += chunk.len() as u64;
        }
        Ok((at == span.end).then(|| hasher.finish()))
    }

    /// Asks for bytes; the answer and the bytes that it gives. `None` if the connection was retired.
    async fn ask(&self, wanted: &Range<u64>) -> Result<Option<(Response, Range<u64>)>, Fault> {
        let etag = self.link.etag.get();
        let asking = self.hub.open(&self.link.url, wanted.clone(), etag);
        let response = tokio::select! {
            biased;
            () = self.signal.retire.notified() => return Ok(None),
            response = asking => response?,
        };
        let source = if self.hub.is_own(response.url()) { Source::Hub } else { Source::Elsewhere };
        let size_bytes = self.file.size_bytes;
        let asked = Asked { source, from: wanted.start, size_bytes, etag };
        match judge(response.status(), response.headers(), &asked) {
            Verdict::Gives { from } => {
                if let Some(etag) = strong_etag(response.headers()) {
                    // Whoever came first has it.
                    let _ = self.link.etag.set(etag.clone());
                }
                let is_whole = response.status() == StatusCode::OK;
                self.link.knows_no_ranges.fetch_or(is_whole && *wanted != (0..size_bytes), Ordering::AcqRel);
                self.link.has_answered.store(true, Ordering::Release);
                self.part.news.notify_one();
                Ok(Some((response, from..if is_whole { size_bytes } else { wanted.end })))
            }
            Verdict::Expired => {
                let error = HubError::Refused { status: response.status().as_u16(), message: String::new() };
                Err(Fault::Again { error, pause: Pause::NewLink })
            }
            Verdict::Odd(oddity) => Err(HubError::odd(&self.link.url, oddity).into()),
            Verdict::Refused => Err(self.hub.file_refusal(&response, &self.file).into()),
        }
    }
}

/// The body of an answer, no further than it is wanted.
struct Body<'a> {
    connection: &'a Connection,
    response: Response,
    left_bytes: u64,
    /// Time waited for the network and bytes that came, since the connection was last found fast enough.
    waited: Duration,
    came_bytes: u64,
}

impl<'a> Body<'a> {
    fn new(connection: &'a Connection, response: Response, left_bytes: u64) -> Self {
        Self { connection, response, left_bytes, waited: Duration::ZERO, came_bytes: 0 }
    }

    /// The next chunk; `None` at the end of what is wanted, or if the connection is to end.
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.left_bytes == 0 {
            return Ok(None);
        }
        let Connection { shared, signal, .. } = self.connection;
        let began = Instant::now();
        let read = tokio::select! {
            biased;
            () = signal.retire.notified() => return Ok(None),
            read = timeout(shared.options.stall, self.response.chunk()) => read,
        };
        let url = self.response.url();
        let lost = |fault, why| Fault::from(HubError::network(url, fault, why));
        let mut chunk = match read {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Err(lost(NetworkFault::Lost, "the answer ended early")),
            Ok(Err(error)) => return Err(HubError::from_reqwest(url, &error).into()),
            Err(_) => return Err(lost(NetworkFault::TimedOut, "no data in time")),
        };
        chunk.truncate(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let n_bytes = chunk.len() as u64;
        (self.waited, self.came_bytes) = (self.waited + began.elapsed(), self.came_bytes + n_bytes);
        if self.waited >= shared.options.stall {
            if (self.came_bytes as f64) < shared.options.slowest_bytes_per_s * self.waited.as_secs_f64() {
                return Err(lost(NetworkFault::TimedOut, "too little data in time"));
            }
            (self.waited, self.came_bytes) = (Duration::ZERO, 0);
        }
        self.left_bytes -= n_bytes;
        signal.n_bytes.fetch_add(n_bytes, Ordering::AcqRel);
        tokio::select! {
            biased;
            () = signal.retire.notified() => Ok(None),
            () = shared.throttle.take(n_bytes) => Ok(Some(chunk)),
        }
    }
}

/// Runs what blocks on a thread made for that.
pub(super) async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(run).await.expect("work on the disk does not panic")
}

fn stop(error: super::DownloadError) -> Fault {
    Fault::Stop(Stop::from(error))
}

/// Between network and disk, per connection; a chunk is at most some hundred kilobytes.
const CHUNKS_IN_FLIGHT: usize = 32;
/// Between network and disk, of all connections together.
pub(super) const MEMORY_BYTES: u32 = 16 << 20;
