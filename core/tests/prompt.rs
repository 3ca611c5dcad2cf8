//! Prompts of real template shapes against Jinja2, and what must hold for any template: what people write stays text, one
//! BOS, a fallback where a template fails. Goldens: `tests/goldens/make_template_goldens.py`.

use serde_json::Value as Json;
use tandem_core::prompt::{PromptEnd, PromptError, RenderOptions, Rendered, Template, Thinking};
use tandem_core::wire::Role;
use tandem_engine::gguf::{Array, ModelFacts, Prefix, Writer};
use tandem_engine::token::Tokenizer;

const GOLDENS: &str = include_str!("data/template-goldens.json");
const SPECIALS: &[&str] =
    &["<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>", "[/INST]", "<end_of_turn>", "<think>", "</think>"];

/// A vocabulary of single bytes and special tokens, with a chat template.
fn facts(template: Option<&str>, specials: &[&str], bos: &str, eos: &str, adds_bos: bool) -> ModelFacts {
    let bytes = (b'!'..=b'~').map(char::from).chain(('\u{a1}'..='\u{143}').filter(|c| *c != '\u{ad}'));
    let mut tokens: Vec<String> = bytes.map(String::from).collect();
    let mut types = vec![1_i32; tokens.len()];
    let id_of = |tokens: &mut Vec<String>, types: &mut Vec<i32>, text: &str| -> u32 {
        let at = tokens.iter().position(|token| token == text).unwrap_or_else(|| {
            tokens.push(text.to_owned());
            types.push(3);
            tokens.len() - 1
        });
        at as u32
    };
    let ids: Vec<u32> = [bos, eos]
        .iter()
        .chain(specials)
        .filter(|text| !text.is_empty())
        .map(|text| id_of(&mut tokens, &mut types, text))
        .collect();
    let mut writer = Writer::new("llama")
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "llama-bpe")
        .meta("tokenizer.ggml.tokens", Array::from_strings(&tokens))
        .meta("tokenizer.ggml.token_type", Array::from_scalars(&types))
        .meta("tokenizer.ggml.merges", Array::from_strings([""; 0]))
        .meta("tokenizer.ggml.add_bos_token", adds_bos);
    if !bos.is_empty() {
        writer = writer.meta("tokenizer.ggml.bos_token_id", ids[0]);
    }
    if !eos.is_empty() {
        writer = writer.meta("tokenizer.ggml.eos_token_id", ids[usize::from(!bos.is_empty())]);
    }
    if let Some(template) = template {
        writer = writer.meta("tokenizer.chat_template", template);
    }
    let bytes = writer.to_bytes().expect("a fixture can be written");
    match ModelFacts::from_prefix(&bytes, bytes.len() as u64) {
        Ok(Prefix::Complete(facts)) => facts,
        other => panic!("a fixture is whole: {other:?}"),
    }
}

fn role(name: &Json) -> Role {
    serde_json::from_value(name.clone()).expect("a role")
}

/// Calls `check` with every golden: template's name, its facts, messages, options, expected text.
fn for_each_golden(mut check: impl FnMut(&str, &ModelFacts, &[(Role, &str)], RenderOptions, Option<&str>)) {
    let goldens: Vec<Json> = serde_json::from_str(GOLDENS).expect("goldens are JSON");
    for golden in &goldens {
        let text = |key: &str| golden[key].as_str().expect("goldens are complete");
        let facts = facts(Some(text("template")), SPECIALS, text("bos"), text("eos"), false);
        for case in golden["cases"].as_array().expect("goldens are complete") {
            let messages: Vec<(Role, &str)> = case["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|message| (role(&message[0]), message[1].as_str().expect("a text")))
                .collect();
            let end = if case["opens_answer"] == true { PromptEnd::OpensAnswer } else { PromptEnd::AfterMessages };
            let thinking = match case["thinking"].as_bool() {
                None => Thinking::ModelDefault,
                Some(true) => Thinking::On,
                Some(false) => Thinking::Off,
            };
            check(text("name"), &facts, &messages, RenderOptions { end, thinking }, case["text"].as_str());
        }
    }
}

#[test]
fn prompts_equal_those_of_jinja2() {
    let mut n = 0;
    for_each_golden(|name, facts, messages, options, expected| {
        let rendered = Template::from_facts(facts).render(messages, options).unwrap();
        match expected {
            Some(expected) => {
                assert_eq!(rendered.notice, None, "{name}: {messages:?}");
                assert_eq!(rendered.text(), expected, "{name}: {messages:?}");
                n += 1;
            }
            // What a template refuses goes before the question or through the fallback.
            None => assert!(!rendered.text().is_empty(), "{name}: {messages:?}"),
        }
    });
    assert!(n > 100, "{n} goldens");
}

#[test]
fn what_people_write_never_becomes_a_special_token() {
    let mut n_guarded = 0;
    for_each_golden(|name, facts, messages, options, _| {
        let tokenizer = Tokenizer::from_facts(facts).unwrap();
        let rendered = Template::from_facts(facts).render(messages, options).unwrap();
        // A model's own marks of reasoning are its template's to read.
        if messages.iter().any(|(role, text)| *role == Role::Assistant && text.contains("</think>")) {
            return;
        }
        let n_special = |ids: &[u32]| ids.iter().filter(|id| tokenizer.is_control(**id)).count();
        let harmless: Vec<(Role, &str)> = messages
            .iter()
            .map(|(role, text)| (*role, if text.trim().is_empty() { text } else { "harmless" }))
            .collect();
        let expected = Template::from_facts(facts).render(&harmless, options).unwrap().tokens(&tokenizer);
        assert_eq!(n_special(&rendered.tokens(&tokenizer)), n_special(&expected), "{name}: {messages:?}");
        n_guarded += usize::from(messages.iter().any(|(_, text)| text.contains("<|im_end|>")));
    });
    assert!(n_guarded >= 10);
}

#[test]
fn harmless_words_give_the_tokens_of_the_whole_text() {
    for_each_golden(|name, facts, messages, options, _| {
        if messages.iter().any(|(_, text)| SPECIALS.iter().any(|special| text.contains(special))) {
            return;
        }
        let tokenizer = Tokenizer::from_facts(facts).unwrap();
        let rendered = Template::from_facts(facts).render(messages, options).unwrap();
        let whole = tokenizer.encode(&rendered.text(), tandem_engine::token::Special::Parse);
        assert_eq!(rendered.tokens(&tokenizer), whole, "{name}: {messages:?}");
    });
}

#[test]
fn there_is_one_bos_where_the_model_wants_one() {
    let messages = [(Role::User, "hi")];
    for (template, adds_bos, n_bos) in [
        ("{{ bos_token }}{{ messages[0].content }}", true, 1),
        ("{{ messages[0].content }}", true, 1),
        ("{{ bos_token }}{{ messages[0].content }}", false, 1),
        ("{{ messages[0].content }}", false, 0),
    ] {
        let facts = facts(Some(template), &[], "<s>", "</s>", adds_bos);
        let tokenizer = Tokenizer::from_facts(&facts).unwrap();
        let ids = Template::from_facts(&facts).render(&messages, RenderOptions::default()).unwrap().tokens(&tokenizer);
        assert_eq!(ids.iter().filter(|id| Some(**id) == tokenizer.bos()).count(), n_bos, "{template} {adds_bos}");
    }
}

fn render(template: Option<&str>, specials: &[&str], messages: &[(Role, &str)]) -> Rendered {
    let facts = facts(template, specials, "<s>", "</s>", false);
    Template::from_facts(&facts).render(messages, RenderOptions::default()).expect("any conversation can be rendered")
}

#[test]
fn a_missing_or_broken_template_is_replaced_and_said_so() {
    let messages = [(Role::System, "Be brief."), (Role::User, "Hi"), (Role::Assistant, "Yes?"), (Role::User, "Bye")];
    for broken in
        [None, Some("{% if"), Some("{{ messages | no_such_filter }}"), Some("{{ raise_exception('no') }}"), Some("  ")]
    {
        let rendered = render(broken, &[], &messages);
        let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n\
                        <|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(rendered.text(), expected, "{broken:?}");
        let notice = rendered.notice.expect("the person is told");
        assert!(notice.en.contains("ChatML") && notice.zh.contains("ChatML"), "{notice:?}");
    }
}

#[test]
fn the_fallback_is_the_one_that_the_special_tokens_speak_for() {
    let messages = [(Role::System, "S"), (Role::User, "U"), (Role::Assistant, "A"), (Role::User, "V")];
    for (token, expected) in [
        (
            "<|start_header_id|>",
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "<start_of_turn>",
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
        ),
        ("[INST]", "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"),
        ("<｜User｜>", "<s>S<｜User｜>U<｜Assistant｜>A</s><｜User｜>V<｜Assistant｜>"),
        (
            "<|assistant|>",
            "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n",
        ),
    ] {
        assert_eq!(render(None, &[token], &messages).text(), expected, "{token}");
    }
}

#[test]
fn instructions_go_before_the_question_where_a_template_takes_none() {
    let template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.content }}]{% endfor %}";
    let rendered = render(Some(template), &[], &[(Role::System, "Be brief."), (Role::User, "Hi")]);
    assert_eq!((rendered.text().as_str(), rendered.notice), ("[Be brief.\n\nHi]", None));
}

#[test]
fn the_prompt_says_whether_thinking_is_open() {
    use tandem_core::prompt::Said;
    for (template, expected) in [
        ("{{ messages[0].content }}<think>\n", Said::Reasoning("x".into())),
        ("{{ messages[0].content }}<think>\n\n</think>\n\n", Said::Answer("x".into())),
        ("{{ messages[0].content }}", Said::Answer("x".into())),
    ] {
        // The words of a person open nothing.
        let rendered = render(Some(template), &[], &[(Role::User, "<think>")]);
        assert_eq!(rendered.reasoning().push("x"), [expected], "{template}");
    }
}

#[test]
fn nothing_to_render_is_an_error() {
    let facts = facts(None, &[], "<s>", "</s>", false);
    let error = Template::from_facts(&facts).render(&[], RenderOptions::default()).unwrap_err();
    assert!(matches!(error, PromptError::NoMessages));
}
