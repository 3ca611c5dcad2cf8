//! The processor: its name, and how many cores of what kind this process may use, as the engine counts them.
use tandem_engine::cpu::{Isa, Topology};

use crate::wire;

/// Asks the system once; counts are at least 1 and consistent with each other whatever the system says.
pub(super) fn probe(system: &mut sysinfo::System) -> wire::Cpu {
    system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
    let name = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).filter(|name| !name.is_empty());
    let topology = Topology::probe();
    let n_logical = topology.n_logical.max(topology.n_allowed).max(1);
    let n_physical = topology.n_physical.min(cores_elsewhere()).clamp(1, n_logical);
    wire::Cpu {
        name: name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        n_physical_cores: count(n_physical),
        n_logical_cores: count(n_logical),
        n_performance_cores: count(topology.n_performance.clamp(1, n_physical)),
        n_allowed_cores: count(topology.n_allowed.max(1)),
        isa: Isa::best().to_string(),
    }
}

/// Where the engine only counts hardware threads, the system may know cores.
fn cores_elsewhere() -> usize {
    if cfg!(target_os = "linux") { usize::MAX } else { sysinfo::System::physical_core_count().unwrap_or(usize::MAX) }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
