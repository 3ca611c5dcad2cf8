//! How fast this machine is: a benchmark of a few seconds with the engine's own threads and kernels, and what answers teach
//! about the predictions that follow from it. Plans take both as data (`Hardware::measured`).

mod background;
mod benchmark;
mod learn;
mod small_model;

pub use background::{Calibrator, Surroundings};
pub use benchmark::{CalibrateError, MeasureCard, Subject, benchmark};
pub use learn::{Answered, corrections, learn, measured, outcome};

use crate::wire::{Cpu, Hardware};

/// What figures of a benchmark are true of: another processor, another memory or another set of threads is another machine.
pub fn machine_name(hardware: &Hardware) -> String {
    let Cpu { name, n_physical_cores, n_performance_cores, n_allowed_cores, isa, .. } = &hardware.cpu;
    // What the system keeps for itself differs from one start to the next.
    let ram_gib = (hardware.ram_total_bytes as f64 / f64::from(1 << 30)).round();
    format!("{name}, {isa}, {n_allowed_cores}/{n_performance_cores}/{n_physical_cores} cores, {ram_gib} GiB")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::hardware::{ProbeOptions, Prober};

    #[test]
    fn another_memory_or_set_of_threads_is_another_machine() {
        let hardware = Prober::new(ProbeOptions::default()).hardware(Path::new("."));
        let name = machine_name(&hardware);
        let mut other = hardware.clone();
        other.ram_available_bytes /= 2;
        assert_eq!(machine_name(&other), name, "what is free now does not matter");
        other.ram_total_bytes *= 2;
        assert_ne!(machine_name(&other), name);
        let mut other = hardware;
        other.cpu.n_allowed_cores += 1;
        assert_ne!(machine_name(&other), name);
    }
}
