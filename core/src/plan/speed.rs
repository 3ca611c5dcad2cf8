//! What a machine can do per second: memory, disk, cores.
//!
//! The rates are assumptions about ordinary machines, so the range is wide; measured ones can take their place here
//! and nowhere else.
use crate::wire::Hardware;

/// Rate at which one core reads and multiplies weights, bytes per second, by instruction set. Source: `engine/NOTES.md`
/// for AVX2, the others in proportion of the kernels' prototypes; scalar code computes slower than memory delivers.
const READ_PER_CORE: &[(&str, f64)] = &[("scalar", 0.4e9), ("avx2", 12e9), ("avxvnni", 12e9), ("avx512vnni", 14e9)];
/// Rate of whole matrices against many tokens, operations per second and core. Source: as above.
const OPS_PER_CORE: &[(&str, f64)] = &[("scalar", 1.5e9), ("avx2", 60e9), ("avxvnni", 75e9), ("avx512vnni", 110e9)];

/// What memory gives to all cores together. Likely: two channels of DDR4-3200 (51.2 GB/s) at 70 %; low: one channel of
/// DDR4-2666 (21.3 GB/s) at 65 %; high: two channels of DDR5-5600 (89.6 GB/s) at 75 %.
const MEMORY: Range = Range { low: 14e9, likely: 36e9, high: 67e9 };
/// What a disk gives to a program that reads here and there in a mapped file. Likely: NVMe at random; low: SATA;
/// high: PCIe 3.0 NVMe in long runs.
const DISK: Range = Range { low: 0.3e9, likely: 1.5e9, high: 3.5e9 };
/// A quantity that is not known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) likely: f64,
    pub(super) high: f64,
}

/// What this machine can do per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Weights read and multiplied for one token, bytes.
    pub(super) memory: Range,
    /// Read from disk, bytes.
    pub(super) disk: Range,
    /// Operations on a prompt.
    pub(super) ops: f64,
}

impl Rates {
    /// From what kind of machine it is, before anything was measured.
    pub(super) fn assumed(hardware: &Hardware, n_threads: u32) -> Self {
        let isa = hardware.cpu.isa.as_str();
        let of = |table: &[(&str, f64)]| table.iter().find(|(name, _)| *name == isa).unwrap_or(&table[0]).1;
        // More threads than physical cores share what the cores have.
        let n_cores = f64::from(n_threads.min(hardware.cpu.n_physical_cores).max(1));
        let cores = of(READ_PER_CORE) * n_cores;
        let memory = Range {
            low: MEMORY.low.min(cores * 0.6),
            likely: MEMORY.likely.min(cores),
            high: MEMORY.high.min(cores * 1.3),
        };
        Self { memory, disk: DISK, ops: of(OPS_PER_CORE) * n_cores }
    }
}
