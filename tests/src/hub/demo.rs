//! Odd repos for demonstrations and tests: without GGUF, gated, in shards, damaged. The GGUF files are tiny.

use tandem_engine::gguf::Writer;

use super::repo::Repo;

/// Repos that try a client's manners.
pub fn demo_repos() -> Vec<Repo> {
    let card = "---\nlicense: apache-2.0\n---\n# A repo of the test hub\n";
    let shards = demo_sharded_gguf(3);
    let sharded = (1..).zip(shards).fold(Repo::new("tandem-demo/Tiny-Sharded-GGUF"), |repo, (n, shard)| {
        repo.file(&format!("Q4_K_M/Tiny-Sharded-Q4_K_M-{n:05}-of-00003.gguf"), shard)
    });
    let mut damaged = tiny_gguf("llama");
    damaged[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    vec![
        sharded.file("README.md", card).tag("license:apache-2.0").popularity(300, 12).gguf("llama", 192, 2048),
        Repo::new("tandem-demo/Tiny-Safetensors")
            .file("model.safetensors", &b"\x08\0\0\0\0\0\0\0{}      "[..])
            .file("config.json", "{\"architectures\":[\"LlamaForCausalLM\"]}")
            .file("README.md", card)
            .tag("license:apache-2.0")
            .popularity(200, 7),
        Repo::new("tandem-demo/Tiny-Gated-GGUF")
            .file("Tiny-Gated-Q8_0.gguf", tiny_gguf("llama"))
            .file("README.md", card)
            .tag("license:other")
            .popularity(150, 5)
            .gguf("llama", 64, 2048)
            .gated(&["hf_accepted"]),
        Repo::new("tandem-demo/Tiny-Damaged-GGUF")
            .file("Tiny-Damaged-Q8_0.gguf", damaged)
            .file("README.md", card)
            .popularity(100, 1)
            .gguf("llama", 64, 2048),
        Repo::new("tandem-demo/Tiny-Unknown-GGUF")
            .file("Tiny-Unknown-F32.gguf", tiny_gguf("pangolin"))
            .file("README.md", card)
            .popularity(50, 0)
            .gguf("pangolin", 64, 2048),
    ]
}

/// A whole, well-formed GGUF of one small tensor; too little of a model to load.
pub fn tiny_gguf(architecture: &str) -> Vec<u8> {
    let writer = writer(architecture).tensor_f32("token_embd.weight", &[64], &[0.5; 64]);
    writer.to_bytes().expect("a tiny file has no absurd sizes")
}

/// The same with a tensor per shard.
pub fn demo_sharded_gguf(n_shards: u16) -> Vec<Vec<u8>> {
    let whole = (0..n_shards).fold(writer("llama"), |writer, n| {
        writer.tensor_f32(&format!("blk.{n}.attn_norm.weight"), &[64], &[f32::from(n); 64])
    });
    let shards = whole.split(n_shards);
    shards.iter().map(|shard| shard.to_bytes().expect("a tiny file has no absurd sizes")).collect()
}

fn writer(architecture: &str) -> Writer {
    let key = |name: &str| format!("{architecture}.{name}");
    Writer::new(architecture)
        .meta("general.name", "Tiny")
        .meta(&key("block_count"), 1u32)
        .meta(&key("context_length"), 2048u32)
        .meta(&key("embedding_length"), 64u32)
        .meta(&key("feed_forward_length"), 64u32)
        .meta(&key("attention.head_count"), 1u32)
}
