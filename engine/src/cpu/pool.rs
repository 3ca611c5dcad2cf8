//! The compute pool: a job is a number of tasks that threads claim one by one; waits spin briefly, then sleep.
//!
//! `run` returns when all *tasks* are done, not when all threads have checked in: a thread that the operating system
//! has taken off a core delays only the task it holds. The engine owns one pool; there is no other.
use std::any::Any;
use std::hint::spin_loop;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread spins for the next job before it sleeps. The steps of one token follow each other within this;
/// longer spins take time from other programs. Source: measured; 20 to 50 us are equal.
const SPIN: Duration = Duration::from_micros(30);

/// `split` makes at most so many tasks per thread: enough to even out cores of unequal speed.
const TASKS_PER_THREAD: usize = 4;

/// Threads that share tasks.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Someone is inside `run`.
    is_busy: AtomicBool,
}

impl Pool {
    /// Starts `n_threads - 1` threads; the caller of `run` is the last one. Zero counts as one.
    pub fn new(n_threads: usize) -> io::Result<Pool> {
        let n = n_threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            n_tasks: AtomicU32::new(0),
            n_done: AtomicU32::new(0),
            owner: Mutex::new(None),
            owner_sleeps: AtomicBool::new(false),
            sleeps: (0..n).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            stops: AtomicBool::new(false),
        });
        // built up in place, so that an error stops and joins those already started
        let mut pool = Pool { shared, threads: Vec::with_capacity(n), is_busy: AtomicBool::new(false) };
        for i in 0..n {
            let shared = pool.shared.clone();
            let builder = thread::Builder::new().name(format!("compute-{}", i + 1));
            pool.threads.push(builder.spawn(move || shared.serve(i))?);
        }
        Ok(pool)
    }

    /// Threads that work, the caller included.
    pub fn n_threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `f(task)` for every task in 0..n_tasks and returns when all are done.
    ///
    /// A single task, and a job started while another is running, run on the caller alone.
    ///
    /// Errors   a panic of a task goes on in the caller, after all tasks are done
    /// Cost     0.1-0.5 us while the threads spin; no allocation
    pub fn run(&self, n_tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        if n_tasks <= 1 || self.threads.is_empty() || self.is_busy.swap(true, Acquire) {
            (0..n_tasks).for_each(f);
            return;
        }
        let panic = self.run_shared(u32::try_from(n_tasks).expect("a job has fewer than 2^32 tasks"), f);
        self.is_busy.store(false, Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs `f` over parts of 0..n_items of at least `grain` items (the last may be smaller).
    pub fn split(&self, n_items: usize, grain: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        let n_tasks = (n_items / grain.max(1)).clamp(1, self.n_threads() * TASKS_PER_THREAD);
        let n_tasks = if self.threads.is_empty() { 1 } else { n_tasks };
        self.run(n_tasks, &|i| f(n_items * i / n_tasks..n_items * (i + 1) / n_tasks));
    }

    fn run_shared(&self, n_tasks: u32, f: &(dyn Fn(usize) + Sync)) -> Option<Box<dyn Any + Send>> {
        let s = &*self.shared;
        let epoch = ((s.state.load(Relaxed) >> 32) as u32).wrapping_add(1);
        s.n_done.store(0, Relaxed);
        s.n_tasks.store(n_tasks, Release);
        s.job.store((&raw const f).cast_mut().cast(), Release);
        s.state.store(u64::from(epoch) << 32 | u64::from(n_tasks), SeqCst);
        for (thread, sleeps) in self.threads.iter().zip(&s.sleeps).take(n_tasks as usize - 1) {
            if sleeps.load(SeqCst) {
                thread.thread().unpark();
            }
        }
        s.work(epoch);
        s.wait_for_tasks(n_tasks);
        // nobody can claim in this epoch any more, so `f` is not used after this
        s.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stops.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // a thread ends only through `stops`: panics of tasks are caught
            let _ = thread.join();
        }
    }
}

struct Shared {
    /// Epoch (32 bits) | tasks nobody has claimed (32 bits). One word, so that a claim can only succeed in the epoch
    /// that it was read for. (A thread would have to lose its core for 2^32 jobs to be fooled.)
    state: AtomicU64,
    /// `*const &(dyn Fn(usize) + Sync)` on the stack of the caller of `run`.
    job: AtomicPtr<()>,
    n_tasks: AtomicU32,
    n_done: AtomicU32,
    /// Who to wake when the last task is done; set before `owner_sleeps`.
    owner: Mutex<Option<Thread>>,
    owner_sleeps: AtomicBool,
    sleeps: Box<[AtomicBool]>,
    /// The first panic of the job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stops: AtomicBool,
}

impl Shared {
    /// Claims and runs tasks of `epoch` until none is left.
    fn work(&self, epoch: u32) {
        let (n_tasks, job) = (self.n_tasks.load(Acquire), self.job.load(Acquire));
        loop {
            let state = self.state.load(Acquire);
            let n_left = state as u32;
            if (state >> 32) as u32 != epoch || n_left == 0 {
                return;
            }
            if self.state.compare_exchange_weak(state, state - 1, AcqRel, Relaxed).is_err() {
                continue;
            }
            // SAFETY: the claim succeeded in this epoch, so `job` belongs to it, and `run` returns (ending the
            // closure's life) only after this task is counted as done.
            let f = unsafe { *job.cast::<&(dyn Fn(usize) + Sync)>() };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f((n_tasks - n_left) as usize))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            if self.n_done.fetch_add(1, SeqCst) + 1 == n_tasks
                && self.owner_sleeps.load(SeqCst)
                && let Some(owner) = &*self.owner.lock().unwrap_or_else(PoisonError::into_inner)
            {
                owner.unpark();
            }
        }
    }

    fn wait_for_tasks(&self, n_tasks: u32) {
        let start = Instant::now();
        while self.n_done.load(Acquire) != n_tasks {
            if start.elapsed() < SPIN {
                spin_loop();
                continue;
            }
            *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
            self.owner_sleeps.store(true, SeqCst);
            while self.n_done.load(SeqCst) != n_tasks {
                thread::park();
            }
            self.owner_sleeps.store(false, SeqCst);
        }
    }

    /// The life of thread `index`.
    fn serve(&self, index: usize) {
        let mut seen = 0;
        while let Some(epoch) = self.next_epoch(seen, &self.sleeps[index]) {
            seen = epoch;
            self.work(epoch);
        }
    }

    /// Waits for another epoch than `seen`; `None` when the pool goes.
    fn next_epoch(&self, seen: u32, sleeps: &AtomicBool) -> Option<u32> {
        let mut start = Instant::now();
        loop {
            let epoch = (self.state.load(Acquire) >> 32) as u32;
            if epoch != seen {
                return Some(epoch);
            }
            if self.stops.load(Relaxed) {
                return None;
            }
            if start.elapsed() < SPIN {
                // reading the clock costs more than a spin
                (0..16).for_each(|_| spin_loop());
                continue;
            }
            sleeps.store(true, SeqCst);
            if (self.state.load(SeqCst) >> 32) as u32 == seen && !self.stops.load(SeqCst) {
                thread::park();
            }
            sleeps.store(false, SeqCst);
            start = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        let pool = Pool::new(4).unwrap();
        assert_eq!(pool.n_threads(), 4);
        for n in (0..4000).map(|i| i % 37) {
            let hits: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
            pool.run(n, &|i| {
                hits[i].fetch_add(1, Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Relaxed) == 1));
        }
    }

    #[test]
    fn split_covers_all_items_in_parts_of_the_grain() {
        for n_threads in [0, 1, 3] {
            let pool = Pool::new(n_threads).unwrap();
            for (n, grain) in [(0, 4), (3, 4), (17, 4), (1000, 1), (1000, 300)] {
                let hits: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
                pool.split(n, grain, &|range| {
                    assert!(range.len() >= grain.min(n));
                    range.for_each(|i| {
                        hits[i].fetch_add(1, Relaxed);
                    });
                });
                assert!(hits.iter().all(|h| h.load(Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3).unwrap();
        for round in 0..50 {
            let n_run = AtomicU32::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(20, &|i| {
                    n_run.fetch_add(1, Relaxed);
                    assert!(i != round % 20, "task {i}");
                });
            }));
            let panic = caught.unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("task {}", round % 20)));
            assert_eq!(n_run.load(Relaxed), 20);
        }
    }

    #[test]
    fn a_job_inside_a_job_runs_on_its_caller() {
        let pool = Pool::new(3).unwrap();
        let n_run = AtomicU32::new(0);
        pool.run(8, &|_| {
            let caller = thread::current().id();
            pool.run(5, &|_| {
                assert_eq!(thread::current().id(), caller);
                n_run.fetch_add(1, Relaxed);
            });
        });
        assert_eq!(n_run.load(Relaxed), 40);
    }

    #[test]
    fn jobs_may_come_from_any_thread() {
        let pool = Pool::new(2).unwrap();
        let sum = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.run(4, &|i| {
                            sum.fetch_add(i as u32, Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Relaxed), 3 * 200 * 6);
    }
}
