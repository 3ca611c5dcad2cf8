//! `tandem run`: a question from the command line or standard input, or a conversation in the terminal. Nothing of it is
//! kept: chats belong to the window.
use std::cell::OnceCell;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::Serialize;
use tandem_core::api;
use tandem_core::chat::Answer;
use tandem_core::error::detail;
use tandem_core::wire::{
    ChatEvent, EndReason, ErrorCode, Failure, GenerationStats, LoadEvent, LoadRequest, Role, Sampling, Text,
};
use tandem_engine::Flow;

use crate::args::{self, Args};
use crate::exit::{bad_request, refused};
use crate::open::{self, Opened};
use crate::terminal::{Bar, Terminal};

/// Ends a conversation, besides the end of input.
const BYE: &str = "/bye";
/// Steps of the bar while a model is loaded.
const LOAD_STEPS: f64 = 1000.0;

/// The result for a script.
#[derive(Serialize)]
struct Said<'a> {
    text: &'a str,
    reasoning: &'a str,
    end: EndReason,
    stats: &'a GenerationStats,
    /// That the model's chat template was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a Text>,
}

pub(crate) fn run(args: &args::Run, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let question = question(args)?;
    let stop = StopButton::install()?;
    let opened = open::app(global)?;
    load(&opened, args, &stop, terminal)?;
    let mut talk = Talk {
        opened: &opened,
        stop: &stop,
        terminal,
        sampling: sampling(args),
        messages: Vec::new(),
        notice: OnceCell::new(),
    };
    if let Some(system) = &args.system {
        talk.messages.push((Role::System, system.clone()));
    }
    match question {
        Some(question) => talk.ask_once(question),
        None => talk.go_on(),
    }
}

/// What to ask; nothing means a conversation.
fn question(args: &args::Run) -> anyhow::Result<Option<String>> {
    if !args.prompt.is_empty() {
        return Ok(Some(args.prompt.join(" ")));
    }
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| {
        let (en, zh) = (format!("standard input is no text: {error}"), format!("标准输入不是文本{}", detail(&error)));
        bad_request(Text::new(en, zh), Text::new("give text in UTF-8", "使用 UTF-8 编码的文本"))
    })?;
    if text.trim().is_empty() {
        let message = Text::new("there is nothing to ask", "没有要问的内容");
        let hint = Text::new("give a prompt as argument or on standard input", "通过参数或标准输入提供提示");
        return Err(bad_request(message, hint));
    }
    Ok(Some(text))
}

fn sampling(args: &args::Run) -> Sampling {
    Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
        max_tokens: args.max_tokens,
        ..Sampling::default()
    }
}

fn load(opened: &Opened, args: &args::Run, stop: &StopButton, terminal: &Terminal) -> anyhow::Result<()> {
    let model = opened.model(&args.model)?;
    let bar = terminal.bar(LOAD_STEPS as u64, Bar::Share);
    bar.set_message(model.name.clone());
    let (sender, ended) = std::sync::mpsc::channel();
    let (own_bar, own_stop) = (bar.clone(), stop.clone());
    let sink = Box::new(move |event| {
        match event {
            LoadEvent::Progress { progress } => own_bar.set_position((progress * LOAD_STEPS) as u64),
            last => drop(sender.send(last)),
        }
        own_stop.flow()
    });
    let request = LoadRequest { model_id: model.id, wishes: args.wishes.into() };
    stop.while_busy(|| opened.wait(api::load_model(&opened.app, request, sink)))?;
    bar.finish_and_clear();
    match ended.try_iter().last() {
        Some(LoadEvent::Failed { failure }) => Err(refused(failure)),
        Some(LoadEvent::Ready { plan, load_ms, given_up, .. }) => {
            if let Some(given_up) = given_up {
                terminal.note(terminal.say(&given_up));
            }
            tracing::info!(load_ms, n_threads = plan.n_threads, context = plan.context_length, "loaded");
            Ok(())
        }
        _ => Err(refused(stopped())),
    }
}

/// A conversation.
struct Talk<'a> {
    opened: &'a Opened,
    stop: &'a StopButton,
    terminal: &'a Terminal,
    sampling: Sampling,
    messages: Vec<(Role, String)>,
    /// That the model's template was replaced is said once.
    notice: OnceCell<Text>,
}

impl Talk<'_> {
    fn ask_once(&mut self, question: String) -> anyhow::Result<()> {
        let answer = self.ask(question)?;
        match answer.failure {
            Some(failure) => Err(refused(failure)),
            None if answer.end == EndReason::Stopped => Err(refused(stopped())),
            None => Ok(()),
        }
    }

    /// Line by line until the end of input; a failure ends an answer, not the conversation.
    fn go_on(&mut self) -> anyhow::Result<()> {
        let hint = Text::new("Ctrl-C stops an answer, Ctrl-D or /bye ends.", "Ctrl-C 停止回答，Ctrl-D 或 /bye 结束。");
        self.terminal.note(self.terminal.say(&hint));
        loop {
            io::stderr().write_all(b"> ")?;
            let mut line = String::new();
            if io::stdin().lock().read_line(&mut line)? == 0 || line.trim() == BYE {
                return Ok(());
            }
            if line.trim().is_empty() {
                continue;
            }
            if let Some(failure) = self.ask(line.trim().to_owned())?.failure {
                self.terminal.failure(&failure);
            }
        }
    }

    /// Asks, prints the answer as it comes, and remembers both.
    fn ask(&mut self, question: String) -> anyhow::Result<Answer> {
        self.messages.push((Role::User, question));
        let messages: Vec<(Role, &str)> = self.messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let mut fault = None;
        let mut on = |event| match self.show(event) {
            Ok(()) => self.stop.flow(),
            Err(error) => {
                fault = Some(error);
                Flow::Break
            }
        };
        let app = &self.opened.app;
        let answer = self.stop.while_busy(|| app.ask(&messages, &self.sampling, &mut on)).map_err(refused)?;
        if let Some(error) = fault {
            return Err(error.into());
        }
        self.finish(&answer)?;
        self.messages.push((Role::Assistant, answer.text.clone()));
        Ok(answer)
    }

    fn show(&self, event: ChatEvent) -> io::Result<()> {
        match event {
            ChatEvent::Notice { notice } => {
                self.notice.get_or_init(|| {
                    self.terminal.note(self.terminal.say(&notice));
                    notice
                });
                Ok(())
            }
            ChatEvent::Delta { text } if !self.terminal.is_json() => self.terminal.print(&text),
            ChatEvent::Reasoning { text } if !self.terminal.is_json() => io::stderr().write_all(text.as_bytes()),
            _ => Ok(()),
        }
    }

    fn finish(&self, answer: &Answer) -> anyhow::Result<()> {
        let Answer { text, reasoning, end, stats, .. } = answer;
        if self.terminal.is_json() {
            return self.terminal.print_json(&Said { text, reasoning, end: *end, stats, notice: self.notice.get() });
        }
        self.terminal.print_line("")?;
        self.terminal.note(self.terminal.say(&figures(stats)));
        Ok(())
    }
}

fn figures(stats: &GenerationStats) -> Text {
    let GenerationStats { n_prompt_tokens: n_prompt, n_reused_tokens: n_reused, n_generated_tokens: n, .. } = stats;
    let (rate, prompt_rate) = (stats.generation_tokens_per_s, stats.prompt_tokens_per_s);
    Text::new(
        format!(
            "[{n} tokens, {rate:.1} tokens/s; prompt {n_prompt} tokens, {n_reused} reused, {prompt_rate:.0} tokens/s]"
        ),
        format!(
            "[{n} 个词元，{rate:.1} 词元/秒；提示 {n_prompt} 个词元，复用 {n_reused} 个，{prompt_rate:.0} 词元/秒]"
        ),
    )
}

fn stopped() -> Failure {
    Failure::new(
        ErrorCode::Cancelled,
        Text::new("stopped", "已停止"),
        Text::new("run the command again to go on", "再次运行该命令"),
    )
}

/// Ctrl-C: stops what is being done; at rest, or pressed twice, it ends the program.
#[derive(Clone, Debug)]
struct StopButton(Arc<AtomicU8>);

const IDLE: u8 = 0;
const BUSY: u8 = 1;
const STOPPING: u8 = 2;

impl StopButton {
    fn install() -> anyhow::Result<Self> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let own = Arc::clone(&state);
        ctrlc::set_handler(move || {
            if own.compare_exchange(BUSY, STOPPING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                process::exit(130);
            }
        })?;
        Ok(Self(state))
    }

    /// Runs something that can be stopped.
    fn while_busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.store(BUSY, Ordering::Relaxed);
        let result = work();
        self.0.store(IDLE, Ordering::Relaxed);
        result
    }

    fn flow(&self) -> Flow {
        if self.0.load(Ordering::Relaxed) == STOPPING { Flow::Break } else { Flow::Continue }
    }
}
