//! `tandem predictions`: what was predicted for past answers and what came of it; with `--check`, a table made now: each file
//! is predicted from assumptions, from a benchmark made right before, and once more after one answer has taught its error.
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tandem_core::calibrate::{self, Answered, machine_name};
use tandem_core::error::size;
use tandem_core::wire::{Hardware, Measured, Outcome, Text, Wishes};
use tandem_core::{api, hardware, plan};
use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::model::Model;
use tandem_engine::session::Session;
use tandem_engine::worker::GenerateStats;

use crate::args::{self, Args};
use crate::exit::refused;
use crate::open;
use crate::terminal::Terminal;

/// Context of a check: all of it is filled once, so that every page of the cache is there.
const CONTEXT: usize = 512;
/// Tokens in the context while generation is measured, and tokens that are timed.
const DEPTH: usize = 256;
const N_TOKENS: usize = 64;

/// One file's row.
#[derive(Debug, Serialize)]
struct Row {
    model: String,
    architecture: String,
    quant: String,
    n_threads: u32,
    /// Tokens per second, measured once before and once after the answer that taught.
    first_tokens_per_s: f64,
    tokens_per_s: f64,
    /// Predictions of the two, tokens per second.
    assumed_tokens_per_s: f64,
    calibrated_tokens_per_s: f64,
    corrected_tokens_per_s: f64,
    /// Main memory: as planned, and by how much the process grew, bytes.
    planned_bytes: u64,
    resident_bytes: u64,
}

pub(crate) fn run(args: &args::Predictions, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    if !args.check.is_empty() {
        return check(args, global, terminal);
    }
    let opened = open::app(global)?;
    let predictions = opened.wait(api::predictions(&opened.app))?;
    if terminal.is_json() {
        return terminal.print_json(&predictions);
    }
    if predictions.outcomes.is_empty() {
        let text = Text::new("No answers yet.", "还没有回答。");
        terminal.note(terminal.say(&text));
        return Ok(());
    }
    let head = Text::new("predicted   measured   error   model", "预测        实测       误差    模型");
    terminal.print_line(terminal.say(&head))?;
    for Outcome { predicted_tokens_per_s: predicted, tokens_per_s, model, class, .. } in &predictions.outcomes {
        let error = error_percent(*predicted, *tokens_per_s);
        terminal.print_line(&format!("{predicted:>9.1}{tokens_per_s:>11.1}{error:>+7.0}%   {model} ({class})"))?;
    }
    Ok(())
}

fn check(args: &args::Predictions, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for path in &args.check {
        terminal.note(&path.display().to_string());
        rows.push(check_file(path, args.threads, global)?);
    }
    if terminal.is_json() { terminal.print_json(&rows) } else { print(&rows, terminal) }
}

fn check_file(path: &Path, n_threads: Option<u32>, global: &Args) -> anyhow::Result<Row> {
    let facts = open::computable(path)?;
    let mut machine = open::hardware(global, Path::new("."));
    machine.measured = Measured::default();
    if let Some(n) = n_threads {
        // As if the program might use no more.
        machine.cpu.n_allowed_cores = n.clamp(1, machine.cpu.n_allowed_cores);
    }
    let wishes = Wishes { context_length: Some(CONTEXT as u32), ..Wishes::default() };
    let plan = plan::plan(&facts, &machine, &wishes).map_err(refused)?;
    let options = plan::load_options(&plan).map_err(refused)?;
    let assumed = forecast_rate(&facts, &machine, plan.n_threads)?;

    let before_bytes = hardware::resident_bytes();
    let model = Model::load(path, &options, &mut |_| Flow::Continue).map_err(refused)?;
    let mut session = Session::new(Arc::new(model)).map_err(refused)?;
    fill(&mut session).map_err(refused)?;
    let resident_bytes = hardware::resident_bytes().saturating_sub(before_bytes);

    calibrate_now(&mut machine)?;
    let calibrated = forecast_rate(&facts, &machine, plan.n_threads)?;
    let first = generation(&mut session).map_err(refused)?;
    learn(&facts, &mut machine, plan.n_threads, &first)?;
    let corrected = forecast_rate(&facts, &machine, plan.n_threads)?;
    let second = generation(&mut session).map_err(refused)?;
    Ok(Row {
        model: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        architecture: plan.architecture,
        quant: plan.quant,
        n_threads: plan.n_threads,
        first_tokens_per_s: first.generation_tokens_per_s(),
        tokens_per_s: second.generation_tokens_per_s(),
        assumed_tokens_per_s: assumed,
        calibrated_tokens_per_s: calibrated,
        corrected_tokens_per_s: corrected,
        planned_bytes: plan.ram_bar.parts.iter().map(|part| part.bytes).sum(),
        resident_bytes,
    })
}

/// A benchmark takes the place of what was known.
fn calibrate_now(machine: &mut Hardware) -> anyhow::Result<()> {
    let rates = calibrate::benchmark(machine, Path::new("."), &mut |_| Flow::Continue).map_err(refused)?;
    machine.measured = Measured { rates: Some(rates), corrections: Vec::new() };
    Ok(())
}

/// As the app learns from an answer.
fn learn(facts: &ModelFacts, machine: &mut Hardware, n_threads: u32, stats: &GenerateStats) -> anyhow::Result<()> {
    let forecast = plan::forecast(facts, machine, n_threads).map_err(refused)?;
    let name = machine_name(machine);
    let answered = Answered { model: "", forecast: &forecast, machine: &name, is_measured: true, n_threads, stats };
    let outcomes: Vec<Outcome> = calibrate::outcome(&answered).into_iter().collect();
    machine.measured.corrections = calibrate::corrections(&outcomes, &name, true);
    Ok(())
}

fn forecast_rate(facts: &ModelFacts, machine: &Hardware, n_threads: u32) -> anyhow::Result<f64> {
    let forecast = plan::forecast(facts, machine, n_threads).map_err(refused)?;
    Ok(1.0 / forecast.token_s((DEPTH + N_TOKENS / 2) as u32))
}

/// A pass that touches every page: of the weights, which a load reads, and of the cache.
fn fill(session: &mut Session) -> Result<(), EngineError> {
    session.feed(&tokens(CONTEXT, session.model().n_vocab()), &mut |_| Flow::Continue).map(|_| ())
}

/// The time that a tenth of the tokens stayed below, told as if all had taken it: what other programs took of the machine
/// meanwhile does not count, as it does not in a benchmark. One thread alone is timed by what it got of the processor.
fn generation(session: &mut Session) -> Result<GenerateStats, EngineError> {
    let tokens = tokens(DEPTH + N_TOKENS, session.model().n_vocab());
    let clock = Clock::of(session.model().options().n_threads);
    session.clear();
    let started = clock.now();
    session.feed(&tokens[..DEPTH], &mut |_| Flow::Continue)?;
    let prompt_ms = (clock.now() - started).as_secs_f64() * 1e3;
    let mut times = Vec::new();
    for n in DEPTH + 1..=tokens.len() {
        let started = clock.now();
        session.feed(&tokens[..n], &mut |_| Flow::Continue)?;
        times.push((clock.now() - started).as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(GenerateStats {
        n_prompt: DEPTH,
        n_generated: N_TOKENS,
        prompt_ms,
        generation_ms: times[times.len() / 10] * (N_TOKENS - 1) as f64,
        ..GenerateStats::default()
    })
}

/// What time is told by.
enum Clock {
    Wall(Instant),
    Processor,
}

impl Clock {
    /// The processor's time is that of one thread: where several compute, the wall's.
    fn of(n_threads: usize) -> Self {
        if n_threads == 1 && processor_time().is_some() { Self::Processor } else { Self::Wall(Instant::now()) }
    }

    fn now(&self) -> Duration {
        match self {
            Self::Wall(since) => since.elapsed(),
            Self::Processor => processor_time().unwrap_or_default(),
        }
    }
}

/// What this thread has got of the processor; Linux alone tells. Source: Linux `Documentation/scheduler/sched-stats.rst`.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split_whitespace().next()?.parse().ok()?))
}

/// The same every time, spread over the vocabulary.
fn tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7919 % n_vocab.max(1)) as u32).collect()
}

fn error_percent(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0) * 100.0
}

fn print(rows: &[Row], terminal: &Terminal) -> anyhow::Result<()> {
    let head = Text::new(
        "model                               quant     tok/s   assumed  calibrated   corrected    RAM planned   resident   error",
        "模型                                量化      词元/秒 假设     测速后       修正后       计划内存      实际       误差",
    );
    terminal.print_line(terminal.say(&head))?;
    for row in rows {
        let name: String = row.model.chars().take(35).collect();
        let share = |predicted: f64, measured: f64| format!("{:>+6.0}%", error_percent(predicted, measured));
        terminal.print_line(&format!(
            "{name:<36}{:<8}{:>7.1}{:>10}{:>12}{:>12}{:>15}{:>11}{:>+7.1}%",
            row.quant,
            row.first_tokens_per_s,
            share(row.assumed_tokens_per_s, row.first_tokens_per_s),
            share(row.calibrated_tokens_per_s, row.first_tokens_per_s),
            share(row.corrected_tokens_per_s, row.tokens_per_s),
            size(row.planned_bytes),
            size(row.resident_bytes),
            error_percent(row.planned_bytes as f64, row.resident_bytes as f64),
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_what_was_measured() {
        assert_eq!(error_percent(12.0, 10.0).round(), 20.0);
        assert_eq!(error_percent(8.0, 10.0).round(), -20.0);
    }

    #[test]
    fn tokens_lie_in_the_vocabulary() {
        assert!(tokens(1000, 77).iter().all(|token| *token < 77));
        assert_eq!(tokens(3, 0), [0, 0, 0]);
    }
}
