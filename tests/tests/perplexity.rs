//! How well real quantised models know a text, against llama.cpp on the same files.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tandem_engine::cpu::Isa;
use tandem_engine::gguf::{ModelFacts, TensorType};
use tandem_engine::token::{Special, Tokenizer};
use tandem_tests::{models, teacher};

/// What `goldens/make_perplexity_goldens.py` writes for a model.
#[derive(Deserialize)]
struct Golden {
    file: String,
    /// Of the text, with the begin token where the vocabulary asks for it.
    tokens: Vec<u32>,
    /// Mean of -log p(next token).
    nll: f64,
    /// The same from the same weights as f32.
    exact: f64,
    /// Mean divergence from the same weights as f32, over the first `N_EXACT` tokens.
    kl: f64,
}

const N_EXACT: usize = 208;

/// Tokens that formats of our own making are compared over.
const N_OTHER: usize = 48;

/// Nobody can tell answers apart whose distributions are so near on average.
const MAX_DIVERGENCE: f64 = 1.5e-3;

const TEXT: &str = include_str!("../data/perplexity.txt");

fn smollm2_and_gemma() -> [(PathBuf, Golden); 2] {
    let [smollm2, gemma]: [Golden; 2] = serde_json::from_str(include_str!("../goldens/perplexity.json")).unwrap();
    [(models::smollm2(), smollm2), (models::gemma(), gemma)]
}

#[test]
fn the_text_has_the_tokens_of_llama_cpp() {
    for (path, golden) in smollm2_and_gemma() {
        let tokenizer = Tokenizer::from_facts(&ModelFacts::from_file(&path).unwrap()).unwrap();
        let mut tokens: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.add_bos()).into_iter().collect();
        tokens.extend(tokenizer.encode(TEXT, Special::Literal));
        assert_eq!(tokens, golden.tokens, "{}", golden.file);
    }
}

/// Llama.cpp rounds activations of these models to 8 bits and we do not, which makes it a percent worse on Gemma: so ours
/// is to be within a percent of what llama.cpp gets from the weights as f32, and not worse than what it gets from the file.
#[test]
fn perplexity_is_within_a_percent_of_llama_cpp() {
    for (path, Golden { file, tokens, nll, exact, .. }) in smollm2_and_gemma() {
        let mut sum = 0.0;
        teacher::for_each_row(&path, &tokens, Isa::best(), &[], |pos, logits| {
            if let Some(&next) = tokens.get(pos + 1) {
                sum -= teacher::log_softmax(logits, next);
            }
        });
        let perplexity = (sum / (tokens.len() - 1) as f64).exp();
        let (own, exact) = (nll.exp(), exact.exp());
        println!("{file}: perplexity {perplexity:.4}, llama.cpp {own:.4}, with exact weights {exact:.4}");
        assert!((perplexity / exact - 1.0).abs() <= 0.01, "{file}: {perplexity}, llama.cpp exactly {exact}");
        assert!(perplexity <= 1.01 * own, "{file}: {perplexity}, llama.cpp {own}");
    }
}

#[test]
fn quantised_logits_are_near_to_exact() {
    for (path, Golden { file, tokens, kl: own, .. }) in smollm2_and_gemma() {
        let kl = divergence_from_exact(&path, &tokens[..N_EXACT]);
        println!("{file}: KL from exact {kl:.3e}, llama.cpp {own:.3e}");
        assert!(kl <= MAX_DIVERGENCE && kl <= 1.5 * own, "{file}: KL from exact {kl:.3e}, llama.cpp {own:.3e}");
    }
}

/// Formats that the two files do not have, on SmolLM2 quantised anew by our own encoders.
#[test]
fn logits_of_other_formats_are_near_to_exact() {
    let [(path, golden), _] = smollm2_and_gemma();
    for tensor_type in [TensorType::Q2_K, TensorType::Q3_K, TensorType::Q5_K, TensorType::IQ4_XS, TensorType::MXFP4] {
        let folder = tempfile::tempdir().unwrap();
        let quantised = folder.path().join("quantised.gguf");
        teacher::write_quantised(&path, &quantised, tensor_type);
        let kl = divergence_from_exact(&quantised, &golden.tokens[..N_OTHER]);
        println!("{tensor_type}: KL from exact {kl:.3e}");
        assert!(kl <= MAX_DIVERGENCE, "{tensor_type}: KL from exact {kl:.3e}");
    }
}

/// Mean divergence of a file's logits from those of its weights as f32.
fn divergence_from_exact(path: &Path, tokens: &[u32]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let decoded = folder.path().join("decoded.gguf");
    teacher::write_decoded(path, &decoded);
    let exact = teacher::rows(&decoded, tokens, Isa::best(), &[]);
    let mut sum = 0.0;
    teacher::for_each_row(path, tokens, Isa::best(), &[], |pos, logits| {
        sum += teacher::divergence(&exact[pos], logits);
    });
    sum / tokens.len() as f64
}
