//! The window: a Tauri shell around `tandem_core`. Flags and environment are read here, once; everything a person can do is a
//! command of the core.

#![cfg_attr(not(debug_assertions), windows_subsystem = "windows")]

mod commands;
mod options;
mod refusal;
#[cfg(target_os = "linux")]
mod webkit;
mod window;

use std::process::ExitCode;

use clap::Parser as _;
use tandem_core::app::App;
use tandem_core::error::Explain as _;
use tandem_core::log;
use tracing::level_filters::LevelFilter;

use crate::options::Options;
use crate::refusal::Refusal;

fn main() -> ExitCode {
    let options = Options::parse();
    // SAFETY: nothing before this line starts a thread.
    #[cfg(target_os = "linux")]
    unsafe {
        webkit::prepare();
    }
    match start(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => refusal.tell(),
    }
}

fn start(options: Options) -> Result<(), Refusal> {
    window::require_display()?;
    let options = options.into_app_options();
    let _log = options.paths.as_ref().map(|paths| log::start(&paths.logs_dir, LevelFilter::WARN));
    // The core wants to be opened inside the runtime that its commands run on.
    let app = tauri::async_runtime::block_on(async { App::open(options) });
    let app = app.map_err(|error| Refusal::Failed(error.explain()))?;
    window::run(&app)
}
