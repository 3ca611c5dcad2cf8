//! Registers of a warp: 32 lanes side by side, so that one instruction is one loop.

use super::warp::Warp;
use crate::ptx::inst::{Inst, NONE, Reg};

/// Lanes of a warp.
pub(crate) const N_LANES: usize = 32;
/// A narrow register in all lanes.
pub(crate) type Narrow = [u32; N_LANES];
/// A wide register in all lanes.
pub(crate) type Wide = [u64; N_LANES];

/// Writes the lanes of a mask.
#[inline(always)]
pub(crate) fn put<T: Copy>(into: &mut [T; N_LANES], active: u32, values: &[T; N_LANES]) {
    if active == u32::MAX {
        *into = *values;
    } else {
        for lane in 0..N_LANES {
            if active >> lane & 1 != 0 {
                into[lane] = values[lane];
            }
        }
    }
}

/// Lanes of a mask.
#[inline(always)]
pub(crate) fn lanes(mut active: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (active != 0).then(|| active.trailing_zeros() as usize)?;
        active &= active - 1;
        Some(lane)
    })
}

/// Mask of the lanes that fulfil a condition.
#[inline(always)]
pub(crate) fn mask(condition: impl Fn(usize) -> bool) -> u32 {
    (0..N_LANES).fold(0, |mask, lane| mask | u32::from(condition(lane)) << lane)
}

impl Warp {
    #[inline(always)]
    pub(crate) fn narrow(&self, register: Reg) -> &Narrow {
        &self.narrow[register as usize]
    }

    #[inline(always)]
    pub(crate) fn wide(&self, register: Reg) -> &Wide {
        &self.wide[register as usize]
    }

    #[inline(always)]
    pub(crate) fn set_narrow(&mut self, register: Reg, active: u32, values: &Narrow) {
        if register != NONE {
            put(&mut self.narrow[register as usize], active, values);
        }
    }

    #[inline(always)]
    pub(crate) fn set_wide(&mut self, register: Reg, active: u32, values: &Wide) {
        if register != NONE {
            put(&mut self.wide[register as usize], active, values);
        }
    }

    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, register: Reg, active: u32, values: u32) {
        if register != NONE {
            let old = &mut self.predicates[register as usize];
            *old = *old & !active | values & active;
        }
    }

    /// d = f(a)
    #[inline(always)]
    pub(crate) fn map1(&mut self, inst: &Inst, active: u32, f: impl Fn(u32) -> u32) {
        let a = self.narrow(inst.a);
        let values = std::array::from_fn(|lane| f(a[lane]));
        self.set_narrow(inst.d, active, &values);
    }

    /// d = f(a, b)
    #[inline(always)]
    pub(crate) fn map2(&mut self, inst: &Inst, active: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.narrow(inst.a), self.narrow(inst.b));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane]));
        self.set_narrow(inst.d, active, &values);
    }

    /// d = f(a, b, c)
    #[inline(always)]
    pub(crate) fn map3(&mut self, inst: &Inst, active: u32, f: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) = (self.narrow(inst.a), self.narrow(inst.b), self.narrow(inst.c));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]));
        self.set_narrow(inst.d, active, &values);
    }

    /// d = f(a), all wide
    #[inline(always)]
    pub(crate) fn wide1(&mut self, inst: &Inst, active: u32, f: impl Fn(u64) -> u64) {
        let a = self.wide(inst.a);
        let values = std::array::from_fn(|lane| f(a[lane]));
        self.set_wide(inst.d, active, &values);
    }

    /// d = f(a, b), all wide
    #[inline(always)]
    pub(crate) fn wide2(&mut self, inst: &Inst, active: u32, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (self.wide(inst.a), self.wide(inst.b));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane]));
        self.set_wide(inst.d, active, &values);
    }

    /// d = f(a, b, c), all wide
    #[inline(always)]
    pub(crate) fn wide3(&mut self, inst: &Inst, active: u32, f: impl Fn(u64, u64, u64) -> u64) {
        let (a, b, c) = (self.wide(inst.a), self.wide(inst.b), self.wide(inst.c));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]));
        self.set_wide(inst.d, active, &values);
    }
}
