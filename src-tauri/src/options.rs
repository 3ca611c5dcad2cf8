//! What may be said at start: flags, and for two of them variables. Read here and nowhere else.

use std::path::PathBuf;

use clap::Parser;
use tandem_core::paths::Paths;

/// Run large language models on this computer, in a window.
#[derive(Debug, Parser)]
#[command(name = "tandem-desktop", version)]
pub(crate) struct Options {
    /// Keep everything (models, chats, logs) under this folder.
    #[arg(long, value_name = "FOLDER", env = "TANDEM_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl Options {
    /// Where the app's files lie; `None` if the system knows no home folder and none was named.
    pub(crate) fn paths(&self) -> Option<Paths> {
        self.data_dir.as_deref().map_or_else(Paths::standard, |dir| Some(Paths::under(dir)))
    }
}
