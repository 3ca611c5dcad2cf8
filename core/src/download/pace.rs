//! Rates and waits. All but the throttle are pure: time is given, never asked for.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::lock;

/// How long to wait before trying again, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the second attempt.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
    /// Attempts without a new byte until a person must look.
    pub attempts: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30), attempts: 10 }
    }
}

impl Backoff {
    /// The wait after this many attempts in vain; `None` if there were enough.
    pub fn wait(&self, n_failed: u32) -> Option<Duration> {
        if n_failed >= self.attempts {
            return None;
        }
        let doublings = n_failed.saturating_sub(1).min(20);
        Some(self.first.saturating_mul(1 << doublings).min(self.longest))
    }
}

/// Bytes per second over the last seconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    samples: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// Takes note that so many bytes had arrived at a time; times only grow.
    pub(super) fn note(&mut self, at: Duration, n_bytes: u64) {
        if self.samples.back().is_some_and(|(_, before)| n_bytes < *before) {
            // A download that started over has no rate yet.
            self.samples.clear();
        }
        self.samples.push_back((at, n_bytes));
        while self.samples.len() > 2
            && self.samples.front().is_some_and(|(first, _)| at.saturating_sub(*first) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Forgets what was, as after a pause.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((first, from)), Some((last, to))) if last > first => {
                (to - from) as f64 / (*last - *first).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// Seconds for the rest at this rate.
    pub(super) fn seconds_left(&self, left_bytes: u64) -> Option<f64> {
        let rate = self.bytes_per_s();
        (rate > 0.0).then(|| left_bytes as f64 / rate)
    }
}

/// Lets so many bytes per second pass, of all connections together.
#[derive(Debug)]
pub(super) struct Throttle {
    began: Instant,
    bucket: Mutex<Bucket>,
    /// Rung when the limit changes.
    changed: Notify,
}

impl Throttle {
    /// bytes_per_s  0: no limit
    pub(super) fn new(bytes_per_s: u64) -> Self {
        let bucket = Mutex::new(Bucket { bytes_per_s, booked_to: Duration::ZERO });
        Self { began: Instant::now(), bucket, changed: Notify::new() }
    }

    /// Changes the limit for all, those that wait now included.
    pub(super) fn set(&self, bytes_per_s: u64) {
        let mut bucket = lock(&self.bucket);
        if bucket.bytes_per_s != bytes_per_s {
            *bucket = Bucket { bytes_per_s, booked_to: self.began.elapsed() };
            self.changed.notify_waiters();
        }
    }

    /// Returns when so many bytes more may pass.
    pub(super) async fn take(&self, n_bytes: u64) {
        let changed = self.changed.notified();
        let wait = lock(&self.bucket).take(self.began.elapsed(), n_bytes);
        if wait > Duration::ZERO {
            tokio::select! {
                () = sleep(wait) => {}
                () = changed => {}
            }
        }
    }
}

/// A line of that rate, booked by one after the other.
#[derive(Debug)]
struct Bucket {
    bytes_per_s: u64,
    booked_to: Duration,
}

impl Bucket {
    /// Books the line for so many bytes; how long until they have passed.
    fn take(&mut self, now: Duration, n_bytes: u64) -> Duration {
        if self.bytes_per_s == 0 {
            return Duration::ZERO;
        }
        let takes = Duration::from_secs_f64(n_bytes as f64 / self.bytes_per_s as f64);
        self.booked_to = self.booked_to.max(now) + takes;
        self.booked_to - now
    }
}

const WINDOW: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end() {
        let backoff = Backoff { attempts: 8, ..Backoff::default() };
        let seconds: Vec<Option<u64>> = (1..=8).map(|n| backoff.wait(n).map(|wait| wait.as_secs())).collect();
        assert_eq!(seconds, [Some(1), Some(2), Some(4), Some(8), Some(16), Some(30), Some(30), None]);
        assert_eq!(Backoff { attempts: u32::MAX, ..backoff }.wait(4_000_000_000), Some(backoff.longest));
    }

    #[test]
    fn a_line_is_booked_by_one_after_the_other() {
        let seconds = Duration::from_secs;
        let mut bucket = Bucket { bytes_per_s: 100, booked_to: Duration::ZERO };
        assert_eq!(
            [(7, 100), (7, 300), (8, 100), (99, 50)].map(|(now, n)| bucket.take(seconds(now), n).as_millis()),
            [1000, 4000, 4000, 500]
        );
        bucket.bytes_per_s = 0;
        assert_eq!(bucket.take(seconds(1), u64::MAX), Duration::ZERO);
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut rate = Rate::default();
        assert_eq!((rate.bytes_per_s(), rate.seconds_left(10)), (0.0, None));
        for second in 0..20 {
            // A fast start, then 100 bytes a second.
            rate.note(Duration::from_secs(second), 100_000 * second.min(3) + 100 * second);
        }
        assert_eq!((rate.bytes_per_s(), rate.seconds_left(1000)), (100.0, Some(10.0)));
        rate.note(Duration::from_secs(20), 0);
        assert_eq!(rate.bytes_per_s(), 0.0, "started over");
        rate.note(Duration::from_secs(20), 50);
        assert_eq!(rate.bytes_per_s(), 0.0, "no time has passed");
    }
}
