//! Text to token ids and back, for the vocabularies of GGUF files: byte-pair encoding over bytes (`gpt2`) or characters
//! (`gemma4`), and SentencePiece with scores (`llama`). Other kinds are refused by name.

mod bpe;
mod error;
mod merge;
mod pre;
mod respell;
mod special;
mod spm;
mod utf8;
mod vocab;

pub use error::TokenizerError;
pub use special::special_texts;
pub use utf8::Utf8Stream;

use crate::gguf::{ModelFacts, Value};
use bpe::{Bpe, Scratch, Spelling};
use merge::Merged;
use pre::{DefaultBos, PreRow, Splitter};
use special::{Defaults, Fragment, Kind, Specials};
use spm::Spm;
use vocab::Vocabulary;

/// Whether the engine reads vocabularies of this `tokenizer.ggml.model` and `tokenizer.ggml.pre`.
pub fn supports(model: &str, pre: Option<&str>) -> bool {
    match model {
        BPE => pre::find(pre.unwrap_or(pre::DEFAULT)).is_some(),
        SPM | pre::GEMMA4 => true,
        _ => false,
    }
}

/// Whether `tokenizer.ggml.model` says that there is no vocabulary.
pub fn is_absent(model: &str) -> bool {
    matches!(model, "" | "none" | "no_vocab")
}

/// Memory that a file's vocabulary takes once it is read, beside the header: texts with their ends, the way back from a text, kinds,
/// and scores or merges.
///
/// Cost     O(1)
pub fn n_bytes(facts: &ModelFacts) -> u64 {
    let array = |key: &str| match facts.metadata.get(key) {
        Some(Value::Array(array)) => (array.len() as u64, array.n_bytes()),
        _ => (0, 0),
    };
    let (n_tokens, text_bytes) = array("tokenizer.ggml.tokens");
    let (n_merges, _) = array("tokenizer.ggml.merges");
    let per_token = (2 * size_of::<u32>() + size_of::<Kind>()) as u64;
    let ways_back = table_bytes(n_tokens, size_of::<u32>());
    let merges = table_bytes(n_merges, size_of::<((u32, u32), Merged)>());
    text_bytes + n_tokens * per_token + ways_back + merges
}

/// A hash table of so many entries, with the byte that it keeps for each. Source: hashbrown fills seven in eight of a power of two.
fn table_bytes(n: u64, entry_bytes: usize) -> u64 {
    if n == 0 { 0 } else { (n * 8 / 7).next_power_of_two() * (entry_bytes as u64 + 1) }
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
    vocabulary: Vocabulary,
    encoding: Encoding,
    specials: Specials,
    add_bos: bool,
}

/// How text between special tokens becomes tokens.
#[derive(Debug)]
enum Encoding {
    Bpe {
        splitter: Splitter,
        bpe: Bpe,
        spelling: Spelling,
    },
    Spm {
        spm: Spm,
        /// A space goes before text that starts a prompt or follows a special token.
        adds_space: bool,
    },
}

impl Tokenizer {
    /// Reads the vocabulary of a model file.
    pub fn from_facts(facts: &ModelFacts) -> Result<Self, TokenizerError> {
        match facts.get_str("tokenizer.ggml.model")?.unwrap_or_default() {
            BPE => Self::with_merges(facts, facts.get_str("tokenizer.ggml.pre")?),
            pre::GEMMA4 => Self::with_merges(facts, Some(pre::GEMMA4)),
            SPM => Self::with_scores(facts),
            model if is_absent(model) => Err(TokenizerError::Absent),
            model => Err(TokenizerError::UnknownModel { model: model.to_owned() }),
        }
    }

    fn with_merges(facts: &ModelFacts, pre: Option<&str>) -> Result<Self, TokenizerError> {
        let pre = pre.unwrap_or_else(|| {
            tracing::warn!("the file names no pre-tokenizer: answers may be worse");
            pre::DEFAULT
        });
        let row: &PreRow = pre::find(pre).ok_or_else(|| TokenizerError::UnknownPre { pre: pre.to_owned() })?;
        let vocabulary = Vocabulary::from_facts(facts)?;
        let merges = facts.metadata.get_strings("tokenizer.ggml.merges")?;
        if merges.is_none() && !row.may_lack_merges() {
            return Err(TokenizerError::NoMerges);
        }
        let merges = merges.into_iter().flatten();
        let bpe = Bpe::new(&vocabulary, merges, row.spelling, row.ignores_merges)?;
        let default_bos = match row.bos {
            DefaultBos::Off | DefaultBos::Added => Some(DEFAULT_BOS),
            DefaultBos::Absent | DefaultBos::Forced => None,
        };
        let specials = Specials::new(facts, &vocabulary, Defaults { bos: default_bos, ..Defaults::default() })?;
        let asks_bos = match facts.get_bool(ADD_BOS)? {
            _ if row.bos == DefaultBos::Forced => true,
            Some(asks_bos) => asks_bos,
            None => row.bos == DefaultBos::Added,
        };
        let encoding = Encoding::Bpe { splitter: Splitter::new(row), bpe, spelling: row.spelling };
        Ok(Self { add_bos: asks_bos && specials.bos.is_some(), vocabulary, encoding, specials })
    }

    fn with_scores(facts: &ModelFacts) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::from_facts(facts)?;
        let specials = Specials::new(facts, &vocabulary, SPM_DEFAULTS)?;
        let spm = Spm::new(facts, &vocabulary, &specials.kinds, specials.unknown)?;
        let adds_space = facts.get_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let asks_bos = facts.get_bool(ADD_BOS)?.unwrap_or(true);
        let encoding = Encoding::Spm { spm, adds_space };
        Ok(Self { add_bos: asks_bos && specials.bos.is_some(), vocabulary, encoding, specials })
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
        let mut follows_stripping = false;
        for (text, special) in parts {
            let text = if follows_stripping { special::strip(text) } else { text };
            for fragment in self.specials.cut(text, *special == Special::Parse) {
                match fragment {
                    Fragment::Text(text) => {
                        run.push_str(text);
                        follows_stripping = false;
                    }
                    Fragment::Token(id) => {
                        self.encode_run(&run, &mut scratch, &mut out);
                        run.clear();
                        out.push(id);
                        follows_stripping = self.specials.strips_right(id);
                    }
                }
            }
        }
        self.encode_run(&run, &mut scratch, &mut out);
        out
    }

    /// Text without special tokens, from one of them or a start to the next or the end.
    fn encode_run(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        match &self.encoding {
            Encoding::Bpe { splitter, bpe, spelling: Spelling::Bytes } => {
                splitter.split(text, &mut |piece| bpe.encode(&self.vocabulary, piece, scratch, out));
            }
            Encoding::Bpe { splitter, bpe, spelling: Spelling::Characters } => {
                splitter
                    .split(&text.replace(' ', SPACE), &mut |piece| bpe.encode(&self.vocabulary, piece, scratch, out));
            }
            Encoding::Spm { spm, adds_space } => {
                let text = if *adds_space { format!(" {text}") } else { text.to_owned() };
                spm.encode(&self.vocabulary, &text.replace(' ', SPACE), &mut scratch.symbols, out);
            }
        }
    }

    /// The token that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.specials.bos
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

    /// Whether this token is part of a text, rather than a mark in it.
    fn is_text(&self, id: u32) -> bool {
        matches!(self.kind(id), Kind::Normal | Kind::Byte | Kind::Unused)
    }

    /// The bytes that a token adds to a text; special tokens give their own text, ids beyond the vocabulary nothing.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let text = self.vocabulary.text(id);
        match self.kind(id) {
            Kind::Byte if self.spelling() == Spelling::Characters => vocab::spelled_byte(text).into_iter().collect(),
            Kind::Normal | Kind::Byte => match self.spelling() {
                Spelling::Bytes => bpe::spelled_bytes(text),
                Spelling::Characters => String::from_utf8_lossy(text).replace(SPACE, " ").into_bytes(),
            },
            Kind::Unused => Vec::new(),
            Kind::Control | Kind::UserDefined | Kind::Unknown => text.to_vec(),
        }
    }

    /// A token as the vocabulary writes it, for messages and templates.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.vocabulary.text(id)).into_owned()
    }

    /// The token that the vocabulary writes like this.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.vocabulary.token(text.as_bytes())
    }

    /// Size of the vocabulary.
    pub fn n_tokens(&self) -> usize {
        self.vocabulary.n_tokens()
    }

    fn kind(&self, id: u32) -> Kind {
        self.specials.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    fn spelling(&self) -> Spelling {
        match self.encoding {
            Encoding::Bpe { spelling, .. } => spelling,
            Encoding::Spm { .. } => Spelling::Characters,
        }
    }
}

/// `tokenizer.ggml.model` of byte-level BPE.
const BPE: &str = "gpt2";
/// `tokenizer.ggml.model` of SentencePiece vocabularies with scores.
const SPM: &str = "llama";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
/// How vocabularies of characters write a space.
const SPACE: &str = "▁";
/// BOS of byte-level vocabularies that name none. Source: `llama-vocab.cpp` of llama.cpp.
const DEFAULT_BOS: u32 = 11;
/// Special tokens of SentencePiece vocabularies that name none. Source: `llama-vocab.cpp` of llama.cpp.
const SPM_DEFAULTS: Defaults = Defaults { bos: Some(1), eos: Some(2), unknown: Some(0) };
