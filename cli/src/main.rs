//! `tandem`: Tandem in a terminal, thin over core and engine. What a script wants is on standard output, everything
//! else on standard error.
mod args;
mod commands;
mod exit;
mod machine;
mod open;
mod terminal;

use std::process::ExitCode;

use args::{Args, Command};
use terminal::Terminal;

fn main() -> ExitCode {
    let args = Args::read();
    let terminal = Terminal::new(args.lang, args.json);
    match run(&args, &terminal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error, &terminal),
    }
}

fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let _logs = open::logs(args);
    match &args.command {
        Command::Pull(pull) => commands::pull::run(pull, args, terminal),
        Command::List => commands::list::run(args, terminal),
        Command::Add(add) => commands::library::add(add, args, terminal),
        Command::Verify(verify) => commands::library::verify(verify, args, terminal),
        Command::Remove(remove) => commands::library::remove(remove, args, terminal),
        Command::Plan(plan) => commands::plan::run(plan, args, terminal),
        Command::Run(run) => commands::run::run(run, args, terminal),
        Command::Bench(bench) => commands::bench::run(bench, args, terminal),
        Command::Calibrate => commands::calibrate::run(args, terminal),
        Command::Predictions(predictions) => commands::predictions::run(predictions, args, terminal),
        Command::Tune(tune) => commands::tune::run(tune, args, terminal),
        Command::Tokenize(tokenize) => commands::tokenize::run(tokenize),
        Command::Logits(logits) => commands::logits::run(logits),
    }
}
