//! A process that downloads, to be killed, watched or timed. Prints the bytes that arrived, line by line, and `done`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use tandem_core::download::{Backoff, DownloadLimits, DownloadOptions, DownloadUpdate, Downloads};
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
    #[arg(long)]
    save_every_bytes: Option<u64>,
    /// Bytes of a piece.
    #[arg(long)]
    piece_bytes: Option<u64>,
    /// Connections, at most.
    #[arg(long, default_value_t = DownloadLimits::default().connections)]
    connections: u32,
    /// Time between reports.
    #[arg(long, default_value_t = 1)]
    report_every_ms: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(download(args))
}

async fn download(args: Args) -> anyhow::Result<()> {
    let hub = Arc::new(Hub::new(HubOptions { base_url: args.hub, ..HubOptions::default() })?);
    let (sink, mut updates) = mpsc::unbounded_channel();
    let usual = DownloadOptions::default();
    let options = DownloadOptions {
        backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(20), attempts: 10 },
        save_every_bytes: args.save_every_bytes.unwrap_or(usual.save_every_bytes),
        piece_bytes: args.piece_bytes.unwrap_or(usual.piece_bytes),
        limits: DownloadLimits { connections: args.connections, ..usual.limits },
        report_every: Duration::from_millis(args.report_every_ms),
        reserve_bytes: 0,
        ..usual
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
            DownloadUpdate::Gone { .. } | DownloadUpdate::Cleared { .. } => {}
        }
    }
    bail!("the downloads ended before the file did")
}
