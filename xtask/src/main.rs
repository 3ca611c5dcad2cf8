//! `cargo xtask run`, `test` and `kernels`: all set-up on a fresh machine, then the job.
//!
//! Set-up is the same for run and test and is done again only where something changed. Progress goes to standard error, as
//! cargo's own does; what a job yields (an answer, the summary) goes to standard output. Few dependencies, so that the
//! first sentence appears a few seconds after the first start.

mod command;
mod kernels;
mod models;
mod packages;
mod python;
mod run;
mod setup;
mod steps;
mod test;
mod toolchain;
mod ui;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask run [--hub] [--headless]    build Tandem and open its window
       cargo xtask test [--long]               everything that is checked before a change lands
       cargo xtask kernels [--check]           PTX of the engine's kernels from their CUDA C sources

run    puts a small model into the library, so that there is something to talk to. Without a display it starts one,
       asks one question through the window, prints the answer and saves a screenshot to artefacts/run.png
  --hub        serve two small models on loopback the way the hub does, and point the app there
  --headless   as without a display, even where there is one
test   formatting, lints, all tests, the interface, the end-to-end test in the real window
  --long       licences and sources too, more cases per property test, and the long soak tests
kernels  fetches NVIDIA's compiler and writes engine/src/cuda/kernels/*.ptx; Linux on x86-64 only
  --check      write nothing: compare, and assemble for cards from compute 7.5 to 12.0 without spilled registers";

/// What was asked for.
#[derive(Debug, PartialEq)]
enum Job {
    Run(run::Options),
    Test(test::Options),
    Kernels(kernels::Options),
    Help,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = parse(&args).and_then(|job| match job {
        Job::Run(options) => run::run(&Workspace::new()?, &options),
        Job::Test(options) => test::run(&Workspace::new()?, &options),
        Job::Kernels(options) => kernels::run(&Workspace::new()?, &options),
        Job::Help => {
            eprintln!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
    });
    done.unwrap_or_else(|error| {
        eprintln!("\nxtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn parse(args: &[String]) -> Result<Job> {
    let mut args = args.iter().map(String::as_str);
    let job = args.next().unwrap_or("--help");
    let flags: Vec<&str> = args.collect();
    let known = |names: &[&str]| match flags.iter().find(|flag| !names.contains(flag)) {
        Some(unknown) => bail!("`{job}` does not know `{unknown}`\n\n{USAGE}"),
        None => Ok(()),
    };
    let has = |name: &str| flags.contains(&name);
    match job {
        "run" => {
            known(&["--hub", "--headless"])?;
            Ok(Job::Run(run::Options { hub: has("--hub"), headless: has("--headless") }))
        }
        "test" => {
            known(&["--long"])?;
            Ok(Job::Test(test::Options { long: has("--long") }))
        }
        "kernels" => {
            known(&["--check"])?;
            Ok(Job::Kernels(kernels::Options { check: has("--check") }))
        }
        "help" | "--help" | "-h" => Ok(Job::Help),
        other => bail!("there is no `{other}`\n\n{USAGE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Job> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_in_any_order_are_understood() {
        let both = Job::Run(run::Options { hub: true, headless: true });
        assert_eq!(parse_line("run --headless --hub").unwrap(), both);
        assert_eq!(parse_line("test").unwrap(), Job::Test(test::Options { long: false }));
        assert_eq!(parse_line("kernels --check").unwrap(), Job::Kernels(kernels::Options { check: true }));
        assert_eq!(parse_line("").unwrap(), Job::Help);
    }

    #[test]
    fn what_is_unknown_is_named() {
        let refused = |line| parse_line(line).unwrap_err().to_string();
        assert!(refused("run --long").starts_with("`run` does not know `--long`"));
        assert!(refused("dance").starts_with("there is no `dance`"));
    }
}
