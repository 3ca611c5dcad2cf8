//! Logs of the app and the command line: to a file that rotates daily, and to standard error.
//!
//! They never hold what people write or models answer: nothing in this workspace logs a prompt, a token of text or a
//! key, other crates are only heard from warnings up, and of a panic the place is kept but not the message, which may
//! quote a string.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{InitError, RollingFileAppender, Rotation};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt};

/// Days of logs that are kept.
const MAX_FILES: usize = 7;
/// Where this workspace's messages come from; everything else is other people's code.
const OWN: &str = "tandem";

/// Keep it as long as the program runs: on drop, what is still to be written is written.
#[must_use]
#[derive(Debug)]
pub struct LogGuard {
    _writer: Option<WorkerGuard>,
}

/// Starts logging, once per process: a second start changes nothing.
///
/// logs_dir   folder of `tandem.<date>.log`; where it cannot be written, only standard error is used
/// console    least level on standard error
pub fn start(logs_dir: &Path, console: LevelFilter) -> LogGuard {
    let file = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("tandem")
        .filename_suffix("log")
        .max_log_files(MAX_FILES);
    // Made here, or the appender complains on standard error that there is nothing to tidy up yet.
    let file = std::fs::create_dir_all(logs_dir).map_err(LogFault::Folder).and_then(|()| Ok(file.build(logs_dir)?));
    let (file, problem) = match file {
        Ok(file) => (Some(tracing_appender::non_blocking(file)), None),
        Err(error) => (None, Some(error)),
    };
    let (to_file, guard) = file.unzip();
    let file_layer = to_file.map(|file| {
        fmt::layer().with_writer(file).with_ansi(false).with_filter(own_from(LevelFilter::INFO.max(console)))
    });
    let console_layer = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_filter(own_from(console));
    let subscriber = Registry::default().with(file_layer).with(console_layer);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        return LogGuard { _writer: None };
    }
    log_panics();
    if let Some(error) = problem {
        tracing::warn!(dir = %logs_dir.display(), %error, "logs are not written to a file");
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), os = std::env::consts::OS, "started");
    LogGuard { _writer: guard }
}

/// Why there is no log file.
#[derive(Debug, thiserror::Error)]
enum LogFault {
    #[error(transparent)]
    Folder(io::Error),
    #[error(transparent)]
    File(#[from] InitError),
}

fn own_from(level: LevelFilter) -> Targets {
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target(OWN, level)
}

/// Adds panics to the log, after whatever is done with them already.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let place = panic.location().map(ToString::to_string);
        let thread = std::thread::current().name().map(str::to_owned);
        tracing::error!(place, thread, "panic");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_heard_from_warnings_and_we_from_the_level_asked() {
        let targets = own_from(LevelFilter::DEBUG);
        assert!(targets.would_enable("tandem_core::hub", &tracing::Level::DEBUG));
        assert!(!targets.would_enable("hyper::client", &tracing::Level::INFO));
        assert!(targets.would_enable("hyper::client", &tracing::Level::WARN));
        let quiet = own_from(LevelFilter::ERROR);
        assert!(!quiet.would_enable("hyper::client", &tracing::Level::WARN));
    }

    /// One test for all, since logging starts once per process.
    #[test]
    fn the_file_holds_messages_and_places_of_panics_but_not_their_words() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("日志");
        let guard = start(&logs, LevelFilter::OFF);
        tracing::info!(answer = 42, "a message");
        let panicked = std::thread::spawn(|| panic!("the secret prompt")).join();
        assert!(panicked.is_err());
        drop(guard);
        let again = start(&dir.path().join("other"), LevelFilter::OFF);
        drop(again);
        let files: Vec<_> = std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path()).collect();
        let text = std::fs::read_to_string(&files[0]).unwrap();
        assert!(text.contains("a message") && text.contains("answer=42"), "{text}");
        assert!(text.contains("panic") && text.contains("log.rs"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
