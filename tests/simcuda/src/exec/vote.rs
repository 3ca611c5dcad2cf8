//! Instructions in which lanes see each other: shuffles, votes, reductions.

use super::block::Block;
use super::lanes::{N_LANES, lanes};
use super::warp::Warp;
use crate::check::Fault;
use crate::ptx::inst::{Inst, Int, Shuffle, Sign, Vote};

impl Warp {
    /// Lanes that an instruction names must be there, and no others.
    pub(crate) fn check_members(&self, what: &str, active: u32, members: &[u32; N_LANES]) -> Result<(), Box<Fault>> {
        for lane in lanes(active) {
            let wanted = members[lane] & self.lanes;
            if wanted != active {
                let message = format!("{what} of lanes {wanted:#010x}, but {active:#010x} are here");
                return Err(Fault::new(lane, message));
            }
        }
        Ok(())
    }

    pub(crate) fn shuffle(
        &mut self,
        block: &Block<'_>,
        inst: &Inst,
        active: u32,
        how: Shuffle,
    ) -> Result<(), Box<Fault>> {
        let [found, control, members] = block.launch.kernel.lists[inst.imm as usize][..] else {
            unreachable!("the decoder makes lists of three");
        };
        self.check_members("shuffle", active, self.narrow(members))?;
        let (a, b, c) = (self.narrow(inst.a), self.narrow(inst.b), self.narrow(control));
        let mut values = [0; N_LANES];
        let mut in_range = 0;
        for lane in lanes(active) {
            let (by, clamp, segment) = (b[lane] as i32 & 31, c[lane] as i32 & 31, (c[lane] >> 8) as i32 & 31);
            let here = lane as i32;
            let last = here & segment | clamp & !segment;
            let first = here & segment;
            let (from, is_in_range) = match how {
                Shuffle::Up => (here - by, here - by >= last),
                Shuffle::Down => (here + by, here + by <= last),
                Shuffle::Butterfly => (here ^ by, here ^ by <= last),
                Shuffle::Index => (first | by & !segment, first | by & !segment <= last),
            };
            let from = if is_in_range { from as usize } else { lane };
            if active >> from & 1 == 0 {
                return Err(Fault::new(lane, format!("shuffle from lane {from}, which is not here")));
            }
            values[lane] = a[from];
            in_range |= u32::from(is_in_range) << lane;
        }
        self.set_narrow(inst.d, active, &values);
        self.set_predicate(found, active, in_range);
        Ok(())
    }

    pub(crate) fn vote(&mut self, inst: &Inst, active: u32, vote: Vote) -> Result<(), Box<Fault>> {
        self.check_members("vote", active, self.narrow(inst.b))?;
        let not = if inst.imm != 0 { u32::MAX } else { 0 };
        let ayes = (self.predicates[inst.a as usize] ^ not) & active;
        let holds = match vote {
            Vote::All => ayes == active,
            Vote::Any => ayes != 0,
            Vote::Uniform => ayes == active || ayes == 0,
            Vote::Ballot => {
                self.set_narrow(inst.d, active, &[ayes; N_LANES]);
                return Ok(());
            }
        };
        self.set_predicate(inst.d, active, if holds { u32::MAX } else { 0 });
        Ok(())
    }

    pub(crate) fn match_any(&mut self, inst: &Inst, active: u32) -> Result<(), Box<Fault>> {
        self.check_members("match", active, self.narrow(inst.b))?;
        let a = self.narrow(inst.a);
        let values = std::array::from_fn(|lane| {
            lanes(active).filter(|&other| a[other] == a[lane]).fold(0, |mask, other| mask | 1 << other)
        });
        self.set_narrow(inst.d, active, &values);
        Ok(())
    }

    pub(crate) fn redux(&mut self, inst: &Inst, active: u32, op: Int) -> Result<(), Box<Fault>> {
        self.check_members("reduction", active, self.narrow(inst.b))?;
        let a = self.narrow(inst.a);
        let values = lanes(active).map(|lane| a[lane]);
        let result = values.reduce(|one, other| match op {
            Int::Add => one.wrapping_add(other),
            Int::Min(Sign::Signed) => (one as i32).min(other as i32) as u32,
            Int::Max(Sign::Signed) => (one as i32).max(other as i32) as u32,
            Int::Min(Sign::Unsigned) => one.min(other),
            Int::Max(Sign::Unsigned) => one.max(other),
            Int::And => one & other,
            Int::Or => one | other,
            _ => one ^ other,
        });
        self.set_narrow(inst.d, active, &[result.unwrap_or_default(); N_LANES]);
        Ok(())
    }
}
