//! Tokens that are not text: which are special, which end a generation, and how text is cut around them.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use memchr::memmem;

use super::error::TokenizerError;
use super::vocab::Vocabulary;
use crate::gguf::{GgufError, ModelFacts};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// Source: `llama_token_type` of llama.cpp.
    fn from_id(id: i128) -> Self {
        match id {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// A vocabulary's special tokens.
#[derive(Debug)]
pub(super) struct Specials {
    pub(super) kinds: Vec<Kind>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) ends: BTreeSet<u32>,
    /// Tokens that text is cut around, longest first.
    cuts: Vec<Cut>,
    /// Finds which of them a text has, in one pass: there are thousands of them.
    present: Option<AhoCorasick>,
    /// Tokens that swallow the white space after them.
    strips_right: BTreeSet<u32>,
}

/// Ids that count where the file names none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
}

#[derive(Debug)]
struct Cut {
    id: u32,
    finder: memmem::Finder<'static>,
    /// Cut even where special tokens are not parsed.
    is_always: bool,
    strips_right: bool,
}

/// A run of text, or a special token in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

impl Specials {
    /// Reads kinds and ids, then applies what llama.cpp knows by a token's text.
    pub(super) fn new(facts: &ModelFacts, vocabulary: &Vocabulary, defaults: Defaults) -> Result<Self, TokenizerError> {
        let n_tokens = vocabulary.n_tokens();
        let written = kinds(facts, n_tokens)?;
        let mut kinds = written.clone();
        // Ids beyond the vocabulary are as good as absent.
        let is_token = |id: &u32| (*id as usize) < n_tokens;
        let id = |key: &str| -> Result<Option<u32>, GgufError> {
            Ok(facts.get_u32(&format!("tokenizer.ggml.{key}_token_id"))?.filter(is_token))
        };
        let token = |text: &str| vocabulary.token(text.as_bytes());
        let by_text = |names: &[&str]| names.iter().find_map(|name| token(name));
        let id_or_text = |key: &str, names: &[&str]| Ok::<_, GgufError>(id(key)?.or_else(|| by_text(names)));

        let bos = id("bos")?.or(defaults.bos.filter(is_token));
        let eos = id("eos")?.or(defaults.eos.filter(is_token));
        let unknown = id("unknown")?.or(defaults.unknown.filter(is_token));
        let mut ends: BTreeSet<u32> = END_TEXTS.iter().filter_map(|text| token(text)).collect();
        let end_ids =
            [id_or_text("fim_pad", FIM_PAD)?, id_or_text("fim_rep", FIM_REP)?, id_or_text("fim_sep", FIM_SEP)?];
        for id in end_ids.into_iter().flatten() {
            ends.insert(id);
        }
        for names in [FIM_PRE, FIM_SUF, FIM_MID, FIM_PAD, FIM_REP, FIM_SEP] {
            by_text(names).into_iter().for_each(|id| kinds[id as usize] = Kind::Control);
        }
        ends.iter().for_each(|id| kinds[*id as usize] = Kind::Control);
        ends.extend([eos, id("eot")?, id("eom")?].into_iter().flatten());

        for id in ALWAYS_VISIBLE.iter().filter_map(|text| token(text)) {
            kinds[id as usize] = Kind::UserDefined;
        }
        let mut not_an_end = |text: &str, kind| {
            if let Some(id) = token(text).filter(|id| ends.remove(id)) {
                kinds[id as usize] = kind;
            }
        };
        // Where calls and returns have their own ends, `<|end|>` ends a part of an answer.
        let has = |text: &str| token(text).is_some();
        if (has("<|return|>") && (has("<|call|>") || has("<|calls|>")))
            || (has("<|flush|>") && (has("<|call|>") || has("<|calls|>")))
        {
            not_an_end("<|end|>", Kind::UserDefined);
        }
        // Gemma 4 and PLaMo have `</s>` as HTML.
        let is_plamo = token("<|plamo:eos|>").is_some_and(|id| Some(id) == eos);
        if has("<|tool_response>") || is_plamo {
            not_an_end("</s>", Kind::Normal);
        }
        let mut cuts = cuts(&kinds, vocabulary);
        for cut in &mut cuts {
            // What is special in the file stays so where people write it, even if it is shown.
            cut.is_always &= written[cut.id as usize] == Kind::UserDefined;
            cut.strips_right = is_phi3(facts) && !KEEPS_SPACE.contains(&vocabulary.text(cut.id));
        }
        let present = AhoCorasick::new(cuts.iter().map(|cut| cut.finder.needle())).ok();
        let strips_right = cuts.iter().filter(|cut| cut.strips_right).map(|cut| cut.id).collect();
        Ok(Self { bos, eos, unknown, ends, cuts, present, strips_right, kinds })
    }

    /// Whether white space after this token is no part of the text.
    pub(super) fn strips_right(&self, id: u32) -> bool {
        self.strips_right.contains(&id)
    }

    /// Cuts text around special tokens: the longest are found first, wherever they are.
    ///
    /// Cost     linear in the bytes of the text and in the special tokens that are in it
    pub(super) fn cut<'t>(&self, text: &'t str, parses_all: bool) -> Vec<Fragment<'t>> {
        let mut fragments = vec![Fragment::Text(text)];
        let present: BTreeSet<usize> = match &self.present {
            Some(present) => present.find_overlapping_iter(text).map(|found| found.pattern().as_usize()).collect(),
            None => (0..self.cuts.len()).collect(),
        };
        for cut in present.into_iter().map(|i| &self.cuts[i]).filter(|cut| parses_all || cut.is_always) {
            let before = std::mem::take(&mut fragments);
            for fragment in before {
                match fragment {
                    Fragment::Text(text) => cut.apply(text, &mut fragments),
                    token => fragments.push(token),
                }
            }
        }
        fragments.retain(|fragment| *fragment != Fragment::Text(""));
        fragments
    }
}

impl Cut {
    fn apply<'t>(&self, text: &'t str, out: &mut Vec<Fragment<'t>>) {
        let mut done = 0;
        while let Some(at) = self.finder.find(&text.as_bytes()[done..]) {
            out.push(Fragment::Text(&text[done..done + at]));
            out.push(Fragment::Token(self.id));
            done += at + self.finder.needle().len();
            if self.strips_right {
                done = text.len() - strip(&text[done..]).len();
            }
        }
        out.push(Fragment::Text(&text[done..]));
    }
}

/// Without the white space at its start that a special token may swallow.
pub(super) fn strip(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// Whether this is Phi-3, whose special tokens swallow the white space after them; no key says so. Source:
/// `llama-vocab.cpp` of llama.cpp.
fn is_phi3(facts: &ModelFacts) -> bool {
    let name = facts.name().unwrap_or_default().to_ascii_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}

/// Texts that `Special::Parse` may turn into tokens and `Special::Literal` may not, without building the vocabulary.
pub fn special_texts(facts: &ModelFacts) -> Vec<String> {
    let Ok(Some(texts)) = facts.metadata.get_strings("tokenizer.ggml.tokens") else { return Vec::new() };
    let kinds = kinds(facts, texts.len()).unwrap_or_else(|_| vec![Kind::Normal; texts.len()]);
    let by_text = [END_TEXTS, FIM_PRE, FIM_SUF, FIM_MID, FIM_PAD, FIM_REP, FIM_SEP];
    let is_special = |kind: Kind, text: &str| {
        matches!(kind, Kind::Control | Kind::Unknown) || by_text.iter().any(|texts| texts.contains(&text))
    };
    let texts = texts.zip(kinds).filter_map(|(text, kind)| Some((std::str::from_utf8(text).ok()?, kind)));
    texts.filter(|(text, kind)| !text.is_empty() && is_special(*kind, text)).map(|(text, _)| text.to_owned()).collect()
}

fn kinds(facts: &ModelFacts, n_tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(array) = facts.metadata.get_array(KEY)? else { return Ok(vec![Kind::Normal; n_tokens]) };
    if array.len() < n_tokens {
        return Err(TokenizerError::TooShort { key: KEY, got: array.len(), n_tokens });
    }
    let wrong = || GgufError::WrongType {
        key: KEY.to_owned(),
        expected: "an array of integers",
        got: "other values".to_owned(),
    };
    let ids = array.scalars().ok_or_else(wrong)?.take(n_tokens);
    let kinds: Option<Vec<Kind>> = ids.map(|id| id.as_integer().map(Kind::from_id)).collect();
    Ok(kinds.ok_or_else(wrong)?)
}

/// Texts that are not UTF-8 or empty never occur in text.
fn cuts(kinds: &[Kind], vocabulary: &Vocabulary) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = (0..)
        .zip(kinds.iter().zip(vocabulary.texts()))
        .filter(|(_, (kind, _))| matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined))
        .filter(|(_, (_, text))| !text.is_empty() && std::str::from_utf8(text).is_ok())
        .map(|(id, (kind, text))| Cut {
            id,
            finder: memmem::Finder::new(text).into_owned(),
            is_always: *kind == Kind::UserDefined,
            strips_right: false,
        })
        .collect();
    cuts.sort_by_key(|cut| std::cmp::Reverse(cut.finder.needle().len()));
    cuts
}

/// Texts of tokens that end a generation, and of those that files forget to name. Source: `llama-vocab.cpp` of llama.cpp.
#[rustfmt::skip]
const END_TEXTS: &[&str] = &[
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>",
    "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>",
    "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
];
const FIM_PRE: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const FIM_SUF: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const FIM_MID: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REP: &[&str] = &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FIM_SEP: &[&str] = &["<|file_sep|>"];
/// Marks of gpt-oss's channels, which a reader of the output needs to see.
const ALWAYS_VISIBLE: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];
/// Special tokens of Phi-3 that leave the white space after them.
const KEEPS_SPACE: &[&[u8]] = &[b"<unk>", b"<s>", b"<|endoftext|>"];
