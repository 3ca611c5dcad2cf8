//! Asynchronous copies from global to shared memory. The bytes arrive when they are waited for, not before.

use super::block::Block;
use super::lanes::{N_LANES, lanes};
use super::warp::Warp;
use crate::check::Fault;
use crate::check::shared::Act;
use crate::ptx::inst::{Inst, NONE, Space};

/// Copies of a warp that are on their way.
#[derive(Default)]
pub(crate) struct Copies {
    pending: Vec<Copy>,
    /// How many groups each lane has ended.
    n_groups: [u32; N_LANES],
}

struct Copy {
    lane: usize,
    /// Groups that its lane had ended before.
    group: u32,
    into: usize,
    from: *const u8,
    bytes: usize,
    /// Bytes that are read; the others are zero.
    n_read: usize,
}

impl Copies {
    /// Forgets all: another block begins.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.n_groups = [0; N_LANES];
    }
}

impl Warp {
    pub(crate) fn copy_async(
        &mut self,
        block: &mut Block<'_>,
        inst: &Inst,
        active: u32,
        bytes: usize,
    ) -> Result<(), Box<Fault>> {
        let kernel = block.launch.kernel;
        let [narrow, into_offset, from_offset] = kernel.lists[inst.imm as usize][..] else {
            unreachable!("the decoder makes lists of three");
        };
        let offset = |register: u16| i64::from(self.narrow(register)[0] as i32);
        let (into_offset, from_offset) = (offset(into_offset), offset(from_offset));
        let into: [u64; N_LANES] = std::array::from_fn(|lane| {
            let base = if narrow != 0 { self.narrow(inst.a)[lane].into() } else { self.wide(inst.a)[lane] };
            base.wrapping_add_signed(into_offset)
        });
        let from = self.wide(inst.b).map(|base| base.wrapping_add_signed(from_offset));
        let n_read: [usize; N_LANES] = match inst.c {
            NONE => [bytes; N_LANES],
            register => self.narrow(register).map(|n| (n as usize).min(bytes)),
        };
        self.reach(block, Space::Shared, active, &into, bytes, Act::Launch)?;
        for lane in lanes(active) {
            if n_read[lane] > 0 {
                self.reach(block, Space::Global, 1 << lane, &from, bytes, Act::Read)?;
            }
            self.copies.pending.push(Copy {
                lane,
                group: self.copies.n_groups[lane],
                into: into[lane] as usize,
                from: std::ptr::with_exposed_provenance(from[lane] as usize),
                bytes,
                n_read: n_read[lane],
            });
        }
        Ok(())
    }

    pub(crate) fn copy_commit(&mut self, active: u32) {
        for lane in lanes(active) {
            self.copies.n_groups[lane] += 1;
        }
    }

    /// Lets copies of the active lanes arrive until at most `n_left` groups are left; negative: all.
    pub(crate) fn copy_wait(&mut self, block: &mut Block<'_>, active: u32, n_left: i32) -> Result<(), Box<Fault>> {
        let pending = std::mem::take(&mut self.copies.pending);
        for copy in pending {
            let is_due = n_left < 0 || copy.group as i32 + n_left < self.copies.n_groups[copy.lane] as i32;
            if active >> copy.lane & 1 == 0 || !is_due {
                self.copies.pending.push(copy);
                continue;
            }
            let who = self.visitor(copy.lane);
            let landed = block.shadow.visit(copy.into, copy.bytes, who, Act::Land);
            landed.map_err(|message| Fault::new(copy.lane, message))?;
            let into = &mut block.shared[copy.into..copy.into + copy.bytes];
            into.fill(0);
            // SAFETY: checked when the copy began; memory that a kernel reads is not freed before it ends.
            unsafe { into.as_mut_ptr().copy_from_nonoverlapping(copy.from, copy.n_read) };
        }
        Ok(())
    }
}
