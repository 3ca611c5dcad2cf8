//! A chat's first title: the first words of its first question.

/// Most characters of a title; Han characters are twice as wide.
const MAX_WIDTH: usize = 40;

/// The first words of a text, on one line.
pub(super) fn title(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut width = 0;
    let cut = line.char_indices().find(|(_, c)| {
        width += if c.is_ascii() { 1 } else { 2 };
        width > MAX_WIDTH
    });
    let Some((cut, _)) = cut else { return line };
    let head = &line[..cut];
    let is_mid_word = line[cut..].starts_with(|c: char| c.is_ascii_alphanumeric());
    let end = head.rfind(' ').filter(|_| is_mid_word).unwrap_or(head.len());
    format!("{}…", head[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_the_first_words_on_one_line() {
        let cases = [
            ("  What is\n a tandem? ", "What is a tandem?"),
            ("Explain how photosynthesis works in simple words", "Explain how photosynthesis works in…"),
            ("中文标题中文标题中文标题中文标题中文标题中文标题", "中文标题中文标题中文标题中文标题中文标题…"),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(title(text), expected);
        }
    }
}
