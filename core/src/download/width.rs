//! How many connections a file gets: more while more bring more, fewer after faults. Pure: rates are given, never measured.

/// The number of connections wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    most: usize,
    now: usize,
    trial: Trial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// Nothing has come yet: one connection finds out whether the file is to be had at all.
    First,
    /// The next rate is what to compare with.
    Ready,
    /// From so many connections with this rate in bytes per second to more.
    Running { before: usize, rate: u64 },
    /// More brought nothing, or brought faults: so many measurements of rest.
    Resting { n_left: u32 },
}

impl Width {
    /// At most so many; one at first.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), now: 1, trial: Trial::First }
    }

    pub(super) fn now(&self) -> usize {
        self.now.min(self.most)
    }

    /// A person wants another limit.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// The first connection brings bytes of the range asked for.
    pub(super) fn first_answer(&mut self) {
        if self.trial == Trial::First {
            self.now = FIRST.min(self.most);
            self.trial = Trial::Ready;
        }
    }

    /// Takes note of the rate, in bytes per second, while as many connections as wanted were at work.
    pub(super) fn note(&mut self, rate: u64) {
        self.trial = match self.trial {
            Trial::First => Trial::First,
            Trial::Resting { n_left: 0 } => Trial::Ready,
            Trial::Resting { n_left } => Trial::Resting { n_left: n_left - 1 },
            Trial::Running { before, rate: old } if rate <= old.saturating_add(old / 20) => {
                self.now = before;
                Trial::Resting { n_left: REST }
            }
            Trial::Ready | Trial::Running { .. } if self.now < self.most => {
                let before = self.now;
                self.now = (self.now + STEP).min(self.most);
                Trial::Running { before, rate }
            }
            Trial::Ready | Trial::Running { .. } => Trial::Resting { n_left: REST },
        };
    }

    /// A connection failed.
    pub(super) fn failed(&mut self) {
        self.now = (self.now() / 2).max(1);
        self.rest();
    }

    /// The server wants fewer requests, or knows no ranges.
    pub(super) fn one(&mut self) {
        self.now = 1;
        self.rest();
    }

    fn rest(&mut self) {
        if self.trial != Trial::First {
            self.trial = Trial::Resting { n_left: REST };
        }
    }
}

/// Enough for most lines; CDNs serve one connection at some tens of megabytes per second.
const FIRST: usize = 4;
const STEP: usize = 2;
/// Measurements, of a second each.
const REST: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections after so many measurements on a line that gives each connection `each`, and no more than `all`.
    fn settled(most: usize, each: u64, all: u64, n_measurements: usize) -> Vec<usize> {
        let mut width = Width::new(most);
        width.first_answer();
        let step = |_| {
            width.note((width.now() as u64 * each).min(all));
            width.now()
        };
        (0..n_measurements).map(step).collect()
    }

    #[test]
    fn more_connections_are_taken_while_they_bring_more() {
        assert_eq!(settled(16, 10, 1000, 6), [6, 8, 10, 12, 14, 16], "the server is the limit");
        let shared = settled(16, 10, 75, 60);
        assert_eq!(&shared[..3], [6, 8, 10], "the line is the limit");
        assert!(shared[3..].iter().all(|&n| (8..=10).contains(&n)), "{shared:?}");
        assert_eq!(settled(16, 100, 100, 3), [6, 4, 4]);
        assert_eq!(settled(2, 10, 1000, 5), [2; 5]);
    }

    #[test]
    fn faults_shrink_it_and_it_recovers_slowly() {
        let mut width = Width::new(8);
        width.note(100);
        assert_eq!(width.now(), 1, "one until the first answer");
        width.first_answer();
        width.failed();
        assert_eq!(width.now(), 2);
        width.failed();
        width.failed();
        assert_eq!(width.now(), 1);
        (0..=REST).for_each(|_| width.note(100));
        assert_eq!(width.now(), 1);
        width.note(100);
        assert_eq!(width.now(), 3);
        width.one();
        assert_eq!(width.now(), 1);
        width.set_most(0);
        assert_eq!(width.now(), 1);
    }
}
