//! `tandem tokenize`: texts to token ids, line by line, so that a program can ask and wait for each answer.
use std::io::{self, BufRead as _, Write as _};

use serde::{Deserialize, Serialize};
use tandem_core::error::detail;
use tandem_core::wire::Text;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::token::{Special, Tokenizer};

use crate::args;
use crate::exit::{bad_request, refused};

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
        let not_understood = |why: String| {
            bad_request(
                Text::new(
                    format!("line {} of standard input is not `{{\"text\": …}}`: {why}", i + 1),
                    format!("标准输入第 {} 行不是 `{{\"text\": …}}`{}", i + 1, detail(&why)),
                ),
                Text::new("give one JSON object in a line, in UTF-8", "每行一个 JSON 对象，使用 UTF-8 编码"),
            )
        };
        let line = line.map_err(|error| not_understood(error.to_string()))?;
        let line = line.trim_start_matches('\u{feff}');
        if line.trim().is_empty() {
            continue;
        }
        let Question { text } = serde_json::from_str(line).map_err(|error| not_understood(error.to_string()))?;
        serde_json::to_writer(&mut out, &Answer { ids: tokenizer.encode(&text, special) })?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}
