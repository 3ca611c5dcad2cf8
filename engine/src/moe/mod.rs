//! Mixture of experts: which experts a token goes to (`route`), and the tokens of each expert (`Routes`). What they compute is
//! `arch::blocks::experts`.

mod route;

pub(crate) use route::{Gating, Group, Groups, Routes, Routing, Weights};
