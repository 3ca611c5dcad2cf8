//! Loads, stores and atomic operations, each checked before it is done.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::block::Block;
use super::half::{from_f16, to_f16};
use super::lanes::{N_LANES, Wide, lanes, mask};
use super::warp::Warp;
use crate::check::shared::{Act, Visitor};
use crate::check::{Fault, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS};
use crate::ptx::inst::{Access, Atomic, AtomicType, Inst, NONE, Space};

/// Where generic addresses of local memory begin. No host address is as high.
pub(crate) const LOCAL_WINDOW: u64 = 0x7e00_0000_0000_0000;
/// Where generic addresses of shared memory begin.
pub(crate) const SHARED_WINDOW: u64 = 0x7f00_0000_0000_0000;

/// Where the lanes' bytes lie in this process. Lanes that are not active have no place.
type Places = [*mut u8; N_LANES];

impl Warp {
    pub(crate) fn load(
        &mut self,
        block: &mut Block<'_>,
        inst: &Inst,
        active: u32,
        access: Access,
    ) -> Result<(), Box<Fault>> {
        let addresses = self.addresses(inst, access.narrow_address);
        for (space, lanes, addresses) in split(access.space, active, &addresses) {
            let bytes = usize::from(access.bytes) * usize::from(access.n);
            let places = self.reach(block, space, lanes, &addresses, bytes, Act::Read)?;
            for element in 0..usize::from(access.n) {
                let register = self.element(block, inst, access, element);
                if register == NONE {
                    continue;
                }
                // SAFETY: `reach` checked that all elements of the lanes lie in memory of theirs.
                let values = unsafe { read(&places, lanes, element, access) };
                if access.wide {
                    self.set_wide(register, lanes, &values);
                } else {
                    let kept = if access.bits == 16 { 0xffff } else { u32::MAX };
                    self.set_narrow(register, lanes, &values.map(|value| value as u32 & kept));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn store(
        &mut self,
        block: &mut Block<'_>,
        inst: &Inst,
        active: u32,
        access: Access,
    ) -> Result<(), Box<Fault>> {
        let addresses = self.addresses(inst, access.narrow_address);
        for (space, lanes, addresses) in split(access.space, active, &addresses) {
            let bytes = usize::from(access.bytes) * usize::from(access.n);
            let places = self.reach(block, space, lanes, &addresses, bytes, Act::Write)?;
            for element in 0..usize::from(access.n) {
                let register = self.element(block, inst, access, element);
                let mut values = if access.wide { *self.wide(register) } else { self.narrow(register).map(u64::from) };
                if block.launch.is_wrong && space == Space::Global && access.bytes == 4 {
                    values = values.map(|value| value ^ 1 << 31);
                }
                // SAFETY: as for a load.
                unsafe { write(&places, lanes, element, access.bytes, &values) };
            }
        }
        Ok(())
    }

    pub(crate) fn atomic(
        &mut self,
        block: &mut Block<'_>,
        inst: &Inst,
        active: u32,
        (op, of, space): (Atomic, AtomicType, Space),
    ) -> Result<(), Box<Fault>> {
        let wide = matches!(of, AtomicType::U64 | AtomicType::I64 | AtomicType::F64);
        let addresses = self.addresses(inst, false);
        let mut old = [0u64; N_LANES];
        for (space, some, addresses) in split(space, active, &addresses) {
            let places = self.reach(block, space, some, &addresses, if wide { 8 } else { 4 }, Act::Atomic)?;
            for lane in lanes(some) {
                let operand = |register: u16| match register {
                    NONE => 0,
                    _ if wide => self.wide(register)[lane],
                    _ => u64::from(self.narrow(register)[lane]),
                };
                let (b, c) = (operand(inst.b), operand(inst.c));
                let change = |value| Some(changed(op, of, value, b, c));
                // SAFETY: `reach` checked that the value lies in memory and is aligned.
                old[lane] = unsafe {
                    if wide {
                        let there = AtomicU64::from_ptr(places[lane].cast());
                        there.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).unwrap_or_default()
                    } else {
                        let there = AtomicU32::from_ptr(places[lane].cast());
                        let change = |value| change(u64::from(value)).map(|value| value as u32);
                        there.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).unwrap_or_default().into()
                    }
                };
            }
        }
        if wide {
            self.set_wide(inst.d, active, &old);
        } else {
            self.set_narrow(inst.d, active, &old.map(|value| value as u32));
        }
        Ok(())
    }

    fn element(&self, block: &Block<'_>, inst: &Inst, access: Access, element: usize) -> u16 {
        if access.n == 1 { inst.d } else { block.launch.kernel.lists[inst.c as usize][element] }
    }

    /// Addresses of all lanes.
    pub(crate) fn addresses(&self, inst: &Inst, narrow: bool) -> Wide {
        if narrow {
            let base = self.narrow(inst.a);
            return std::array::from_fn(|lane| u64::from(base[lane].wrapping_add_signed(inst.imm)));
        }
        let base = self.wide(inst.a);
        std::array::from_fn(|lane| base[lane].wrapping_add_signed(inst.imm.into()))
    }

    /// Checks what lanes are about to do, marks it, and tells where their bytes lie.
    pub(crate) fn reach(
        &mut self,
        block: &mut Block<'_>,
        space: Space,
        active: u32,
        addresses: &Wide,
        bytes: usize,
        act: Act,
    ) -> Result<Places, Box<Fault>> {
        check_alignment(active, addresses, bytes)?;
        let mut places = [std::ptr::null_mut(); N_LANES];
        match space {
            Space::Global | Space::Generic => {
                block.check_global(active, addresses, bytes, act)?;
                for lane in 0..N_LANES {
                    places[lane] = std::ptr::with_exposed_provenance_mut(addresses[lane] as usize);
                }
            }
            Space::Shared => {
                let size = block.shared.len();
                let memory = block.shared.as_mut_ptr();
                for lane in lanes(active) {
                    let at = addresses[lane] as usize;
                    if at.saturating_add(bytes) > size {
                        let message = format!("shared memory out of bounds: {bytes} bytes at {at} of {size}");
                        return Err(Fault::with_code(lane, ILLEGAL_ADDRESS, message));
                    }
                    let who = self.visitor(lane);
                    block.shadow.visit(at, bytes, who, act).map_err(|message| Fault::new(lane, message))?;
                    places[lane] = memory.wrapping_add(at);
                }
            }
            Space::Local => {
                let size = block.launch.kernel.local_bytes;
                let memory = self.local.as_mut_ptr();
                for lane in lanes(active) {
                    let at = addresses[lane] as usize;
                    if at.saturating_add(bytes) > size {
                        let message = format!("local memory out of bounds: {bytes} bytes at {at} of {size}");
                        return Err(Fault::with_code(lane, ILLEGAL_ADDRESS, message));
                    }
                    places[lane] = memory.wrapping_add(lane * size + at);
                }
            }
            Space::Param => {
                let params = &block.launch.params;
                for lane in lanes(active) {
                    let at = addresses[lane] as usize;
                    if act != Act::Read || at.saturating_add(bytes) > params.len() {
                        return Err(Fault::new(lane, "parameters out of bounds"));
                    }
                    places[lane] = params.as_ptr().wrapping_add(at).cast_mut();
                }
            }
        }
        Ok(places)
    }

    /// A lane as it visits shared memory.
    pub(crate) fn visitor(&self, lane: usize) -> Visitor {
        Visitor { thread: self.first_thread + lane as u32, warp_epoch: self.epoch }
    }
}

impl Block<'_> {
    /// Checks and marks accesses to global memory.
    pub(crate) fn check_global(
        &mut self,
        active: u32,
        addresses: &Wide,
        bytes: usize,
        act: Act,
    ) -> Result<(), Box<Fault>> {
        let (mut first, mut last) = (u64::MAX, 0);
        for lane in lanes(active) {
            first = first.min(addresses[lane]);
            last = last.max(addresses[lane]);
        }
        let end = last.saturating_add(bytes as u64);
        let map = self.launch.map;
        if !map.covers(&mut self.hint, first, end) {
            for lane in lanes(active) {
                let address = addresses[lane];
                if !map.covers(&mut self.hint, address, address.saturating_add(bytes as u64)) {
                    let what = if act == Act::Read { "read" } else { "write" };
                    let near = map.nearest(address);
                    let message = format!("global {what} of {bytes} bytes out of bounds at {address:#x}, {near}");
                    return Err(Fault::with_code(lane, ILLEGAL_ADDRESS, message));
                }
            }
        }
        let all = u64::from(active.count_ones()) * bytes as u64;
        let touched = if act == Act::Read { &mut self.reads } else { &mut self.writes };
        if end - first <= all {
            touched.mark(first, (end - first) as usize);
        } else {
            for lane in lanes(active) {
                touched.mark(addresses[lane], bytes);
            }
        }
        if act != Act::Write {
            self.read_bytes += all;
        }
        if act != Act::Read {
            self.written_bytes += all;
        }
        Ok(())
    }
}

fn check_alignment(active: u32, addresses: &Wide, bytes: usize) -> Result<(), Box<Fault>> {
    let low = bytes as u64 - 1;
    for lane in lanes(active) {
        if addresses[lane] & low != 0 {
            let message = format!("misaligned address {:#x} for an access of {bytes} bytes", addresses[lane]);
            return Err(Fault::with_code(lane, MISALIGNED_ADDRESS, message));
        }
    }
    Ok(())
}

/// Lanes by the space they address, with their addresses within it.
fn split(space: Space, active: u32, addresses: &Wide) -> impl Iterator<Item = (Space, u32, Wide)> {
    let is_generic = space == Space::Generic;
    let shared = if is_generic { active & mask(|lane| addresses[lane] >= SHARED_WINDOW) } else { 0 };
    let local = if is_generic { active & !shared & mask(|lane| addresses[lane] >= LOCAL_WINDOW) } else { 0 };
    let space = if is_generic { Space::Global } else { space };
    let parts = [
        (space, active & !shared & !local, 0),
        (Space::Shared, shared, SHARED_WINDOW),
        (Space::Local, local, LOCAL_WINDOW),
    ];
    let addresses = *addresses;
    parts
        .into_iter()
        .filter(|(_, lanes, _)| *lanes != 0)
        .map(move |(space, lanes, window)| (space, lanes, addresses.map(|address| address.wrapping_sub(window))))
}

/// One element of each lane.
///
/// # Safety
/// The element lies in readable memory for every active lane.
unsafe fn read(places: &Places, active: u32, element: usize, access: Access) -> Wide {
    let mut values = [0; N_LANES];
    macro_rules! read {
        ($t:ty, $as:ty) => {
            for lane in lanes(active) {
                // SAFETY: by this function's contract. Another thread may write there at the same time, as on a card.
                values[lane] = unsafe { places[lane].cast::<$t>().add(element).read_unaligned() } as $as as u64;
            }
        };
    }
    match (access.bytes, access.signed) {
        (1, false) => read!(u8, u64),
        (1, true) => read!(i8, i64),
        (2, false) => read!(u16, u64),
        (2, true) => read!(i16, i64),
        (4, false) => read!(u32, u64),
        (4, true) => read!(i32, i64),
        _ => read!(u64, u64),
    }
    values
}

/// Writes one element of each lane.
///
/// # Safety
/// The element lies in writable memory for every active lane.
unsafe fn write(places: &Places, active: u32, element: usize, bytes: u8, values: &Wide) {
    macro_rules! write {
        ($t:ty) => {
            for lane in lanes(active) {
                // SAFETY: by this function's contract.
                unsafe { places[lane].cast::<$t>().add(element).write_unaligned(values[lane] as $t) };
            }
        };
    }
    match bytes {
        1 => write!(u8),
        2 => write!(u16),
        4 => write!(u32),
        _ => write!(u64),
    }
}

/// What an atomic operation leaves.
fn changed(op: Atomic, of: AtomicType, old: u64, b: u64, c: u64) -> u64 {
    match op {
        Atomic::And => return old & b,
        Atomic::Or => return old | b,
        Atomic::Xor => return old ^ b,
        Atomic::Exchange => return b,
        Atomic::Cas => return if old == b { c } else { old },
        Atomic::Increment => return if old >= b { 0 } else { old + 1 },
        Atomic::Decrement => return if old == 0 || old > b { b } else { old - 1 },
        Atomic::Add | Atomic::Min | Atomic::Max => {}
    }
    macro_rules! pick {
        ($old:expr, $b:expr, $add:expr) => {
            match op {
                Atomic::Add => $add($old, $b),
                Atomic::Min => $old.min($b),
                _ => $old.max($b),
            }
        };
    }
    match of {
        AtomicType::U32 => pick!(old as u32, b as u32, u32::wrapping_add).into(),
        AtomicType::I32 => (pick!(old as i32, b as i32, i32::wrapping_add) as u32).into(),
        AtomicType::U64 => pick!(old, b, u64::wrapping_add),
        AtomicType::I64 => pick!(old as i64, b as i64, i64::wrapping_add) as u64,
        AtomicType::F32 => {
            let (old, b) = (f32::from_bits(old as u32), f32::from_bits(b as u32));
            pick!(old, b, |old: f32, b| old + b).to_bits().into()
        }
        AtomicType::F64 => {
            let (old, b) = (f64::from_bits(old), f64::from_bits(b));
            pick!(old, b, |old: f64, b| old + b).to_bits()
        }
        AtomicType::F16x2 => {
            let half = |shift: u32| {
                let (old, b) = (from_f16((old >> shift) as u16), from_f16((b >> shift) as u16));
                u64::from(to_f16(pick!(old, b, |old: f32, b| old + b))) << shift
            };
            half(0) | half(16)
        }
    }
}
