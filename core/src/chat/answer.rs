//! One answer, from messages to text: renders the prompt, generates, and tells what comes at a pace that can be shown.
//! Knows no chat and no store: the window's chats and the HTTP server both come through here.

use std::time::{Duration, Instant};

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::worker::{AtEnd, EndReason as EngineEnd, GenerateRequest, GenerateStats};

use super::flow::AnswerFlow;
use crate::error::{Explain, context_full};
use crate::prompt::RenderOptions;
use crate::runtime::{Answering, Step, sampling};
use crate::wire::{ChatEvent, EndReason, ErrorCode, Failure, GenerationStats, Role, Sampling, Text};

/// Shortest time between two pieces of text: 30 a second are more than anybody reads.
const DELTA_EVERY: Duration = Duration::from_millis(33);
/// Shortest time between two reports of figures.
const STATS_EVERY: Duration = Duration::from_millis(300);

/// What is to be answered.
pub struct Question<'a> {
    /// The conversation, oldest first; empty messages are left out, neighbours of one role joined.
    pub messages: &'a [(Role, &'a str)],
    /// What the request, then the settings, say about sampling.
    pub sampling: &'a [&'a Sampling],
    /// Strings that end the answer, besides the model's own tokens.
    pub stops: &'a [String],
}

/// An answer as it ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What is said.
    pub text: String,
    /// What was thought before.
    pub reasoning: String,
    /// How it ended.
    pub end: EndReason,
    /// What it cost.
    pub stats: GenerationStats,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// What comes on the way: events for whoever watches, and all that is written so far.
pub struct Progress<'a> {
    /// `Notice`, `Prompt`, `Delta`, `Reasoning` or `Stats`.
    pub event: ChatEvent,
    /// All that is said so far.
    pub text: &'a str,
    /// All that was thought so far.
    pub reasoning: &'a str,
}

/// Answers. Blocks until the answer has ended.
///
/// on       gets what comes; `Break` stops
pub fn answer(engine: &Answering<'_>, question: &Question<'_>, on: &mut dyn FnMut(Progress<'_>) -> Flow) -> Answer {
    match prepare(engine, question) {
        Ok(Prepared { request, flow, notice }) => {
            let mut writer = Writer::new(flow, on);
            // Whoever has enough says so again at the next event.
            let _ = notice.map(|notice| writer.tell(ChatEvent::Notice { notice }));
            writer.write(engine, request)
        }
        Err(failure) => Answer {
            text: String::new(),
            reasoning: String::new(),
            end: end_of(&failure),
            stats: GenerationStats::default(),
            failure: Some(failure),
        },
    }
}

/// A question as the engine takes it.
struct Prepared {
    request: GenerateRequest,
    flow: AnswerFlow,
    /// Said once if the model's template was replaced.
    notice: Option<Text>,
}

/// Messages to tokens. A conversation that does not fit is refused with its numbers: nothing is dropped silently.
fn prepare(engine: &Answering<'_>, question: &Question<'_>) -> Result<Prepared, Failure> {
    let loaded = engine.loaded();
    let messages = joined(question.messages);
    let messages: Vec<(Role, &str)> = messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let prompt = loaded.template.render(&messages, RenderOptions::default())?;
    if let Some(notice) = &prompt.notice {
        tracing::info!(notice = notice.en, "the chat template was replaced");
    }
    let tokens = prompt.tokens(&loaded.tokenizer);
    if tokens.len() >= loaded.context_length {
        return Err(context_full(tokens.len(), loaded.context_length));
    }
    let mut layers = question.sampling.to_vec();
    layers.push(&loaded.recommended);
    let merged = sampling::merged(&layers);
    let request = GenerateRequest {
        tokens,
        sampler: sampling::settings(&merged),
        max_new_tokens: merged.max_tokens.map(|n| n as usize),
        at_end: AtEnd::Stop,
    };
    let flow = AnswerFlow::new(prompt.reasoning(), question.stops);
    Ok(Prepared { request, flow, notice: prompt.notice })
}

/// Without empty messages, and with neighbours of one role joined: many templates refuse both.
fn joined(messages: &[(Role, &str)]) -> Vec<(Role, String)> {
    let mut joined: Vec<(Role, String)> = Vec::new();
    for (role, text) in messages.iter().filter(|(_, text)| !text.trim().is_empty()) {
        match joined.last_mut() {
            Some((last, before)) if last == role => {
                before.push_str("\n\n");
                before.push_str(text);
            }
            _ => joined.push((*role, (*text).to_owned())),
        }
    }
    joined
}

/// Turns the engine's steps into events.
struct Writer<'a> {
    flow: AnswerFlow,
    on: &'a mut dyn FnMut(Progress<'_>) -> Flow,
    started: Instant,
    first_token: Option<Instant>,
    last_delta: Option<Instant>,
    last_stats: Option<Instant>,
    stats: GenerationStats,
}

impl<'a> Writer<'a> {
    fn new(flow: AnswerFlow, on: &'a mut dyn FnMut(Progress<'_>) -> Flow) -> Self {
        Self {
            flow,
            on,
            started: Instant::now(),
            first_token: None,
            last_delta: None,
            last_stats: None,
            stats: GenerationStats::default(),
        }
    }

    fn write(mut self, engine: &Answering<'_>, request: GenerateRequest) -> Answer {
        self.stats.n_prompt_tokens = request.tokens.len() as u32;
        let result = engine.generate(request, &mut |step| self.take(step));
        self.flow.finish();
        // It has ended whatever the caller says.
        let _ = self.show_text();
        let is_stopped_by_text = self.flow.is_stopped();
        let (end, failure) = match result {
            Ok((reason, stats)) => {
                self.stats = stats_of(&stats);
                (if is_stopped_by_text { EndReason::Complete } else { end_reason(reason) }, None)
            }
            Err(EngineError::Cancelled) => (EndReason::Stopped, None),
            Err(error) => {
                let failure = error.explain();
                (end_of(&failure), Some(failure))
            }
        };
        Answer {
            text: self.flow.text().to_owned(),
            reasoning: self.flow.reasoning().to_owned(),
            end,
            stats: self.stats,
            failure,
        }
    }

    fn take(&mut self, step: Step) -> Flow {
        match step {
            Step::Prompt { n_done, n_total, n_reused } => {
                let (n_done, n_total, n_reused) = (n_done as u32, n_total as u32, n_reused as u32);
                (self.stats.n_prompt_tokens, self.stats.n_reused_tokens) = (n_total, n_reused);
                return self.tell(ChatEvent::Prompt { n_done, n_total, n_reused });
            }
            Step::Token(bytes) => {
                self.count_token();
                self.flow.push(&bytes);
                if self.flow.is_stopped() {
                    return Flow::Break;
                }
            }
            Step::Tick => {}
        }
        if is_due(&mut self.last_delta, DELTA_EVERY) && self.show_text() == Flow::Break {
            return Flow::Break;
        }
        if self.first_token.is_some() && is_due(&mut self.last_stats, STATS_EVERY) {
            return self.tell(ChatEvent::Stats { stats: self.stats.clone() });
        }
        Flow::Continue
    }

    fn show_text(&mut self) -> Flow {
        if let Some(text) = self.flow.take_reasoning()
            && self.tell(ChatEvent::Reasoning { text }) == Flow::Break
        {
            return Flow::Break;
        }
        match self.flow.take_text() {
            Some(text) => self.tell(ChatEvent::Delta { text }),
            None => Flow::Continue,
        }
    }

    fn tell(&mut self, event: ChatEvent) -> Flow {
        (self.on)(Progress { event, text: self.flow.text(), reasoning: self.flow.reasoning() })
    }

    /// Figures while the engine has not yet given its own.
    fn count_token(&mut self) {
        let now = Instant::now();
        let first = *self.first_token.get_or_insert(now);
        let stats = &mut self.stats;
        stats.n_generated_tokens += 1;
        stats.first_token_ms = (first - self.started).as_secs_f64() * 1e3;
        stats.prompt_ms = stats.first_token_ms;
        stats.generation_ms = (now - first).as_secs_f64() * 1e3;
        stats.prompt_tokens_per_s = per_s(stats.n_prompt_tokens - stats.n_reused_tokens, stats.prompt_ms);
        stats.generation_tokens_per_s = per_s(stats.n_generated_tokens - 1, stats.generation_ms);
    }
}

/// Whether it is time again; if so, the clock starts anew.
fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= every);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

fn per_s(n_tokens: u32, ms: f64) -> f64 {
    if ms > 0.0 { f64::from(n_tokens) / ms * 1e3 } else { 0.0 }
}

fn stats_of(stats: &GenerateStats) -> GenerationStats {
    GenerationStats {
        n_prompt_tokens: stats.n_prompt as u32,
        n_reused_tokens: stats.n_reused as u32,
        n_generated_tokens: stats.n_generated as u32,
        prompt_ms: stats.prompt_ms,
        generation_ms: stats.generation_ms,
        prompt_tokens_per_s: stats.prompt_tokens_per_s(),
        generation_tokens_per_s: stats.generation_tokens_per_s(),
        first_token_ms: stats.first_token_ms,
    }
}

fn end_reason(reason: EngineEnd) -> EndReason {
    match reason {
        EngineEnd::EndOfGeneration => EndReason::Complete,
        EngineEnd::MaxTokens => EndReason::Length,
        EngineEnd::ContextFull => EndReason::ContextFull,
        EngineEnd::Stopped => EndReason::Stopped,
    }
}

fn end_of(failure: &Failure) -> EndReason {
    if failure.code == ErrorCode::ContextFull { EndReason::ContextFull } else { EndReason::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_messages_go_and_neighbours_of_one_role_are_joined() {
        let messages = [
            (Role::System, ""),
            (Role::User, "one"),
            (Role::Assistant, ""),
            (Role::User, "two"),
            (Role::Assistant, "three"),
        ];
        let expected = [(Role::User, "one\n\ntwo".to_owned()), (Role::Assistant, "three".to_owned())];
        assert_eq!(joined(&messages), expected);
    }

    #[test]
    fn the_clock_starts_anew_when_it_is_time() {
        let mut last = None;
        assert!(is_due(&mut last, Duration::from_secs(3600)));
        assert!(!is_due(&mut last, Duration::from_secs(3600)));
        assert!(is_due(&mut last, Duration::ZERO));
    }
}
