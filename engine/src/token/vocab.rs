//! The tokens of a vocabulary, by id and by text, as the file writes them.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::error::TokenizerError;
use crate::gguf::ModelFacts;

/// Tokens by id and by text. There are hundreds of thousands: all texts lie in one piece of memory, and the way back from a
/// text holds ids alone.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// All texts, one behind the other.
    bytes: Box<[u8]>,
    /// Where each text ends.
    ends: Box<[u32]>,
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl Vocabulary {
    pub(super) fn from_facts(facts: &ModelFacts) -> Result<Self, TokenizerError> {
        Self::new(facts.metadata.get_strings("tokenizer.ggml.tokens")?.into_iter().flatten())
    }

    pub(super) fn new<'f>(texts: impl Iterator<Item = &'f [u8]>) -> Result<Self, TokenizerError> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for text in texts {
            bytes.extend_from_slice(text);
            // No header is as long as that cannot count.
            ends.push(bytes.len() as u32);
        }
        if ends.is_empty() {
            return Err(TokenizerError::NoTokens);
        }
        let ids = HashTable::with_capacity(ends.len());
        let (bytes, ends) = (bytes.into_boxed_slice(), ends.into_boxed_slice());
        let mut vocabulary = Self { bytes, ends, ids, hasher: RandomState::new() };
        vocabulary.index()?;
        Ok(vocabulary)
    }

    /// Finds the way back from texts to ids.
    fn index(&mut self) -> Result<(), TokenizerError> {
        let Self { bytes, ends, ids, hasher } = self;
        for id in 0..ends.len() as u32 {
            let text = text_of(bytes, ends, id);
            // Files leave gaps in a vocabulary as empty strings.
            if text.is_empty() {
                continue;
            }
            let hash = hasher.hash_one(text);
            if let Some(&first) = ids.find(hash, |&other| text_of(bytes, ends, other) == text) {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(TokenizerError::DoubledToken { text, first, second: id });
            }
            ids.insert_unique(hash, id, |&other| hasher.hash_one(text_of(bytes, ends, other)));
        }
        Ok(())
    }

    /// The id of a token by its text.
    pub(super) fn token(&self, text: &[u8]) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(text), |&id| self.text(id) == text).copied()
    }

    /// The token `<0xHH>` of a byte, which vocabularies have that spell in characters.
    pub(super) fn byte_token(&self, byte: u8) -> Option<u32> {
        self.token(format!("<0x{byte:02X}>").as_bytes())
    }

    /// The text of a token; empty beyond the vocabulary.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        if (id as usize) < self.ends.len() { text_of(&self.bytes, &self.ends, id) } else { &[] }
    }

    /// All texts, in the order of ids.
    pub(super) fn texts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|id| text_of(&self.bytes, &self.ends, id as u32))
    }

    pub(super) fn n_tokens(&self) -> usize {
        self.ends.len()
    }
}

fn text_of<'t>(bytes: &'t [u8], ends: &[u32], id: u32) -> &'t [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start as usize..ends[id] as usize]
}

/// The byte that a token `<0xHH>` stands for.
pub(super) fn spelled_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}
