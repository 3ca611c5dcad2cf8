//! Text to tokens. Comments are dropped, lines are counted.

/// A word or a sign, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: u32,
}

impl Token<'_> {
    /// Whether it is this sign or word.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// All tokens of a text. Names keep their dots, so `shfl.sync.bfly.b32` and `%tid.x` are one token.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if bytes[at].is_ascii_whitespace() {
            1
        } else {
            let length = match bytes[at] {
                b'"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
                _ => word(rest).max(rest.chars().next().map_or(1, char::len_utf8)),
            };
            found.push(Token { text: &rest[..length], line });
            length
        };
        line += rest[..length].matches('\n').count() as u32;
        at += length;
    }
    found
}

/// Bytes of the word that a text begins with.
fn word(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'_' | b'$' | b'%' | b'.' => at += 1,
            byte if byte.is_ascii_alphanumeric() => at += 1,
            b':' if at > 0 && bytes.get(at + 1) == Some(&b':') => at += 2,
            _ => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn names_keep_their_dots_and_signs_stand_alone() {
        assert_eq!(
            texts("@!%p1 ld.global.L2::128B.v2.f32 {%f1,%f2}, [%rd1+-4];"),
            [
                "@",
                "!",
                "%p1",
                "ld.global.L2::128B.v2.f32",
                "{",
                "%f1",
                ",",
                "%f2",
                "}",
                ",",
                "[",
                "%rd1",
                "+",
                "-",
                "4",
                "]",
                ";"
            ]
        );
    }

    #[test]
    fn comments_are_dropped_and_their_lines_counted() {
        let found = tokens("a // b\n/* c\nd */ $L1: \"x y\"");
        assert_eq!(
            found.iter().map(|token| (token.text, token.line)).collect::<Vec<_>>(),
            [("a", 1), ("$L1", 3), (":", 3), ("\"x y\"", 3)]
        );
    }
}
