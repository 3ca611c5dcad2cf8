//! The tokens of a vocabulary, by id and by text, as the file writes them.

use std::collections::HashMap;

use super::error::TokenizerError;
use crate::gguf::ModelFacts;

/// Tokens by id and by text.
#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: Vec<Box<[u8]>>,
    ids: HashMap<Box<[u8]>, u32>,
}

impl Vocabulary {
    pub(super) fn from_facts(facts: &ModelFacts) -> Result<Self, TokenizerError> {
        Self::new(facts.metadata.get_strings("tokenizer.ggml.tokens")?.into_iter().flatten())
    }

    pub(super) fn new<'f>(texts: impl Iterator<Item = &'f [u8]>) -> Result<Self, TokenizerError> {
        let texts: Vec<Box<[u8]>> = texts.map(Box::from).collect();
        if texts.is_empty() {
            return Err(TokenizerError::NoTokens);
        }
        let mut ids = HashMap::with_capacity(texts.len());
        for (id, text) in (0..).zip(&texts) {
            // Files leave gaps in a vocabulary as empty strings.
            if text.is_empty() {
                continue;
            }
            if let Some(first) = ids.insert(text.clone(), id) {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(TokenizerError::DoubledToken { text, first, second: id });
            }
        }
        Ok(Self { texts, ids })
    }

    /// The id of a token by its text.
    pub(super) fn token(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The token `<0xHH>` of a byte, which vocabularies have that spell in characters.
    pub(super) fn byte_token(&self, byte: u8) -> Option<u32> {
        self.token(format!("<0x{byte:02X}>").as_bytes())
    }

    /// The text of a token; empty beyond the vocabulary.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).map_or(&[], |text| text)
    }

    pub(super) fn texts(&self) -> &[Box<[u8]>] {
        &self.texts
    }

    pub(super) fn n_tokens(&self) -> usize {
        self.texts.len()
    }
}

/// The byte that a token `<0xHH>` stands for.
pub(super) fn spelled_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}
