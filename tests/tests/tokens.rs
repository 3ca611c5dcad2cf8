//! Token ids on real vocabularies, against llama.cpp's. Goldens: `tests/goldens/make_token_goldens.py`.

use std::path::PathBuf;

use serde_json::Value;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::token::{Special, Tokenizer};
use tandem_tests::models;

const CORPUS: &str = include_str!("../data/token-corpus.jsonl");

/// Byte-level BPE, and SentencePiece with thousands of special tokens; each with its goldens.
fn vocabularies() -> [(PathBuf, &'static str); 2] {
    [
        (models::smollm2(), include_str!("../data/token-goldens-smollm2.jsonl")),
        (models::gemma(), include_str!("../data/token-goldens-gemma3.jsonl")),
    ]
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("the file is JSON lines")).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().expect("ids are counts") as u32).collect()
}

fn for_each(check: impl Fn(&Tokenizer, &[Value])) {
    for (path, goldens) in vocabularies() {
        let facts = ModelFacts::from_file(&path).expect("the model is whole");
        check(&Tokenizer::from_facts(&facts).expect("its vocabulary is whole"), &lines(goldens));
    }
}

#[test]
fn ids_equal_those_of_llama_cpp() {
    let corpus = lines(CORPUS);
    for_each(|tokenizer, goldens| {
        assert_eq!(corpus.len() + 1, goldens.len(), "the goldens are older than the corpus");
        for (line, golden) in corpus.iter().zip(goldens) {
            let text = line["text"].as_str().expect("each line has a text");
            assert_eq!(tokenizer.encode(text, Special::Parse), ids(&golden["parse"]), "parsed: {text:?}");
            assert_eq!(tokenizer.encode(text, Special::Literal), ids(&golden["literal"]), "literal: {text:?}");
        }
    });
}

#[test]
fn tokens_give_their_text_back() {
    for_each(|tokenizer, _| {
        for line in lines(CORPUS) {
            // SentencePiece writes spaces like this.
            let text = line["text"].as_str().expect("each line has a text").replace('▁', "");
            for special in [Special::Parse, Special::Literal] {
                let bytes: Vec<u8> =
                    tokenizer.encode(&text, special).iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
                assert_eq!(String::from_utf8_lossy(&bytes), text);
            }
        }
    });
}

#[test]
fn the_vocabulary_is_read_as_llama_cpp_reads_it() {
    for_each(|tokenizer, goldens| {
        let golden = goldens.last().expect("the last line is the vocabulary's");
        assert_eq!(tokenizer.n_tokens() as u64, golden["n_tokens"]);
        assert_eq!(tokenizer.ends_of_generation().collect::<Vec<_>>(), ids(&golden["ends"]));
        assert_eq!(tokenizer.bos().map(u64::from), golden["bos"].as_u64());
        assert_eq!(tokenizer.add_bos(), golden["add_bos"]);
        let control: Vec<u32> = (0..tokenizer.n_tokens() as u32).filter(|id| tokenizer.is_control(*id)).collect();
        let runs = golden["control"].as_array().into_iter().flatten().map(ids);
        assert_eq!(control, runs.flat_map(|run| run[0]..=run[1]).collect::<Vec<_>>());
        for (id, bytes) in golden["bytes"].as_object().expect("bytes are by id") {
            let id = id.parse().expect("ids are counts");
            let hex: String = tokenizer.token_bytes(id).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, *bytes, "token {id}");
        }
    });
}
