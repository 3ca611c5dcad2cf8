//! The processor: its name and how many cores of what kind this process may use.
use crate::wire;

/// Asks the system once; counts are at least 1 and consistent with each other whatever the system says.
pub(super) fn probe(system: &mut sysinfo::System) -> wire::Cpu {
    system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
    let name = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).filter(|name| !name.is_empty());
    let n_allowed = std::thread::available_parallelism().map_or(1, |n| n.get());
    let n_logical = system.cpus().len().max(n_allowed);
    let n_physical = sysinfo::System::physical_core_count().unwrap_or(n_logical).clamp(1, n_logical);
    wire::Cpu {
        name: name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        n_physical_cores: count(n_physical),
        n_logical_cores: count(n_logical),
        n_performance_cores: count(n_physical),
        n_allowed_cores: count(n_allowed),
        isa: "scalar".to_owned(),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
