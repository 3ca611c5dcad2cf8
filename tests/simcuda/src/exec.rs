//! Runs kernels: blocks on a few host threads, warps one after another, lanes side by side.

mod block;
mod convert;
mod copy;
mod float;
mod half;
mod int;
mod lanes;
mod matrix;
mod memory;
mod vote;
mod warp;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::block::Block;
use crate::check::Finding;
use crate::check::memory::Map;
use crate::check::touched::Touched;
use crate::ptx::Kernel;

/// A kernel and what it is launched with.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a Kernel,
    /// Blocks by dimension.
    pub(crate) grid: [u32; 3],
    /// Threads of a block by dimension.
    pub(crate) block: [u32; 3],
    /// Bytes of all parameters.
    pub(crate) params: &'a [u8],
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic_shared: usize,
    /// Memory it may reach.
    pub(crate) map: &'a Map,
    /// Whether numbers are stored with the other sign: a card that computes wrongly.
    pub(crate) is_wrong: bool,
}

/// What a kernel did.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Instructions of whole warps.
    pub(crate) n_instructions: u64,
    /// Bytes that threads asked for, each time.
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Global memory that was touched, each byte once.
    pub(crate) reads: Touched,
    pub(crate) writes: Touched,
}

/// Below this many instructions of a whole launch, threads cost more than they bring.
const FEW_INSTRUCTIONS: u64 = 20_000;

impl Launch<'_> {
    /// Threads of a block.
    pub(crate) fn n_threads(&self) -> u32 {
        self.block.iter().product()
    }

    fn n_blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Runs all blocks.
    pub(crate) fn run(&self, n_host_threads: usize) -> Result<Outcome, Box<Finding>> {
        let next = AtomicU64::new(0);
        let found = Mutex::new(None);
        let n_blocks = self.n_blocks();
        let mut first = Block::new(self);
        let mut warps = first.warps();
        // The first block tells how much there is to do.
        first.run(&mut warps, [0; 3])?;
        next.store(1, Ordering::Relaxed);
        let is_much = first.n_instructions.saturating_mul(n_blocks) > FEW_INSTRUCTIONS;
        let n_more = if is_much { n_host_threads.saturating_sub(1).min(n_blocks as usize - 1) } else { 0 };
        let work = |mut block: Block<'_>, mut warps: Vec<warp::Warp>| {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= n_blocks || lock(&found).is_some() {
                    return block.outcome();
                }
                let [width, height, _] = self.grid.map(u64::from);
                let index = [at % width, at / width % height, at / width / height].map(|at| at as u32);
                if let Err(finding) = block.run(&mut warps, index) {
                    lock(&found).get_or_insert(finding);
                }
            }
        };
        let outcome = std::thread::scope(|scope| {
            let others: Vec<_> = (0..n_more)
                .map(|_| {
                    scope.spawn(|| {
                        let block = Block::new(self);
                        let warps = block.warps();
                        work(block, warps)
                    })
                })
                .collect();
            let mut outcome = work(first, warps);
            for other in others {
                outcome.merge(&other.join().expect("the interpreter does not panic"));
            }
            outcome
        });
        match found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(finding) => Err(finding),
            None => Ok(outcome),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Block<'_> {
    fn outcome(self) -> Outcome {
        Outcome {
            n_instructions: self.n_instructions,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            reads: self.reads,
            writes: self.writes,
        }
    }
}

impl Outcome {
    fn merge(&mut self, other: &Self) {
        self.n_instructions += other.n_instructions;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}
