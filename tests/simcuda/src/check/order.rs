//! Order between operations on streams: what is known to be finished when another begins, and what meets without an order.

use super::touched::Touched;

/// How many operations of each stream are finished, as far as someone knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    /// Knows also what another knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Knows of an operation.
    pub(crate) fn learn(&mut self, stamp: Stamp) {
        if self.0.len() <= stamp.stream {
            self.0.resize(stamp.stream + 1, 0);
        }
        self.0[stamp.stream] = self.0[stamp.stream].max(stamp.tick);
    }

    /// Whether it knows that an operation is finished.
    pub(crate) fn knows(&self, stamp: Stamp) -> bool {
        self.0.get(stamp.stream).is_some_and(|&tick| tick >= stamp.tick)
    }
}

/// An operation: its stream and its number there, from one on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stamp {
    pub(crate) stream: usize,
    pub(crate) tick: u64,
}

/// An operation that was done, and what it touched.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    /// What was known to be finished before.
    pub(crate) after: Clock,
    pub(crate) reads: Touched,
    pub(crate) writes: Touched,
}

/// Operations that later ones may still meet.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<Seen>);

/// More are forgotten, the oldest first.
const MOST: usize = 8192;

impl History {
    /// Adds an operation. Tells, if it meets another without an order between them.
    pub(crate) fn add(&mut self, seen: Seen) -> Option<String> {
        let others = self.0.iter().filter(|other| other.stamp.stream != seen.stamp.stream);
        let unordered = others.filter(|other| !seen.after.knows(other.stamp) && !other.after.knows(seen.stamp));
        let found = unordered.rev().find_map(|other| {
            let meets = [
                (&seen.writes, &other.writes, "write", "write"),
                (&seen.reads, &other.writes, "read", "write"),
                (&seen.writes, &other.reads, "write", "read"),
            ];
            meets.into_iter().find_map(|(mine, theirs, my_act, their_act)| {
                let address = mine.meets(theirs)?;
                Some(format!(
                    "hazard between streams: {my_act} of {address:#x} on stream {} with no order to the {their_act} by `{}` \
                     on stream {}",
                    seen.stamp.stream, other.name, other.stamp.stream
                ))
            })
        });
        if self.0.len() == MOST {
            self.0.drain(..MOST / 2);
        }
        if !seen.reads.is_empty() || !seen.writes.is_empty() {
            self.0.push(seen);
        }
        found
    }

    /// Forgets what the host knows to be finished. Only right while nothing waits that was begun before.
    pub(crate) fn forget(&mut self, host: &Clock) {
        self.0.retain(|seen| !host.knows(seen.stamp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stream: usize, after: &Clock, writes: u64) -> Seen {
        let stamp = Stamp { stream, tick: 1 };
        let (reads, writes) = (Touched::default(), Touched::of(writes, 64));
        Seen { name: format!("on {stream}"), stamp, after: after.clone(), reads, writes }
    }

    #[test]
    fn what_meets_without_an_order_is_told() {
        let mut history = History::default();
        assert_eq!(history.add(seen(1, &Clock::default(), 4096)), None);
        assert_eq!(history.add(seen(2, &Clock::default(), 8192)), None);
        let hazard = history.add(seen(3, &Clock::default(), 4128)).unwrap();
        assert!(hazard.contains("write of 0x1020 on stream 3") && hazard.contains("`on 1`"), "{hazard}");
    }

    #[test]
    fn an_order_or_the_host_makes_it_safe() {
        let mut history = History::default();
        let first = Stamp { stream: 1, tick: 1 };
        history.add(seen(1, &Clock::default(), 4096));
        let mut after = Clock::default();
        after.learn(first);
        assert_eq!(history.add(seen(2, &after, 4096)), None);
        after.learn(Stamp { stream: 2, tick: 1 });
        history.forget(&after);
        assert_eq!(history.add(seen(3, &Clock::default(), 4096)), None);
    }
}
