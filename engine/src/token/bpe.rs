//! Byte-level byte-pair encoding: bytes are printable characters, and the pair of neighbours that was learned first is
//! merged first. Pieces are ids from the start, so that merging compares numbers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::error::TokenizerError;

/// The learned merges of a vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    n_tokens: u32,
    /// Text of a piece to its id: tokens, then pieces that merges name but the vocabulary lacks.
    ids: HashMap<Box<[u8]>, u32>,
    /// Two neighbours to the rank of their merge and the piece they make.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// The piece of each byte.
    byte_ids: [u32; 256],
    /// What a piece the vocabulary lacks is made of; by id less `n_tokens`.
    untokened: Vec<Box<[u8]>>,
}

/// Room that encoding reuses from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Merge>>,
    text: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
}

/// Ordered by rank, then leftmost; the rest says whether it is still about the symbols as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    left: u32,
    right: u32,
    left_id: u32,
    right_id: u32,
    merged_id: u32,
}

const NONE: u32 = u32::MAX;

impl Bpe {
    /// Learns a vocabulary's merges, each "left right"; the texts are as in the file.
    pub(super) fn new<'f>(
        tokens: impl Iterator<Item = &'f [u8]>,
        merges: impl Iterator<Item = &'f [u8]>,
    ) -> Result<Self, TokenizerError> {
        let mut ids = HashMap::new();
        for (id, text) in (0..).zip(tokens) {
            // Files leave gaps in a vocabulary as empty strings.
            if text.is_empty() {
                continue;
            }
            if let Some(first) = ids.insert(text.into(), id) {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(TokenizerError::DoubledToken { text, first, second: id });
            }
        }
        let n_tokens = ids.values().max().map_or(0, |id| id + 1);
        let mut bpe = Self { n_tokens, ids, merges: HashMap::new(), byte_ids: [NONE; 256], untokened: Vec::new() };
        for byte in 0..=u8::MAX {
            bpe.byte_ids[usize::from(byte)] = bpe.piece(byte_char(byte).encode_utf8(&mut [0; 4]).as_bytes());
        }
        for (rank, merge) in (0..).zip(merges) {
            let (left, right) = split_merge(merge).ok_or_else(|| TokenizerError::BadMerge {
                index: rank as usize,
                text: String::from_utf8_lossy(merge).into_owned(),
            })?;
            let pair = (bpe.piece(left), bpe.piece(right));
            let merged = bpe.piece(&[left, right].concat());
            // Where a list repeats itself, the first rank counts.
            bpe.merges.entry(pair).or_insert((rank, merged));
        }
        Ok(bpe)
    }

    /// The id of a token by its text.
    pub(super) fn token(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied().filter(|id| *id < self.n_tokens)
    }

    fn piece(&mut self, text: &[u8]) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.n_tokens + self.untokened.len() as u32;
        self.ids.insert(text.into(), id);
        self.untokened.push(text.into());
        id
    }

    /// Appends the tokens of one piece of text.
    ///
    /// Cost     O(n log n) in the bytes of the piece
    pub(super) fn encode(&self, piece: &str, ignores_merges: bool, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { symbols, queue, text } = scratch;
        if ignores_merges {
            text.clear();
            piece.bytes().for_each(|byte| push_char(text, byte_char(byte)));
            if let Some(id) = self.token(text) {
                out.push(id);
                return;
            }
        }
        symbols.clear();
        queue.clear();
        let n = piece.len() as u32;
        symbols.extend((0..n).zip(piece.bytes()).map(|(i, byte)| Symbol {
            id: self.byte_ids[usize::from(byte)],
            prev: i.checked_sub(1).unwrap_or(NONE),
            next: if i + 1 < n { i + 1 } else { NONE },
        }));
        (1..n).for_each(|right| self.enqueue(symbols, queue, right - 1, right));
        while let Some(Reverse(merge)) = queue.pop() {
            let (left, right) = (symbols[merge.left as usize], symbols[merge.right as usize]);
            if (left.id, right.id) != (merge.left_id, merge.right_id) || left.next != merge.right {
                continue;
            }
            symbols[merge.left as usize] = Symbol { id: merge.merged_id, next: right.next, ..left };
            symbols[merge.right as usize].id = NONE;
            if right.next != NONE {
                symbols[right.next as usize].prev = merge.left;
                self.enqueue(symbols, queue, merge.left, right.next);
            }
            if left.prev != NONE {
                self.enqueue(symbols, queue, left.prev, merge.left);
            }
        }
        symbols.iter().filter(|symbol| symbol.id != NONE).for_each(|symbol| self.emit(symbol.id, out));
    }

    fn enqueue(&self, symbols: &[Symbol], queue: &mut BinaryHeap<Reverse<Merge>>, left: u32, right: u32) {
        let (left_id, right_id) = (symbols[left as usize].id, symbols[right as usize].id);
        if let Some(&(rank, merged_id)) = self.merges.get(&(left_id, right_id)) {
            queue.push(Reverse(Merge { rank, left, right, left_id, right_id, merged_id }));
        }
    }

    /// A piece's token, or those of its bytes where it has none. Bytes without a token are left out.
    fn emit(&self, id: u32, out: &mut Vec<u32>) {
        match id.checked_sub(self.n_tokens) {
            None => out.push(id),
            Some(i) => {
                let text = String::from_utf8_lossy(&self.untokened[i as usize]);
                let chars = text.chars().filter_map(|c| self.token(c.encode_utf8(&mut [0; 4]).as_bytes()));
                out.extend(chars);
            }
        }
    }
}

/// "left right": cut at the first space that is not the first byte.
fn split_merge(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = 1 + merge.get(1..)?.iter().position(|byte| *byte == b' ')?;
    let (left, right) = (&merge[..at], &merge[at + 1..]);
    (!right.is_empty()).then_some((left, right))
}

fn push_char(text: &mut Vec<u8>, c: char) {
    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The printable character that stands for a byte: itself where it is printable, else one from U+0100 on, in order.
/// Source: `bytes_to_unicode` of GPT-2.
pub(super) fn byte_char(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x100 + 33 + u32::from(byte - 0x7f),
        0xad => 0x100 + 67,
    };
    char::from_u32(code).expect("all are below the surrogates")
}

/// The byte that a character stands for, if it stands for one.
pub(super) fn char_byte(c: char) -> Option<u8> {
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

    fn bpe(tokens: &[&str], merges: &[&str]) -> Bpe {
        Bpe::new(tokens.iter().map(|t| t.as_bytes()), merges.iter().map(|m| m.as_bytes())).unwrap()
    }

    fn encode(bpe: &Bpe, piece: &str) -> Vec<u32> {
        let mut out = Vec::new();
        bpe.encode(piece, false, &mut Scratch::default(), &mut out);
        out
    }

    #[test]
    fn the_merge_learned_first_wins_then_the_leftmost() {
        let bpe = bpe(&["a", "b", "c", "bc", "ab", "aa", "abc"], &["b c", "a b", "a a", "ab c", "a bc"]);
        assert_eq!(encode(&bpe, "abc"), [6]);
        assert_eq!(encode(&bpe, "aaa"), [5, 0]);
        assert_eq!(encode(&bpe, "aabc"), [5, 3]);
        assert_eq!(encode(&bpe, ""), [0; 0]);
    }

    #[test]
    fn pieces_without_a_token_fall_back_to_their_bytes() {
        let bpe = bpe(&["a", "b"], &["a b", "ab a"]);
        assert_eq!(encode(&bpe, "aba"), [0, 1, 0]);
        assert_eq!(encode(&bpe, "azb"), [0, 1]);
    }

    #[test]
    fn malformed_merges_are_named() {
        for merge in ["", "a", " a", "a "] {
            let error = Bpe::new([&b"a"[..]].into_iter(), [merge.as_bytes()].into_iter()).unwrap_err();
            assert!(matches!(error, TokenizerError::BadMerge { index: 0, .. }), "{merge:?}: {error}");
        }
        let error = Bpe::new([&b"a"[..], b"a"].into_iter(), std::iter::empty()).unwrap_err();
        assert!(matches!(error, TokenizerError::DoubledToken { first: 0, second: 1, .. }));
    }
}
