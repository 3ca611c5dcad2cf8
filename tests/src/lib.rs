//! Fixtures for cross-crate and end-to-end tests.
pub mod nvml;
