//! What people call a quantisation, such as `Q4_K_M`: from a file name, else from the header.

use super::TensorType;
use super::facts::ModelFacts;
use super::shards::{self, ShardName};

/// The quantisation label in a file name: the last one there, in capitals, with Unsloth's `UD-` kept.
pub fn quant_label_from_name(file_name: &str) -> Option<String> {
    let base = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    let stem = match ShardName::parse(base) {
        Some(shard) => shard.prefix,
        None => shards::strip_extension(base).unwrap_or(base).to_owned(),
    };
    let stem = stem.to_ascii_uppercase();
    let bytes = stem.as_bytes();
    let mut found = None;
    let mut at = 0;
    while at < bytes.len() {
        let is_start = at == 0 || !bytes[at - 1].is_ascii_alphabetic();
        match is_start.then(|| label_bytes(&bytes[at..])).flatten() {
            Some(n) => {
                let start = if stem[..at].ends_with("UD-") { at - 3 } else { at };
                found = Some(&stem[start..at + n]);
                at += n;
            }
            None => at += 1,
        }
    }
    found.map(|label| match label {
        "FP16" => "F16".to_owned(),
        "FP32" => "F32".to_owned(),
        "MXFP4" => "MXFP4_MOE".to_owned(),
        _ => label.to_owned(),
    })
}

/// Length of the label at the start of `text`, if there is one; it must not run on into other letters or digits.
fn label_bytes(text: &[u8]) -> Option<usize> {
    const WHOLE: &[&str] = &["MXFP4_MOE", "MXFP4", "NVFP4", "BF16", "FP16", "FP32", "F16", "F32", "TQ1_0", "TQ2_0"];
    const I_TAILS: &[&str] = &["XXS", "XS", "NL", "S", "M", "KSS", "KS", "KT", "KL", "K", "BN"];
    const K_TAILS: &[&str] = &["K_XXL", "K_XL", "K_L", "K_M", "K_S", "K", "0_4_4", "0_4_8", "0_8_8", "0", "1"];
    let ends = |n: usize| text.get(n).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let tail = |at: usize, tails: &[&str]| {
        tails
            .iter()
            .find(|tail| text[at..].starts_with(tail.as_bytes()) && ends(at + tail.len()))
            .map(|tail| at + tail.len())
    };
    match text {
        [b'I', b'Q', b'1'..=b'6', b'_', ..] => {
            let end = tail(4, I_TAILS)?;
            // Interleaved variants and such: `IQ4_K_R4`, `IQ1_S_R4`.
            let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
            Some(end + text[end..].iter().take_while(is_word).count())
        }
        [b'Q', b'1'..=b'8', b'_', ..] => tail(3, K_TAILS),
        _ => tail(0, WHOLE),
    }
}

/// Of a header: file name, then `general.file_type`, then the type most bytes have.
pub(super) fn of_facts(facts: &ModelFacts) -> String {
    let from_name = facts.files.first().and_then(|file| quant_label_from_name(&file.name));
    let from_file_type = || {
        // 1024 marks a guess of the writer's.
        let file_type = facts.get_u32("general.file_type").ok().flatten()? & !1024;
        FILE_TYPES.iter().find(|(id, _)| *id == file_type).map(|(_, label)| (*label).to_owned())
    };
    from_name.or_else(from_file_type).unwrap_or_else(|| dominant_type(facts).map_or("?".to_owned(), |t| t.to_string()))
}

fn dominant_type(facts: &ModelFacts) -> Option<TensorType> {
    let mut n_bytes = std::collections::BTreeMap::<TensorType, u64>::new();
    facts.tensors.iter().for_each(|tensor| *n_bytes.entry(tensor.tensor_type).or_default() += tensor.n_bytes);
    n_bytes.into_iter().max_by_key(|(_, n_bytes)| *n_bytes).map(|(tensor_type, _)| tensor_type)
}

/// `general.file_type`. Source: `llama_ftype` of llama.cpp.
#[rustfmt::skip]
const FILE_TYPES: &[(u32, &str)] = &[
    (0, "F32"), (1, "F16"), (2, "Q4_0"), (3, "Q4_1"), (7, "Q8_0"), (8, "Q5_0"), (9, "Q5_1"), (10, "Q2_K"), (11, "Q3_K_S"),
    (12, "Q3_K_M"), (13, "Q3_K_L"), (14, "Q4_K_S"), (15, "Q4_K_M"), (16, "Q5_K_S"), (17, "Q5_K_M"), (18, "Q6_K"), (19, "IQ2_XXS"),
    (20, "IQ2_XS"), (21, "Q2_K_S"), (22, "IQ3_XS"), (23, "IQ3_XXS"), (24, "IQ1_S"), (25, "IQ4_NL"), (26, "IQ3_S"), (27, "IQ3_M"),
    (28, "IQ2_S"), (29, "IQ2_M"), (30, "IQ4_XS"), (31, "IQ1_M"), (32, "BF16"), (36, "TQ1_0"), (37, "TQ2_0"), (38, "MXFP4_MOE"),
    (39, "NVFP4"), (40, "Q1_0"), (41, "Q2_0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_in_names_as_repos_write_them() {
        for (name, label) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1")),
            ("Qwen3.5-35B-A3B-Q4_K_M.gguf", Some("Q4_K_M")),
            ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", Some("Q4_K_M")),
            ("Q4_K_M/model-Q4_K_M-00002-of-00003.gguf", Some("Q4_K_M")),
            ("UD-Q4_K_XL/gpt-oss-120b-UD-Q4_K_XL-00001-of-00002.gguf", Some("UD-Q4_K_XL")),
            ("model-UD-IQ1_S.gguf", Some("UD-IQ1_S")),
            ("model.i1-Q4_K_M.gguf", Some("Q4_K_M")),
            ("gpt-oss-20b-mxfp4.gguf", Some("MXFP4_MOE")),
            ("gpt-oss-20b-MXFP4_MOE.gguf", Some("MXFP4_MOE")),
            ("model-fp16.gguf", Some("F16")),
            ("model-BF16.gguf", Some("BF16")),
            ("model-Q4_0_4_8.gguf", Some("Q4_0_4_8")),
            ("model-Q4_K_L.gguf", Some("Q4_K_L")),
            ("model-Q6_K.gguf", Some("Q6_K")),
            ("model-IQ4_XS.gguf", Some("IQ4_XS")),
            ("model-IQ4_KS_R4.gguf", Some("IQ4_KS_R4")),
            ("model.55IQ2_XXS-34Q2_K.gguf", Some("Q2_K")),
            ("a-Q8_0-then-Q4_0.gguf", Some("Q4_0")),
            ("TQ1_0.gguf", Some("TQ1_0")),
            ("Mixtral-8x7B-v0.1-KQ2.gguf", None),
            ("model-Q4.gguf", None),
            ("model.gguf", None),
            ("模型-Q5_K_S.gguf", Some("Q5_K_S")),
            ("", None),
        ] {
            assert_eq!(quant_label_from_name(name).as_deref(), label, "{name}");
        }
    }
}
