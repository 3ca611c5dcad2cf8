//! A block: warps that share memory and meet at barriers.

use super::Launch;
use super::warp::Warp;
use crate::check::shared::Shadow;
use crate::check::touched::Touched;
use crate::check::{Fault, Finding, LAUNCH_FAILED};
use crate::ptx::inst::Inst;

/// What runs the blocks of a launch one after another.
pub(crate) struct Block<'a> {
    pub(crate) launch: &'a Launch<'a>,
    /// Which block it is now.
    pub(crate) index: [u32; 3],
    pub(crate) shared: Vec<u8>,
    pub(crate) shadow: Shadow,
    /// Where global memory was reached last.
    pub(crate) hint: usize,
    /// What all blocks so far read and wrote in global memory.
    pub(crate) reads: Touched,
    pub(crate) writes: Touched,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) n_instructions: u64,
}

impl<'a> Block<'a> {
    pub(crate) fn new(launch: &'a Launch<'a>) -> Self {
        let bytes = launch.kernel.shared_bytes + launch.dynamic_shared;
        Self {
            launch,
            index: [0; 3],
            shared: vec![0; bytes],
            shadow: Shadow::new(bytes),
            hint: 0,
            reads: Touched::default(),
            writes: Touched::default(),
            read_bytes: 0,
            written_bytes: 0,
            n_instructions: 0,
        }
    }

    /// The warps of every block.
    pub(crate) fn warps(&self) -> Vec<Warp> {
        let n_threads = self.launch.n_threads();
        (0..n_threads).step_by(32).map(|first| Warp::new(self.launch.kernel, first, n_threads)).collect()
    }

    /// Runs one block to its end.
    pub(crate) fn run(&mut self, warps: &mut [Warp], index: [u32; 3]) -> Result<(), Box<Finding>> {
        self.index = index;
        self.shared.fill(0xff);
        self.shadow.reset();
        for warp in &mut *warps {
            warp.begin(self);
        }
        loop {
            for warp in &mut *warps {
                if warp.can_run() {
                    self.n_instructions += warp.run(self)?;
                }
            }
            let n_waiting: u32 = warps.iter().map(|warp| warp.waiting().0.count_ones()).sum();
            if n_waiting == 0 {
                return Ok(());
            }
            self.check_barrier(warps, n_waiting)?;
            self.shadow.barrier();
            for warp in &mut *warps {
                warp.release();
            }
        }
    }

    /// All threads must wait, and at the same instruction.
    fn check_barrier(&self, warps: &[Warp], n_waiting: u32) -> Result<(), Box<Finding>> {
        let n_threads = self.launch.n_threads();
        let places = || warps.iter().filter(|warp| warp.waiting().0 != 0).map(|warp| warp.waiting().1);
        let place = places().next().unwrap_or_default();
        let message = if n_waiting < n_threads {
            let n_done: u32 = warps.iter().map(|warp| warp.done().count_ones()).sum();
            format!("divergent barrier: {n_waiting} of {n_threads} threads wait, {n_done} have ended")
        } else if places().any(|other| other != place) {
            "divergent barrier: warps wait at different barriers".to_owned()
        } else {
            return Ok(());
        };
        let waits = |warp: &&Warp| warp.waiting().0 != 0;
        let first = warps.iter().find(waits).map_or(0, |warp| warp.first_thread + warp.waiting().0.trailing_zeros());
        Err(Box::new(self.finding_at(&self.launch.kernel.code[place as usize], first, LAUNCH_FAILED, message)))
    }

    /// A fault with all that is known of where it was made.
    pub(crate) fn finding(&self, warp: &Warp, inst: &Inst, fault: &Fault) -> Box<Finding> {
        let thread = warp.first_thread + fault.lane as u32;
        Box::new(self.finding_at(inst, thread, fault.code, fault.message.clone()))
    }

    fn finding_at(&self, inst: &Inst, thread: u32, code: i32, message: String) -> Finding {
        let kernel = self.launch.kernel;
        let text = kernel.text.get(inst.line as usize - 1).cloned().unwrap_or_default();
        Finding {
            code,
            kernel: kernel.name.clone(),
            message,
            thread: Some((self.index, thread)),
            line: Some((inst.line, text)),
        }
    }
}
