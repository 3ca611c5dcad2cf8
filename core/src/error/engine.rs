//! What the engine's errors mean to a person.

use tandem_engine::cpu::CpuError;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{Found, GgufError, NotChat, Refusal};
use tandem_engine::token::TokenizerError;

use super::{Explain, FileAction, FileError, detail, size};
use crate::wire::{ErrorCode, Failure, Text};

impl Explain for GgufError {
    fn explain(&self) -> Failure {
        match self {
            Self::Io { path, source } => explain_io(path, source),
            Self::NotAFile { path } => Failure::new(
                ErrorCode::NotGguf,
                Text::new(format!("`{}` is not a file", path.display()), format!("`{}` 不是文件", path.display())),
                choose_gguf(),
            ),
            Self::NotGguf { found } => {
                let (en, zh) = found_words(found);
                Failure::new(
                    ErrorCode::NotGguf,
                    Text::new(format!("not a GGUF file but {en}"), format!("不是 GGUF 文件，而是{zh}")),
                    choose_gguf(),
                )
            }
            Self::BigEndian => Failure::new(
                ErrorCode::NotGguf,
                Text::new("a GGUF file for big-endian machines", "面向大端机器的 GGUF 文件"),
                Text::new("choose the usual, little-endian version", "选择通常的小端版本"),
            ),
            Self::UnsupportedVersion { version } => Failure::new(
                ErrorCode::NotGguf,
                Text::new(
                    format!("GGUF version {version} cannot be read; versions 2 and 3 can"),
                    format!("无法读取 GGUF 版本 {version}，可读取版本 2 和 3"),
                ),
                Text::new("choose a newer conversion of the model", "选择该模型较新的转换版本"),
            ),
            Self::Truncated { needed_bytes: needed, file_bytes: got, .. }
            | Self::TensorOutsideFile { end_bytes: needed, file_bytes: got, .. } => truncated(*needed, *got),
            Self::MissingShards { missing, count } => {
                let names = missing.join(", ");
                Failure::new(
                    ErrorCode::GgufTruncated,
                    Text::new(
                        format!("{} of the model's {count} files are missing: `{names}`", missing.len()),
                        format!("模型共 {count} 个文件，缺少 {} 个：`{names}`", missing.len()),
                    ),
                    Text::new("fetch the missing files into the same folder", "把缺少的文件下载到同一文件夹"),
                )
            }
            Self::UnknownTensorType { .. } | Self::ForkTensorType { .. } | Self::RemovedTensorType { .. } => {
                Failure::new(
                    ErrorCode::UnknownTensorType,
                    Text::new(
                        format!("the model uses a quantisation that is not known here: {self}"),
                        format!("模型使用了此处未知的量化类型{}", detail(self)),
                    ),
                    other_version(),
                )
            }
            Self::InShard { file, source } => {
                let inner = source.explain();
                let message =
                    Text::new(format!("`{file}`: {}", inner.message.en), format!("`{file}`：{}", inner.message.zh));
                Failure { message, ..inner }
            }
            _ => Failure::new(
                ErrorCode::GgufDamaged,
                Text::new(format!("the file is damaged: {self}"), format!("文件已损坏{}", detail(self))),
                Text::new("download it again", "重新下载"),
            ),
        }
    }
}

impl Explain for Refusal {
    fn explain(&self) -> Failure {
        match self {
            Self::NoArchitecture => Failure::new(
                ErrorCode::UnknownArchitecture,
                Text::new("the file does not say which architecture it is", "文件没有说明模型架构"),
                choose_gguf(),
            ),
            Self::NotAChatModel { kind } => {
                let (en, zh) = not_chat_words(*kind);
                Failure::new(
                    ErrorCode::NotAChatModel,
                    Text::new(format!("not a chat model but {en}"), format!("不是对话模型，而是{zh}")),
                    Text::new("choose the model's main file", "选择模型的主文件"),
                )
            }
            Self::Unsound(unsound) => unsound.error().explain(),
            Self::UnknownArchitecture { architecture } => unknown_architecture(architecture),
            Self::UnknownTensorType { tensor_type, .. } => Failure::new(
                ErrorCode::UnknownTensorType,
                Text::new(
                    format!("the quantisation `{tensor_type}` does not run here yet"),
                    format!("暂不支持量化类型 `{tensor_type}`"),
                ),
                other_version(),
            ),
            Self::NoTokenizer => no_tokenizer(),
            Self::UnknownTokenizer { model, pre } => unknown_tokenizer(pre.as_ref().unwrap_or(model)),
        }
    }
}

impl Explain for EngineError {
    fn explain(&self) -> Failure {
        match self {
            Self::Gguf(source) => source.explain(),
            Self::Tokenizer(TokenizerError::Absent) => no_tokenizer(),
            Self::Tokenizer(
                TokenizerError::UnknownModel { model: name } | TokenizerError::UnknownPre { pre: name },
            ) => unknown_tokenizer(name),
            Self::Tokenizer(source) => Failure::new(
                ErrorCode::GgufDamaged,
                Text::new(
                    format!("the model's tokenizer cannot be used: {source}"),
                    format!("无法使用模型的分词器{}", detail(source)),
                ),
                other_model(),
            ),
            Self::ArchitectureUnsupported { architecture } => unknown_architecture(architecture),
            Self::FeatureUnsupported { architecture, feature } => Failure::new(
                ErrorCode::UnknownArchitecture,
                Text::new(
                    format!("models of the `{architecture}` family with {feature} do not run here yet"),
                    format!("暂不支持这种 `{architecture}` 系列模型{}", detail(feature)),
                ),
                other_model(),
            ),
            Self::TensorTypeUnsupported { tensor_type, .. } => Failure::new(
                ErrorCode::UnknownTensorType,
                Text::new(
                    format!("the quantisation `{tensor_type}` does not run here yet"),
                    format!("暂不支持量化类型 `{tensor_type}`"),
                ),
                other_version(),
            ),
            Self::KeyInvalid { .. }
            | Self::TensorMissing { .. }
            | Self::VocabularyMismatch { .. }
            | Self::TensorShape { .. } => Failure::new(
                ErrorCode::GgufDamaged,
                Text::new(format!("the file is incomplete: {self}"), format!("文件不完整{}", detail(self))),
                Text::new("download it again, or choose another conversion", "重新下载，或者选择其他转换版本"),
            ),
            Self::WeightNotFinite { .. } => Failure::new(
                ErrorCode::GgufDamaged,
                Text::new(
                    format!("the model's weights are damaged: {self}"),
                    format!("模型权重已损坏{}", detail(self)),
                ),
                Text::new("download it again, or choose another conversion", "重新下载，或者选择其他转换版本"),
            ),
            Self::LogitsNotFinite { .. } => Failure::new(
                ErrorCode::GgufDamaged,
                Text::new(
                    "the model's weights are damaged: it computes no numbers",
                    "模型权重已损坏：计算结果不是数字",
                ),
                Text::new("download it again", "重新下载"),
            ),
            Self::DoesNotFit { needed_bytes, available_bytes, .. } => Failure::new(
                ErrorCode::OutOfMemory,
                Text::new(
                    format!("cache and buffers need {}, {} are free", size(*needed_bytes), size(*available_bytes)),
                    format!("缓存和缓冲区需要 {}，可用 {}", size(*needed_bytes), size(*available_bytes)),
                ),
                less_memory(),
            ),
            Self::OutOfMemory { bytes, .. } => Failure::new(
                ErrorCode::OutOfMemory,
                Text::new(
                    format!("the system gave no memory for another {}", size(*bytes)),
                    format!("系统无法再分配 {} 内存", size(*bytes)),
                ),
                less_memory(),
            ),
            Self::ContextLength { asked, .. } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("this model cannot have a context of {asked} tokens"),
                    format!("该模型不支持 {asked} 个词元的上下文"),
                ),
                Text::new("choose a shorter context", "选择较短的上下文"),
            ),
            Self::KvTypeUnsupported { kv_type, head_dim } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("this model's heads of {head_dim} elements do not fit a KV cache of type `{kv_type}`"),
                    format!("该模型的注意力头有 {head_dim} 个元素，不适用 `{kv_type}` 类型的 KV 缓存"),
                ),
                Text::new("use a cache of type `f16`", "使用 `f16` 类型的缓存"),
            ),
            Self::NoTokens => Failure::new(
                ErrorCode::BadRequest,
                Text::new("there is nothing to compute: no tokens were given", "没有可计算的内容：未给出词元"),
                Text::new("give at least one token", "至少给出一个词元"),
            ),
            Self::TokenUnknown { token, n_vocab } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("token {token} does not exist: this model has tokens 0 to {}", n_vocab.saturating_sub(1)),
                    format!("词元 {token} 不存在：该模型的词元为 0 到 {}", n_vocab.saturating_sub(1)),
                ),
                Text::new("use ids of this model's own tokenizer", "使用该模型自己的分词器给出的编号"),
            ),
            Self::Cpu(CpuError::IsaMissing { isa }) => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("this processor does not have the instruction set `{isa}`"),
                    format!("此处理器没有指令集 `{isa}`"),
                ),
                Text::new("leave the choice to the app", "由应用自行选择"),
            ),
            Self::ContextOverflow { n_tokens, context_length, .. } => context_full(*n_tokens, *context_length),
            Self::Cancelled => cancelled(),
            Self::NotLoaded => Failure::new(
                ErrorCode::NoModelLoaded,
                Text::new("no model is loaded", "尚未加载模型"),
                Text::new("load a model first", "先加载一个模型"),
            ),
            Self::Cuda(source) => source.explain(),
            Self::GpuTypeUnsupported { tensor_type, .. } => Failure::new(
                ErrorCode::GpuFailed,
                Text::new(
                    format!("the quantisation `{tensor_type}` does not run on the graphics card yet"),
                    format!("显卡暂不支持量化类型 `{tensor_type}`"),
                ),
                with_processor(),
            ),
            Self::GpuShapeUnsupported { .. }
            | Self::CacheApart { .. }
            | Self::ExpertCopies { .. }
            | Self::DeviceUnsupported { .. } => Failure::new(
                ErrorCode::GpuFailed,
                Text::new(
                    format!("this model cannot be split like that: {self}"),
                    format!("该模型不能这样分配到显卡{}", detail(self)),
                ),
                with_processor(),
            ),
            Self::Panicked { message } => engine_failed(message),
            _ => engine_failed(self),
        }
    }
}

fn with_processor() -> Text {
    Text::new("load it on the processor alone", "仅用处理器加载")
}

fn engine_failed(said: &(impl std::fmt::Display + ?Sized)) -> Failure {
    Failure::new(
        ErrorCode::EngineFailed,
        Text::new(format!("the engine failed: {said}"), format!("引擎出错{}", detail(said))),
        Text::new("load the model again; chats are kept", "重新加载模型；对话已保存"),
    )
}

/// The conversation is longer than the context.
pub fn context_full(n_tokens: usize, context_length: usize) -> Failure {
    let n_over = n_tokens.saturating_sub(context_length);
    Failure::new(
        ErrorCode::ContextFull,
        Text::new(
            format!("the conversation has {n_tokens} tokens, {n_over} more than the context of {context_length}"),
            format!("对话共 {n_tokens} 个词元，超出 {context_length} 的上下文 {n_over} 个"),
        ),
        Text::new(
            "shorten the message, begin a new chat, or load the model with a longer context",
            "缩短消息、新建对话，或者用更长的上下文加载模型",
        ),
    )
}

/// Ended because a person wanted it to.
pub fn cancelled() -> Failure {
    Failure::new(
        ErrorCode::Cancelled,
        Text::new("stopped on request", "已按要求停止"),
        Text::new("start again at any time", "可随时重新开始"),
    )
}

fn explain_io(path: &std::path::Path, source: &std::io::Error) -> Failure {
    // An `io::Error` cannot be cloned; kind or number say the same.
    let copy = source.raw_os_error().map_or_else(|| source.kind().into(), std::io::Error::from_raw_os_error);
    FileError::at(FileAction::Read, path)(copy).explain()
}

fn truncated(needed_bytes: u64, file_bytes: u64) -> Failure {
    let missing_bytes = needed_bytes.saturating_sub(file_bytes);
    let (en, zh) = match missing_bytes {
        1 => ("1 byte is".to_owned(), "1 字节".to_owned()),
        2..1024 => (format!("{missing_bytes} bytes are"), format!("{missing_bytes} 字节")),
        _ => (format!("{} are", size(missing_bytes)), size(missing_bytes)),
    };
    Failure::new(
        ErrorCode::GgufTruncated,
        Text::new(format!("the file ends too early: at least {en} missing"), format!("文件不完整：至少缺少 {zh}")),
        Text::new("fetch the rest: start the download again", "补下缺失部分：重新开始下载"),
    )
}

fn unknown_architecture(architecture: &str) -> Failure {
    Failure::new(
        ErrorCode::UnknownArchitecture,
        Text::new(
            format!("models of the `{architecture}` family do not run here yet"),
            format!("暂不支持 `{architecture}` 系列模型"),
        ),
        other_model(),
    )
}

fn no_tokenizer() -> Failure {
    Failure::new(
        ErrorCode::UnknownTokenizer,
        Text::new("the file has no tokenizer", "文件中没有分词器"),
        Text::new("choose another conversion of the model", "选择该模型的其他转换版本"),
    )
}

fn unknown_tokenizer(name: &str) -> Failure {
    Failure::new(
        ErrorCode::UnknownTokenizer,
        Text::new(
            format!("the model's tokenizer `{name}` is not known here yet"),
            format!("暂不支持模型的分词器 `{name}`"),
        ),
        other_model(),
    )
}

fn choose_gguf() -> Text {
    Text::new("choose a file that ends in `.gguf`", "选择以 `.gguf` 结尾的文件")
}

fn other_version() -> Text {
    Text::new("choose another version of the model, such as Q4_K_M", "选择该模型的其他版本，例如 Q4_K_M")
}

fn other_model() -> Text {
    Text::new("choose another model", "选择其他模型")
}

fn less_memory() -> Text {
    Text::new(
        "close other programs, choose a shorter context or a smaller version",
        "关闭其他程序，或者选择较短的上下文或较小的版本",
    )
}

fn found_words(found: &Found) -> (String, String) {
    let zh = match found {
        Found::Empty => "空文件",
        Found::Safetensors => " safetensors 权重",
        Found::Html => "网页",
        Found::Pickle => " PyTorch 权重（pickle）",
        Found::Zip => " ZIP 压缩包（可能是 PyTorch 权重）",
        Found::Gzip => " gzip 压缩包",
        Found::Json => " JSON",
        Found::LfsPointer => " Git LFS 指针，并非文件本身",
        Found::LegacyGgml => " GGUF 之前的旧 GGML 文件",
        Found::Unknown { magic } => {
            return (found.to_string(), format!("以 `{}` 开头的未知内容", magic.escape_ascii()));
        }
    };
    (found.to_string(), zh.to_owned())
}

fn not_chat_words(kind: NotChat) -> (String, &'static str) {
    let zh = match kind {
        NotChat::Projector => "图像或声音的投影器",
        NotChat::Adapter => "另一个模型的适配器",
        NotChat::Draft => "另一个模型的草稿头",
        NotChat::ImportanceMatrix => "重要性矩阵",
        NotChat::Embedding => "嵌入或重排模型",
        NotChat::VocabularyOnly => "不含权重的词表",
    };
    (kind.to_string(), zh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_errors_become_codes_and_numbers() {
        let cases: Vec<(Failure, ErrorCode, &str)> = vec![
            (GgufError::NotGguf { found: Found::Html }.explain(), ErrorCode::NotGguf, "not a GGUF file but a web page"),
            (
                GgufError::TensorOutsideFile { tensor: "t".into(), end_bytes: 71 << 20, file_bytes: 1 << 20 }.explain(),
                ErrorCode::GgufTruncated,
                "the file ends too early: at least 70.0\u{a0}MB are missing",
            ),
            (
                GgufError::DuplicateKey { key: "k".into() }.explain(),
                ErrorCode::GgufDamaged,
                "the file is damaged: key `k` appears twice",
            ),
            (
                GgufError::InShard { file: "b".into(), source: Box::new(GgufError::BigEndian) }.explain(),
                ErrorCode::NotGguf,
                "`b`: a GGUF file for big-endian machines",
            ),
            (
                Refusal::UnknownArchitecture { architecture: "falcon".into() }.explain(),
                ErrorCode::UnknownArchitecture,
                "models of the `falcon` family do not run here yet",
            ),
            (
                Refusal::NotAChatModel { kind: NotChat::Projector }.explain(),
                ErrorCode::NotAChatModel,
                "not a chat model but a projector for images or sound",
            ),
            (
                EngineError::ContextOverflow { n_tokens: 600, context_length: 512, n_over: 88 }.explain(),
                ErrorCode::ContextFull,
                "the conversation has 600 tokens, 88 more than the context of 512",
            ),
            (EngineError::Cancelled.explain(), ErrorCode::Cancelled, "stopped on request"),
            (
                EngineError::NoTokens.explain(),
                ErrorCode::BadRequest,
                "there is nothing to compute: no tokens were given",
            ),
            (
                EngineError::TokenUnknown { token: 9, n_vocab: 9 }.explain(),
                ErrorCode::BadRequest,
                "token 9 does not exist: this model has tokens 0 to 8",
            ),
            (truncated(9, 8), ErrorCode::GgufTruncated, "the file ends too early: at least 1 byte is missing"),
            (truncated(9, 2), ErrorCode::GgufTruncated, "the file ends too early: at least 7 bytes are missing"),
            (EngineError::Panicked { message: "x".into() }.explain(), ErrorCode::EngineFailed, "the engine failed: x"),
        ];
        for (failure, code, message) in cases {
            assert_eq!((failure.code, failure.message.en.as_str()), (code, message));
            assert!(!failure.message.zh.is_empty() && !failure.hint.en.is_empty() && !failure.hint.zh.is_empty());
        }
    }

    #[test]
    fn a_tokenizer_is_refused_alike_before_and_after_the_download() {
        let t5 = || "t5".to_owned();
        for (before, after) in [
            (Refusal::NoTokenizer, TokenizerError::Absent),
            (Refusal::UnknownTokenizer { model: t5(), pre: None }, TokenizerError::UnknownModel { model: t5() }),
            (
                Refusal::UnknownTokenizer { model: "gpt2".into(), pre: Some("x".into()) },
                TokenizerError::UnknownPre { pre: "x".into() },
            ),
        ] {
            let before = before.explain();
            assert_eq!(before.code, ErrorCode::UnknownTokenizer);
            assert_eq!(EngineError::Tokenizer(after).explain(), before);
        }
    }

    #[test]
    fn a_missing_file_keeps_its_reason_through_the_engine() {
        let source = std::io::Error::from_raw_os_error(2);
        let failure = GgufError::Io { path: "/模型".into(), source }.explain();
        assert_eq!(failure.code, ErrorCode::NotFound);
        assert_eq!(failure.message.en, "`/模型` is not there");
    }
}
