//! The architectures that the engine runs: one row per `general.architecture`, one file per family.

/// One architecture of the registry.
#[derive(Debug)]
pub struct ArchitectureRow {
    /// `general.architecture` of its files.
    pub name: &'static str,
}

/// Every architecture that the engine runs.
pub static ARCHITECTURES: &[ArchitectureRow] = &[ArchitectureRow { name: "llama" }];

/// Whether the engine runs files with this `general.architecture`.
pub fn supports(architecture: &str) -> bool {
    ARCHITECTURES.iter().any(|row| row.name == architecture)
}
