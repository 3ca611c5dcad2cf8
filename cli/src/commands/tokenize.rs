//! `tandem tokenize`: texts to token ids, line by line, so that a program can ask and wait for each answer.
use std::io::{self, BufRead as _, Write as _};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::token::{Special, Tokenizer};

use crate::args;
use crate::exit::refused;

#[derive(Deserialize)]
struct Question {
    text: String,
}

#[derive(Serialize)]
struct Answer {
    ids: Vec<u32>,
}

pub(crate) fn run(args: &args::Tokenize) -> anyhow::Result<()> {
    let facts = ModelFacts::from_file(&args.file).map_err(refused)?;
    let tokenizer = Tokenizer::from_facts(&facts).map_err(|error| refused(EngineError::from(error)))?;
    let special = if args.no_special { Special::Literal } else { Special::Parse };
    let mut out = io::stdout().lock();
    for (i, line) in io::stdin().lock().lines().enumerate() {
        let line = line.with_context(|| format!("standard input, line {}", i + 1))?;
        if line.trim().is_empty() {
            continue;
        }
        let Question { text } =
            serde_json::from_str(&line).with_context(|| format!("line {} is not {{\"text\": …}}", i + 1))?;
        serde_json::to_writer(&mut out, &Answer { ids: tokenizer.encode(&text, special) })?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}
