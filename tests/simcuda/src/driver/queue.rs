//! Streams and what waits on them.
//!
//! A task knows what must be done before it (its stream's earlier tasks, tasks of other streams through events) and
//! what was known to be finished when it was queued. It is done when somebody waits for it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

use super::launch::Spec;
use super::{Done, Driver, Refusal, STREAM_CAPTURE_UNSUPPORTED, at, at_mut};
use crate::check::LAUNCH_FAILED;
use crate::check::order::{Clock, Seen, Stamp};
use crate::check::touched::Touched;
use crate::settings::Run;

/// A stream.
pub(crate) struct Stream {
    pub(crate) card: usize,
    /// Whether the card's default stream waits for it, and it for that.
    pub(crate) is_blocking: bool,
    /// The capture it takes part in, and which of its branches it is.
    pub(crate) capture: Option<(usize, usize)>,
    queue: VecDeque<Task>,
    /// What is finished when its last task is.
    pub(crate) clock: Clock,
    n_ticks: u64,
    /// Number of the last task.
    last: u64,
}

/// Work that is queued.
struct Task {
    number: u64,
    name: String,
    stamp: Stamp,
    after: Clock,
    needs: Vec<Position>,
    work: Work,
}

/// A place in a stream: everything up to this task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) stream: usize,
    pub(crate) task: u64,
}

/// What a task does.
#[derive(Clone)]
pub(crate) enum Work {
    /// Only waits.
    Nothing,
    Kernel(Arc<Spec>),
    /// Bytes that were taken when the copy was queued.
    Staged {
        into: u64,
        bytes: Arc<[u8]>,
    },
    Copy {
        into: u64,
        from: u64,
        bytes: usize,
    },
    /// A pattern of one, two or four bytes.
    Fill {
        at: u64,
        pattern: u32,
        pattern_bytes: usize,
        n: usize,
    },
    Free(u64),
    /// A function of the host's and what it is given.
    Host(extern "C" fn(*mut c_void), usize),
}

/// A stream does not let more tasks wait.
const MOST_WAITING: usize = 4096;

impl Driver {
    pub(crate) fn new_stream(&mut self, card: usize, is_blocking: bool) -> usize {
        let clock = Clock::default();
        let stream = Stream { card, is_blocking, capture: None, queue: VecDeque::new(), clock, n_ticks: 0, last: 0 };
        // Numbers are not used again: clocks know them.
        self.streams.push(Some(stream));
        self.streams.len() - 1
    }

    /// Queues work on a stream, or notes it if the stream is captured.
    pub(crate) fn enqueue(&mut self, stream: usize, name: &str, work: Work) -> Done {
        let card = at(&self.streams, stream)?.card;
        self.check_there(card)?;
        if let Some((capture, branch)) = at(&self.streams, stream)?.capture {
            return self.note(capture, branch, name, work);
        }
        self.push(stream, name, work, Vec::new())?;
        match self.settings.run {
            Run::AtOnce => self.run_all(stream),
            Run::Late if at(&self.streams, stream)?.queue.len() > MOST_WAITING => self.run_all(stream),
            Run::Late => Ok(()),
        }
    }

    /// Makes what comes next on a stream wait for a position, with what is known there.
    pub(crate) fn wait_for(&mut self, stream: usize, position: Position, clock: &Clock) -> Done {
        at_mut(&mut self.streams, stream)?.clock.join(clock);
        self.push(stream, "wait", Work::Nothing, vec![position])
    }

    fn push(&mut self, stream: usize, name: &str, work: Work, mut needs: Vec<Position>) -> Done {
        let (card, is_blocking) = {
            let stream = at(&self.streams, stream)?;
            (stream.card, stream.is_blocking)
        };
        // The default stream waits for all blocking streams of its card, and they for it.
        let default = self.default_streams.get(&card).copied();
        let joined: Vec<usize> = match default {
            Some(default) if default == stream => {
                let blocking = |other: &Stream| other.card == card && other.is_blocking;
                let others = self.streams.iter().enumerate();
                others
                    .filter(|(at, other)| *at != stream && other.as_ref().is_some_and(blocking))
                    .map(|(at, _)| at)
                    .collect()
            }
            Some(default) if is_blocking => vec![default],
            _ => Vec::new(),
        };
        let mut after = self.host.clone();
        for other in joined {
            let position = self.position(other)?;
            if position.task > 0 {
                needs.push(position);
                after.join(&at(&self.streams, other)?.clock);
            }
        }
        self.n_tasks += 1;
        let number = self.n_tasks;
        let queued = at_mut(&mut self.streams, stream)?;
        after.join(&queued.clock);
        queued.n_ticks += 1;
        queued.last = number;
        let stamp = Stamp { stream, tick: queued.n_ticks };
        queued.clock = after.clone();
        queued.clock.learn(stamp);
        queued.queue.push_back(Task { number, name: name.to_owned(), stamp, after, needs, work });
        Ok(())
    }

    /// The end of a stream as it is now.
    pub(crate) fn position(&self, stream: usize) -> Done<Position> {
        Ok(Position { stream, task: at(&self.streams, stream)?.last })
    }

    /// Whether everything up to a position is done.
    pub(crate) fn is_done(&self, position: Position) -> bool {
        let stream = self.streams.get(position.stream).and_then(Option::as_ref);
        stream.and_then(|stream| stream.queue.front()).is_none_or(|task| task.number > position.task)
    }

    /// Does everything up to a position, and what that needs.
    pub(crate) fn run_until(&mut self, position: Position) -> Done {
        let mut done = Ok(());
        loop {
            let Some(Some(stream)) = self.streams.get_mut(position.stream) else { return done };
            if stream.queue.front().is_none_or(|task| task.number > position.task) {
                return done;
            }
            let Some(task) = stream.queue.pop_front() else { return done };
            for need in &task.needs {
                done = done.and(self.run_until(*need));
            }
            // After a fault nothing is done, as on a card; the queue is emptied.
            if done.is_ok() {
                done = self.run_task(task);
            }
        }
    }

    fn run_all(&mut self, stream: usize) -> Done {
        let position = self.position(stream)?;
        self.run_until(position)
    }

    /// The host waits for a stream.
    pub(crate) fn synchronize(&mut self, stream: usize) -> Done {
        if at(&self.streams, stream)?.capture.is_some() {
            return Err(Refusal::new(STREAM_CAPTURE_UNSUPPORTED, "waiting for a stream that is captured"));
        }
        self.counters.n_waits += 1;
        let (position, clock) = (self.position(stream)?, at(&self.streams, stream)?.clock.clone());
        self.waited(position, &clock)
    }

    /// The host waits for a position.
    pub(crate) fn waited(&mut self, position: Position, clock: &Clock) -> Done {
        let done = self.run_until(position);
        self.host.join(clock);
        let nothing_waits = self.streams.iter().flatten().all(|stream| stream.queue.is_empty());
        if nothing_waits {
            self.history.forget(&self.host);
        }
        done?;
        let card = at(&self.streams, position.stream).map(|stream| stream.card);
        card.and_then(|card| self.check_there(card))
    }

    /// The host waits for all streams of a card.
    pub(crate) fn synchronize_card(&mut self, card: usize) -> Done {
        let of_card = |stream: &Option<Stream>| stream.as_ref().is_some_and(|stream| stream.card == card);
        let streams: Vec<usize> = (0..self.streams.len()).filter(|&at| of_card(&self.streams[at])).collect();
        let mut done = Ok(());
        for stream in streams {
            // All of them, whatever another found.
            done = done.and(self.synchronize(stream));
        }
        done
    }

    fn run_task(&mut self, task: Task) -> Done {
        let (reads, writes) = match &task.work {
            Work::Nothing => return Ok(()),
            Work::Host(function, argument) => {
                function(std::ptr::with_exposed_provenance_mut(*argument));
                return Ok(());
            }
            Work::Kernel(spec) => self.run_kernel(spec)?,
            Work::Staged { into, bytes } => {
                self.copy_in(*into, bytes)?;
                (Touched::default(), Touched::of(*into, bytes.len()))
            }
            Work::Copy { into, from, bytes } => {
                self.copy(*into, *from, *bytes)?;
                (Touched::of(*from, *bytes), Touched::of(*into, *bytes))
            }
            Work::Fill { at, pattern, pattern_bytes, n } => {
                self.fill(*at, &pattern.to_le_bytes()[..*pattern_bytes], *n)?;
                (Touched::default(), Touched::of(*at, pattern_bytes * n))
            }
            Work::Free(address) => {
                let bytes = self.free(*address)?;
                (Touched::default(), Touched::of(*address, bytes))
            }
        };
        let seen = Seen { name: task.name, stamp: task.stamp, after: task.after, reads, writes };
        let name = seen.name.clone();
        match self.history.add(seen) {
            Some(hazard) => Err(self.found(LAUNCH_FAILED, format!("{name}: {hazard}"))),
            None => Ok(()),
        }
    }
}
