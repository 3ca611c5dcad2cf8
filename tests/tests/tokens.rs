//! Token ids on a real vocabulary, against llama.cpp's. Goldens: `tests/goldens/make_token_goldens.py`.

use serde_json::Value;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::token::{Special, Tokenizer};
use tandem_tests::models;

const CORPUS: &str = include_str!("../data/token-corpus.jsonl");
const GOLDENS: &str = include_str!("../data/token-goldens-smollm2.jsonl");

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("the file is JSON lines")).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().expect("ids are counts") as u32).collect()
}

fn smollm2() -> Tokenizer {
    let facts = ModelFacts::from_file(&models::smollm2()).expect("the model is whole");
    facts.refusal().expect("the engine runs it");
    Tokenizer::from_facts(&facts).expect("its vocabulary is whole")
}

#[test]
fn ids_equal_those_of_llama_cpp() {
    let tokenizer = smollm2();
    let (corpus, goldens) = (lines(CORPUS), lines(GOLDENS));
    assert_eq!(corpus.len() + 1, goldens.len(), "the goldens are older than the corpus");
    for (line, golden) in corpus.iter().zip(&goldens) {
        let text = line["text"].as_str().expect("each line has a text");
        assert_eq!(tokenizer.encode(text, Special::Parse), ids(&golden["parse"]), "parsed: {text:?}");
        assert_eq!(tokenizer.encode(text, Special::Literal), ids(&golden["literal"]), "literal: {text:?}");
    }
}

#[test]
fn tokens_give_their_text_back() {
    let tokenizer = smollm2();
    for line in lines(CORPUS) {
        let text = line["text"].as_str().expect("each line has a text");
        for special in [Special::Parse, Special::Literal] {
            let bytes: Vec<u8> =
                tokenizer.encode(text, special).iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
            assert_eq!(String::from_utf8_lossy(&bytes), text);
        }
    }
}

#[test]
fn the_vocabulary_is_read_as_llama_cpp_reads_it() {
    let tokenizer = smollm2();
    let golden = lines(GOLDENS).pop().expect("the last line is the vocabulary's");
    assert_eq!(tokenizer.n_tokens() as u64, golden["n_tokens"]);
    assert_eq!(tokenizer.ends_of_generation().collect::<Vec<_>>(), ids(&golden["ends"]));
    assert_eq!(tokenizer.bos().map(u64::from), golden["bos"].as_u64());
    assert_eq!(tokenizer.add_bos(), golden["add_bos"]);
    let control: Vec<u32> = (0..tokenizer.n_tokens() as u32).filter(|id| tokenizer.is_control(*id)).collect();
    assert_eq!(control, ids(&golden["control"]));
    for (id, bytes) in golden["bytes"].as_object().expect("bytes are by id") {
        let hex: String = tokenizer
            .token_bytes(id.parse().expect("ids are counts"))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, *bytes, "token {id}");
    }
}
