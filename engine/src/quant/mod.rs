//! Block formats of weights: one file per format, one table of them.
//!
//! A format's file holds its layout, its normative scalar decode, its encode where that is cheap, and its vector unpack.
//! The products are written once over that (`cpu::tile`, `cpu::float`). Weights are used in the file's own blocks.
mod codec;
mod fit;
mod format;
mod grids;
mod lattice;

mod bf16;
mod f16;
mod f32;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq1_0;
mod tq2_0;

pub(crate) use codec::{Codec, Element, SPAN};
pub(crate) use f16::F16;
pub(crate) use f32::F32;
pub use format::{Format, GpuInput, GpuKernel, QuantError, decode_row, encode_row, format_of, supports};

/// Every format that the engine multiplies. Tests walk it.
pub static FORMATS: &[Format] = &[
    f32::FORMAT,
    f16::FORMAT,
    bf16::FORMAT,
    q8_0::FORMAT,
    q4_0::FORMAT,
    q4_1::FORMAT,
    q5_0::FORMAT,
    q5_1::FORMAT,
    q2_k::FORMAT,
    q3_k::FORMAT,
    q4_k::FORMAT,
    q5_k::FORMAT,
    q6_k::FORMAT,
    iq4_nl::FORMAT,
    iq4_xs::FORMAT,
    iq3_s::FORMAT,
    iq3_xxs::FORMAT,
    iq2_s::FORMAT,
    iq2_xs::FORMAT,
    iq2_xxs::FORMAT,
    iq1_m::FORMAT,
    iq1_s::FORMAT,
    tq1_0::FORMAT,
    tq2_0::FORMAT,
    mxfp4::FORMAT,
    nvfp4::FORMAT,
];
