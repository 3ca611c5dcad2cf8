//! How the program ends: exit codes that scripts can rely on, and failures as people read them.
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use tandem_core::error::{Explain as _, detail, is_disk_full};
use tandem_core::wire::{ErrorCode, Failure, Text};
use tandem_engine::error::EngineError;

use crate::terminal::{Terminal, print_failure};

/// Shown below the help.
pub(crate) const HELP: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the hub cannot be reached or refuses; 4 not found, or access denied;
5 the file cannot be used as a model, or is damaged; 6 not enough memory, disk space or context; 130 stopped";

/// A failure in both languages, on its way through `anyhow`.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Failure);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message.en)
    }
}

impl std::error::Error for Refused {}

/// Anything that core can explain, for `map_err`.
pub(crate) fn refused(failure: impl Into<Failure>) -> anyhow::Error {
    Refused(failure.into()).into()
}

/// A request that cannot be met as it was written.
pub(crate) fn bad_request(message: Text, hint: Text) -> anyhow::Error {
    refused(Failure::new(ErrorCode::BadRequest, message, hint))
}

/// Ends the program that was asked for help or the version, or whose words make no sense.
pub(crate) fn instead_of_a_command(error: &clap::Error, is_json: bool) -> ! {
    if error.use_stderr() && is_json {
        print_failure(&wrong_usage(error));
    } else if let Err(unwritten) = error.print().map_err(anyhow::Error::from)
        && !is_closed_pipe(&unwritten)
    {
        let failure = unexplained(&unwritten);
        Terminal::new(None, is_json).failure(&failure);
        std::process::exit(code(failure.code).into())
    }
    std::process::exit(error.exit_code())
}

fn wrong_usage(error: &clap::Error) -> Failure {
    let said = error.to_string();
    let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Failure::new(
        ErrorCode::BadRequest,
        Text::new(said, format!("用法错误{}", detail(said))),
        Text::new("`--help` says what can be given", "使用 `--help` 查看用法"),
    )
}

/// Prints an error and says how to exit.
pub(crate) fn report(error: &anyhow::Error, terminal: &Terminal) -> ExitCode {
    if is_closed_pipe(error) {
        // Whoever read has enough.
        return ExitCode::SUCCESS;
    }
    match error.downcast_ref::<Refused>() {
        Some(Refused(failure)) => {
            terminal.failure(failure);
            ExitCode::from(code(failure.code))
        }
        None => {
            let failure = unexplained(error);
            terminal.failure(&failure);
            ExitCode::from(code(failure.code))
        }
    }
}

/// What was not explained on its way here: mostly a terminal, a pipe or a file that does not take the result.
fn unexplained(error: &anyhow::Error) -> Failure {
    if let Some(of_engine) = error.downcast_ref::<EngineError>() {
        return of_engine.explain();
    }
    let of_system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    if of_system.is_some_and(is_disk_full) {
        return Failure::new(
            ErrorCode::DiskFull,
            Text::new("the disk that the result goes to is full", "写入结果的磁盘已满"),
            Text::new("free some space on it", "在该磁盘上腾出空间"),
        );
    }
    let said = format!("{error:#}");
    let what = if error.is::<io::Error>() {
        Text::new(format!("the result cannot be written: {said}"), format!("无法写出结果{}", detail(&said)))
    } else {
        Text::new(said.clone(), format!("命令失败{}", detail(&said)))
    };
    Failure::new(ErrorCode::Io, what, Text::new("check where the output goes", "检查输出的去向"))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|io| io.kind() == ErrorKind::BrokenPipe)
}

fn code(code: ErrorCode) -> u8 {
    use ErrorCode as E;
    match code {
        E::NoNetwork | E::HubAnswerInvalid | E::HubRefused | E::RateLimited => 3,
        E::NotFound
        | E::TokenMissing
        | E::TokenWithheld
        | E::TokenWrong
        | E::LicenceNotAccepted
        | E::NoGgufInRepo
        | E::ModelMissing => 4,
        E::NotGguf
        | E::GgufTruncated
        | E::GgufDamaged
        | E::UnknownArchitecture
        | E::UnknownTensorType
        | E::UnknownTokenizer
        | E::NotAChatModel
        | E::ChecksumMismatch
        | E::ChangedUpstream => 5,
        E::OutOfMemory | E::DiskFull | E::ContextFull => 6,
        E::Cancelled => 130,
        _ => 1,
    }
}
