//! The simulated driver as programs see it: PTX that NVRTC made, launched through the driver's functions.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod bugs;
mod instructions;
mod machine;
mod quantised;
mod streams;
