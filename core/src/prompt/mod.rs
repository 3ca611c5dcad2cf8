//! A conversation as the text its model was trained on: the model's own chat template, or a known one where that is
//! missing or fails. What people wrote stays text: it cannot become a special token.

mod environment;
mod fallback;
mod reasoning;
mod segments;

pub use reasoning::{ReasoningSplit, Said};
pub use segments::{Origin, Segment};

use minijinja::{Environment, Value, context};
use tandem_engine::gguf::ModelFacts;
use tandem_engine::token::{self, Special, Tokenizer};

use crate::error::{Explain, detail};
use crate::wire::{ErrorCode, Failure, Role, Text};
use fallback::Family;
use reasoning::Marks;

/// A model's chat template, ready to render.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    own: Own,
    family: &'static Family,
    bos: String,
    eos: String,
    /// Texts of special tokens, which are quoted where people write them.
    specials: Vec<String>,
}

/// Whether the model's own template can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    Usable,
    Missing,
    Broken { reason: String },
}

/// What a rendering is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// How the prompt ends.
    pub end: PromptEnd,
    /// Whether the model is to think first.
    pub thinking: Thinking,
}

/// How a prompt ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// Where the model's answer begins.
    #[default]
    OpensAnswer,
    /// After the last message.
    AfterMessages,
}

/// Whether a model that can think before it answers is to do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// As its template decides.
    #[default]
    ModelDefault,
    /// Yes.
    On,
    /// No.
    Off,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The text in order, by how it is to be read.
    pub segments: Vec<Segment>,
    /// Why this is not the model's own template, if it is not.
    pub notice: Option<Text>,
    /// The marks of reasoning that the prompt has opened, if it has.
    opened: Option<&'static Marks>,
}

/// A conversation that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// There is nothing to render.
    #[error("a conversation without messages")]
    NoMessages,
    /// Not even the fallback template renders it: too long, by far.
    #[error("the conversation cannot be rendered: {reason}")]
    Unrenderable {
        /// What the template engine said.
        reason: String,
    },
}

impl Template {
    /// The template of a model; never fails: a missing or broken one is replaced, and each rendering says so.
    pub fn from_facts(facts: &ModelFacts) -> Self {
        let mut environment = environment::new();
        let family = Family::of(facts);
        let own = match facts.chat_template().map(|source| environment::add(&mut environment, OWN, source)) {
            Some(Ok(())) => Own::Usable,
            Some(Err(error)) => Own::Broken { reason: in_words(&error) },
            None => Own::Missing,
        };
        environment::add(&mut environment, FALLBACK, family.source)
            .expect("the table's templates parse: a test renders each");
        let specials = token::special_texts(facts);
        Self { environment, own, family, bos: special_text(facts, "bos"), eos: special_text(facts, "eos"), specials }
    }

    /// Renders a conversation.
    pub fn render(&self, messages: &[(Role, &str)], options: RenderOptions) -> Result<Rendered, PromptError> {
        if messages.is_empty() {
            return Err(PromptError::NoMessages);
        }
        let reason = match &self.own {
            Own::Usable => match self.render_own(messages, options) {
                Ok(segments) => {
                    let opened = self.opened(OWN, messages, options);
                    return Ok(Rendered { segments, notice: None, opened });
                }
                Err(error) => Some(in_words(&error)),
            },
            Own::Broken { reason } => Some(reason.clone()),
            Own::Missing => None,
        };
        let segments = self
            .render_guarded(FALLBACK, messages, options)
            .map_err(|error| PromptError::Unrenderable { reason: in_words(&error) })?;
        let opened = self.opened(FALLBACK, messages, options);
        Ok(Rendered { segments, notice: Some(self.notice(reason)), opened })
    }

    /// What the end of a prompt has opened, whatever words it answers.
    fn opened(&self, name: &str, messages: &[(Role, &str)], options: RenderOptions) -> Option<&'static Marks> {
        let wordless: Vec<(Role, &str)> =
            messages.iter().filter(|(role, _)| *role != Role::System).map(|(role, _)| (*role, "-")).collect();
        self.render_text(name, &wordless, options).ok().and_then(|text| Marks::opened_by(&text))
    }

    /// The model's own template; where it takes no instructions of their own, they go before the first message.
    fn render_own(&self, messages: &[(Role, &str)], options: RenderOptions) -> Result<Vec<Segment>, minijinja::Error> {
        let first = match self.render_guarded(OWN, messages, options) {
            Ok(segments) => return Ok(segments),
            Err(error) => error,
        };
        match messages {
            [(Role::System, instructions), (Role::User, question), rest @ ..] => {
                let folded = format!("{instructions}\n\n{question}");
                let messages: Vec<_> =
                    [(Role::User, folded.as_str())].into_iter().chain(rest.iter().copied()).collect();
                self.render_guarded(OWN, &messages, options).map_err(|_| first)
            }
            _ => Err(first),
        }
    }

    fn render_guarded(
        &self,
        name: &str,
        messages: &[(Role, &str)],
        options: RenderOptions,
    ) -> Result<Vec<Segment>, minijinja::Error> {
        segments::render(messages, &self.specials, |messages| self.render_text(name, messages, options))
    }

    fn render_text(
        &self,
        name: &str,
        messages: &[(Role, &str)],
        options: RenderOptions,
    ) -> Result<String, minijinja::Error> {
        let messages: Vec<Value> =
            messages.iter().map(|(role, content)| context! { role => role_name(*role), content => *content }).collect();
        let thinking = match options.thinking {
            Thinking::ModelDefault => Value::UNDEFINED,
            Thinking::On => Value::from(true),
            Thinking::Off => Value::from(false),
        };
        self.environment.get_template(name)?.render(context! {
            messages,
            add_generation_prompt => options.end == PromptEnd::OpensAnswer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            enable_thinking => thinking.clone(),
            thinking,
        })
    }

    fn notice(&self, reason: Option<String>) -> Text {
        let name = self.family.name;
        match reason {
            None => Text::new(
                format!("this model has no chat template; the {name} format is used, and answers may be worse"),
                format!("该模型没有聊天模板；改用 {name} 格式，回答质量可能下降"),
            ),
            Some(reason) => Text::new(
                format!(
                    "this model's chat template failed ({reason}); the {name} format is used, and answers may be worse"
                ),
                format!("该模型的聊天模板出错{}；改用 {name} 格式，回答质量可能下降", detail(&reason)),
            ),
        }
    }
}

impl Rendered {
    /// The whole prompt.
    pub fn text(&self) -> String {
        self.segments.iter().map(|segment| segment.text.as_str()).collect()
    }

    /// The prompt's tokens, with one BOS where the model wants one. Special tokens that people quote stay text.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let parts: Vec<_> = self.segments.iter().map(|segment| (segment.text.as_str(), segment.special())).collect();
        let mut ids = tokenizer.encode_parts(&parts);
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        if let Some(bos) = bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    /// What takes the answer apart: knows whether the prompt already began the model's thinking.
    pub fn reasoning(&self) -> ReasoningSplit {
        ReasoningSplit::new(self.opened)
    }
}

impl Segment {
    fn special(&self) -> Special {
        match self.origin {
            Origin::Template => Special::Parse,
            Origin::Quote => Special::Literal,
        }
    }
}

impl Explain for PromptError {
    fn explain(&self) -> Failure {
        match self {
            Self::NoMessages => Failure::new(
                ErrorCode::BadRequest,
                Text::new("there is nothing to answer", "没有可以回答的内容"),
                Text::new("write a message first", "请先输入一条消息"),
            ),
            Self::Unrenderable { reason } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("the conversation cannot be rendered: {reason}"),
                    format!("无法生成对话提示{}", detail(reason)),
                ),
                Text::new("start a new chat", "请新建对话"),
            ),
        }
    }
}

const OWN: &str = "own";
const FALLBACK: &str = "fallback";

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// The text of a special token that the file names, or nothing.
fn special_text(facts: &ModelFacts, which: &str) -> String {
    let id = facts.get_u32(&format!("tokenizer.ggml.{which}_token_id")).ok().flatten();
    let tokens = facts.metadata.get_array("tokenizer.ggml.tokens").ok().flatten();
    let text = id.zip(tokens).and_then(|(id, tokens)| tokens.string(id as usize));
    text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

/// The first line of an error, which may otherwise quote the template.
fn in_words(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}
