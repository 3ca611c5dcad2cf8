//! Text to token ids and back, for the vocabularies of GGUF files. Byte-level BPE only so far; other kinds are refused by
//! name.

mod bpe;
mod error;
mod pre;
mod special;
mod utf8;

pub use error::TokenizerError;
pub use special::special_texts;
pub use utf8::Utf8Stream;

use crate::gguf::ModelFacts;
use bpe::{Bpe, Scratch};
use pre::{DefaultBos, Splitter};
use special::{Fragment, Kind, Specials};

/// Whether the engine reads vocabularies of this `tokenizer.ggml.model` and `tokenizer.ggml.pre`.
pub fn supports(model: &str, pre: Option<&str>) -> bool {
    model == BPE && pre::find(pre.unwrap_or(pre::DEFAULT)).is_some()
}

/// Whether special tokens written out in a text become those tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// They do: for text the app wrote, such as a chat template's.
    Parse,
    /// They stay text: for what people wrote. Tokens that a vocabulary defines for plain text are still found.
    Literal,
}

/// A model's vocabulary.
#[derive(Debug)]
pub struct Tokenizer {
    texts: Vec<Box<[u8]>>,
    bpe: Bpe,
    splitter: Splitter,
    ignores_merges: bool,
    specials: Specials,
    bos: Option<u32>,
    add_bos: bool,
}

impl Tokenizer {
    /// Reads the vocabulary of a model file.
    pub fn from_facts(facts: &ModelFacts) -> Result<Self, TokenizerError> {
        let model = facts.get_str("tokenizer.ggml.model")?.unwrap_or_default();
        if model != BPE {
            return Err(TokenizerError::UnknownModel { model: model.to_owned() });
        }
        let pre = facts.get_str("tokenizer.ggml.pre")?.unwrap_or_else(|| {
            tracing::warn!("the file names no pre-tokenizer: answers may be worse");
            pre::DEFAULT
        });
        let row = pre::find(pre).ok_or_else(|| TokenizerError::UnknownPre { pre: pre.to_owned() })?;
        let texts: Vec<Box<[u8]>> =
            facts.metadata.get_strings("tokenizer.ggml.tokens")?.into_iter().flatten().map(Box::from).collect();
        if texts.is_empty() {
            return Err(TokenizerError::NoTokens);
        }
        let merges = facts.metadata.get_strings("tokenizer.ggml.merges")?.into_iter().flatten();
        let bpe = Bpe::new(texts.iter().map(|text| &**text), merges)?;
        let specials = Specials::new(facts, &texts, &bpe)?;
        let default_bos = Some(DEFAULT_BOS).filter(|id| row.bos != DefaultBos::Absent && (*id as usize) < texts.len());
        let bos = specials.bos.or(default_bos);
        let asks_bos = facts.get_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(row.bos == DefaultBos::Added);
        Ok(Self {
            texts,
            bpe,
            splitter: Splitter::new(row),
            ignores_merges: row.ignores_merges,
            specials,
            bos,
            add_bos: asks_bos && bos.is_some(),
        })
    }

    /// The tokens of a text; never adds BOS.
    ///
    /// Cost     O(n log n) in the bytes of the longest word, linear in words and in the number of special tokens
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        self.encode_parts(&[(text, special)])
    }

    /// The tokens of a text whose parts differ in how special tokens are read. Words may cross from part to part; special
    /// tokens may not, so that no part can finish what another began. Never adds BOS.
    pub fn encode_parts(&self, parts: &[(&str, Special)]) -> Vec<u32> {
        let mut out = Vec::new();
        let mut scratch = Scratch::default();
        let mut run = String::new();
        for (text, special) in parts {
            for fragment in self.specials.cut(text, *special == Special::Parse) {
                match fragment {
                    Fragment::Text(text) => run.push_str(text),
                    Fragment::Token(id) => {
                        self.encode_run(&run, &mut scratch, &mut out);
                        run.clear();
                        out.push(id);
                    }
                }
            }
        }
        self.encode_run(&run, &mut scratch, &mut out);
        out
    }

    /// Text without special tokens.
    fn encode_run(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.splitter.split(text, &mut |piece| self.bpe.encode(piece, self.ignores_merges, scratch, out));
    }

    /// The token that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.specials.eos
    }

    /// The token for what has no token, if the file names one.
    pub fn unknown(&self) -> Option<u32> {
        self.specials.unknown
    }

    /// Whether a prompt begins with BOS; if so there is one.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether this token ends an answer.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.specials.ends.contains(&id)
    }

    /// Every token that ends an answer, in order.
    pub fn ends_of_generation(&self) -> impl Iterator<Item = u32> {
        self.specials.ends.iter().copied()
    }

    /// Whether this token steers and is not shown.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Kind::Control
    }

    /// The bytes that a token adds to a text; special tokens give their own text, ids beyond the vocabulary nothing.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let text = self.text(id);
        match self.kind(id) {
            Kind::Normal | Kind::Byte => {
                let mut bytes = Vec::with_capacity(text.len());
                for c in String::from_utf8_lossy(text).chars() {
                    match bpe::char_byte(c) {
                        Some(byte) => bytes.push(byte),
                        None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                bytes
            }
            Kind::Unused => Vec::new(),
            Kind::Control | Kind::UserDefined | Kind::Unknown => text.to_vec(),
        }
    }

    /// A token as the vocabulary writes it, for messages and templates.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.text(id)).into_owned()
    }

    /// The token that the vocabulary writes like this.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.bpe.token(text.as_bytes())
    }

    /// Size of the vocabulary.
    pub fn n_tokens(&self) -> usize {
        self.texts.len()
    }

    fn kind(&self, id: u32) -> Kind {
        self.specials.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).map_or(&[], |text| text)
    }
}

/// `tokenizer.ggml.model` of byte-level BPE.
const BPE: &str = "gpt2";
/// BOS of byte-level vocabularies that name none. Source: `llama-vocab.cpp` of llama.cpp.
const DEFAULT_BOS: u32 = 11;
