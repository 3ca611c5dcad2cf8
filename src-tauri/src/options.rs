//! What may be said at start: flags, and for two of them variables. Read here and nowhere else.

use std::path::PathBuf;

use clap::Parser;
use tandem_core::app::{AppOptions, Calibration};
use tandem_core::library::Environment;
use tandem_core::paths::Paths;
use tandem_core::token::GivenToken;

/// Run large language models on this computer, in a window.
#[derive(Debug, Parser)]
#[command(name = "tandem-desktop", version)]
pub(crate) struct Options {
    /// Keep everything (models, chats, logs) under this folder.
    #[arg(long, value_name = "FOLDER", env = "TANDEM_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Use this hub where the settings name none.
    #[arg(long, value_name = "URL", env = "TANDEM_HUB_URL")]
    hub_url: Option<String>,
    /// Load NVIDIA's management library from this file.
    #[arg(long, value_name = "FILE")]
    nvml: Option<PathBuf>,
}

impl Options {
    /// The same in the core's terms; no paths where the system knows no home folder, which the core says.
    pub(crate) fn into_app_options(self) -> AppOptions {
        AppOptions {
            calibration: Calibration::AtFirstStart,
            paths: self.data_dir.as_deref().map_or_else(Paths::standard, |dir| Some(Paths::under(dir))),
            hub_url: self.hub_url.or_else(|| std::env::var("HF_ENDPOINT").ok().filter(|url| !url.is_empty())),
            given_token: GivenToken::find(|name| std::env::var_os(name), std::env::home_dir().as_deref()),
            nvml_path: self.nvml,
            environment: Environment::of_process(),
            ..AppOptions::default()
        }
    }
}
