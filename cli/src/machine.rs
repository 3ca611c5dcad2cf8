//! A machine described on the command line, over the one that is there.
use tandem_core::plan::Engine;
use tandem_core::wire::{Gpu, GpuProbe, Hardware, Measured};

use crate::args;

const GIB: u64 = 1 << 30;

impl args::Machine {
    /// Whether anything is said.
    pub(crate) fn is_described(&self) -> bool {
        self.gpu.is_some() || self.ram.is_some() || self.cores.is_some()
    }

    /// What computes there.
    pub(crate) fn engine(&self, machine: &Hardware) -> Engine {
        if self.card_computes { Engine::WithGpu } else { Engine::of(machine) }
    }

    /// This machine with what is said of the other one. Speeds measured here say nothing about it.
    pub(crate) fn over(&self, here: Hardware) -> Hardware {
        if !self.is_described() {
            return here;
        }
        let mut machine = Hardware { measured: Measured::default(), ram_modules: None, ..here };
        if let Some(total) = self.gpu {
            machine.gpus = (total > 0).then(|| self.card(total)).into_iter().collect();
            machine.gpu_probe = if total > 0 { GpuProbe::Found } else { GpuProbe::NoDriver };
        }
        if let Some(total) = self.ram {
            let taken = if total <= 8 * GIB { 3 * GIB } else { 4 * GIB };
            machine.ram_total_bytes = total;
            machine.ram_available_bytes = self.ram_free.unwrap_or(total.saturating_sub(taken)).min(total);
            (machine.swap_total_bytes, machine.swap_used_bytes) = (0, 0);
        }
        if let Some(n) = self.cores {
            let cpu = &mut machine.cpu;
            (cpu.n_physical_cores, cpu.n_performance_cores) = (n.max(1), n.max(1));
            (cpu.n_logical_cores, cpu.n_allowed_cores) = (n.max(1), n.max(1));
        }
        machine
    }

    fn card(&self, total: u64) -> Gpu {
        Gpu {
            index: 0,
            name: self.gpu_name.clone().unwrap_or_default(),
            vram_total_bytes: total,
            vram_free_bytes: self.gpu_free.unwrap_or(total.saturating_sub(GIB / 2)).min(total),
            driver: String::new(),
            load_percent: None,
            temperature_c: None,
            unusable: None,
        }
    }
}
