//! The machine, and what the gauges show.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Measured, Text};

/// What this machine has, measured now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Hardware {
    /// Processor.
    pub cpu: Cpu,
    /// Installed RAM.
    #[ts(type = "number")]
    pub ram_total_bytes: u64,
    /// RAM that programs can still take.
    #[ts(type = "number")]
    pub ram_available_bytes: u64,
    /// Memory modules, where the system tells.
    pub ram_modules: Option<RamModules>,
    /// Swap space; 0 where there is none.
    #[ts(type = "number")]
    pub swap_total_bytes: u64,
    /// Swap space in use: what was pushed out of memory already.
    #[ts(type = "number")]
    pub swap_used_bytes: u64,
    /// Graphics cards that could compute.
    pub gpus: Vec<Gpu>,
    /// How the search for cards ended.
    pub gpu_probe: GpuProbe,
    /// Volume of the models folder.
    pub disk: Disk,
    /// Operating system.
    pub os: String,
    /// How fast it is, as far as that is known.
    #[serde(default)]
    pub measured: Measured,
}

/// Modules of main memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RamModules {
    /// How many are plugged in. One alone gives half of what two would.
    pub n: u32,
    /// Transfers per second they are set to, in millions, if told.
    pub mega_transfers_per_s: Option<u32>,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Cpu {
    /// Model name.
    pub name: String,
    /// Physical cores.
    pub n_physical_cores: u32,
    /// Logical cores.
    pub n_logical_cores: u32,
    /// Performance cores among the physical ones.
    pub n_performance_cores: u32,
    /// Cores this process may use (cpuset, cgroup).
    pub n_allowed_cores: u32,
    /// Instruction set the engine chose: `scalar`, `avx2`, `avxvnni`, `avx512vnni`.
    pub isa: String,
}

/// A graphics card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Gpu {
    /// The driver's index where it computes; another one where it does not.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Total VRAM.
    #[ts(type = "number")]
    pub vram_total_bytes: u64,
    /// Free VRAM now.
    #[ts(type = "number")]
    pub vram_free_bytes: u64,
    /// Driver version.
    pub driver: String,
    /// Load in percent, if told.
    pub load_percent: Option<u32>,
    /// Temperature in °C, if told.
    pub temperature_c: Option<u32>,
    /// Why it does not compute, if it does not.
    #[serde(default)]
    pub unusable: Option<Text>,
}

/// How the search for graphics cards ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GpuProbe {
    /// Cards were found.
    Found,
    /// No NVIDIA driver on this machine: a normal case.
    NoDriver,
    /// The driver is there but there is no card.
    NoDevice,
    /// The driver answered with an error.
    Failed {
        /// The driver's words.
        reason: String,
    },
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Disk {
    /// Folder asked for.
    pub path: String,
    /// Size of the volume.
    #[ts(type = "number")]
    pub total_bytes: u64,
    /// Free for this user.
    #[ts(type = "number")]
    pub free_bytes: u64,
    /// What it is made of.
    pub kind: DiskKind,
}

/// What a volume is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// Flash.
    Solid,
    /// A hard disk.
    Rotating,
    /// The system does not say.
    #[default]
    Unknown,
}

/// What the gauges show, once a second and on every change of phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Gauges {
    /// When.
    #[ts(type = "number")]
    pub at_ms: i64,
    /// Resident memory of the app and its windows.
    #[ts(type = "number")]
    pub ram_app_bytes: u64,
    /// RAM that programs can still take.
    #[ts(type = "number")]
    pub ram_available_bytes: u64,
    /// Installed RAM.
    #[ts(type = "number")]
    pub ram_total_bytes: u64,
    /// Cards, with VRAM now.
    pub gpus: Vec<Gpu>,
    /// Why there are none.
    pub gpu_probe: GpuProbe,
    /// What the engine is doing.
    pub phase: Phase,
    /// Tokens per second of what is running now (prompt or generation), or of the last answer.
    pub tokens_per_s: Option<f64>,
}

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing is loaded.
    Empty,
    /// A model is being loaded.
    Loading,
    /// Loaded and waiting.
    Idle,
    /// Reading a prompt.
    Prompt,
    /// Writing an answer.
    Generating,
}
