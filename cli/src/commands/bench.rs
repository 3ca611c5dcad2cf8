//! `tandem bench`: prompt processing and generation, each several times; medians. And how long a stop takes: the longest
//! the engine ever worked without looking at the stop button, which it does between the halves of each layer.
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tandem_core::wire::Text;
use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::session::Session;

use crate::args::{self, Args};
use crate::exit::refused;
use crate::open;
use crate::terminal::{Bar, Terminal};

/// What was measured.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    architecture: String,
    quant: String,
    size_bytes: u64,
    n_params: u64,
    isa: String,
    n_threads: usize,
    n_batch: usize,
    load_ms: f64,
    prompt: Series,
    generation: Series,
    /// Longest time between two looks at the stop button.
    cancel_ms: f64,
}

/// One kind of run.
#[derive(Debug, Serialize)]
struct Series {
    n_tokens: usize,
    tokens_per_s: f64,
    samples_tokens_per_s: Vec<f64>,
}

pub(crate) fn run(args: &args::Bench, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let path = open::model_path(&args.model, global)?;
    let report = measure(args, &path, global, terminal)?;
    if terminal.is_json() { terminal.print_json(&report) } else { print(&report, terminal) }
}

fn measure(args: &args::Bench, path: &Path, global: &Args, terminal: &Terminal) -> anyhow::Result<Report> {
    let facts = ModelFacts::from_file(path).map_err(refused)?;
    let (n_prompt, n_generate) = (args.prompt.get(), args.generate.get());
    let options = options(args, &facts, global)?;
    let (isa, n_threads, n_batch) =
        (options.isa.unwrap_or_else(tandem_engine::cpu::Isa::best), options.n_threads, options.n_batch);
    let started = Instant::now();
    let mut session = Model::load(path, &options, &mut |_| Flow::Continue)
        .and_then(|model| Session::new(Arc::new(model)))
        .map_err(refused)?;
    let load_ms = started.elapsed().as_secs_f64() * 1e3;

    let bar = terminal.bar(2 * args.reps.get() as u64 + 1, Bar::Share);
    bar.set_message(args.model.clone());
    let mut looks = Looks::default();
    // The first pass warms caches and clocks up, and is not counted.
    let mut prompts = Vec::new();
    let mut generations = Vec::new();
    run_prompt(&mut session, n_prompt, &mut looks).map_err(refused)?;
    bar.inc(1);
    for _ in 0..args.reps.get() {
        prompts.push(run_prompt(&mut session, n_prompt, &mut looks).map_err(refused)?);
        bar.inc(1);
        generations.push(run_generation(&mut session, n_generate, &mut looks).map_err(refused)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Report {
        model: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        architecture: facts.architecture().unwrap_or_default().to_owned(),
        quant: facts.quant_label(),
        size_bytes: facts.file_bytes,
        n_params: facts.n_params(),
        isa: isa.to_string(),
        n_threads,
        n_batch,
        load_ms,
        prompt: Series::new(n_prompt, &prompts),
        generation: Series::new(n_generate, &generations),
        cancel_ms: looks.longest.as_secs_f64() * 1e3,
    })
}

/// As the plan would load it, with just the context that is needed.
fn options(args: &args::Bench, facts: &ModelFacts, global: &Args) -> anyhow::Result<LoadOptions> {
    let n_tokens = args.prompt.get().max(args.generate.get() + 1);
    let wishes = args::Wishes {
        context_length: Some(n_tokens as u32),
        n_gpu_layers: None,
        n_threads: args.threads,
        kv_types: None,
        aim: args::Aim::Balanced,
    };
    let options = open::planned(facts, wishes, global)?;
    let KvTypes { k, v } = options.kv_types;
    let kv_types = KvTypes { k: args.cache_type_k.unwrap_or(k), v: args.cache_type_v.unwrap_or(v) };
    Ok(LoadOptions { isa: args.isa, context_length: n_tokens, kv_types, ..options })
}

fn run_prompt(session: &mut Session, n_tokens: usize, looks: &mut Looks) -> Result<Duration, EngineError> {
    let tokens = some_tokens(n_tokens, session.model().n_vocab());
    session.clear();
    let started = Instant::now();
    looks.feed(session, &tokens)?;
    Ok(started.elapsed())
}

/// Token by token behind a prompt of one; which tokens does not matter to the time.
fn run_generation(session: &mut Session, n_tokens: usize, looks: &mut Looks) -> Result<Duration, EngineError> {
    let tokens = some_tokens(n_tokens + 1, session.model().n_vocab());
    session.clear();
    looks.feed(session, &tokens[..1])?;
    let started = Instant::now();
    for n in 2..=tokens.len() {
        looks.feed(session, &tokens[..n])?;
    }
    Ok(started.elapsed())
}

/// The same every time, spread over the vocabulary.
fn some_tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    let mut state = 1_u32;
    let mut next = || {
        // Source: Numerical Recipes, "quick and dirty" linear congruential generator.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % (n_vocab.max(1) as u32)
    };
    (0..n).map(|_| next()).collect()
}

/// Times between looks at the stop button.
#[derive(Debug, Default)]
struct Looks {
    longest: Duration,
}

impl Looks {
    fn feed(&mut self, session: &mut Session, tokens: &[u32]) -> Result<(), EngineError> {
        let mut last = Instant::now();
        let mut look = || {
            self.longest = self.longest.max(last.elapsed());
            last = Instant::now();
        };
        session.feed(tokens, &mut |_| {
            look();
            Flow::Continue
        })?;
        look();
        Ok(())
    }
}

impl Series {
    fn new(n_tokens: usize, times: &[Duration]) -> Self {
        let mut samples: Vec<f64> = times.iter().map(|time| n_tokens as f64 / time.as_secs_f64().max(1e-9)).collect();
        samples.sort_by(f64::total_cmp);
        Self { n_tokens, tokens_per_s: median(&samples), samples_tokens_per_s: samples }
    }
}

/// Of sorted values; there is at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

fn print(report: &Report, terminal: &Terminal) -> anyhow::Result<()> {
    let Report { model, isa, n_threads, load_ms, prompt, generation, cancel_ms, .. } = report;
    let (pp, tg) = (format!("pp{}", prompt.n_tokens), format!("tg{}", generation.n_tokens));
    let text = Text::new(
        format!(
            "{model}, {n_threads} threads, {isa}\n\
             {pp:<8}{:>10.1} tokens/s  prompt processing\n\
             {tg:<8}{:>10.1} tokens/s  token generation\n\
             {:<8}{load_ms:>10.0} ms\n\
             {:<8}{cancel_ms:>10.1} ms        longest time until a stop is noticed",
            prompt.tokens_per_s, generation.tokens_per_s, "load", "stop",
        ),
        format!(
            "{model}，{n_threads} 个线程，{isa}\n\
             {pp:<8}{:>10.1} 词元/秒  读入提示\n\
             {tg:<8}{:>10.1} 词元/秒  生成\n\
             {:<8}{load_ms:>10.0} 毫秒  载入\n\
             {:<8}{cancel_ms:>10.1} 毫秒  停止所需的最长时间",
            prompt.tokens_per_s, generation.tokens_per_s, "load", "stop",
        ),
    );
    Ok(terminal.print_line(terminal.say(&text))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn tokens_lie_in_the_vocabulary_and_are_the_same_every_time() {
        let tokens = some_tokens(1000, 77);
        assert!(tokens.iter().all(|token| *token < 77));
        assert_eq!(tokens, some_tokens(1000, 77));
    }
}
