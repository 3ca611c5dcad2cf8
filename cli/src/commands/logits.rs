//! `tandem logits`: teacher-forced logits of every position, for comparison with other engines.
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use tandem_engine::Flow;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::KvType;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

use crate::args::{self, Kv};
use crate::exit::refused;
use crate::open;

/// Context where neither the command line nor the tokens ask for more.
const MIN_CONTEXT: usize = 256;
/// Tokens per step where no chunks are named.
const BATCH: usize = 512;

pub(crate) fn run(args: &args::Logits) -> anyhow::Result<()> {
    let tokens = read_tokens(&args.tokens)?;
    let mut session = open_session(args, tokens.len())?;
    let written = write_logits(&mut session, &tokens, args);
    if written.is_err() {
        // Half a file would pass for a whole one.
        let _ = fs::remove_file(&args.out);
    }
    written
}

fn read_tokens(path: &Path) -> anyhow::Result<Vec<u32>> {
    let name = || format!("`{}`", path.display());
    let json = fs::read(path).with_context(name)?;
    serde_json::from_slice(&json).with_context(|| format!("{} is not a list of token ids", name()))
}

fn open_session(args: &args::Logits, n_tokens: usize) -> anyhow::Result<Session> {
    let facts = ModelFacts::from_file(&args.file).map_err(refused)?;
    let context_length = args.context_length.map_or(n_tokens.max(MIN_CONTEXT), |n| n.get());
    let n_threads = args.threads.map_or_else(open::n_threads, |n| n.get());
    let kv_type = match args.kv_type {
        Kv::F32 => KvType::F32,
        Kv::F16 => KvType::F16,
    };
    let n_batch = args.chunks.iter().map(|n| n.get()).max().unwrap_or(BATCH);
    let options = LoadOptions::all_cpu(&facts, n_threads, context_length).map_err(refused)?;
    let options = LoadOptions { isa: args.isa, kv_type, n_batch, ..options };
    let model = Model::load(&args.file, &options, &mut |_| Flow::Continue).map_err(refused)?;
    Session::new(Arc::new(model)).map_err(refused)
}

fn write_logits(session: &mut Session, tokens: &[u32], args: &args::Logits) -> anyhow::Result<()> {
    let chunks: Vec<usize> = args.chunks.iter().map(|n| n.get()).collect();
    let file = File::create(&args.out).with_context(|| format!("`{}`", args.out.display()))?;
    let mut out = BufWriter::new(file);
    let mut fault: Option<io::Error> = None;
    let result = session.teacher_forced(tokens, &chunks, &mut |_, logits| match logits
        .iter()
        .try_for_each(|value| out.write_all(&value.to_le_bytes()))
    {
        Ok(()) => Flow::Continue,
        Err(error) => {
            fault = Some(error);
            Flow::Break
        }
    });
    if let Some(error) = fault {
        return Err(error).with_context(|| format!("`{}`", args.out.display()));
    }
    result.map_err(refused)?;
    Ok(out.flush()?)
}
