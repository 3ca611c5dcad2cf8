//! `tandem predictions`: what was predicted for past answers and what came of it; with `--check`, a table made now: each file
//! is predicted from assumptions, then again and again from a benchmark made right before a run, with what the runs before
//! have taught and without. What lies beyond its bound is marked, and the program fails.
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tandem_core::calibrate::{self, Answered, Subject, machine_name};
use tandem_core::error::size;
use tandem_core::plan::Forecast;
use tandem_core::wire::{ErrorCode, Failure, Hardware, Measured, Outcome, Plan, Text, Wishes};
use tandem_core::{api, hardware, plan};
use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{ModelFacts, TensorType};
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

/// How far generation may be off: as assumed, and after the benchmark or answers; and memory.
const ASSUMED_BOUND: f64 = 0.25;
const CALIBRATED_BOUND: f64 = 0.10;
const MEMORY_BOUND: f64 = 0.05;

/// One file's row.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    model: String,
    architecture: String,
    quant: String,
    n_threads: u32,
    /// Nothing where memory alone was compared.
    generation: Option<Speed>,
    prompt: Option<Speed>,
    /// Main memory: as planned, and by how much the process grew, bytes.
    planned_bytes: u64,
    resident_bytes: u64,
}

/// Tokens per second as they were, and as they were predicted; medians of the rounds.
#[derive(Debug, Serialize, Deserialize)]
struct Speed {
    tokens_per_s: f64,
    assumed_tokens_per_s: f64,
    /// Predictions over what was measured in the same round.
    calibrated_ratio: f64,
    /// Nothing after a single round.
    corrected_ratio: Option<f64>,
}

impl Row {
    fn memory_ratio(&self) -> f64 {
        self.planned_bytes as f64 / self.resident_bytes as f64
    }

    /// How many figures that have a bound lie beyond it. Prompts have none.
    fn n_misses(&self) -> usize {
        let generation = self.generation.iter().flat_map(|speed| {
            let calibrated = [Some(speed.calibrated_ratio), speed.corrected_ratio].into_iter().flatten();
            let assumed = (speed.assumed_ratio(), ASSUMED_BOUND);
            std::iter::once(assumed).chain(calibrated.map(|ratio| (ratio, CALIBRATED_BOUND)))
        });
        let all = generation.chain([(self.memory_ratio(), MEMORY_BOUND)]);
        all.filter(|(ratio, bound)| is_beyond(*ratio, *bound)).count()
    }
}

/// What is no number is beyond any bound.
fn is_beyond(ratio: f64, bound: f64) -> bool {
    ratio.is_nan() || (ratio - 1.0).abs() > bound + 1e-9
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

/// Each file in a process of its own: memory that one has had would hide what the next takes.
fn check(args: &args::Predictions, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    match args.check.as_slice() {
        [path] => rows.push(check_file(path, args, global)?),
        paths => {
            for path in paths {
                terminal.note(&path.display().to_string());
                rows.extend(check_apart(path, args)?);
            }
        }
    }
    if terminal.is_json() {
        terminal.print_json(&rows)?;
    } else {
        print(&rows, terminal)?;
    }
    // A process that was started for one file leaves the judging to the one that started it.
    let n_misses: usize = rows.iter().map(Row::n_misses).sum();
    if n_misses > 0 && !args.is_part { Err(refused(beyond(n_misses))) } else { Ok(()) }
}

fn beyond(n_misses: usize) -> Failure {
    Failure::new(
        ErrorCode::EngineFailed,
        Text::new(format!("{n_misses} predictions lie beyond their bound"), format!("{n_misses} 项预测超出误差范围")),
        Text::new(
            "speed is only comparable while other programs are quiet; memory always is",
            "只有其他程序空闲时速度才可比较；内存任何时候都可比较",
        ),
    )
}

fn check_apart(path: &Path, args: &args::Predictions) -> anyhow::Result<Vec<Row>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--json", "predictions", "--is-part", "--rounds"]).arg(args.rounds.to_string());
    if let Some(n) = args.threads {
        command.arg("--threads").arg(n.to_string());
    }
    let output = command.arg("--check").arg(path).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{}: {}", path.display(), said());
    serde_json::from_slice(&output.stdout).with_context(said)
}

fn check_file(path: &Path, args: &args::Predictions, global: &Args) -> anyhow::Result<Row> {
    let before_bytes = hardware::resident_bytes();
    let mut machine = open::hardware(global, Path::new("."));
    machine.measured = Measured::default();
    if let Some(n) = args.threads {
        // As if the program might use no more.
        machine.cpu.n_allowed_cores = n.clamp(1, machine.cpu.n_allowed_cores);
    }
    let plan = planned(&open::computable(path)?, &machine)?;
    let options = plan::load_options(&plan).map_err(refused)?;
    let model = Model::load(path, &options, &mut |_| Flow::Continue).map_err(refused)?;
    let mut session = Session::new(Arc::new(model)).map_err(refused)?;
    fill(&mut session).map_err(refused)?;
    let resident_bytes = hardware::resident_bytes().saturating_sub(before_bytes);

    // Read again: beside the model's own, the header would have counted twice.
    let facts = open::computable(path)?;
    let assumed = plan::forecast(&facts, &machine, &plan).map_err(refused)?;
    let mut rounds = Rounds {
        facts: &facts,
        plan: &plan,
        machine,
        outcomes: Vec::new(),
        generation: Vec::new(),
        prompt: Vec::new(),
    };
    for _ in 0..args.rounds {
        rounds.one(&mut session)?;
    }
    Ok(Row {
        model: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        architecture: plan.architecture.clone(),
        quant: plan.quant.clone(),
        n_threads: plan.n_threads,
        generation: Speed::of(&rounds.generation, token_rate(&assumed)),
        prompt: Speed::of(&rounds.prompt, 1.0 / assumed.prompt_token_s(DEPTH as u32)),
        planned_bytes: plan.ram_bar.parts.iter().map(|part| part.bytes).sum(),
        resident_bytes,
    })
}

fn planned(facts: &ModelFacts, machine: &Hardware) -> anyhow::Result<Plan> {
    let wishes = Wishes { context_length: Some(CONTEXT as u32), ..Wishes::default() };
    plan::plan(facts, machine, &wishes).map_err(refused)
}

/// Benchmark and run, in turn: what others take of the machine, it takes of both.
struct Rounds<'a> {
    facts: &'a ModelFacts,
    plan: &'a Plan,
    machine: Hardware,
    /// What has been learned, latest first.
    outcomes: Vec<Outcome>,
    generation: Vec<Round>,
    prompt: Vec<Round>,
}

/// Tokens per second of one round.
struct Round {
    measured: f64,
    calibrated: f64,
    /// With what earlier rounds have taught; nothing in the first.
    corrected: Option<f64>,
}

impl Rounds<'_> {
    fn one(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let mut types: Vec<TensorType> = self.facts.tensors.iter().map(|tensor| tensor.tensor_type).collect();
        types.sort_unstable();
        types.dedup();
        let subject = Subject { hardware: &self.machine, folder: Path::new("."), types: &types, measure_card: None };
        let rates = calibrate::benchmark(&subject, &mut |_| Flow::Continue).map_err(refused)?;
        self.machine.measured = Measured { rates: Some(rates), corrections: Vec::new() };
        let calibrated = self.forecast()?;
        let name = machine_name(&self.machine);
        self.machine.measured.corrections = calibrate::corrections(&self.outcomes, &name, true);
        let corrected = if self.outcomes.is_empty() { None } else { Some(self.forecast()?) };
        let stats = generation(session).map_err(refused)?;
        self.generation.push(Round {
            measured: stats.generation_tokens_per_s(),
            calibrated: token_rate(&calibrated),
            corrected: corrected.as_ref().map(token_rate),
        });
        self.prompt.push(Round {
            measured: stats.prompt_tokens_per_s(),
            calibrated: 1.0 / calibrated.prompt_token_s(DEPTH as u32),
            corrected: corrected.as_ref().map(|forecast| 1.0 / forecast.prompt_token_s(DEPTH as u32)),
        });
        // As the app learns from an answer.
        let answered = Answered {
            model: "",
            forecast: &calibrated,
            machine: &name,
            is_measured: true,
            n_threads: self.plan.n_threads,
            stats: &stats,
        };
        if let Some(outcome) = calibrate::outcome(&answered) {
            self.outcomes.insert(0, outcome);
        }
        Ok(())
    }

    fn forecast(&self) -> anyhow::Result<Forecast> {
        plan::forecast(self.facts, &self.machine, self.plan).map_err(refused)
    }
}

impl Speed {
    /// Nothing of no rounds.
    fn of(rounds: &[Round], assumed_tokens_per_s: f64) -> Option<Self> {
        if rounds.is_empty() {
            return None;
        }
        let corrected = rounds.iter().filter_map(|round| Some(round.corrected? / round.measured));
        Some(Self {
            tokens_per_s: median(rounds.iter().map(|round| round.measured).collect()),
            assumed_tokens_per_s,
            calibrated_ratio: median(rounds.iter().map(|round| round.calibrated / round.measured).collect()),
            corrected_ratio: Some(median(corrected.collect())).filter(|ratio| ratio.is_finite()),
        })
    }

    fn assumed_ratio(&self) -> f64 {
        self.assumed_tokens_per_s / self.tokens_per_s
    }
}

/// The middle one; of an even number the lower of the two, and of none none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn token_rate(forecast: &Forecast) -> f64 {
    1.0 / forecast.token_s((DEPTH + N_TOKENS / 2) as u32)
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
        "                                              generation: error of the prediction     prompt: the same                        memory\n\
         model                          quant        tok/s  assumed  benchmark  corrected   tok/s  assumed  benchmark  corrected   planned  resident   error",
        "                                              生成：预测误差                          提示：预测误差                          内存\n\
         模型                           量化      词元/秒     假设       测速     修正后 词元/秒     假设       测速     修正后      计划      实际    误差",
    );
    terminal.print_line(terminal.say(&head))?;
    for row in rows {
        let name: String = row.model.chars().take(30).collect();
        terminal.print_line(&format!(
            "{name:<31}{:<10}{}{}{:>10}{:>10}{:>9}",
            row.quant,
            speed_words(row.generation.as_ref(), [ASSUMED_BOUND, CALIBRATED_BOUND]),
            speed_words(row.prompt.as_ref(), [f64::INFINITY; 2]),
            size(row.planned_bytes),
            size(row.resident_bytes),
            error_words(row.memory_ratio(), MEMORY_BOUND, 1),
        ))?;
    }
    let said = Text::new("! beyond its bound", "! 超出误差范围");
    if rows.iter().any(|row| row.n_misses() > 0) { Ok(terminal.print_line(terminal.say(&said))?) } else { Ok(()) }
}

/// bounds   of the assumption, and of what is calibrated
fn speed_words(speed: Option<&Speed>, [assumed, calibrated]: [f64; 2]) -> String {
    let Some(speed) = speed else { return format!("{:>8}{:>9}{:>11}{:>11}", "-", "-", "-", "-") };
    let corrected = speed.corrected_ratio.map_or("-".to_owned(), |ratio| error_words(ratio, calibrated, 0));
    format!(
        "{:>8.1}{:>9}{:>11}{corrected:>11}",
        speed.tokens_per_s,
        error_words(speed.assumed_ratio(), assumed, 0),
        error_words(speed.calibrated_ratio, calibrated, 0),
    )
}

/// `+12%`, with a mark beyond the bound.
fn error_words(ratio: f64, bound: f64, n_digits: usize) -> String {
    let mark = if is_beyond(ratio, bound) { "!" } else { "" };
    format!("{:+.n_digits$}%{mark}", (ratio - 1.0) * 100.0)
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
    fn what_lies_beyond_its_bound_is_marked_and_counted() {
        assert_eq!(error_words(1.099, CALIBRATED_BOUND, 0), "+10%");
        assert_eq!(error_words(0.89, CALIBRATED_BOUND, 0), "-11%!");
        assert_eq!(error_words(1.052, MEMORY_BOUND, 1), "+5.2%!");
        let speed = |assumed_tokens_per_s, calibrated_ratio, corrected_ratio| Speed {
            tokens_per_s: 10.0,
            assumed_tokens_per_s,
            calibrated_ratio,
            corrected_ratio,
        };
        let row = |generation, planned_bytes| Row {
            model: String::new(),
            architecture: String::new(),
            quant: String::new(),
            n_threads: 1,
            generation,
            prompt: Some(speed(100.0, 100.0, None)),
            planned_bytes,
            resident_bytes: 1000,
        };
        assert_eq!(row(None, 1050).n_misses(), 0);
        assert_eq!(row(None, 940).n_misses(), 1);
        assert_eq!(row(Some(speed(12.0, 1.05, Some(0.95))), 1000).n_misses(), 0);
        assert_eq!(row(Some(speed(13.0, 1.2, Some(0.8))), 1100).n_misses(), 4);
        assert_eq!(row(Some(speed(f64::NAN, 1.0, None)), 1000).n_misses(), 1, "nothing was measured");
    }

    #[test]
    fn rounds_count_by_their_middle_and_the_first_teaches_only() {
        let round = |measured, calibrated, corrected| Round { measured, calibrated, corrected };
        let rounds = [round(10.0, 20.0, None), round(10.0, 12.0, Some(11.0)), round(20.0, 22.0, Some(21.0))];
        let speed = Speed::of(&rounds, 15.0).unwrap();
        assert_eq!((speed.tokens_per_s, speed.calibrated_ratio, speed.corrected_ratio), (10.0, 1.2, Some(1.05)));
        assert_eq!(Speed::of(&rounds[..1], 1.0).unwrap().corrected_ratio, None);
        assert!(Speed::of(&[], 1.0).is_none());
    }

    #[test]
    fn tokens_lie_in_the_vocabulary() {
        assert!(tokens(1000, 77).iter().all(|token| *token < 77));
        assert_eq!(tokens(3, 0), [0, 0, 0]);
    }
}
