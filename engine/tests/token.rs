//! Tokenizers on small vocabularies: every pre-tokenizer against llama.cpp, and what malformed vocabularies do.
//! Goldens: `tests/goldens/make_small_vocab.py`.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value as Json;
use tandem_engine::gguf::{Array, ModelFacts, Prefix, Value, Writer};
use tandem_engine::token::{Special, Tokenizer, TokenizerError};

const VOCAB: &[u8] = include_bytes!("../../tests/data/vocab-small.gguf");
const CORPUS: &str = include_str!("../../tests/data/token-corpus.jsonl");
const GOLDENS: &str = include_str!("../../tests/data/token-goldens-rules.jsonl");
const SPM: &[u8] = include_bytes!("../../tests/data/vocab-small-spm.gguf");
const GEMMA4: &[u8] = include_bytes!("../../tests/data/vocab-small-gemma4.gguf");
const CHARACTER_GOLDENS: &str = include_str!("../../tests/data/token-goldens-characters.jsonl");

fn read(bytes: &[u8]) -> ModelFacts {
    match ModelFacts::from_prefix(bytes, bytes.len() as u64) {
        Ok(Prefix::Complete(facts)) => facts,
        other => panic!("a fixture is whole: {other:?}"),
    }
}

/// A vocabulary with some keys replaced; `None` leaves a key out.
fn with(vocabulary: &[u8], changes: &[(&str, Option<Value>)]) -> ModelFacts {
    let kept = read(vocabulary);
    let kept = kept.metadata.iter().filter(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
    let writer = kept.fold(Writer::default(), |writer, (key, value)| writer.meta(key, value.clone()));
    let writer = changes.iter().fold(writer, |writer, (key, value)| match value {
        Some(value) => writer.meta(key, value.clone()),
        None => writer,
    });
    read(&writer.to_bytes().expect("a fixture can be written"))
}

fn tokenizer(changes: &[(&str, Option<Value>)]) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_facts(&with(VOCAB, changes))
}

fn spm(changes: &[(&str, Option<Value>)]) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_facts(&with(SPM, changes))
}

fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
    String::from_utf8(bytes).expect("whole characters went in")
}

fn corpus() -> Vec<String> {
    let text = |line: &str| serde_json::from_str::<Json>(line).expect("JSON lines")["text"].as_str().map(str::to_owned);
    CORPUS.lines().map(|line| text(line).expect("each line has a text")).collect()
}

#[test]
fn every_rule_gives_the_ids_of_llama_cpp() {
    let corpus = corpus();
    for line in GOLDENS.lines() {
        let golden: Json = serde_json::from_str(line).unwrap();
        let pre = golden["pre"].as_str().unwrap();
        let tokenizer = tokenizer(&[("tokenizer.ggml.pre", Some(pre.into()))]).unwrap();
        let texts: Vec<&String> = corpus.iter().filter(|text| text.chars().count() <= 100).collect();
        let goldens = golden["ids"].as_array().unwrap();
        assert_eq!(texts.len(), goldens.len(), "the goldens are older than the corpus");
        for (text, golden) in texts.into_iter().zip(goldens) {
            assert_eq!(Json::from(tokenizer.encode(text, Special::Parse)), *golden, "{pre}: {text:?}");
        }
    }
}

#[test]
fn vocabularies_of_characters_give_the_ids_of_llama_cpp() {
    let corpus = corpus();
    let texts: Vec<&String> = corpus.iter().filter(|text| text.chars().count() <= 100).collect();
    for line in CHARACTER_GOLDENS.lines() {
        let golden: Json = serde_json::from_str(line).unwrap();
        let changes = golden["changes"].as_object().unwrap();
        let changes: Vec<(&str, Option<Value>)> = changes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_bool().map(Value::from).or(value.as_str().map(Value::from))))
            .collect();
        let vocabulary = if golden["vocabulary"] == "spm" { SPM } else { GEMMA4 };
        let tokenizer = Tokenizer::from_facts(&with(vocabulary, &changes)).unwrap();
        for (special, key) in [(Special::Parse, "parse"), (Special::Literal, "literal")] {
            let goldens = golden[key].as_array().unwrap();
            assert_eq!(texts.len(), goldens.len(), "the goldens are older than the corpus");
            for (text, golden) in texts.iter().zip(goldens) {
                assert_eq!(Json::from(tokenizer.encode(text, special)), *golden, "{changes:?} {key}: {text:?}");
            }
        }
    }
}

#[test]
fn no_pre_tokenizer_means_the_default() {
    let absent = tokenizer(&[("tokenizer.ggml.pre", None)]).unwrap();
    let default = tokenizer(&[("tokenizer.ggml.pre", Some("default".into()))]).unwrap();
    for text in corpus() {
        assert_eq!(absent.encode(&text, Special::Parse), default.encode(&text, Special::Parse));
    }
}

#[test]
fn bos_follows_the_key_then_the_rule() {
    let add = |pre: &str, key: Option<bool>| {
        let changes =
            [("tokenizer.ggml.pre", Some(pre.into())), ("tokenizer.ggml.add_bos_token", key.map(Value::from))];
        tokenizer(&changes).unwrap().add_bos()
    };
    assert!(add("llama-bpe", None) && !add("llama-bpe", Some(false)));
    assert!(!add("gpt-2", None) && add("gpt-2", Some(true)));
}

#[test]
fn vocabularies_of_characters_begin_with_bos() {
    let off = [("tokenizer.ggml.add_bos_token", Some(false.into()))];
    assert!(spm(&[]).unwrap().add_bos() && !spm(&off).unwrap().add_bos());
    // Gemma 4's files say not to, and are wrong.
    assert!(Tokenizer::from_facts(&with(GEMMA4, &off)).unwrap().add_bos());
    let unnamed = ["bos", "eos", "unknown"].map(|which| (format!("tokenizer.ggml.{which}_token_id"), None));
    let unnamed: Vec<_> = unnamed.iter().map(|(key, none)| (key.as_str(), none.clone())).collect();
    let tokenizer = spm(&unnamed).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()), (Some(1), Some(2), Some(0)));
}

#[test]
fn ends_of_generation_follow_texts_and_ids() {
    let ends = |tokens: &[&str], eos: u32| {
        let mut all: Vec<&str> = vec!["a", "b"];
        all.extend(tokens);
        let types = vec![1_i32; all.len()];
        let tokenizer = tokenizer(&[
            ("tokenizer.ggml.tokens", Some(Array::from_strings(&all).into())),
            ("tokenizer.ggml.token_type", Some(Array::from_scalars(&types).into())),
            ("tokenizer.ggml.merges", Some(Array::from_strings([""; 0]).into())),
            ("tokenizer.ggml.eos_token_id", Some(eos.into())),
        ])
        .unwrap();
        let ends: Vec<String> = tokenizer.ends_of_generation().map(|id| tokenizer.token_text(id)).collect();
        ends
    };
    assert_eq!(ends(&["<|im_end|>", "<|endoftext|>"], 0), ["a", "<|im_end|>", "<|endoftext|>"]);
    assert_eq!(
        ends(&["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"], 99),
        ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
    );
    assert_eq!(ends(&["<|return|>", "<|call|>", "<|end|>"], 2), ["<|return|>", "<|call|>"]);
    assert_eq!(ends(&["<|end|>", "<|flush|>", "<|calls|>"], 99), ["<|flush|>", "<|calls|>"]);
    assert_eq!(ends(&["<|end|>", "<|return|>"], 99), ["<|end|>", "<|return|>"]);
    assert_eq!(ends(&["</s>", "<|tool_response>"], 99), ["<|tool_response>"]);
    assert_eq!(ends(&["</s>"], 99), ["</s>"]);
}

#[test]
fn what_people_wrote_cannot_become_a_special_token() {
    let tokenizer = tokenizer(&[]).unwrap();
    let text = "a<|endoftext|>b";
    let end = tokenizer.eos().unwrap();
    assert!(tokenizer.encode(text, Special::Parse).contains(&end));
    let literal = tokenizer.encode(text, Special::Literal);
    assert!(!literal.contains(&end));
    assert_eq!(literal.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect::<Vec<_>>(), text.as_bytes());
}

#[test]
fn what_people_wrote_cannot_be_merged_into_a_special_token() {
    let tokens = ["<unk>", "<s>", "</s>", "<", "s", ">", "<s", "a"];
    let tokenizer = spm(&[
        ("tokenizer.ggml.tokens", Some(Array::from_strings(tokens).into())),
        ("tokenizer.ggml.token_type", Some(Array::from_scalars(&[2_i32, 3, 3, 1, 1, 1, 1, 1]).into())),
        ("tokenizer.ggml.scores", Some(Array::from_scalars(&[0.0_f32; 8]).into())),
        ("tokenizer.ggml.add_space_prefix", Some(false.into())),
    ])
    .unwrap();
    assert_eq!(tokenizer.encode("a<s>", Special::Parse), [7, 1]);
    assert_eq!(tokenizer.encode("a<s>", Special::Literal), [7, 6, 5]);
}

#[test]
fn marks_that_are_shown_are_still_special() {
    let tokens = ["a", "<|start|>", "<|return|>", "<|call|>", "<|end|>", "<|im_start|>"];
    let tokenizer = tokenizer(&[
        ("tokenizer.ggml.tokens", Some(Array::from_strings(tokens).into())),
        ("tokenizer.ggml.token_type", Some(Array::from_scalars(&[1_i32, 3, 3, 3, 3, 4]).into())),
        ("tokenizer.ggml.merges", Some(Array::from_strings([""; 0]).into())),
    ])
    .unwrap();
    assert!(!tokenizer.is_control(1) && !tokenizer.is_control(4));
    let text = "<|start|>a<|end|><|im_start|>";
    assert_eq!(tokenizer.encode(text, Special::Parse), [1, 0, 4, 5]);
    // Only the last was not special in the file.
    assert_eq!(tokenizer.encode(text, Special::Literal), [0, 0, 5]);
}

#[test]
fn white_space_after_special_tokens_of_phi_3_is_no_text_in_whatever_part_it_is() {
    let tokenizer = spm(&[]).unwrap();
    let whole = tokenizer.encode("<|user|> \n\tHi<|end|>\n", Special::Parse);
    assert_eq!(whole, tokenizer.encode("<|user|>Hi<|end|>", Special::Parse));
    let parts = [("<|user|> ", Special::Parse), ("\n\tHi", Special::Literal), ("<|end|>\n", Special::Parse)];
    assert_eq!(tokenizer.encode_parts(&parts), whole);
    let other = spm(&[("general.name", Some("Another model".into()))]).unwrap();
    assert_eq!(text_of(&other, &other.encode("<|user|>\n", Special::Parse)), "<|user|> \n");
}

#[test]
fn parts_join_into_words_but_not_into_special_tokens() {
    let tokenizer = tokenizer(&[]).unwrap();
    let end = tokenizer.eos().unwrap();
    let parts = [
        ("hel", Special::Parse),
        ("lo\n", Special::Literal),
        ("\nx<|end", Special::Parse),
        ("oftext|>", Special::Literal),
    ];
    let whole: String = parts.iter().map(|(text, _)| *text).collect();
    assert_eq!(tokenizer.encode_parts(&parts), tokenizer.encode(&whole, Special::Literal));
    let parts = [("<|endoftext|>", Special::Literal), ("<|endoftext|>", Special::Parse), ("a", Special::Literal)];
    let ids = tokenizer.encode_parts(&parts);
    assert_eq!(ids.iter().filter(|id| **id == end).count(), 1);
}

#[test]
fn malformed_vocabularies_are_errors_by_name() {
    let wrong = |changes: &[(&str, Option<Value>)]| tokenizer(changes).map(|_| ()).unwrap_err().to_string();
    let three = || ("tokenizer.ggml.tokens", Some(Array::from_strings(["a", "b", "c"]).into()));
    for (error, expected) in [
        (wrong(&[("tokenizer.ggml.model", Some("t5".into()))]), "unknown tokenizer `t5`"),
        (wrong(&[("tokenizer.ggml.model", Some("no_vocab".into()))]), "the file has no tokenizer"),
        (wrong(&[("tokenizer.ggml.model", None)]), "the file has no tokenizer"),
        (wrong(&[("tokenizer.ggml.pre", Some("afmoe".into()))]), "unknown pre-tokenizer `afmoe`"),
        (wrong(&[("tokenizer.ggml.tokens", None)]), "the vocabulary has no tokens"),
        (wrong(&[("tokenizer.ggml.merges", None)]), "the vocabulary has no merges"),
        (
            wrong(&[("tokenizer.ggml.tokens", Some(1_u32.into()))]),
            "key `tokenizer.ggml.tokens` should be an array of strings, is U32(1)",
        ),
        (
            wrong(&[three(), ("tokenizer.ggml.token_type", Some(Array::from_scalars(&[1_i32, 3]).into()))]),
            "`tokenizer.ggml.token_type` has 2 entries for 3 tokens",
        ),
        (
            wrong(&[("tokenizer.ggml.merges", Some(Array::from_strings(["ab"]).into()))]),
            "merge 0 is `ab`, not two pieces",
        ),
        (
            spm(&[three(), ("tokenizer.ggml.scores", Some(Array::from_scalars(&[0.5_f32]).into()))])
                .unwrap_err()
                .to_string(),
            "`tokenizer.ggml.scores` has 1 entries for 3 tokens",
        ),
        (
            spm(&[("tokenizer.ggml.tokens", Some(Array::from_strings(["a", "", "", "a"]).into()))])
                .unwrap_err()
                .to_string(),
            "tokens 0 and 3 are both `a`",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

#[test]
fn bytes_without_a_token_are_the_unknown_token() {
    let tokenizer = spm(&[
        ("tokenizer.ggml.tokens", Some(Array::from_strings(["?", "a", "", "<0xC3>"]).into())),
        ("tokenizer.ggml.token_type", Some(Array::from_scalars(&[2_i32, 1, 1, 6]).into())),
        ("tokenizer.ggml.scores", None),
        ("tokenizer.ggml.add_space_prefix", Some(false.into())),
    ])
    .unwrap();
    assert_eq!(tokenizer.encode("aéa", Special::Literal), [1, 3, 0, 1]);
    assert_eq!(tokenizer.token_bytes(3), [0xc3]);
}

#[test]
fn a_megabyte_of_one_word_takes_no_longer_than_its_length_says() {
    // A quadratic merge would take hours here.
    let bytes = |pre: &str| tokenizer(&[("tokenizer.ggml.pre", Some(pre.into()))]);
    let characters = spm(&[("tokenizer.ggml.add_space_prefix", Some(false.into()))]);
    for tokenizer in [bytes("llama-bpe"), bytes("superbpe"), characters, Tokenizer::from_facts(&read(GEMMA4))] {
        let tokenizer = tokenizer.unwrap();
        for word in [" ", "the", "<|end"] {
            let text = word.repeat((1 << 20) / word.len());
            assert_eq!(text_of(&tokenizer, &tokenizer.encode(&text, Special::Parse)), text);
        }
    }
}

/// A tokenizer for every rule that has goldens.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let pre = |line: &str| serde_json::from_str::<Json>(line).ok()?["pre"].as_str().map(Value::from);
    GOLDENS.lines().map(|line| tokenizer(&[("tokenizer.ggml.pre", pre(line))]).expect("the rule is known")).collect()
});

/// Vocabularies of characters that add nothing.
static CHARACTERS: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    let plain =
        [("general.name", Some("Another model".into())), ("tokenizer.ggml.add_space_prefix", Some(false.into()))];
    [SPM, GEMMA4].map(|vocabulary| Tokenizer::from_facts(&with(vocabulary, &plain)).expect("the vocabulary is whole"))
});

/// Texts of a hostile vocabulary: short, alike, special, bytes, and no text at all.
fn tokens() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let token = prop_oneof!["[ab▁]{0,3}", "<0x[0-9A-G]{2}>", "</?s>|<eos>|é|\n\n"].prop_map(String::into_bytes);
    proptest::collection::vec(prop_oneof![token, proptest::collection::vec(any::<u8>(), 0..3)], 0..12)
}

proptest! {
    #[test]
    fn any_text_survives_the_way_there_and_back(text: String, i in 0..TOKENIZERS.len()) {
        let tokenizer = &TOKENIZERS[i];
        for special in [Special::Parse, Special::Literal] {
            prop_assert_eq!(text_of(tokenizer, &tokenizer.encode(&text, special)), text.as_str());
        }
    }

    #[test]
    fn any_text_but_their_space_survives_in_characters(text in "(\\PC|[ \n\t\u{0}])*", i in 0..2_usize) {
        let (tokenizer, text) = (&CHARACTERS[i], text.replace('▁', ""));
        for special in [Special::Parse, Special::Literal] {
            prop_assert_eq!(text_of(tokenizer, &tokenizer.encode(&text, special)), text.as_str());
        }
    }

    #[test]
    fn any_vocabulary_is_refused_or_gives_its_own_ids(
        tokens in tokens(),
        model in "gpt2|llama|gemma4",
        types in proptest::collection::vec(-1..8_i32, 12),
        scores in proptest::collection::vec(any::<f32>(), 12),
        merges in proptest::collection::vec("[ab▁]{1,2} [ab▁]{1,2}", 0..6),
        ids in proptest::collection::vec(0..20_u32, 3),
        text in "[ab ▁é\n</s>]{0,20}|\\PC{0,9}",
    ) {
        let writer = Writer::new("llama")
            .meta("tokenizer.ggml.model", model.as_str())
            .meta("tokenizer.ggml.pre", "llama-bpe")
            .meta("tokenizer.ggml.tokens", Array::from_strings(&tokens))
            .meta("tokenizer.ggml.token_type", Array::from_scalars(&types))
            .meta("tokenizer.ggml.scores", Array::from_scalars(&scores))
            .meta("tokenizer.ggml.merges", Array::from_strings(&merges))
            .meta("tokenizer.ggml.bos_token_id", ids[0])
            .meta("tokenizer.ggml.eos_token_id", ids[1])
            .meta("tokenizer.ggml.unknown_token_id", ids[2]);
        let facts = read(&writer.to_bytes().expect("a fixture can be written"));
        if let Ok(tokenizer) = Tokenizer::from_facts(&facts) {
            for special in [Special::Parse, Special::Literal] {
                let found = tokenizer.encode(&text, special);
                prop_assert!(found.iter().all(|id| (*id as usize) < tokenizer.n_tokens()));
                found.iter().for_each(|id| drop(tokenizer.token_bytes(*id)));
            }
        }
    }
}
