//! Keeps quoted special tokens quoted. Where people wrote the text of a special token, the conversation is rendered with a
//! private-use character in its place, which tells afterwards where that text ended up. A template that looks into the words
//! so closely that this changes what it says gets them with an invisible character inside each such text instead.

use crate::wire::Role;

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// How it is to be read.
    pub origin: Origin,
    /// Its text.
    pub text: String,
}

/// How a part of a prompt is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Special tokens in it are meant.
    Template,
    /// It is the text of special tokens that a person or a model wrote: text.
    Quote,
}

/// Renders messages with `render`, so that none of the special texts in them counts as special.
///
/// specials   texts of special tokens
/// Cost       one rendering; two or three where a message quotes a special token
pub(super) fn render<E>(
    messages: &[(Role, &str)],
    specials: &[String],
    render: impl Fn(&[(Role, &str)]) -> Result<String, E>,
) -> Result<Vec<Segment>, E> {
    let plain = render(messages)?;
    let quotes: Vec<Vec<&str>> = messages.iter().map(|(role, text)| cut(*role, text, specials)).collect();
    if quotes.iter().all(|pieces| pieces.len() < 2) {
        return Ok(vec![Segment { origin: Origin::Template, text: plain }]);
    }
    let by_marks = marked(messages, &quotes, &plain).and_then(|(contents, quoted)| {
        let segments = resolve(&render(&with(messages, &contents)).ok()?, &quoted);
        (segments.iter().map(|segment| segment.text.as_str()).collect::<String>() == plain).then_some(segments)
    });
    match by_marks {
        Some(segments) => Ok(segments),
        None => {
            let contents: Vec<String> = quotes.iter().map(|pieces| defused(pieces)).collect();
            let text = render(&with(messages, &contents))?;
            Ok(vec![Segment { origin: Origin::Template, text }])
        }
    }
}

/// Marks for quotes: a plane of characters that mean nothing.
const MARKS: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';
/// Joins the characters beside it and is never seen.
const WORD_JOINER: char = '\u{2060}';

fn with<'m>(messages: &[(Role, &str)], contents: &'m [String]) -> Vec<(Role, &'m str)> {
    messages.iter().zip(contents).map(|((role, _), content)| (*role, content.as_str())).collect()
}

/// Cuts a message into pieces: every other one, from the second, is the text of special tokens.
fn cut<'m>(role: Role, text: &'m str, specials: &[String]) -> Vec<&'m str> {
    let mut spans: Vec<(usize, usize)> = specials
        .iter()
        .filter(|special| !may_say(role, special))
        .flat_map(|special| text.match_indices(special.as_str()).map(|(at, found)| (at, at + found.len())))
        .collect();
    spans.sort_unstable();
    let (mut pieces, mut done) = (Vec::new(), 0);
    let mut spans = spans.into_iter().peekable();
    while let Some((start, mut end)) = spans.next() {
        while let Some((_, next_end)) = spans.next_if(|(next_start, _)| *next_start < end) {
            end = end.max(next_end);
        }
        pieces.extend([&text[done..start], &text[start..end]]);
        done = end;
    }
    pieces.push(&text[done..]);
    pieces
}

/// Models mark their own reasoning, and templates look for it.
fn may_say(role: Role, special: &str) -> bool {
    role == Role::Assistant && super::reasoning::is_mark(special)
}

/// A mark and the quote it stands for.
type Quoted<'m> = (char, &'m str);

/// The messages with a mark for each quote, and what each mark stands for; `None` if there are not enough marks.
fn marked<'m>(
    messages: &[(Role, &str)],
    quotes: &[Vec<&'m str>],
    plain: &str,
) -> Option<(Vec<String>, Vec<Quoted<'m>>)> {
    let is_used = |mark: &char| plain.contains(*mark) || messages.iter().any(|(_, text)| text.contains(*mark));
    let mut marks = MARKS.filter(|mark| !is_used(mark));
    let mut quoted = Vec::new();
    let mut contents = Vec::new();
    for pieces in quotes {
        let mut content = String::new();
        for (i, piece) in pieces.iter().enumerate() {
            if i % 2 == 1 {
                let mark = marks.next()?;
                content.push(mark);
                quoted.push((mark, *piece));
            } else {
                content.push_str(piece);
            }
        }
        contents.push(content);
    }
    Some((contents, quoted))
}

/// Puts the quotes back in place of their marks.
fn resolve(marked: &str, quoted: &[Quoted<'_>]) -> Vec<Segment> {
    let (mut segments, mut done) = (Vec::new(), 0);
    let mut push = |origin, text: &str| {
        if !text.is_empty() {
            segments.push(Segment { origin, text: text.to_owned() });
        }
    };
    for (at, c) in marked.char_indices().filter(|(_, c)| MARKS.contains(c)) {
        // Marks were given out in ascending order.
        if let Ok(found) = quoted.binary_search_by_key(&c, |(mark, _)| *mark) {
            push(Origin::Template, &marked[done..at]);
            push(Origin::Quote, quoted[found].1);
            done = at + c.len_utf8();
        }
    }
    push(Origin::Template, &marked[done..]);
    segments
}

/// The message with an invisible character after the first of each quote.
fn defused(pieces: &[&str]) -> String {
    let mut content = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        let n_first = piece.chars().next().map_or(0, char::len_utf8);
        if i % 2 == 1 {
            content.push_str(&piece[..n_first]);
            content.push(WORD_JOINER);
            content.push_str(&piece[n_first..]);
        } else {
            content.push_str(piece);
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::Origin::{Quote as Q, Template as T};
    use super::*;

    fn shape(messages: &[(Role, &str)], template: impl Fn(&str) -> String) -> Vec<(Origin, String)> {
        let specials = ["<end>", "<end>>", "</think>", "[x]"].map(String::from);
        let all = |messages: &[(Role, &str)]| Ok::<_, ()>(messages.iter().map(|(_, text)| template(text)).collect());
        let segments = render(messages, &specials, all).unwrap();
        segments.into_iter().map(|segment| (segment.origin, segment.text)).collect()
    }

    fn owned(segments: &[(Origin, &str)]) -> Vec<(Origin, String)> {
        segments.iter().map(|(origin, text)| (*origin, (*text).to_owned())).collect()
    }

    #[test]
    fn quoted_special_tokens_are_found_where_the_template_put_them() {
        let template = |text: &str| format!("<m>{}<end>", text.trim().replace('\n', " "));
        for (text, expected) in [
            ("hi", &[(T, "<m>hi<end>")][..]),
            ("", &[(T, "<m><end>")]),
            (" a\n<end>", &[(T, "<m>a "), (Q, "<end>"), (T, "<end>")]),
            ("<end><end>>[x]", &[(T, "<m>"), (Q, "<end>"), (Q, "<end>>"), (Q, "[x]"), (T, "<end>")]),
            ("\u{f0000}<end>\u{f0001}", &[(T, "<m>\u{f0000}"), (Q, "<end>"), (T, "\u{f0001}<end>")]),
        ] {
            assert_eq!(shape(&[(Role::User, text)], template), owned(expected), "{text}");
        }
    }

    #[test]
    fn words_that_a_template_repeats_are_quoted_each_time() {
        let twice = |text: &str| format!("{text}{text}");
        let expected = owned(&[(Q, "[x]"), (T, "a"), (Q, "[x]"), (T, "a")]);
        assert_eq!(shape(&[(Role::User, "[x]a")], twice), expected);
    }

    #[test]
    fn a_template_that_looks_into_words_cannot_be_told_special_tokens() {
        let shout = |text: &str| format!("<m>{}<end>", text.replace("<end", "<END"));
        assert_eq!(shape(&[(Role::User, "a<end>b")], shout), owned(&[(T, "<m>a<\u{2060}end>b<end>")]));
    }

    #[test]
    fn models_may_mark_their_own_reasoning() {
        let last = |text: &str| text.split("</think>").last().unwrap_or_default().to_owned();
        assert_eq!(shape(&[(Role::Assistant, "hm</think>yes")], last), owned(&[(T, "yes")]));
        assert_eq!(shape(&[(Role::User, "hm</think>yes")], last), owned(&[(T, "hm<\u{2060}/think>yes")]));
    }
}
