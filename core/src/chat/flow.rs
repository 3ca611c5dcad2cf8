//! Bytes of tokens to the two texts of an answer: what was thought and what is said. Pure.
//!
//! `prompt` tells reasoning from text; here the text ends before a stop string, whatever tokens that comes in.

use tandem_engine::token::Utf8Stream;

use crate::prompt::{ReasoningSplit, Said};

/// An answer as it comes.
pub(super) struct AnswerFlow {
    utf8: Utf8Stream,
    split: ReasoningSplit,
    stops: Vec<String>,
    /// The end of the text, which may be the start of a stop string.
    held: String,
    is_stopped: bool,
    text: Growing,
    reasoning: Growing,
}

/// A text and how much of it has been handed out.
#[derive(Default)]
struct Growing {
    whole: String,
    n_taken: usize,
}

impl AnswerFlow {
    /// An empty answer that ends before any of `stops`.
    pub(super) fn new(split: ReasoningSplit, stops: &[String]) -> Self {
        Self {
            utf8: Utf8Stream::new(),
            split,
            stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            held: String::new(),
            is_stopped: false,
            text: Growing::default(),
            reasoning: Growing::default(),
        }
    }

    /// Takes the bytes of a token.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let whole = self.utf8.push(bytes);
        let said = self.split.push(&whole);
        self.take_in(said);
    }

    /// Nothing more comes: what was held back is text after all.
    pub(super) fn finish(&mut self) {
        let rest = self.utf8.finish();
        let mut said = self.split.push(&rest);
        said.extend(self.split.finish());
        self.take_in(said);
        let held = std::mem::take(&mut self.held);
        self.text.whole.push_str(&held);
    }

    /// Whether a stop string came.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// All that is said so far.
    pub(super) fn text(&self) -> &str {
        &self.text.whole
    }

    /// All that was thought so far.
    pub(super) fn reasoning(&self) -> &str {
        &self.reasoning.whole
    }

    /// What has been said since the last call.
    pub(super) fn take_text(&mut self) -> Option<String> {
        self.text.take()
    }

    /// What has been thought since the last call.
    pub(super) fn take_reasoning(&mut self) -> Option<String> {
        self.reasoning.take()
    }

    fn take_in(&mut self, said: Vec<Said>) {
        for piece in said {
            match piece {
                Said::Reasoning(text) => self.reasoning.whole.push_str(&text),
                Said::Answer(text) if !self.is_stopped => {
                    self.held.push_str(&text);
                    self.release();
                }
                Said::Answer(_) => {}
            }
        }
    }

    /// Lets go of what can no longer become a stop string.
    fn release(&mut self) {
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(at);
            self.text.whole.push_str(&std::mem::take(&mut self.held));
            self.is_stopped = true;
            return;
        }
        let may_begin = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let end = self.held.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(self.held.len());
        self.text.whole.extend(self.held.drain(..end));
    }
}

impl Growing {
    fn take(&mut self) -> Option<String> {
        let new = self.whole[self.n_taken..].to_owned();
        self.n_taken = self.whole.len();
        (!new.is_empty()).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use tandem_engine::gguf::{ModelFacts, Prefix, Writer};

    use super::*;
    use crate::prompt::{RenderOptions, Template};
    use crate::wire::Role;

    fn split() -> ReasoningSplit {
        let bytes = Writer::new("llama").to_bytes().unwrap();
        let Prefix::Complete(facts) = ModelFacts::from_prefix(&bytes, bytes.len() as u64).unwrap() else {
            unreachable!("the whole file was given");
        };
        let template = Template::from_facts(&facts);
        template.render(&[(Role::User, "hello")], RenderOptions::default()).unwrap().reasoning()
    }

    /// Feeds a stream in pieces of every length; all must give the same.
    fn read(stops: &[&str], stream: &str) -> (String, String) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut results = (1..=stream.len().max(1)).map(|n| {
            let mut flow = AnswerFlow::new(split(), &stops);
            let (mut text, mut reasoning) = (String::new(), String::new());
            for bytes in stream.as_bytes().chunks(n) {
                flow.push(bytes);
                text.extend(flow.take_text());
                reasoning.extend(flow.take_reasoning());
            }
            flow.finish();
            text.extend(flow.take_text());
            reasoning.extend(flow.take_reasoning());
            assert_eq!((text.as_str(), reasoning.as_str()), (flow.text(), flow.reasoning()), "pieces add up");
            (reasoning, text)
        });
        let first = results.next().unwrap();
        results.for_each(|other| assert_eq!(other, first));
        first
    }

    #[test]
    fn reasoning_and_text_come_apart_however_the_bytes_are_cut() {
        let cases = [
            ("Paris is 好 👩‍👧.", ("", "Paris is 好 👩‍👧.")),
            ("<think>so it is</think>\n\nParis", ("so it is", "Paris")),
            ("", ("", "")),
        ];
        for (stream, (reasoning, text)) in cases {
            let (got_reasoning, got_text) = read(&[], stream);
            assert_eq!((got_reasoning.as_str(), got_text.as_str()), (reasoning, text), "{stream:?}");
        }
    }

    #[test]
    fn a_stop_string_ends_the_text_and_never_shows() {
        let cases = [
            ("one\n\nUser: two", "one"),
            ("one\nUser", "one\nUser"),
            ("<|im_end|>", ""),
            ("a <|im_<|im_end|> b", "a <|im_"),
            ("<think>\nUser: no</think>yes\nUser: no", "yes"),
        ];
        for (stream, text) in cases {
            assert_eq!(read(&["\n\nUser:", "\nUser:", "<|im_end|>", ""], stream).1, text, "{stream:?}");
        }
    }
}
