//! Bytes of tokens to text as they come: a token may end inside a character, which waits for the next.

/// Turns a stream of bytes into whole characters.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The start of a character; at most 3 bytes between calls.
    rest: Vec<u8>,
}

impl Utf8Stream {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes and returns the characters that are whole by now; bytes that can never be part of one become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.rest.len());
        let mut n_kept = 0;
        for chunk in self.rest.utf8_chunks() {
            text.push_str(chunk.valid());
            match chunk.invalid() {
                [] => {}
                start if is_last(start, &self.rest) && is_start_of_char(start) => n_kept = start.len(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.rest.drain(..self.rest.len() - n_kept);
        text
    }

    /// Ends the stream; the start of a character that never came becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// Whether `part` is the end of `whole`.
fn is_last(part: &[u8], whole: &[u8]) -> bool {
    std::ptr::eq(part.as_ptr_range().end, whole.as_ptr_range().end)
}

/// Whether more bytes can make these a character.
fn is_start_of_char(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_come_whole_however_they_are_cut() {
        let text = "a é 中 👩‍👧 \u{10ffff}";
        for n in 1..=text.len() {
            let mut stream = Utf8Stream::new();
            let pieces: Vec<String> = text.as_bytes().chunks(n).map(|bytes| stream.push(bytes)).collect();
            assert_eq!(pieces.concat() + &stream.finish(), text);
            assert!(!pieces.concat().contains('\u{fffd}'));
        }
    }

    #[test]
    fn what_is_cut_off_at_the_end_is_marked() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(&"中".as_bytes()[..2]), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_cuts_give_what_one_lossy_conversion_gives(bytes: Vec<u8>, n in 1_usize..8) {
            let mut stream = Utf8Stream::new();
            let mut text: String = bytes.chunks(n).map(|bytes| stream.push(bytes)).collect();
            text += &stream.finish();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
