//! Fixtures for cross-crate and end-to-end tests.
pub mod hub;
pub mod models;
pub mod nvml;
