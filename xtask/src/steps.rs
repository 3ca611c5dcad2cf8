//! Steps of a job: each is announced, timed, and stands in the summary.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How a step ended when nothing went wrong.
pub(crate) enum Outcome {
    /// As it should.
    Done,
    /// It could not be done here, for this reason.
    Skipped(String),
}

/// The steps of a job so far.
#[derive(Default)]
pub(crate) struct Steps(Vec<Step>);

struct Step {
    name: &'static str,
    took: Duration,
    end: End,
}

enum End {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Steps {
    /// A step that the rest needs: its failure ends the job.
    pub(crate) fn need<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = begin(name);
        let result = work();
        self.end(name, begun, if result.is_ok() { End::Passed } else { End::Failed(String::new()) });
        result.context(name)
    }

    /// A step that stands for itself: its failure is told, and the job goes on. Tells whether it passed.
    pub(crate) fn check(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        let begun = begin(name);
        let end = match work() {
            Ok(Outcome::Done) => End::Passed,
            Ok(Outcome::Skipped(why)) => End::Skipped(why),
            Err(error) => End::Failed(format!("{error:#}")),
        };
        let passed = !matches!(end, End::Failed(_));
        self.end(name, begun, end);
        passed
    }

    /// A step that is not even tried.
    pub(crate) fn skip(&mut self, name: &'static str, why: &str) {
        self.end(name, Instant::now(), End::Skipped(why.to_owned()));
    }

    /// Prints all steps and how they ended, and yields the job's exit code.
    pub(crate) fn summary(&self) -> Result<ExitCode> {
        let count = |wanted: fn(&End) -> bool| self.0.iter().filter(|step| wanted(&step.end)).count();
        let failed = count(|end| matches!(end, End::Failed(_)));
        let skipped = count(|end| matches!(end, End::Skipped(_)));
        let mut out = std::io::stdout().lock();
        writeln!(out)?;
        for step in &self.0 {
            writeln!(out, "{step}")?;
        }
        writeln!(out, "steps: {} passed, {failed} failed, {skipped} skipped", self.0.len() - failed - skipped)?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn end(&mut self, name: &'static str, begun: Instant, end: End) {
        let step = Step { name, took: begun.elapsed(), end };
        eprintln!("{step}");
        self.0.push(step);
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, remark) = match &self.end {
            End::Passed => ("ok", ""),
            End::Skipped(why) => ("SKIPPED", why.as_str()),
            End::Failed(why) => ("FAILED", why.as_str()),
        };
        write!(f, "{mark:>7}  {:<34} {:>7.1} s  {remark}", self.name, self.took.as_secs_f64())
    }
}

fn begin(name: &str) -> Instant {
    eprintln!("\n  ==  {name}");
    Instant::now()
}
