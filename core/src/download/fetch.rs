//! Brings one file home: gives out its pieces to connections, as many as do good, until the SHA256 of the whole holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::connection::{Connection, Link, Signal};
use super::error::DownloadError;
use super::fault::{Fault, Pause};
use super::pace::Backoff;
use super::part::{Claim, PartFile};
use super::pieces::PieceHash;
use super::repair::{Repair, Ruling};
use super::run::{Run, Stop};
use super::table::Wanted;
use super::width::Width;
use crate::error::Explain;
use crate::hub::{Hub, HubError, Oddity};
use crate::wire::{DownloadState, Failure, RepoFile};

/// A file on its way.
pub(super) struct Fetch<'a, 'r> {
    run: &'a mut Run<'r>,
    part: Arc<PartFile>,
    file: RepoFile,
    /// The hub, then mirrors of it.
    sources: Vec<Place>,
    width: Width,
    connections: JoinSet<Ended>,
    signals: HashMap<u64, Arc<Signal>>,
    n_begun: u64,
    hashing: Option<JoinHandle<Result<Option<String>, DownloadError>>>,
    /// SHA256 of what is here, once all is.
    got: Option<String>,
    saving: Option<JoinHandle<Result<(), DownloadError>>>,
    repair: Option<Repair>,
    trouble: Trouble,
    measured: Measured,
    shown: Option<DownloadState>,
}

/// Who has the file, and where exactly, as long as that is known.
struct Place {
    hub: Arc<Hub>,
    link: Option<Arc<Link>>,
    old_link: Option<Arc<Link>>,
    /// A mirror that keeps failing is not asked again.
    is_of_use: bool,
    /// Faults of a mirror since it last gave what was asked for.
    n_failed: u32,
}

/// What a connection is to do.
enum Job {
    Fill(Claim),
    /// Fetch a piece once more and compare.
    Compare(usize),
}

/// A connection that has ended.
struct Ended {
    n: u64,
    source: usize,
    era: u32,
    outcome: Outcome,
}

enum Outcome {
    Filled(Claim, Result<(), Fault>),
    Compared { piece: usize, hash: Result<Option<PieceHash>, Fault> },
}

/// Faults without a new byte between them.
struct Trouble {
    n_failed: u32,
    /// Connections begun before the last fault fail with it, not again.
    era: u32,
    most_bytes: u64,
    /// No new connection before that.
    not_before: Option<Instant>,
    failure: Option<Failure>,
}

struct Measured {
    at: Instant,
    n_times: u32,
    /// Of connections that have ended since.
    n_bytes: u64,
}

impl<'a, 'r> Fetch<'a, 'r> {
    pub(super) fn new(run: &'a mut Run<'r>, part: Arc<PartFile>, file: RepoFile) -> Self {
        let sources = run.shared.sources().into_iter().map(Place::new).collect();
        let width = Width::new(run.shared.limits().connections as usize);
        Self {
            run,
            part,
            file,
            sources,
            width,
            connections: JoinSet::new(),
            signals: HashMap::new(),
            n_begun: 0,
            hashing: None,
            got: None,
            saving: None,
            repair: None,
            trouble: Trouble { n_failed: 0, era: 0, most_bytes: 0, not_before: None, failure: None },
            measured: Measured { at: Instant::now(), n_times: 0, n_bytes: 0 },
            shown: None,
        }
    }

    /// Returns when the file is whole and right, with its SHA256, or when that cannot be; all that it began has ended then.
    pub(super) async fn whole(mut self) -> Result<String, Stop> {
        let ended = self.drive().await;
        self.signals.values().for_each(|signal| signal.retire.notify_one());
        while self.connections.join_next().await.is_some() {}
        self.part.close();
        // What they would say is of no use any more.
        if let Some(hashing) = self.hashing.take() {
            let _ = hashing.await;
        }
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
        ended.map(|()| self.got.take().unwrap_or_default())
    }

    async fn drive(&mut self) -> Result<(), Stop> {
        let mut tick = interval(self.run.shared.options.measure_every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut wanted, nudge) = (self.run.wanted.clone(), Arc::clone(&self.run.nudge));
        self.begin_hashing();
        while !self.is_right()? {
            self.give_out_work().await?;
            self.show();
            let not_before = self.trouble.not_before;
            let waits = not_before.is_some();
            tokio::select! {
                biased;
                // The sender lives in the table as long as the download does.
                _ = wanted.wait_for(|wanted| *wanted != Wanted::Run) => return Err(Stop::Asked),
                Some(ended) = self.connections.join_next() => {
                    self.note_end(ended.expect("connections do not panic"))?;
                }
                hashed = next(&mut self.hashing) => {
                    self.got = hashed?;
                    if !self.part.is_hashed() {
                        // A piece was thrown away just when the last had been hashed.
                        self.begin_hashing();
                    }
                }
                saved = next(&mut self.saving) => saved?,
                () = self.part.news.notified() => {}
                () = sleep_until(not_before.unwrap_or_else(Instant::now)), if waits => self.trouble.not_before = None,
                () = nudge.notified(), if waits => self.trouble.not_before = None,
                _ = tick.tick() => self.measure(),
            }
            if self.saving.is_none() && self.part.should_save() {
                let part = Arc::clone(&self.part);
                self.saving = Some(spawn_blocking(move || part.save()));
            }
        }
        Ok(())
    }

    /// Begins connections while there is something to fetch and more of them are wanted.
    async fn give_out_work(&mut self) -> Result<(), Stop> {
        if self.file.sha256.is_none() && self.trouble.not_before.is_none() {
            let era = self.trouble.era;
            if let Err(fault) = self.locate(0).await {
                self.note_fault(fault, 0, era)?;
            }
        }
        self.mind_ranges();
        while self.trouble.not_before.is_none() && self.connections.len() < self.width.now() {
            let Some((job, source)) = self.next_job() else { return Ok(()) };
            match self.locate(source).await {
                Ok(link) => self.begin(job, source, link),
                Err(fault) => {
                    self.put_back(job);
                    self.note_fault(fault, source, self.trouble.era)?;
                }
            }
        }
        Ok(())
    }

    /// What an answer has shown: whether the file is to be had at all, and in ranges.
    fn mind_ranges(&mut self) {
        let Some(link) = &self.sources[0].link else { return };
        if link.knows_no_ranges.load(Ordering::Acquire) {
            self.width.one();
        } else if link.has_answered.load(Ordering::Acquire) {
            self.width.first_answer();
        }
    }

    fn next_job(&mut self) -> Option<(Job, usize)> {
        let n_open = self.part.state().pieces.n_open();
        let most = if self.repair.is_some() { 1 } else { (n_open / (2 * self.width.now())).clamp(1, MOST_PIECES) };
        if let Some(claim) = self.part.claim(most) {
            let n_fetches = self.repair.as_ref().map_or(0, |repair| repair.n_fetches(claim.first()));
            let sources = self.sources_of_use();
            return Some((Job::Fill(claim), sources[n_fetches % sources.len()]));
        }
        let piece = self.repair.as_mut()?.next()?;
        let sources = self.sources_of_use();
        Some((Job::Compare(piece), *sources.get(1).unwrap_or(&sources[0])))
    }

    /// The hub, then mirrors that have not failed.
    fn sources_of_use(&self) -> Vec<usize> {
        (0..self.sources.len()).filter(|&source| source == 0 || self.sources[source].is_of_use).collect()
    }

    fn mind_sources(&mut self) {
        let n_sources = self.sources_of_use().len();
        if let Some(repair) = &mut self.repair {
            repair.set_sources(n_sources);
        }
    }

    fn put_back(&mut self, job: Job) {
        if let (Job::Compare(piece), Some(repair)) = (job, &mut self.repair) {
            repair.put_back(piece);
        }
    }

    fn begin(&mut self, job: Job, source: usize, link: Arc<Link>) {
        let (n, era, signal) = (self.n_begun, self.trouble.era, Arc::<Signal>::default());
        self.n_begun += 1;
        self.signals.insert(n, Arc::clone(&signal));
        let connection = Connection {
            shared: Arc::clone(self.run.shared),
            hub: Arc::clone(&self.sources[source].hub),
            link,
            part: Arc::clone(&self.part),
            file: self.file.clone(),
            signal,
        };
        let part = Arc::clone(&self.part);
        self.connections.spawn(async move {
            let outcome = match job {
                Job::Fill(claim) => {
                    let (claim, filled) = connection.fill(claim).await;
                    Outcome::Filled(claim, filled)
                }
                Job::Compare(piece) => {
                    let span = part.state().pieces.span(piece);
                    Outcome::Compared { piece, hash: connection.compare(span).await }
                }
            };
            Ended { n, source, era, outcome }
        });
    }

    fn note_end(&mut self, ended: Ended) -> Result<(), Stop> {
        let Ended { n, source, era, outcome } = ended;
        if let Some(signal) = self.signals.remove(&n) {
            self.measured.n_bytes += signal.take_measured();
        }
        let fault = match outcome {
            Outcome::Filled(claim, Ok(())) => {
                drop(claim);
                self.sources[source].n_failed = 0;
                return self.rule();
            }
            Outcome::Compared { piece, hash: Ok(Some(hash)) } => {
                (self.trouble.n_failed, self.sources[source].n_failed) = (0, 0);
                self.compare(piece, hash);
                return Ok(());
            }
            Outcome::Compared { piece, hash: Ok(None) } => {
                self.put_back(Job::Compare(piece));
                return Ok(());
            }
            Outcome::Compared { piece, hash: Err(fault) } => {
                self.put_back(Job::Compare(piece));
                fault
            }
            Outcome::Filled(_, Err(fault)) => fault,
        };
        self.note_fault(fault, source, era)
    }

    fn note_fault(&mut self, fault: Fault, source: usize, era: u32) -> Result<(), Stop> {
        if source > 0 {
            return self.note_mirrors_fault(fault, source);
        }
        let (error, pause) = match fault {
            Fault::Stop(stop) => return Err(stop),
            Fault::Again { error, pause } => (error, pause),
        };
        let written_bytes = self.part.state().pieces.written_bytes();
        let trouble = &mut self.trouble;
        if written_bytes > trouble.most_bytes {
            (trouble.n_failed, trouble.most_bytes) = (0, written_bytes);
        }
        if era < trouble.era && !matches!(pause, Pause::Asked(_)) {
            return Ok(());
        }
        trouble.era += 1;
        trouble.n_failed += 1;
        match pause {
            Pause::Asked(_) => self.width.one(),
            Pause::NewLink | Pause::Backoff => self.width.failed(),
        }
        let options = &self.run.shared.options;
        let attempts = match error {
            HubError::Network { .. } => options.network_attempts,
            _ => options.backoff.attempts,
        };
        let Some(backoff) = (Backoff { attempts, ..options.backoff }).wait(trouble.n_failed) else {
            return Err(Stop::from(error));
        };
        tracing::info!(download = %self.run.id, n_failed = trouble.n_failed, %error, "trying again");
        let is_changed = matches!(error, HubError::NotAHub { oddity: Oddity::Changed, .. });
        let wait = pause.wait(backoff);
        trouble.not_before = (!wait.is_zero()).then(|| Instant::now() + wait);
        trouble.failure = Some(error.explain());
        // The hub is asked again: it may point elsewhere, and knows whether the file has changed.
        self.sources[0].forget();
        if is_changed {
            // If the hub still names the same hash, the host has only given it another name.
            self.sources[0].old_link = None;
        }
        Ok(())
    }

    /// A mirror that has failed is asked again after a while, and no more once it has failed often, or does not have the
    /// file. What is not the mirror's fault ends the download as ever.
    fn note_mirrors_fault(&mut self, fault: Fault, source: usize) -> Result<(), Stop> {
        let place = &mut self.sources[source];
        place.n_failed += 1;
        place.forget();
        let backoff = self.run.shared.options.backoff;
        let again = Backoff { attempts: backoff.attempts.min(MOST_MIRROR_FAULTS), ..backoff }.wait(place.n_failed);
        match (fault, again) {
            (Fault::Stop(stop), _) if !stop.is_of_source() => return Err(stop),
            // One that asks for patience is not waited for: it is only a second word.
            (Fault::Again { error, pause: Pause::NewLink | Pause::Backoff }, Some(wait)) => {
                self.trouble.not_before = Some(Instant::now() + wait);
                self.trouble.failure = Some(error.explain());
            }
            (fault, _) => {
                tracing::info!(download = %self.run.id, ?fault, "a mirror is of no use");
                place.is_of_use = false;
                self.mind_sources();
            }
        }
        Ok(())
    }

    /// Where a source has the file, and whether it is still the file that was begun.
    async fn locate(&mut self, source: usize) -> Result<Arc<Link>, Fault> {
        if let Some(link) = &self.sources[source].link {
            return Ok(Arc::clone(link));
        }
        let hub = Arc::clone(&self.sources[source].hub);
        let resolved = self.run.unless_asked(hub.resolve(&self.file)).await.map_err(Fault::Stop)??;
        let is_other = matches!((&resolved.sha256, &self.file.sha256), (Some(now), Some(then)) if now != then);
        if is_other || resolved.size_bytes != self.file.size_bytes {
            return Err(Fault::Stop(Stop::from(DownloadError::ChangedUpstream { path: self.file.path.clone() })));
        }
        if self.file.sha256.is_none() {
            self.file.sha256 = resolved.sha256;
        }
        if self.file.sha256.is_none() {
            // What cannot be checked is not kept.
            let oddity = Oddity::NoHeader { name: "x-linked-etag" };
            return Err(Fault::Stop(Stop::from(HubError::odd(&resolved.url, oddity))));
        }
        let place = &mut self.sources[source];
        let link = Arc::new(Link::new(resolved.url).remember(place.old_link.as_deref()));
        place.link = Some(Arc::clone(&link));
        Ok(link)
    }

    fn begin_hashing(&mut self) {
        self.got = None;
        if self.hashing.is_none() {
            let part = Arc::clone(&self.part);
            self.hashing = Some(spawn_blocking(move || part.hash_whole()));
        }
    }

    /// Whether all is here and right. If it is here and wrong, sees to it that the damage is looked for.
    fn is_right(&mut self) -> Result<bool, Stop> {
        let (Some(got), Some(expected)) = (&self.got, &self.file.sha256) else { return Ok(false) };
        if got == expected {
            return Ok(true);
        }
        let n_pieces = self.part.state().pieces.count();
        let n_sources = self.sources_of_use().len();
        let repair = self.repair.get_or_insert_with(|| Repair::new(n_pieces, n_sources));
        if repair.is_over() && self.connections.is_empty() {
            let torn = repair.last_hearing();
            if torn.is_empty() {
                return Err(self.mismatch());
            }
            self.sources[1..].iter_mut().for_each(|mirror| mirror.is_of_use = false);
            for piece in torn {
                self.part.reject(piece);
            }
            self.got = None;
            self.mind_sources();
        }
        Ok(false)
    }

    fn mismatch(&self) -> Stop {
        let (expected, got) = (self.file.sha256.clone().unwrap_or_default(), self.got.clone().unwrap_or_default());
        Stop::from(DownloadError::ChecksumMismatch { path: self.file.path.clone(), expected, got })
    }

    /// A piece came once more.
    fn compare(&mut self, piece: usize, came: PieceHash) {
        let here = self.part.state().pieces.hash(piece);
        let (Some(repair), Some(here)) = (&mut self.repair, here) else { return self.put_back(Job::Compare(piece)) };
        if repair.compare(piece, here, came) {
            self.part.reject(piece);
        }
        let compared = self.part.state().pieces.span(repair.n_compared()).start;
        self.part.progress.compared.store(compared, Ordering::Release);
    }

    /// Pieces in doubt that were fetched again: kept, or fetched once more.
    fn rule(&mut self) -> Result<(), Stop> {
        let Some(repair) = &mut self.repair else { return Ok(()) };
        for piece in repair.doubtful() {
            let hash = {
                let state = self.part.state();
                state.pieces.hash(piece).filter(|_| state.pieces.is_whole(piece))
            };
            match hash.map(|hash| repair.rule(piece, hash)) {
                None => {}
                Some(Ruling::Again) => {
                    self.part.reject(piece);
                }
                Some(Ruling::GiveUp) => return Err(self.mismatch()),
                Some(Ruling::Keep { is_other }) => {
                    self.part.progress.n_repaired.fetch_add(is_other.into(), Ordering::AcqRel);
                    self.got = None;
                }
            }
        }
        if self.got.is_none() {
            self.begin_hashing();
        }
        Ok(())
    }

    /// Takes note of the rate, and replaces connections that are much slower than the others.
    fn measure(&mut self) {
        self.width.set_most(self.run.shared.limits().connections as usize);
        let elapsed = self.measured.at.elapsed();
        let n_bytes: u64 =
            self.signals.values().map(|signal| signal.take_measured()).sum::<u64>() + self.measured.n_bytes;
        self.measured = Measured { at: Instant::now(), n_times: self.measured.n_times + 1, n_bytes: 0 };
        if self.connections.len() == self.width.now() && !elapsed.is_zero() {
            self.width.note((n_bytes as f64 / elapsed.as_secs_f64()) as u64);
        }
        if self.measured.n_times.is_multiple_of(SLOW_AFTER) {
            let looked_at = |signal: &'_ Arc<Signal>| Some((signal.take_looked_at()?, Arc::clone(signal)));
            let all: Vec<(u64, Arc<Signal>)> = self.signals.values().filter_map(looked_at).collect();
            let mean = all.iter().map(|(n_bytes, _)| n_bytes).sum::<u64>() / all.len().max(1) as u64;
            all.iter().filter(|(n_bytes, _)| n_bytes * 8 < mean).for_each(|(_, signal)| signal.retire.notify_one());
        }
    }

    fn show(&mut self) {
        let state = if self.connections.is_empty() && self.trouble.not_before.is_some() {
            DownloadState::Retrying
        } else if self.repair.is_some() {
            DownloadState::Repairing
        } else if self.part.state().pieces.all_whole() {
            DownloadState::Verifying
        } else {
            DownloadState::Running
        };
        if self.shown != Some(state) {
            let failure = self.trouble.failure.clone().filter(|_| state == DownloadState::Retrying);
            self.run.shared.table().set_state(self.run.id, state, failure);
            self.shown = Some(state);
        }
    }
}

impl Drop for Fetch<'_, '_> {
    /// However it ends, the hashing thread must not wait for ever.
    fn drop(&mut self) {
        self.part.close();
    }
}

impl Place {
    fn new(hub: Arc<Hub>) -> Self {
        Self { hub, link: None, old_link: None, is_of_use: true, n_failed: 0 }
    }

    fn forget(&mut self) {
        self.old_link = self.link.take().or(self.old_link.take());
    }
}

/// What a thread says at its end; for ever nothing if there is none.
async fn next<T>(thread: &mut Option<JoinHandle<T>>) -> T {
    let Some(handle) = thread else { return std::future::pending().await };
    let said = handle.await.expect("work on the disk does not panic");
    *thread = None;
    said
}

/// In a row; then it is of no use.
const MOST_MIRROR_FAULTS: u32 = 5;
/// Pieces of one request: fewer requests, and still the beginning of the file first.
const MOST_PIECES: usize = 4;
/// Measurements between two looks for slow connections.
const SLOW_AFTER: u32 = 5;
