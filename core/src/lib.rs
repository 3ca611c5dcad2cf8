//! Tandem without a window. Modules in layers, lowest first: a module uses only those above it in this list.
pub mod wire;

pub mod error;
pub mod log;
pub mod paths;

pub mod hardware;
pub mod hub;
pub mod store;
pub mod token;

pub mod library;
pub mod prompt;

pub mod download;
pub mod plan;

pub mod calibrate;
pub mod preview;

pub mod runtime;

pub mod tune;

pub mod chat;

pub mod app;

pub mod api;
pub mod server;
