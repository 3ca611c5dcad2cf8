//! A conversation comes back as text, and text has one spelling in tokens that a model need not have chosen when it wrote.
//! What is held already is then kept as it was written, so that only what is new is computed.

use super::Tokenizer;

impl Tokenizer {
    /// Tokens that say what `asked` says, with the longest beginning that `held` has already.
    ///
    /// held     the tokens of before, as the model chose them
    /// asked    the tokens of now, as texts become
    /// Cost     O(n) in the tokens behind the first difference
    pub fn respell(&self, held: &[u32], asked: &[u32]) -> Vec<u32> {
        let n_same = held.iter().zip(asked).take_while(|(held, asked)| held == asked).count();
        if n_same == held.len() || n_same == asked.len() {
            return asked.to_vec();
        }
        let (held_said, asked_said) = (self.said(&held[n_same..]), self.said(&asked[n_same..]));
        let n_said =
            held_said.symbols.iter().zip(&asked_said.symbols).take_while(|(held, asked)| held == asked).count();
        // The last place up to which both say the same and where a token ends in both.
        let (mut n_held, mut n_asked) = (0, 0);
        let mut ends = asked_said.ends.iter().zip(1..).peekable();
        for (end, n) in held_said.ends.iter().zip(1..).take_while(|(end, _)| **end <= n_said) {
            while ends.next_if(|(asked_end, _)| *asked_end < end).is_some() {}
            if let Some((_, n_there)) = ends.next_if(|(asked_end, _)| *asked_end == end) {
                (n_held, n_asked) = (n, n_there);
            }
        }
        [&held[..n_same + n_held], &asked[n_same + n_asked..]].concat()
    }

    fn said(&self, tokens: &[u32]) -> Said {
        let mut said = Said::default();
        for &token in tokens {
            // A special token is itself and no text, whatever it looks like.
            match self.is_text(token) {
                true => said.symbols.extend(self.token_bytes(token).into_iter().map(u32::from)),
                false => said.symbols.push(0x100 + token),
            }
            said.ends.push(said.symbols.len());
        }
        said
    }
}

/// What tokens say: bytes of text, and special tokens beyond the bytes.
#[derive(Default)]
struct Said {
    symbols: Vec<u32>,
    /// Where each token ends among them.
    ends: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Array, ModelFacts, Prefix, Writer};

    fn facts_of(file: &Writer) -> ModelFacts {
        let bytes = file.to_bytes().unwrap();
        match ModelFacts::from_prefix(&bytes, bytes.len() as u64).unwrap() {
            Prefix::Complete(facts) => facts,
            Prefix::NeedMore { .. } => panic!("the whole file was given"),
        }
    }

    fn tokenizer() -> Tokenizer {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "<|end|>"];
        let kinds = [1_i32, 1, 1, 1, 1, 1, 3];
        let file = Writer::new("llama")
            .meta("tokenizer.ggml.model", "gpt2")
            .meta("tokenizer.ggml.pre", "gpt-2")
            .meta("tokenizer.ggml.tokens", Array::from_strings(tokens))
            .meta("tokenizer.ggml.token_type", Array::from_scalars(&kinds))
            .meta("tokenizer.ggml.merges", Array::from_strings(["a b", "b c", "ab c"]));
        Tokenizer::from_facts(&facts_of(&file)).unwrap()
    }

    #[test]
    fn what_was_written_otherwise_is_kept_as_it_was_written() {
        let tokenizer = tokenizer();
        const END: u32 = 6;
        for (held, asked, expected) in [
            // "abc", written as a + bc, and then more
            (&[0, 4][..], &[5, END, 0][..], &[0, 4, END, 0][..]),
            (&[0, 4, END, 1], &[5, END, 0], &[0, 4, END, 0]),
            // only the beginning says the same, and no token ends where it does
            (&[0, 4], &[3, 0], &[3, 0]),
            (&[0, 1, 1], &[3, 0], &[0, 1, 0]),
            // nothing held, or nothing new
            (&[], &[5], &[5]),
            (&[5, 0], &[5], &[5]),
            (&[5], &[5, 0], &[5, 0]),
            // a special token is no text
            (&[0, END], &[0, 5], &[0, 5]),
        ] {
            assert_eq!(tokenizer.respell(held, asked), expected, "{held:?} {asked:?}");
        }
    }
}
