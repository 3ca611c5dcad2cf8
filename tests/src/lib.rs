//! Fixtures for cross-crate and end-to-end tests.
pub mod downloads;
pub mod experts;
#[cfg(target_os = "linux")]
pub mod gpu;
pub mod hub;
pub mod models;
pub mod nvml;
pub mod proxy;
pub mod small_disk;
pub mod teacher;
#[cfg(target_os = "linux")]
pub mod window;
