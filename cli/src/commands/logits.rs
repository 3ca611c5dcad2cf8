//! `tandem logits`: teacher-forced logits of every position, for comparison with other engines.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_core::error::{FileAction, FileError, detail};
use tandem_core::wire::Text;
use tandem_engine::Flow;
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

use crate::args;
use crate::exit::{bad_request, refused};
use crate::open;

/// Context where neither the command line nor the tokens ask for more.
const MIN_CONTEXT: usize = 256;
/// Tokens per step where no chunks are named.
const BATCH: usize = 512;

pub(crate) fn run(args: &args::Logits) -> anyhow::Result<()> {
    let tokens = read_tokens(&args.tokens)?;
    check_out(args)?;
    let mut session = open_session(args, tokens.len())?;
    // Half a file would pass for a whole one: the name appears when all is written. A pipe or a device is written as it is.
    if args.out.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return write_logits(&mut session, &tokens, args, &args.out);
    }
    let part = part_of(&args.out);
    let written = write_logits(&mut session, &tokens, args, &part).and_then(|()| {
        fs::rename(&part, &args.out).map_err(FileError::at(FileAction::Move, &args.out)).map_err(refused)
    });
    if written.is_err() {
        // What is left of it is ours; if it was never made, there is nothing to remove.
        let _ = fs::remove_file(&part);
    }
    written
}

fn read_tokens(path: &Path) -> anyhow::Result<Vec<u32>> {
    let json = fs::read(path).map_err(FileError::at(FileAction::Read, path)).map_err(refused)?;
    serde_json::from_slice(&json).map_err(|error| {
        let path = path.display();
        bad_request(
            Text::new(
                format!("`{path}` is not a list of token ids: {error}"),
                format!("`{path}` 不是词元 id 列表{}", detail(&error)),
            ),
            Text::new("give a JSON array such as `[1, 2, 3]`", "使用 JSON 数组，例如 `[1, 2, 3]`"),
        )
    })
}

/// The output must not take the place of what is read.
fn check_out(args: &args::Logits) -> anyhow::Result<()> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let out = real(&args.out);
    if out.is_none() || (out != real(&args.file) && out != real(&args.tokens)) {
        return Ok(());
    }
    let shown = args.out.display();
    Err(bad_request(
        Text::new(format!("`{shown}` is read by this command too"), format!("`{shown}` 同时是本命令的输入")),
        Text::new("give `--out` another name", "为 `--out` 指定其他名称"),
    ))
}

/// Where the output lies until it is whole.
fn part_of(out: &Path) -> PathBuf {
    let mut name: OsString = out.into();
    name.push(".part");
    name.into()
}

fn open_session(args: &args::Logits, n_tokens: usize) -> anyhow::Result<Session> {
    let facts = open::computable(&args.file)?;
    let context_length = args.context_length.map_or(n_tokens.max(MIN_CONTEXT), |n| n.get());
    let n_threads = args.threads.map_or_else(open::n_threads, |n| n as usize);
    let kv_types =
        KvTypes { k: args.cache_type_k.unwrap_or(args.kv_types.k), v: args.cache_type_v.unwrap_or(args.kv_types.v) };
    let n_batch = args.chunks.iter().map(|n| n.get()).max().unwrap_or(BATCH);
    let options = LoadOptions::all_cpu(&facts, n_threads, context_length).map_err(refused)?;
    let options = LoadOptions { isa: args.isa, kv_types, n_batch, ..options };
    let model = Model::load(&args.file, &options, &mut |_| Flow::Continue).map_err(refused)?;
    Session::new(Arc::new(model)).map_err(refused)
}

fn write_logits(session: &mut Session, tokens: &[u32], args: &args::Logits, path: &Path) -> anyhow::Result<()> {
    let chunks: Vec<usize> = args.chunks.iter().map(|n| n.get()).collect();
    let written = |error: io::Error| refused(FileError::at(FileAction::Write, path)(error));
    let file = File::create(path).map_err(written)?;
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
        return Err(written(error));
    }
    result.map_err(refused)?;
    out.flush().map_err(written)
}
