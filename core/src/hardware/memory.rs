//! Main memory: what there is, what is left, and what this app holds.
use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::cgroup;

/// Readings of the family between two looks for new members. A window's processes live for minutes.
const READINGS_PER_CENSUS: u32 = 5;

/// Main memory as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ram {
    /// Installed, or the container's limit.
    pub(super) total_bytes: u64,
    /// What programs can still take without swapping: free, and cache that can be dropped.
    pub(super) available_bytes: u64,
}

impl Ram {
    pub(super) fn read(system: &mut System) -> Self {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let machine = Self { total_bytes: system.total_memory(), available_bytes: system.available_memory() };
        cgroup::limits().fold(machine, Self::within)
    }

    /// Both bounds hold: a container may be roomy on a machine that is full.
    fn within(self, limit: cgroup::Limit) -> Self {
        let total_bytes = self.total_bytes.min(limit.max_bytes);
        let left_bytes = limit.max_bytes.saturating_sub(limit.held_bytes);
        Self { total_bytes, available_bytes: self.available_bytes.min(left_bytes).min(total_bytes) }
    }
}

/// Resident memory of this process alone, pages of mapped files included.
pub(super) fn own_resident_bytes() -> u64 {
    let Ok(pid) = sysinfo::get_current_pid() else { return 0 };
    let mut system = System::new();
    let memory = ProcessRefreshKind::nothing().without_tasks().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, memory);
    system.process(pid).map_or(0, |process| process.memory())
}

/// Swap space: where memory goes that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) total_bytes: u64,
    pub(super) used_bytes: u64,
}

impl Swap {
    pub(super) fn read(system: &mut System) -> Self {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_swap());
        let total_bytes = system.total_swap();
        Self { total_bytes, used_bytes: system.used_swap().min(total_bytes) }
    }
}

/// This process and its descendants: a window's web engine runs in processes of its own.
#[derive(Default)]
pub(super) struct Family {
    members: Vec<Pid>,
    n_readings: u32,
}

impl Family {
    /// Resident memory of all members. Only every few readings looks at all processes of the machine for new ones.
    pub(super) fn resident_bytes(&mut self, system: &mut System) -> u64 {
        if self.n_readings.is_multiple_of(READINGS_PER_CENSUS) {
            self.members = census(system);
        }
        self.n_readings = self.n_readings.wrapping_add(1);
        let memory = ProcessRefreshKind::nothing().without_tasks().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&self.members), true, memory);
        self.members.iter().filter_map(|pid| system.process(*pid)).map(sysinfo::Process::memory).sum()
    }
}

fn census(system: &mut System) -> Vec<Pid> {
    let Ok(own) = sysinfo::get_current_pid() else { return Vec::new() };
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, ProcessRefreshKind::nothing().without_tasks());
    let parents: Vec<(Pid, Pid)> =
        system.processes().iter().filter_map(|(pid, process)| Some((*pid, process.parent()?))).collect();
    descendants(own, &parents)
}

/// `own` and everything below it, given pairs of child and parent; a loop in them ends.
fn descendants(own: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut family = vec![own];
    let mut n_seen = 0;
    while n_seen < family.len() {
        let parent = family[n_seen];
        n_seen += 1;
        for (child, _) in parents.iter().filter(|(_, p)| *p == parent) {
            if !family.contains(child) {
                family.push(*child);
            }
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_bounds_both_what_there_is_and_what_is_left() {
        let machine = Ram { total_bytes: 32, available_bytes: 20 };
        let within = |max_bytes, held_bytes| machine.within(cgroup::Limit { max_bytes, held_bytes });
        assert_eq!(within(16, 4), Ram { total_bytes: 16, available_bytes: 12 });
        assert_eq!(within(64, 4), machine);
        assert_eq!(within(30, 2), Ram { total_bytes: 30, available_bytes: 20 });
        assert_eq!(within(8, 9), Ram { total_bytes: 8, available_bytes: 0 });
    }

    #[test]
    fn a_family_is_everything_below_even_if_ids_loop() {
        let pid = |n: usize| Pid::from(n);
        let parents = [(2, 1), (3, 2), (4, 3), (9, 8), (1, 4)].map(|(c, p)| (pid(c), pid(p)));
        let mut family = descendants(pid(1), &parents);
        family.sort();
        assert_eq!(family, [1, 2, 3, 4].map(pid));
    }

    #[test]
    fn a_child_process_counts_while_it_lives() {
        let mut system = System::new();
        let mut family = Family::default();
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_u32(child.id());
        family.resident_bytes(&mut system);
        assert!(family.members.contains(&pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        for _ in 0..READINGS_PER_CENSUS {
            family.resident_bytes(&mut system);
        }
        assert!(!family.members.contains(&pid));
    }
}
