//! SentencePiece vocabularies with scores: text is characters, and of all neighbours that are a token together, those with
//! the best score are merged first. What no token covers is spelled in bytes.

use super::error::TokenizerError;
use super::merge::{Merged, NONE, Symbols};
use super::special::Kind;
use super::vocab::Vocabulary;
use crate::gguf::ModelFacts;

/// The scores of a vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    /// Place of each token's score among all scores, the best first; `NONE` for tokens that no text merges into.
    ranks: Vec<u32>,
    /// The token of each byte, or `NONE`.
    byte_ids: Box<[u32; 256]>,
    /// Length of the longest token; nothing longer is looked up.
    max_bytes: u32,
}

impl Spm {
    /// Reads the scores; a file without any has equal ones, as in llama.cpp.
    ///
    /// unknown   stands for bytes without a token, which are left out if there is none
    pub(super) fn new(
        facts: &ModelFacts,
        vocabulary: &Vocabulary,
        kinds: &[Kind],
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.scores";
        let n_tokens = vocabulary.n_tokens();
        let scores = facts.metadata.get_f32s(KEY)?.unwrap_or_else(|| vec![0.0; n_tokens]);
        if scores.len() < n_tokens {
            return Err(TokenizerError::TooShort { key: KEY, got: scores.len(), n_tokens });
        }
        let mut ranks = ranks(&scores[..n_tokens]);
        for (rank, kind) in ranks.iter_mut().zip(kinds) {
            // SentencePiece never makes these from text. llama.cpp would; then people could write them.
            if matches!(kind, Kind::Control | Kind::Unknown) {
                *rank = NONE;
            }
        }
        let byte_id = |byte| vocabulary.byte_token(byte).or_else(|| vocabulary.token(&[byte])).or(unknown);
        let mut byte_ids = Box::new([NONE; 256]);
        (0..=u8::MAX).for_each(|byte| byte_ids[usize::from(byte)] = byte_id(byte).unwrap_or(NONE));
        let max_bytes = vocabulary.texts().map(|text| text.len() as u32).max().unwrap_or(0);
        Ok(Self { ranks, byte_ids, max_bytes })
    }

    /// Appends the tokens of a text, whose spaces are `▁`.
    ///
    /// Cost     O(n log n) in the characters of the text
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, symbols: &mut Symbols, out: &mut Vec<u32>) {
        let bytes = text.as_bytes();
        let piece = |start: u32, end: u32| {
            if end - start > self.max_bytes {
                return None;
            }
            let id = vocabulary.token(&bytes[start as usize..end as usize])?;
            Some(Merged { rank: self.ranks[id as usize], id }).filter(|merged| merged.rank != NONE)
        };
        symbols.clear();
        for (start, c) in text.char_indices() {
            let (start, end) = (start as u32, (start + c.len_utf8()) as u32);
            symbols.push(start, end, piece(start, end).map_or(NONE, |merged| merged.id));
        }
        symbols.merge(|left, right| piece(left.start, right.end));
        for symbol in symbols.iter() {
            if symbol.id != NONE {
                out.push(symbol.id);
            } else {
                let ids =
                    bytes[symbol.start as usize..symbol.end as usize].iter().map(|b| self.byte_ids[usize::from(*b)]);
                out.extend(ids.filter(|id| *id != NONE));
            }
        }
    }
}

/// The place of each score among all different scores, from the highest.
fn ranks(scores: &[f32]) -> Vec<u32> {
    // The two zeros are one score.
    let order = |a: u32, b: u32| (scores[b as usize] + 0.0).total_cmp(&(scores[a as usize] + 0.0));
    let mut by_score: Vec<u32> = (0..scores.len() as u32).collect();
    by_score.sort_unstable_by(|a, b| order(*a, *b));
    let mut ranks = vec![0; scores.len()];
    for pair in by_score.windows(2) {
        ranks[pair[1] as usize] = ranks[pair[0] as usize] + u32::from(order(pair[0], pair[1]).is_ne());
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_have_one_rank_and_the_best_is_first() {
        assert_eq!(ranks(&[-1.0, 0.0, -0.0, 5.0, -1.0, f32::NEG_INFINITY]), [2, 1, 1, 0, 2, 3]);
        assert_eq!(ranks(&[f32::NAN, 1.0]), [0, 1]);
        assert_eq!(ranks(&[]), [0; 0]);
    }
}
