//! Templates for models that bring none: told by their special tokens, else ChatML.

use tandem_engine::gguf::ModelFacts;

/// A format of prompts.
#[derive(Debug)]
pub(super) struct Family {
    /// What people call it.
    pub(super) name: &'static str,
    /// A special token that only its models have.
    token: &'static str,
    /// Its template.
    pub(super) source: &'static str,
}

impl Family {
    /// The family whose special token is in the vocabulary, else ChatML.
    pub(super) fn of(facts: &ModelFacts) -> &'static Self {
        let tokens = facts.metadata.get_strings("tokenizer.ggml.tokens").ok().flatten();
        let mut is_found = [false; FAMILIES.len()];
        for token in tokens.into_iter().flatten() {
            if let Some(i) = FAMILIES.iter().position(|family| family.token.as_bytes() == token) {
                is_found[i] = true;
            }
        }
        FAMILIES.iter().zip(is_found).find(|(_, is_found)| *is_found).map_or(&FAMILIES[0], |(family, _)| family)
    }
}

/// In order of precedence; the first is what all others fail to.
pub(super) static FAMILIES: [Family; 6] = [
    Family {
        name: "ChatML",
        token: "<|im_start|>",
        source: "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    },
    Family {
        name: "Llama 3",
        token: "<|start_header_id|>",
        source: "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n\
                 {{ message.content | trim }}<|eot_id|>{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    },
    Family {
        name: "Gemma",
        token: "<start_of_turn>",
        source: "{{ bos_token }}{% set ns = namespace(before='') %}{% for message in messages %}\
                 {% if message.role == 'system' %}{% set ns.before = message.content | trim ~ '\\n\\n' %}{% else %}\
                 <start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}\n\
                 {{ ns.before }}{{ message.content | trim }}<end_of_turn>\n{% set ns.before = '' %}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    },
    Family {
        name: "Mistral",
        token: "[INST]",
        source: "{{ bos_token }}{% set ns = namespace(before='') %}{% for message in messages %}\
                 {% if message.role == 'system' %}{% set ns.before = message.content ~ '\\n\\n' %}\
                 {% elif message.role == 'user' %}[INST] {{ ns.before }}{{ message.content }} [/INST]{% set ns.before = '' %}\
                 {% else %} {{ message.content | trim }}{{ eos_token }}{% endif %}{% endfor %}",
    },
    Family {
        name: "DeepSeek",
        token: "<｜User｜>",
        source: "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}<｜User｜>{{ message.content }}\
                 {% elif message.role == 'assistant' %}<｜Assistant｜>{{ message.content }}{{ eos_token }}\
                 {% else %}{{ message.content }}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
    },
    Family {
        name: "Phi",
        token: "<|assistant|>",
        source: "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    },
];
