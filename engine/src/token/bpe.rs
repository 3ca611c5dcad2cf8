//! Byte-pair encoding by a list of learned merges: the pair of neighbours that was learned first is merged first. Text is
//! spelled in characters that stand for its bytes, or as it is. Pieces are ids, so that merging compares numbers.

use std::collections::HashMap;

use super::error::TokenizerError;
use super::merge::{Merged, NONE, Symbols};
use super::vocab::Vocabulary;

/// How a vocabulary writes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// One printable character per byte.
    Bytes,
    /// As it is, with `▁` for spaces; what has no token is spelled in tokens `<0xHH>`.
    Characters,
}

/// The learned merges of a vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    spelling: Spelling,
    ignores_merges: bool,
    n_tokens: u32,
    /// Two neighbours to the rank of their merge and the piece they make.
    merges: HashMap<(u32, u32), Merged>,
    /// The piece of each byte, where bytes are spelled.
    byte_ids: Vec<u32>,
    /// Pieces that merges name but the vocabulary lacks: their ids go on after its own.
    untokened: HashMap<Box<[u8]>, u32>,
    /// The tokens that are left of each of these; by id less `n_tokens`.
    parts: Vec<Vec<u32>>,
}

/// Room that encoding reuses from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) symbols: Symbols,
    text: Vec<u8>,
}

impl Bpe {
    /// Learns a vocabulary's merges, each "left right"; the texts are as in the file.
    ///
    /// ignores_merges   a piece that is a token as a whole is not merged up
    pub(super) fn new<'f>(
        vocabulary: &Vocabulary,
        merges: impl Iterator<Item = &'f [u8]>,
        spelling: Spelling,
        ignores_merges: bool,
    ) -> Result<Self, TokenizerError> {
        let mut bpe = Self {
            spelling,
            ignores_merges,
            n_tokens: vocabulary.n_tokens() as u32,
            merges: HashMap::with_capacity(merges.size_hint().0),
            byte_ids: Vec::new(),
            untokened: HashMap::new(),
            parts: Vec::new(),
        };
        if spelling == Spelling::Bytes {
            let piece = |byte| bpe.piece(vocabulary, byte_char(byte).encode_utf8(&mut [0; 4]).as_bytes());
            bpe.byte_ids = (0..=u8::MAX).map(piece).collect();
        }
        for (rank, merge) in (0..).zip(merges) {
            let (left, right) = split_merge(merge).ok_or_else(|| TokenizerError::BadMerge {
                index: rank as usize,
                text: String::from_utf8_lossy(merge).into_owned(),
            })?;
            let pair = (bpe.piece(vocabulary, left), bpe.piece(vocabulary, right));
            let id = bpe.piece(vocabulary, &[left, right].concat());
            // Where a list repeats itself, the first rank counts.
            bpe.merges.entry(pair).or_insert(Merged { rank, id });
        }
        Ok(bpe)
    }

    fn piece(&mut self, vocabulary: &Vocabulary, text: &[u8]) -> u32 {
        if let Some(id) = self.known(vocabulary, text) {
            return id;
        }
        let id = self.n_tokens + self.parts.len() as u32;
        self.untokened.insert(text.into(), id);
        self.parts.push(match self.spelling {
            Spelling::Bytes => {
                let text = String::from_utf8_lossy(text);
                text.chars().filter_map(|c| vocabulary.token(c.encode_utf8(&mut [0; 4]).as_bytes())).collect()
            }
            Spelling::Characters => text.iter().filter_map(|byte| vocabulary.byte_token(*byte)).collect(),
        });
        id
    }

    fn known(&self, vocabulary: &Vocabulary, text: &[u8]) -> Option<u32> {
        vocabulary.token(text).or_else(|| self.untokened.get(text).copied())
    }

    /// Appends the tokens of one piece of text. Bytes without a token are left out.
    ///
    /// Cost     O(n log n) in the bytes of the piece
    pub(super) fn encode(&self, vocabulary: &Vocabulary, piece: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { symbols, text } = scratch;
        if let Some(id) = self.whole(vocabulary, piece, text) {
            out.push(id);
            return;
        }
        symbols.clear();
        match self.spelling {
            Spelling::Bytes => {
                (0..).zip(piece.bytes()).for_each(|(i, byte)| symbols.push(i, i + 1, self.byte_ids[usize::from(byte)]));
            }
            Spelling::Characters => {
                for (start, c) in piece.char_indices() {
                    let end = start + c.len_utf8();
                    let id = self.known(vocabulary, &piece.as_bytes()[start..end]);
                    symbols.push(start as u32, end as u32, id.unwrap_or(NONE));
                }
            }
        }
        symbols.merge(|left, right| self.merges.get(&(left.id, right.id)).copied());
        for symbol in symbols.iter() {
            if symbol.id < self.n_tokens {
                out.push(symbol.id);
            } else if let Some(parts) = self.parts.get((symbol.id - self.n_tokens) as usize) {
                out.extend(parts);
            } else {
                let bytes = &piece.as_bytes()[symbol.start as usize..symbol.end as usize];
                out.extend(bytes.iter().filter_map(|byte| vocabulary.byte_token(*byte)));
            }
        }
    }

    /// The token of a piece that is not merged up.
    fn whole(&self, vocabulary: &Vocabulary, piece: &str, text: &mut Vec<u8>) -> Option<u32> {
        match self.spelling {
            Spelling::Bytes if self.ignores_merges => {
                text.clear();
                piece
                    .bytes()
                    .for_each(|byte| text.extend_from_slice(byte_char(byte).encode_utf8(&mut [0; 4]).as_bytes()));
                vocabulary.token(text)
            }
            Spelling::Characters if piece.bytes().all(|byte| byte == b'\n') => vocabulary.token(piece.as_bytes()),
            _ => None,
        }
    }
}

/// "left right": cut at the first space that is not the first byte.
fn split_merge(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = 1 + merge.get(1..)?.iter().position(|byte| *byte == b' ')?;
    let (left, right) = (&merge[..at], &merge[at + 1..]);
    (!right.is_empty()).then_some((left, right))
}

/// The printable character that stands for a byte: itself where it is printable, else one from U+0100 on, in order.
/// Source: `bytes_to_unicode` of GPT-2.
fn byte_char(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x100 + 33 + u32::from(byte - 0x7f),
        0xad => 0x100 + 67,
    };
    char::from_u32(code).expect("all are below the surrogates")
}

/// The bytes that a text of such characters stands for; others stand for themselves.
pub(super) fn spelled_bytes(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        match char_byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The byte that a character stands for, if it stands for one.
fn char_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_their_characters_are_one_to_one() {
        for byte in 0..=u8::MAX {
            assert_eq!(char_byte(byte_char(byte)), Some(byte));
        }
        assert_eq!((byte_char(b' '), byte_char(b'\n'), byte_char(b'a')), ('Ġ', 'Ċ', 'a'));
        assert_eq!(('\u{0}'..='\u{500}').filter(|c| char_byte(*c).is_some()).count(), 256);
    }

    fn vocabulary(tokens: &[&str]) -> Vocabulary {
        Vocabulary::new(tokens.iter().map(|token| token.as_bytes())).unwrap()
    }

    /// The tokens of a piece under these merges.
    fn encode(spelling: Spelling, tokens: &[&str], merges: &[&str], piece: &str) -> Vec<u32> {
        let vocabulary = vocabulary(tokens);
        let merges = merges.iter().map(|merge| merge.as_bytes());
        let bpe = Bpe::new(&vocabulary, merges, spelling, false).unwrap();
        let mut out = Vec::new();
        bpe.encode(&vocabulary, piece, &mut Scratch::default(), &mut out);
        out
    }

    #[test]
    fn the_merge_learned_first_wins_then_the_leftmost() {
        let tokens = ["a", "b", "c", "bc", "ab", "aa", "abc"];
        let merges = ["b c", "a b", "a a", "ab c", "a bc"];
        for spelling in [Spelling::Bytes, Spelling::Characters] {
            assert_eq!(encode(spelling, &tokens, &merges, "abc"), [6]);
            assert_eq!(encode(spelling, &tokens, &merges, "aaa"), [5, 0]);
            assert_eq!(encode(spelling, &tokens, &merges, "aabc"), [5, 3]);
            assert_eq!(encode(spelling, &tokens, &merges, ""), [0; 0]);
        }
    }

    #[test]
    fn pieces_without_a_token_fall_back_to_their_bytes() {
        assert_eq!(encode(Spelling::Bytes, &["a", "b"], &["a b", "ab a"], "aba"), [0, 1, 0]);
        assert_eq!(encode(Spelling::Bytes, &["a", "b"], &["a b", "ab a"], "azb"), [0, 1]);
        let tokens = ["<0x61>", "<0xC3>", "<0xA9>", "b", "\n\n"];
        assert_eq!(encode(Spelling::Characters, &tokens, &["a b"], "abaéz"), [0, 0, 1, 2]);
        assert_eq!(encode(Spelling::Characters, &tokens, &["a b"], "\n\n"), [4]);
    }

    #[test]
    fn malformed_merges_are_named() {
        let vocabulary = vocabulary(&["a"]);
        for merge in ["", "a", " a", "a "] {
            let error = Bpe::new(&vocabulary, [merge.as_bytes()].into_iter(), Spelling::Bytes, false).unwrap_err();
            assert!(matches!(error, TokenizerError::BadMerge { index: 0, .. }), "{merge:?}: {error}");
        }
        let error = Vocabulary::new([&b"a"[..], b"a"].into_iter()).unwrap_err();
        assert!(matches!(error, TokenizerError::DoubledToken { first: 0, second: 1, .. }));
    }
}
