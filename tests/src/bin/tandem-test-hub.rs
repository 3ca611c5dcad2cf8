//! Serves model files as a hub on loopback, so that the whole app can be tried without internet.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use tandem_tests::hub::{Repo, TestHub, TestHubOptions, demo_repos};

/// A hub on loopback.
#[derive(Parser)]
#[command(name = "tandem-test-hub", version, about)]
struct Args {
    /// Port to listen on; 0 takes any.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// A repo to serve: `publisher/name=FILE or FOLDER`, any number of times; the same name adds files.
    #[arg(long = "repo", value_name = "ID=PATH", value_parser = parse_repo)]
    repos: Vec<(String, PathBuf)>,
    /// Serve no odd repos (without GGUF, gated, in shards, damaged).
    #[arg(long)]
    no_demo: bool,
    /// Read the files into memory first.
    #[arg(long)]
    in_memory: bool,
    /// Bytes per second of each download; absent: as fast as it goes.
    #[arg(long, value_name = "BYTES_PER_S")]
    rate: Option<u64>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut repos: Vec<Repo> = Vec::new();
    for (id, path) in &args.repos {
        let at = repos.iter().position(|repo| repo.id() == id);
        let repo = at.map_or_else(|| describe(Repo::new(id)), |at| repos.remove(at));
        let read = repo.tree(path).and_then(|repo| if args.in_memory { repo.into_memory() } else { Ok(repo) });
        repos.push(read.with_context(|| format!("cannot read `{}`", path.display()))?);
    }
    if !args.no_demo {
        repos.extend(demo_repos());
    }
    let hub = TestHub::with(TestHubOptions {
        port: args.port,
        repos,
        tokens: vec!["hf_accepted".to_owned(), "hf_other".to_owned()],
        bytes_per_s: args.rate,
        ..TestHubOptions::default()
    })
    .with_context(|| format!("cannot listen on port {}", args.port))?;
    // A parent process reads this line to learn the address.
    writeln!(std::io::stdout(), "{}", hub.url())?;
    hub.join();
    Ok(())
}

fn parse_repo(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((id, path)) if id.split('/').count() == 2 => Ok((id.to_owned(), PathBuf::from(path))),
        _ => Err("expected `publisher/name=PATH`".to_owned()),
    }
}

/// Adds what the hub tells of the models that are served most.
fn describe(repo: Repo) -> Repo {
    match repo.id() {
        "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF" => {
            repo.tag("license:apache-2.0").popularity(41_000, 120).gguf("llama", 134_515_008, 8192)
        }
        "ggml-org/gemma-3-270m-GGUF" => {
            repo.tag("license:gemma").popularity(12_000, 60).gguf("gemma3", 268_098_176, 32_768)
        }
        _ => repo,
    }
}
