//! A process that downloads, to be killed by a test. Prints the bytes that arrived, line by line, and `done`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use tandem_core::download::{DownloadOptions, DownloadUpdate, Downloads};
use tandem_core::hub::{Hub, HubOptions, versions};
use tandem_core::wire::DownloadState;
use tokio::sync::mpsc;

/// Downloads the smallest version of a repo, going on with what is there.
#[derive(Parser)]
struct Args {
    /// Base URL of the hub.
    hub: String,
    /// `publisher/name`.
    repo: String,
    /// Models folder.
    models_dir: PathBuf,
    /// What a kill may cost.
    save_every_bytes: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(download(args))
}

async fn download(args: Args) -> anyhow::Result<()> {
    let hub = Arc::new(Hub::new(HubOptions { base_url: args.hub, ..HubOptions::default() })?);
    let (sink, mut updates) = mpsc::unbounded_channel();
    let options = DownloadOptions {
        save_every_bytes: args.save_every_bytes,
        report_every: Duration::from_millis(1),
        reserve_bytes: 0,
        ..DownloadOptions::default()
    };
    let sink = Arc::new(move |update| drop(sink.send(update)));
    let downloads = Downloads::open_with(Arc::clone(&hub), args.models_dir, options, sink);
    match downloads.list().first() {
        Some(found) => downloads.resume(&found.id)?,
        None => {
            let listing = hub.model(&args.repo).await?;
            let version = versions(&listing.files).into_iter().next().context("a repo with a version")?;
            downloads.start(version.files).await?;
        }
    }
    let mut out = std::io::stdout();
    while let Some(update) = updates.recv().await {
        match update {
            DownloadUpdate::Changed(download) if download.state == DownloadState::Failed => {
                bail!("failed: {:?}", download.failure)
            }
            DownloadUpdate::Changed(download) => writeln!(out, "{}", download.arrived_bytes)?,
            DownloadUpdate::Finished { .. } => {
                writeln!(out, "done")?;
                return Ok(());
            }
            DownloadUpdate::Gone { .. } => {}
        }
    }
    bail!("the downloads ended before the file did")
}
