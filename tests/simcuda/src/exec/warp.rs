//! A warp: 32 lanes that run one instruction at a time, each at its own place.
//!
//! Lanes at the same place form a group. The group with the lowest place runs; groups that meet become one. This is the
//! order in which structured code comes together again as early as it can.

use super::block::Block;
use super::copy::Copies;
use super::lanes::{N_LANES, Narrow, Wide, lanes, mask};
use super::memory::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::check::{Fault, Finding};
use crate::ptx::inst::{Inst, NONE, Op, Space};
use crate::ptx::{Kernel, Special};

/// A warp of a block.
pub(crate) struct Warp {
    pub(crate) narrow: Vec<Narrow>,
    pub(crate) wide: Vec<Wide>,
    /// One bit per lane.
    pub(crate) predicates: Vec<u32>,
    /// Local memory, lane after lane.
    pub(crate) local: Vec<u8>,
    /// Lanes that exist.
    pub(crate) lanes: u32,
    /// Thread of the first lane.
    pub(crate) first_thread: u32,
    /// How often the warp was synchronised.
    pub(crate) epoch: u32,
    pub(crate) copies: Copies,
    /// Places and the lanes there, but for the group that runs.
    groups: Vec<(u32, u32)>,
    /// Lanes at a barrier, and its place.
    waiting: u32,
    barrier: u32,
    done: u32,
}

/// What an instruction does to the group that runs it.
enum Flow {
    Next,
    /// The active lanes go on there.
    Jump(u32),
    /// The active lanes go on elsewhere; each group is noted.
    Scatter,
    /// The active lanes are gone or wait.
    Leave,
}

impl Warp {
    /// A warp that runs a kernel's blocks one after another.
    pub(crate) fn new(kernel: &Kernel, first_thread: u32, n_threads: u32) -> Self {
        let registers = &kernel.registers;
        let n_lanes = (n_threads - first_thread).min(N_LANES as u32);
        let mut warp = Self {
            narrow: vec![[0; N_LANES]; registers.n_narrow],
            wide: vec![[0; N_LANES]; registers.n_wide],
            predicates: vec![0; registers.n_predicates],
            local: vec![0; kernel.local_bytes * N_LANES],
            lanes: if n_lanes == 32 { u32::MAX } else { (1 << n_lanes) - 1 },
            first_thread,
            epoch: 1,
            copies: Copies::default(),
            groups: Vec::new(),
            waiting: 0,
            barrier: 0,
            done: 0,
        };
        for &(register, value) in &registers.narrow {
            warp.narrow[register as usize] = [value; N_LANES];
        }
        for &(register, value) in &registers.wide {
            warp.wide[register as usize] = [value; N_LANES];
        }
        for &(register, value) in &registers.predicates {
            warp.predicates[register as usize] = if value { u32::MAX } else { 0 };
        }
        warp
    }

    /// Begins a block.
    pub(crate) fn begin(&mut self, block: &Block<'_>) {
        (self.waiting, self.done, self.epoch) = (0, 0, 1);
        self.groups = vec![(0, self.lanes)];
        self.copies.reset();
        for &(register, special) in &block.launch.kernel.registers.special {
            let first = self.first_thread;
            let [width, height, _] = block.launch.block;
            self.narrow[register as usize] = std::array::from_fn(|lane| {
                let thread = first + lane as u32;
                let bit = 1u32 << lane;
                match special {
                    Special::Thread(0) => thread % width,
                    Special::Thread(1) => thread / width % height,
                    Special::Thread(_) => thread / width / height,
                    Special::BlockSize(dimension) => block.launch.block[dimension],
                    Special::Block(dimension) => block.index[dimension],
                    Special::GridSize(dimension) => block.launch.grid[dimension],
                    Special::Lane => lane as u32,
                    Special::Warp => thread / N_LANES as u32,
                    Special::LaneBit => bit,
                    Special::LanesBefore => bit - 1,
                    Special::LanesUpTo => bit | (bit - 1),
                    Special::LanesAfter => !(bit | (bit - 1)),
                    Special::LanesFrom => !(bit - 1),
                    Special::DynamicShared => block.launch.dynamic_shared as u32,
                }
            });
        }
    }

    /// Whether some lanes can run.
    pub(crate) fn can_run(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Lanes at a barrier, and its place.
    pub(crate) fn waiting(&self) -> (u32, u32) {
        (self.waiting, self.barrier)
    }

    /// Lanes that have ended.
    pub(crate) fn done(&self) -> u32 {
        self.done
    }

    /// The barrier opens.
    pub(crate) fn release(&mut self) {
        if self.waiting != 0 {
            self.join(self.barrier + 1, self.waiting);
            self.waiting = 0;
        }
    }

    /// Runs until every lane waits or has ended. Yields the number of instructions.
    pub(crate) fn run(&mut self, block: &mut Block<'_>) -> Result<u64, Box<Finding>> {
        let code = &block.launch.kernel.code;
        let mut n_run = 0;
        while let Some((mut place, mut group)) = self.leave_lowest() {
            let mut meeting = self.lowest();
            loop {
                if place >= meeting {
                    self.join(place, group);
                    break;
                }
                let inst = &code[place as usize];
                n_run += 1;
                let active = group & self.guard(inst);
                if active == 0 {
                    place += 1;
                    continue;
                }
                let flow = self.step(block, inst, place, active);
                match flow.map_err(|fault| block.finding(self, inst, &fault))? {
                    Flow::Next => place += 1,
                    Flow::Jump(target) if active == group => place = target,
                    Flow::Jump(target) => {
                        self.join(target, active);
                        group &= !active;
                        meeting = self.lowest();
                        place += 1;
                    }
                    Flow::Leave | Flow::Scatter => {
                        group &= !active;
                        if group == 0 {
                            break;
                        }
                        meeting = self.lowest();
                        place += 1;
                    }
                }
            }
        }
        Ok(n_run)
    }

    fn guard(&self, inst: &Inst) -> u32 {
        match inst.guard {
            NONE => u32::MAX,
            register if inst.unless => !self.predicates[register as usize],
            register => self.predicates[register as usize],
        }
    }

    fn lowest(&self) -> u32 {
        self.groups.iter().map(|&(place, _)| place).min().unwrap_or(u32::MAX)
    }

    fn leave_lowest(&mut self) -> Option<(u32, u32)> {
        let at = (0..self.groups.len()).min_by_key(|&at| self.groups[at].0)?;
        Some(self.groups.swap_remove(at))
    }

    fn join(&mut self, place: u32, lanes: u32) {
        match self.groups.iter_mut().find(|(other, _)| *other == place) {
            Some((_, there)) => *there |= lanes,
            None => self.groups.push((place, lanes)),
        }
    }

    #[inline(always)]
    fn step(&mut self, block: &mut Block<'_>, inst: &Inst, place: u32, active: u32) -> Result<Flow, Box<Fault>> {
        match inst.op {
            Op::Int32(op) => self.int32(inst, active, op)?,
            Op::F32(op, rounding, saturate) => self.f32(inst, active, op, rounding, saturate),
            Op::Load(access) => self.load(block, inst, active, access)?,
            Op::Store(access) => self.store(block, inst, active, access)?,
            Op::Int64(op) => self.int64(inst, active, op)?,
            Op::Int16(op, sign) => self.int16(inst, active, op, sign)?,
            Op::Wide32(_) | Op::Wide16(_) => self.wide_product(inst, active),
            Op::Mov32 => self.map1(inst, active, |a| a),
            Op::Mov64 => self.wide1(inst, active, |a| a),
            Op::Branch => return Ok(Flow::Jump(inst.imm as u32)),
            Op::Compare(by) => self.compare(inst, active, by),
            Op::Convert(by) => self.convert(inst, active, by),
            Op::Select32 => {
                let pick = self.predicates[inst.c as usize];
                let (a, b) = (self.narrow(inst.a), self.narrow(inst.b));
                let values = std::array::from_fn(|lane| if pick >> lane & 1 != 0 { a[lane] } else { b[lane] });
                self.set_narrow(inst.d, active, &values);
            }
            Op::Select64 => {
                let pick = self.predicates[inst.c as usize];
                let (a, b) = (self.wide(inst.a), self.wide(inst.b));
                let values = std::array::from_fn(|lane| if pick >> lane & 1 != 0 { a[lane] } else { b[lane] });
                self.set_wide(inst.d, active, &values);
            }
            Op::MovPredicate => self.set_predicate(inst.d, active, self.predicates[inst.a as usize]),
            Op::PredicateNot => self.set_predicate(inst.d, active, !self.predicates[inst.a as usize]),
            Op::PredicateAnd | Op::PredicateOr | Op::PredicateXor => {
                let (a, b) = (self.predicates[inst.a as usize], self.predicates[inst.b as usize]);
                let value = match inst.op {
                    Op::PredicateAnd => a & b,
                    Op::PredicateOr => a | b,
                    _ => a ^ b,
                };
                self.set_predicate(inst.d, active, value);
            }
            Op::Pack16 | Op::Unpack16 | Op::Pack32 | Op::Unpack32 | Op::Pack16x4 | Op::Unpack16x4 => {
                self.pack(block, inst, active);
            }
            Op::F64(op) => self.f64(inst, active, op),
            Op::Half(op, kind) => self.half(inst, active, op, kind),
            Op::ConvertPair(kind) => self.convert_pair(inst, active, kind),
            Op::ToGeneric(space) => {
                let window = window(space);
                self.wide1(inst, active, |a| a.wrapping_add(window));
            }
            Op::FromGeneric(space) => self.leave_generic(inst, active, space)?,
            Op::IsInSpace(space) => {
                let a = self.wide(inst.a);
                let is_in = mask(|lane| space_of(a[lane]) == space);
                self.set_predicate(inst.d, active, is_in);
            }
            Op::Shuffle(how) => self.shuffle(block, inst, active, how)?,
            Op::Vote(vote) => self.vote(inst, active, vote)?,
            Op::ActiveMask => self.set_narrow(inst.d, active, &[active; N_LANES]),
            Op::MatchAny => self.match_any(inst, active)?,
            Op::Redux(op) => self.redux(inst, active, op)?,
            Op::LoadMatrix { n, transposed } => self.load_matrix(block, inst, active, n.into(), transposed)?,
            Op::Mma(mma) => self.mma(block, inst, active, mma)?,
            Op::Atomic(op, of, space) => self.atomic(block, inst, active, (op, of, space))?,
            Op::CopyAsync { bytes } => self.copy_async(block, inst, active, bytes.into())?,
            Op::CopyCommit => self.copy_commit(active),
            Op::CopyWait => self.copy_wait(block, active, inst.imm)?,
            Op::WarpBarrier => {
                self.check_members("synchronisation", active, self.narrow(inst.a))?;
                self.epoch += 1;
            }
            Op::Barrier => {
                if self.waiting != 0 && self.barrier != place {
                    let other = block.launch.kernel.code[self.barrier as usize].line;
                    let message = format!("divergent barrier: other lanes of the warp wait in PTX line {other}");
                    return Err(Fault::new(active.trailing_zeros() as usize, message));
                }
                self.waiting |= active;
                self.barrier = place;
                self.epoch += 1;
                return Ok(Flow::Leave);
            }
            Op::BranchTable => {
                let table = &block.launch.kernel.tables[inst.imm as usize];
                for lane in lanes(active) {
                    let index = self.narrow(inst.a)[lane] as usize;
                    let target = *table.get(index).ok_or_else(|| Fault::new(lane, "a jump beyond its table"))?;
                    self.join(target, 1 << lane);
                }
                return Ok(Flow::Scatter);
            }
            Op::Exit => {
                self.done |= active;
                return Ok(Flow::Leave);
            }
            Op::Trap => return Err(Fault::new(active.trailing_zeros() as usize, "trap")),
            Op::Nop => {}
        }
        Ok(Flow::Next)
    }

    fn pack(&mut self, block: &Block<'_>, inst: &Inst, active: u32) {
        let list = || &block.launch.kernel.lists[inst.imm as usize];
        match inst.op {
            Op::Pack16 => self.map2(inst, active, |low, high| low & 0xffff | high << 16),
            Op::Unpack16 => {
                let a = *self.narrow(inst.a);
                self.set_narrow(inst.d, active, &a.map(|pair| pair & 0xffff));
                self.set_narrow(inst.c, active, &a.map(|pair| pair >> 16));
            }
            Op::Pack32 => {
                let (low, high) = (self.narrow(inst.a), self.narrow(inst.b));
                let values = std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32);
                self.set_wide(inst.d, active, &values);
            }
            Op::Unpack32 => {
                let a = *self.wide(inst.a);
                self.set_narrow(inst.d, active, &a.map(|pair| pair as u32));
                self.set_narrow(inst.c, active, &a.map(|pair| (pair >> 32) as u32));
            }
            Op::Pack16x4 => {
                let values = std::array::from_fn(|lane| {
                    let part = |(at, &register)| (u64::from(self.narrow(register)[lane]) & 0xffff) << (16 * at);
                    list().iter().enumerate().map(part).sum()
                });
                self.set_wide(inst.d, active, &values);
            }
            _ => {
                let a = *self.wide(inst.a);
                for (at, &register) in list().iter().enumerate() {
                    self.set_narrow(register, active, &a.map(|all| (all >> (16 * at)) as u32 & 0xffff));
                }
            }
        }
    }

    fn leave_generic(&mut self, inst: &Inst, active: u32, space: Space) -> Result<(), Box<Fault>> {
        let a = *self.wide(inst.a);
        for lane in lanes(active) {
            if space_of(a[lane]) != space {
                return Err(Fault::new(lane, format!("{:#x} is no address of the space it is made one of", a[lane])));
            }
        }
        let window = window(space);
        self.set_wide(inst.d, active, &a.map(|address| address.wrapping_sub(window)));
        Ok(())
    }
}

fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        _ => 0,
    }
}

fn space_of(address: u64) -> Space {
    match address {
        SHARED_WINDOW.. => Space::Shared,
        LOCAL_WINDOW.. => Space::Local,
        _ => Space::Global,
    }
}
