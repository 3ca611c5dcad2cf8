//! Mixture of experts: which experts a token goes to and the tokens of each expert (`route`), which experts have copies on a card
//! (`slots`), and what is done with those (`policy`). What experts compute is `arch::blocks::experts`.

mod policy;
mod route;
mod slots;

pub use policy::{ExpertPolicy, ExpertRates, ExpertStats};
pub(crate) use route::{Gating, Group, Groups, Routes, Routing, Weights};
pub(crate) use slots::Slots;
