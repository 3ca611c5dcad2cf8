//! Models in formats that this engine does not run: recognised by what a repo is tagged as and by its files' names, with
//! the reason, and engines that run them. Pure.

use crate::wire::{ExternalEngine, ForeignModel, ModelFormat, Text};

/// What a repo without GGUF files holds instead; `None` if that is nothing known.
pub fn foreign_model(repo: &str, tags: &[String], paths: &[&str]) -> Option<ForeignModel> {
    let formats = formats(repo, tags, paths);
    let main = *formats.first()?;
    let row = ROWS.iter().find(|row| row.format == main)?;
    let engines = row.engines.iter().filter_map(|name| ENGINES.iter().find(|engine| engine.0 == *name));
    let engine = |&(name, url, en, zh): &(&str, &str, &str, &str)| ExternalEngine {
        name: name.to_owned(),
        url: url.to_owned(),
        needs: Text::new(en, zh),
    };
    Some(ForeignModel { formats, why: Text::new(row.why.0, row.why.1), engines: engines.map(engine).collect() })
}

/// All formats found, the one that says most about the repo first: packed weights before what they are packed in.
fn formats(repo: &str, tags: &[String], paths: &[&str]) -> Vec<ModelFormat> {
    let name = repo.rsplit('/').next().unwrap_or(repo).to_ascii_lowercase();
    let words: Vec<&str> = name.split(['-', '_', '.']).collect();
    let publisher = repo.split('/').next().unwrap_or_default().to_ascii_lowercase();
    let has_tag = |tag: &str| tags.iter().any(|own| own.eq_ignore_ascii_case(tag));
    let files: Vec<&str> = paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path)).collect();
    let is_here = |row: &&Row| {
        row.tags.iter().any(|tag| has_tag(tag) || words.contains(tag))
            || row.files.iter().any(|pattern| files.iter().any(|file| matches(file, pattern)))
            || row.format == ModelFormat::Mlx && publisher == "mlx-community"
    };
    ROWS.iter().filter(is_here).map(|row| row.format).collect()
}

/// Whether a name is the pattern, or begins and ends as it does around its one `*`.
fn matches(name: &str, pattern: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match pattern.split_once('*') {
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        None => name == pattern,
    }
}

/// A format, how it is recognised, why it does not run here, and what runs it.
struct Row {
    format: ModelFormat,
    /// Tags of the hub, and words of a repo's name.
    tags: &'static [&'static str],
    files: &'static [&'static str],
    why: (&'static str, &'static str),
    engines: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        format: ModelFormat::Gptq,
        tags: &["gptq"],
        files: &["quantize_config.json"],
        why: (
            "GPTQ packs weights for graphics cards that hold the whole model; it cannot be shared with memory, which is \
             what Tandem does",
            "GPTQ 的权重是为能放下整个模型的显卡打包的，无法像 Tandem 那样由显卡和内存分担",
        ),
        engines: &["vLLM", "SGLang", "Transformers"],
    },
    Row {
        format: ModelFormat::Awq,
        tags: &["awq"],
        files: &["quant_config.json"],
        why: (
            "AWQ packs weights for graphics cards that hold the whole model; it cannot be shared with memory, which is \
             what Tandem does",
            "AWQ 的权重是为能放下整个模型的显卡打包的，无法像 Tandem 那样由显卡和内存分担",
        ),
        engines: &["vLLM", "SGLang", "Transformers"],
    },
    Row {
        format: ModelFormat::Exl,
        tags: &["exl2", "exl3"],
        files: &["measurement.json"],
        why: (
            "EXL2 and EXL3 are formats of ExLlama, which needs a graphics card that holds the whole model",
            "EXL2 和 EXL3 是 ExLlama 的格式，需要能放下整个模型的显卡",
        ),
        engines: &["ExLlama (TabbyAPI)"],
    },
    Row {
        format: ModelFormat::Mlx,
        tags: &["mlx"],
        files: &["weights.npz"],
        why: ("MLX is Apple's format for its own chips", "MLX 是苹果为自家芯片设计的格式"),
        engines: &["MLX LM"],
    },
    Row {
        format: ModelFormat::Onnx,
        tags: &["onnx"],
        files: &["*.onnx"],
        why: (
            "ONNX holds a program beside the weights, for ONNX Runtime; Tandem brings its own programs and reads weights \
             from GGUF",
            "ONNX 除权重外还包含供 ONNX Runtime 执行的程序；Tandem 自带程序，只从 GGUF 读取权重",
        ),
        engines: &["ONNX Runtime GenAI"],
    },
    Row {
        format: ModelFormat::BitsAndBytes,
        tags: &["bitsandbytes", "bnb"],
        files: &[],
        why: (
            "bitsandbytes packs weights for PyTorch on a graphics card; Tandem reads packed weights from GGUF",
            "bitsandbytes 的权重是为显卡上的 PyTorch 打包的；Tandem 从 GGUF 读取压缩后的权重",
        ),
        engines: &["Transformers", "vLLM"],
    },
    Row {
        format: ModelFormat::Fp8,
        tags: &["fp8"],
        files: &[],
        why: (
            "FP8 holds a byte for each weight, for graphics cards that compute with it; Tandem reads packed weights \
             from GGUF",
            "FP8 每个权重占一个字节，供支持 FP8 计算的显卡使用；Tandem 从 GGUF 读取压缩后的权重",
        ),
        engines: &["vLLM", "SGLang", "Transformers"],
    },
    Row {
        format: ModelFormat::CompressedTensors,
        tags: &["compressed-tensors", "w4a16", "w8a16", "w8a8", "w4a8", "nvfp4"],
        files: &[],
        why: (
            "compressed-tensors packs weights for graphics cards that hold the whole model; Tandem reads packed weights \
             from GGUF",
            "compressed-tensors 的权重是为能放下整个模型的显卡打包的；Tandem 从 GGUF 读取压缩后的权重",
        ),
        engines: &["vLLM", "SGLang"],
    },
    Row {
        format: ModelFormat::Safetensors,
        tags: &["safetensors"],
        files: &["*.safetensors"],
        why: (
            "safetensors most often holds the weights as they were trained, two to eight times the size of a packed \
             GGUF file; the tokenizer that Tandem reads from GGUF is not in it",
            "safetensors 通常存放训练时的原始权重，体积是压缩后 GGUF 的二到八倍，也不含 Tandem 从 GGUF 读取的分词器",
        ),
        engines: &["vLLM", "SGLang", "Transformers"],
    },
    Row {
        format: ModelFormat::Pickle,
        tags: &[],
        files: &["pytorch_model*.bin", "*.pth", "*.pt", "*.ckpt", "consolidated*.pth"],
        why: (
            "these are pickle files of PyTorch: opening one runs whatever program is in it, so Tandem never does",
            "这是 PyTorch 的 pickle 文件：打开它就会执行其中的任意程序，因此 Tandem 从不打开",
        ),
        engines: &["Transformers"],
    },
];

/// Name, page, and what it needs.
const ENGINES: &[(&str, &str, &str, &str)] = &[
    ("vLLM", "https://docs.vllm.ai", "a graphics card that holds the whole model", "需要能放下整个模型的显卡"),
    ("SGLang", "https://docs.sglang.ai", "a graphics card that holds the whole model", "需要能放下整个模型的显卡"),
    (
        "Transformers",
        "https://huggingface.co/docs/transformers",
        "Python and PyTorch; runs almost everything, slowly without a large card",
        "需要 Python 和 PyTorch；几乎都能运行，没有大显存时较慢",
    ),
    (
        "ExLlama (TabbyAPI)",
        "https://github.com/theroyallab/tabbyAPI",
        "an NVIDIA card that holds the whole model",
        "需要能放下整个模型的 NVIDIA 显卡",
    ),
    ("MLX LM", "https://github.com/ml-explore/mlx-lm", "a Mac with Apple's chip", "需要搭载苹果芯片的 Mac"),
    (
        "ONNX Runtime GenAI",
        "https://github.com/microsoft/onnxruntime-genai",
        "Python or C#; processor or graphics card",
        "需要 Python 或 C#；处理器或显卡均可",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ModelFormat::{Awq, BitsAndBytes, CompressedTensors, Exl, Fp8, Gptq, Mlx, Onnx, Pickle, Safetensors};

    #[test]
    fn formats_are_told_by_tags_files_and_names() {
        type Case = (&'static str, &'static [&'static str], &'static [&'static str], &'static [ModelFormat]);
        let cases: &[Case] = &[
            ("Qwen/Qwen3-8B", &["safetensors"], &["model-00001-of-00005.safetensors", "config.json"], &[Safetensors]),
            ("Qwen/Qwen3-8B-AWQ", &["awq", "safetensors"], &["model.safetensors"], &[Awq, Safetensors]),
            ("TheBloke/Llama-2-7B-GPTQ", &[], &["model.safetensors", "quantize_config.json"], &[Gptq, Safetensors]),
            ("a/Model-GPTQ-Int4", &[], &["model.safetensors"], &[Gptq, Safetensors]),
            ("turboderp/Model-exl3", &["exl3"], &["model.safetensors"], &[Exl, Safetensors]),
            ("a/Model_4bpw_exl2", &[], &["output.safetensors"], &[Exl, Safetensors]),
            ("mlx-community/Qwen3-8B-4bit", &[], &["model.safetensors"], &[Mlx, Safetensors]),
            ("onnx-community/x", &["onnx"], &["onnx/model_q4.onnx"], &[Onnx]),
            ("unsloth/Qwen3-8B-bnb-4bit", &[], &["model.safetensors"], &[BitsAndBytes, Safetensors]),
            ("a/x", &["bitsandbytes", "4-bit"], &["model.safetensors"], &[BitsAndBytes, Safetensors]),
            ("Qwen/Qwen3-8B-FP8", &["fp8"], &["model.safetensors"], &[Fp8, Safetensors]),
            ("RedHatAI/Qwen3-8B-quantized.w4a16", &[], &["model.safetensors"], &[CompressedTensors, Safetensors]),
            ("a/x", &["compressed-tensors"], &["model.safetensors"], &[CompressedTensors, Safetensors]),
            ("a/old", &["pytorch"], &["pytorch_model-00001-of-00002.bin"], &[Pickle]),
            ("a/older", &[], &["consolidated.00.pth"], &[Pickle]),
            ("a/nothing", &["text-generation"], &["README.md", "config.json"], &[]),
            ("a/awqward", &[], &["README.md"], &[]),
        ];
        for (repo, tags, paths, expected) in cases {
            let tags: Vec<String> = tags.iter().map(|&tag| tag.to_owned()).collect();
            assert_eq!(formats(repo, &tags, paths), *expected, "{repo}");
            let told = foreign_model(repo, &tags, paths);
            assert_eq!(told.is_some(), !expected.is_empty(), "{repo}");
            assert!(told.is_none_or(|told| !told.engines.is_empty()), "{repo}: something runs it");
        }
    }

    #[test]
    fn every_engine_named_has_its_row() {
        for row in ROWS {
            assert!(!row.engines.is_empty());
            for name in row.engines {
                assert!(ENGINES.iter().any(|engine| engine.0 == *name), "{name}");
            }
        }
    }
}
