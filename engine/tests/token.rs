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

fn read(bytes: &[u8]) -> ModelFacts {
    match ModelFacts::from_prefix(bytes, bytes.len() as u64) {
        Ok(Prefix::Complete(facts)) => facts,
        other => panic!("a fixture is whole: {other:?}"),
    }
}

/// The small vocabulary with some keys replaced; `None` leaves a key out.
fn with(changes: &[(&str, Option<Value>)]) -> ModelFacts {
    let kept = read(VOCAB);
    let kept = kept.metadata.iter().filter(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
    let writer = kept.fold(Writer::default(), |writer, (key, value)| writer.meta(key, value.clone()));
    let writer = changes.iter().fold(writer, |writer, (key, value)| match value {
        Some(value) => writer.meta(key, value.clone()),
        None => writer,
    });
    read(&writer.to_bytes().expect("a fixture can be written"))
}

fn tokenizer(changes: &[(&str, Option<Value>)]) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_facts(&with(changes))
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
fn ends_of_generation_follow_texts_and_ids() {
    let ends = |tokens: &[&str], eos: u32| {
        let mut all: Vec<&str> = vec!["a", "b"];
        all.extend(tokens);
        let types = vec![1_i32; all.len()];
        let tokenizer = tokenizer(&[
            ("tokenizer.ggml.tokens", Some(Array::from_strings(&all).into())),
            ("tokenizer.ggml.token_type", Some(Array::from_scalars(&types).into())),
            ("tokenizer.ggml.merges", None),
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
    for (error, expected) in [
        (wrong(&[("tokenizer.ggml.model", Some("llama".into()))]), "unknown tokenizer `llama`"),
        (wrong(&[("tokenizer.ggml.model", None)]), "unknown tokenizer ``"),
        (wrong(&[("tokenizer.ggml.pre", Some("superbpe".into()))]), "unknown pre-tokenizer `superbpe`"),
        (wrong(&[("tokenizer.ggml.tokens", None)]), "the vocabulary has no tokens"),
        (
            wrong(&[("tokenizer.ggml.tokens", Some(1_u32.into()))]),
            "key `tokenizer.ggml.tokens` should be an array of strings, is U32(1)",
        ),
        (
            wrong(&[("tokenizer.ggml.token_type", Some(Array::from_scalars(&[1_i32, 3]).into()))]),
            "`tokenizer.ggml.token_type` has 2 entries for 1049 tokens",
        ),
        (
            wrong(&[("tokenizer.ggml.merges", Some(Array::from_strings(["ab"]).into()))]),
            "merge 0 is `ab`, not two pieces",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

#[test]
fn a_megabyte_of_one_word_takes_no_longer_than_its_length_says() {
    // A quadratic merge would take hours here.
    let tokenizer = tokenizer(&[("tokenizer.ggml.pre", Some("llama-bpe".into()))]).unwrap();
    for text in ["a".repeat(1 << 20), " ".repeat(1 << 20), "the".repeat(1 << 18), "<|end".repeat(1 << 18)] {
        let n_bytes: usize =
            tokenizer.encode(&text, Special::Parse).iter().map(|id| tokenizer.token_bytes(*id).len()).sum();
        assert_eq!(n_bytes, text.len());
    }
}

/// A tokenizer for every rule that has goldens.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let pre = |line: &str| serde_json::from_str::<Json>(line).ok()?["pre"].as_str().map(Value::from);
    GOLDENS.lines().map(|line| tokenizer(&[("tokenizer.ggml.pre", pre(line))]).expect("the rule is known")).collect()
});

proptest! {
    #[test]
    fn any_text_survives_the_way_there_and_back(text: String, i in 0_usize..18) {
        let tokenizer = &TOKENIZERS[i];
        for special in [Special::Parse, Special::Literal] {
            let bytes: Vec<u8> = tokenizer.encode(&text, special).iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
            prop_assert_eq!(bytes, text.as_bytes());
        }
    }
}
