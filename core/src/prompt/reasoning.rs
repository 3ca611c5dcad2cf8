//! Takes a streamed answer apart into what the model thought and what it says. Only a mark at the very start opens
//! reasoning (or the prompt has opened it); what is opened and never closed is reasoning to the end.

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// More of what the model thought.
    Reasoning(String),
    /// More of the answer.
    Answer(String),
}

/// Marks around reasoning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Marks {
    open: &'static str,
    close: &'static str,
}

/// Marks that models use. Longer ones never begin with shorter ones.
static MARKS: &[Marks] = &[
    Marks { open: "<think>", close: "</think>" },
    Marks { open: "<thinking>", close: "</thinking>" },
    Marks { open: "<seed:think>", close: "</seed:think>" },
    Marks { open: "[THINK]", close: "[/THINK]" },
];

impl Marks {
    /// The marks that the end of a prompt has opened, if it has.
    pub(super) fn opened_by(tail: &str) -> Option<&'static Self> {
        MARKS.iter().find(|marks| tail.trim_end().ends_with(marks.open))
    }
}

/// Whether this text is a mark around reasoning.
pub(super) fn is_mark(text: &str) -> bool {
    MARKS.iter().any(|marks| marks.open == text || marks.close == text)
}

/// A streamed answer being taken apart.
#[derive(Clone, Debug)]
pub struct ReasoningSplit {
    state: State,
    /// What may yet become part of a mark, or white space that may yet be dropped.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// The prompt opened reasoning; the model may open it once more.
    Opened(&'static Marks),
    /// In reasoning, of which something was said or not.
    Reasoning { marks: &'static Marks, has_begun: bool },
    /// After reasoning, nothing but white space so far.
    Closed,
    /// In the answer, where marks are plain text.
    Answer,
}

impl ReasoningSplit {
    /// A new answer, after a prompt that has opened reasoning or not.
    pub(super) fn new(opened: Option<&'static Marks>) -> Self {
        Self { state: opened.map_or(State::Start, State::Opened), held: String::new() }
    }

    /// Takes more of the answer and returns what can be said of it by now.
    pub fn push(&mut self, text: &str) -> Vec<Said> {
        self.held.push_str(text);
        let mut said = Vec::new();
        while self.step(&mut said) {}
        said
    }

    /// Ends the answer and returns the rest of it.
    pub fn finish(&mut self) -> Vec<Said> {
        let held = std::mem::take(&mut self.held);
        let rest = match std::mem::replace(&mut self.state, State::Start) {
            State::Reasoning { marks, .. } if held.trim_end().ends_with(marks.close) => {
                let words = held.trim_end();
                Said::Reasoning(words[..words.len() - marks.close.len()].trim_end().to_owned())
            }
            State::Opened(_) | State::Reasoning { .. } => Said::Reasoning(held.trim_end().to_owned()),
            State::Start | State::Answer => Said::Answer(held),
            State::Closed => Said::Answer(String::new()),
        };
        let mut said = Vec::new();
        push(&mut said, rest);
        said
    }

    /// One move of the machine; whether another may follow.
    fn step(&mut self, said: &mut Vec<Said>) -> bool {
        match self.state {
            State::Answer => {
                push(said, Said::Answer(std::mem::take(&mut self.held)));
                false
            }
            State::Closed => {
                self.drop_leading_space();
                self.go_if(!self.held.is_empty(), State::Answer)
            }
            State::Start => {
                let words = self.held.trim_start();
                if let Some(marks) = MARKS.iter().find(|marks| words.starts_with(marks.open)) {
                    self.held = words[marks.open.len()..].to_owned();
                    return self.go_if(true, State::Reasoning { marks, has_begun: false });
                }
                let may_open = MARKS.iter().any(|marks| marks.open.starts_with(words));
                self.go_if(!may_open, State::Answer)
            }
            State::Opened(marks) => {
                self.drop_leading_space();
                if let Some(after) = self.held.strip_prefix(marks.open) {
                    self.held = after.to_owned();
                    return self.go_if(true, State::Reasoning { marks, has_begun: false });
                }
                self.go_if(!marks.open.starts_with(&self.held), State::Reasoning { marks, has_begun: false })
            }
            State::Reasoning { marks, has_begun } => {
                if !has_begun {
                    self.drop_leading_space();
                }
                match find_close(&self.held, marks.close) {
                    Close::At(at) => {
                        push(said, Said::Reasoning(self.held[..at].trim_end().to_owned()));
                        self.held.drain(..at + marks.close.len());
                        self.go_if(true, State::Closed)
                    }
                    Close::NotBefore(at) => {
                        // Space before the close is dropped with it, so space waits too.
                        let n_said = self.held[..at].trim_end().len();
                        let words: String = self.held.drain(..n_said).collect();
                        self.state = State::Reasoning { marks, has_begun: has_begun || !words.is_empty() };
                        push(said, Said::Reasoning(words));
                        false
                    }
                }
            }
        }
    }

    fn go_if(&mut self, condition: bool, state: State) -> bool {
        if condition {
            self.state = state;
        }
        condition
    }

    fn drop_leading_space(&mut self) {
        let n = self.held.len() - self.held.trim_start().len();
        self.held.drain(..n);
    }
}

enum Close {
    /// The mark is here.
    At(usize),
    /// It is not before here, and may begin here.
    NotBefore(usize),
}

/// Finds the closing mark; one in back-quotes is spoken of, not meant.
fn find_close(text: &str, close: &str) -> Close {
    let mut from = 0;
    while let Some(at) = text[from..].find(close).map(|at| from + at) {
        let end = at + close.len();
        let is_quoted = text[..at].ends_with('`');
        match text[end..].chars().next() {
            Some('`') if is_quoted => from = end,
            None if is_quoted => return Close::NotBefore(at - 1),
            _ => return Close::At(at),
        }
    }
    // A back-quote before a mark must still be at hand when the mark is whole.
    let starts = (1..close.len()).rev().filter(|n| text.is_char_boundary(text.len().saturating_sub(*n)));
    let partial = starts.map(|n| &close[..n]).find(|start| text[from..].ends_with(start));
    let at = text.len() - partial.map_or(0, str::len);
    Close::NotBefore(if text[from..at].ends_with('`') { at - 1 } else { at })
}

/// Joins with what was said before, if it is of the same kind.
fn push(said: &mut Vec<Said>, more: Said) {
    match (said.last_mut(), more) {
        (_, Said::Reasoning(text) | Said::Answer(text)) if text.is_empty() => {}
        (Some(Said::Reasoning(before)), Said::Reasoning(text)) | (Some(Said::Answer(before)), Said::Answer(text)) => {
            before.push_str(&text);
        }
        (_, more) => said.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that was said, as (reasoning, answer).
    fn split(opened: Option<&'static Marks>, pieces: &[&str]) -> (String, String) {
        let mut split = ReasoningSplit::new(opened);
        let mut said: Vec<Said> = pieces.iter().flat_map(|piece| split.push(piece)).collect();
        said.extend(split.finish());
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for said in said {
            match said {
                Said::Reasoning(text) => {
                    assert!(answer.is_empty(), "reasoning after the answer began");
                    reasoning += &text;
                }
                Said::Answer(text) => answer += &text,
            }
        }
        (reasoning, answer)
    }

    #[test]
    fn answers_come_apart_however_they_are_cut() {
        let think = Some(&MARKS[0]);
        for (opened, stream, reasoning, answer) in [
            (None, "Hello", "", "Hello"),
            (None, "", "", ""),
            (None, "  indented", "", "  indented"),
            (None, "<think>\nhm\n</think>\n\nYes", "hm", "Yes"),
            (None, "\n<think>hm</think>Yes", "hm", "Yes"),
            (None, "<think>\n\n</think>\n\nYes", "", "Yes"),
            (None, "<think>a\n\nb  c</think>d", "a\n\nb  c", "d"),
            (None, "[THINK]hm[/THINK]Yes", "hm", "Yes"),
            (None, "<seed:think>hm</seed:think>Yes", "hm", "Yes"),
            (None, "<thinking>hm</thinking>Yes", "hm", "Yes"),
            (None, "<think>never closed", "never closed", ""),
            (None, "<think>half closed</thi", "half closed</thi", ""),
            (None, "<think>a </thin b</think>c", "a </thin b", "c"),
            (None, "<think>", "", ""),
            (None, "<thi", "", "<thi"),
            (None, "<thin ice", "", "<thin ice"),
            (None, "Use <think>x</think> here", "", "Use <think>x</think> here"),
            (None, "<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d"),
            (None, "<think>the tag `</think>` ends it</think>ok", "the tag `</think>` ends it", "ok"),
            (None, "<think>`x`</think>ok", "`x`", "ok"),
            (None, "<think>`</think>", "`", ""),
            (None, "<think>é中😀</think>👍", "é中😀", "👍"),
            (think, "hm</think>\nYes", "hm", "Yes"),
            (think, "\nhm\n</think>\n\nYes", "hm", "Yes"),
            (think, "<think>hm</think>Yes", "hm", "Yes"),
            (think, "</think>Yes", "", "Yes"),
            (think, "never closed", "never closed", ""),
            (think, "a<think>b</think>c", "a<think>b", "c"),
            (think, "hm</think>  \n", "hm", ""),
            (think, "", "", ""),
        ] {
            let expected = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split(opened, &[stream]), expected, "{stream:?} whole");
            for at in (0..=stream.len()).filter(|at| stream.is_char_boundary(*at)) {
                assert_eq!(split(opened, &[&stream[..at], &stream[at..]]), expected, "{stream:?} cut at {at}");
            }
            let chars: Vec<String> = stream.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(split(opened, &chars), expected, "{stream:?} in characters");
        }
    }

    #[test]
    fn reasoning_streams_before_it_is_closed() {
        let mut split = ReasoningSplit::new(None);
        assert_eq!(split.push("<think>I see"), [Said::Reasoning("I see".into())]);
        assert_eq!(split.push(" now. <"), [Said::Reasoning(" now.".into())]);
        assert_eq!(split.push("b"), [Said::Reasoning(" <b".into())]);
        assert_eq!(split.push("</think>\n"), []);
        assert_eq!(split.push("So"), [Said::Answer("So".into())]);
    }

    #[test]
    fn the_end_of_a_prompt_tells_whether_reasoning_is_open() {
        assert_eq!(Marks::opened_by("<|im_start|>assistant\n<think>\n"), Some(&MARKS[0]));
        assert_eq!(Marks::opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"), None);
        assert_eq!(Marks::opened_by("<|im_start|>assistant\n"), None);
    }
}
