//! A text that nobody may read over a shoulder or in a log.

use std::fmt;

/// An access token; printing it shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a token as typed or read; `None` if there is nothing in it that can be one.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_token = !text.is_empty() && text.len() <= MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(text.to_owned()))
    }

    /// The token, for the one header that carries it and the place that keeps it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its first and last characters, to tell it from another.
    pub fn hint(&self) -> String {
        let n_shown = if self.0.len() >= 16 { 4 } else { 0 };
        let prefix = if self.0.starts_with("hf_") { "hf_" } else { "" };
        format!("{prefix}••••{}", &self.0[self.0.len() - n_shown..])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Longer than any token.
const MAX_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_told_apart_but_never_shown() {
        let secret = Secret::new(" hf_abcdefghijklmnop3fQk\n").unwrap();
        assert_eq!((secret.reveal(), secret.hint().as_str()), ("hf_abcdefghijklmnop3fQk", "hf_••••3fQk"));
        assert!(!format!("{secret:?}").contains("3fQk"));
        assert_eq!(Secret::new("hf_short").unwrap().hint(), "hf_••••");
        for text in ["", "  ", "two words", "с кириллицей", &"x".repeat(2000)] {
            assert_eq!(Secret::new(text), None);
        }
    }
}
