//! What this machine has: processor, memory, graphics cards, disk; measured, never configured. Reading is cheap enough
//! for once a second, and no fault of a driver or of the system's files is more than a named state.
mod cards;
mod cgroup;
mod cpu;
mod disk;
mod fitness;
mod memory;
mod modules;
pub mod uncached;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire;
use cards::{Cards, Reopen};
pub use disk::disk;
use fitness::Fitness;
use memory::{Family, Ram, Swap};

/// How to look at the machine.
#[derive(Clone, Debug, Default)]
pub struct ProbeOptions {
    /// NVML library to use instead of the system's: a stand-in for tests, or an unusual place.
    pub nvml_path: Option<PathBuf>,
}

/// Looks at the machine; keeps what is dear to open (NVML) and what does not change (the processor).
pub struct Prober {
    cpu: wire::Cpu,
    os: String,
    ram_modules: Option<wire::RamModules>,
    senses: Mutex<Senses>,
}

/// The machine's share of [`wire::Gauges`].
#[derive(Clone, Debug, PartialEq)]
pub struct MachineGauges {
    /// Resident memory of this process and all its descendants; what they share counts once for each.
    pub ram_app_bytes: u64,
    /// RAM that programs can still take.
    pub ram_available_bytes: u64,
    /// RAM there is for this process.
    pub ram_total_bytes: u64,
    /// Cards, with VRAM now.
    pub gpus: Vec<wire::Gpu>,
    /// Why there are none.
    pub gpu_probe: wire::GpuProbe,
}

struct Senses {
    system: sysinfo::System,
    family: Family,
    cards: Cards,
    fitness: Fitness,
    measured: wire::Measured,
}

impl Prober {
    /// A prober; looks at the processor at once, at everything else when asked.
    pub fn new(options: ProbeOptions) -> Self {
        let mut system = sysinfo::System::new();
        Self {
            cpu: cpu::probe(&mut system),
            os: os_name(),
            ram_modules: modules::probe(),
            senses: Mutex::new(Senses {
                system,
                family: Family::default(),
                cards: Cards::new(options.nvml_path),
                fitness: Fitness::default(),
                measured: wire::Measured::default(),
            }),
        }
    }

    /// Everything about the machine now; `folder`, which need not exist yet, says which volume is meant.
    ///
    /// Drivers that were missing or failing are tried again.
    pub fn hardware(&self, folder: &Path) -> wire::Hardware {
        let mut senses = self.senses();
        let ram = Ram::read(&mut senses.system);
        let swap = Swap::read(&mut senses.system);
        let (mut gpus, gpu_probe) = senses.cards.read(Reopen::Always);
        senses.fitness.look();
        senses.fitness.mark(&mut gpus);
        wire::Hardware {
            cpu: self.cpu.clone(),
            ram_total_bytes: ram.total_bytes,
            ram_available_bytes: ram.available_bytes,
            ram_modules: self.ram_modules,
            swap_total_bytes: swap.total_bytes,
            swap_used_bytes: swap.used_bytes,
            gpus,
            gpu_probe,
            disk: disk(folder),
            os: self.os.clone(),
            measured: senses.measured.clone(),
        }
    }

    /// A card is not to be used any more, before the app starts anew.
    pub fn spoil_card(&self, index: u32, why: wire::Text) {
        self.senses().fitness.spoil(index, why);
    }

    /// What is known of the machine's speed, from now on.
    pub fn set_measured(&self, measured: wire::Measured) {
        self.senses().measured = measured;
    }

    /// What moves from second to second.
    pub fn gauges(&self) -> MachineGauges {
        let mut senses = self.senses();
        let Senses { system, family, cards, fitness, .. } = &mut *senses;
        let ram = Ram::read(system);
        let (mut gpus, gpu_probe) = cards.read(Reopen::AfterFault);
        fitness.mark(&mut gpus);
        MachineGauges {
            ram_app_bytes: family.resident_bytes(system),
            ram_available_bytes: ram.available_bytes,
            ram_total_bytes: ram.total_bytes,
            gpus,
            gpu_probe,
        }
    }

    /// A panic while measuring leaves nothing half-changed that the next reading does not replace.
    fn senses(&self) -> MutexGuard<'_, Senses> {
        self.senses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resident memory of this process alone, pages of mapped files included; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    memory::own_resident_bytes()
}

fn os_name() -> String {
    sysinfo::System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory_and_the_gauges_agree() {
        let prober = Prober::new(ProbeOptions { nvml_path: Some("/nowhere/libnvidia-ml.so.1".into()) });
        let hardware = prober.hardware(Path::new("."));
        assert!(hardware.cpu.n_allowed_cores >= 1);
        assert!(hardware.cpu.n_logical_cores >= hardware.cpu.n_physical_cores);
        assert!((1..=hardware.cpu.n_physical_cores).contains(&hardware.cpu.n_performance_cores));
        assert!(hardware.ram_available_bytes <= hardware.ram_total_bytes && hardware.ram_total_bytes > 0);
        assert!(hardware.swap_used_bytes <= hardware.swap_total_bytes);
        assert_eq!(hardware.gpu_probe, wire::GpuProbe::NoDriver);
        let gauges = prober.gauges();
        assert_eq!(gauges.ram_total_bytes, hardware.ram_total_bytes);
        assert!(gauges.ram_app_bytes > 0);
    }
}
