//! What the program says and where: results on standard output, everything else on standard error, progress only where
//! somebody watches.
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tandem_core::wire::{Failure, Text};

/// Language of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lang {
    /// English
    En,
    /// 简体中文
    Zh,
}

/// The terminal, or what stands in its place.
#[derive(Debug)]
pub(crate) struct Terminal {
    lang: Lang,
    is_json: bool,
}

impl Terminal {
    /// Speaks the language given, else that of the system.
    pub(crate) fn new(lang: Option<Lang>, is_json: bool) -> Self {
        Self { lang: lang.unwrap_or_else(system_lang), is_json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// A sentence in the language chosen.
    pub(crate) fn say<'a>(&self, text: &'a Text) -> &'a str {
        match self.lang {
            Lang::En => &text.en,
            Lang::Zh => &text.zh,
        }
    }

    /// What something is, and a sentence about it.
    pub(crate) fn sentences(&self, what: &Text, why: &Text) -> String {
        let end = match self.lang {
            Lang::En => ". ",
            Lang::Zh => "。",
        };
        format!("{}{end}{}", self.say(what), self.say(why))
    }

    /// Prints a result.
    pub(crate) fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Prints a result and ends the line.
    pub(crate) fn print_line(&self, text: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{text}")
    }

    /// Prints a result for a script.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.print_line(&serde_json::to_string_pretty(value)?)?)
    }

    /// Says something aside to a person; scripts get results and failures alone.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_json {
            aside(text);
        }
    }

    /// Says what happened and what to do.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.is_json {
            return print_failure(failure);
        }
        self.error(self.say(&failure.message));
        let (hint, code) = (self.say(&failure.hint), code_name(failure));
        self.note(&format!("       {hint} ({code})"));
    }

    /// Says what a person should know, and keeps nobody from anything.
    pub(crate) fn notice(&self, notice: &Failure) {
        if self.is_json {
            return print_failure(notice);
        }
        self.note(&format!("! {}", self.sentences(&notice.message, &notice.hint)));
    }

    pub(crate) fn error(&self, message: &str) {
        self.note(&match self.lang {
            Lang::En => format!("error: {message}"),
            Lang::Zh => format!("错误：{message}"),
        });
    }

    /// A bar for `n` steps or bytes; invisible unless standard error is a terminal.
    pub(crate) fn bar(&self, n: u64, kind: Bar) -> ProgressBar {
        if self.is_json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let template = match kind {
            Bar::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta}",
            Bar::Share => "{msg} [{bar:30}] {percent}%",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(n).with_style(style.progress_chars("━╸ "));
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// A failure for a script.
pub(crate) fn print_failure(failure: &Failure) {
    aside(&serde_json::to_string(failure).unwrap_or_else(|error| error.to_string()));
}

/// Nobody is left without a result if this cannot be said.
fn aside(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    Bytes,
    Share,
}

/// The code as programs see it.
fn code_name(failure: &Failure) -> String {
    let json = serde_json::to_value(failure.code).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Chinese where the system speaks it, else English.
fn system_lang() -> Lang {
    let locale =
        ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    if locale.is_some_and(|locale| locale.starts_with("zh")) { Lang::Zh } else { Lang::En }
}
