//! Text to token ids and back.

/// Whether the engine reads vocabularies of this `tokenizer.ggml.model` and `tokenizer.ggml.pre`.
pub fn supports(model: &str, _pre: Option<&str>) -> bool {
    model == "gpt2"
}
