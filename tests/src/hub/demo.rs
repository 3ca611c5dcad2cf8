//! Odd repos for demonstrations and tests: without GGUF, gated, in shards, damaged. The GGUF files are tiny.

use super::repo::Repo;

/// GGUF value types used here.
const U16: u32 = 2;
const U32: u32 = 4;
const I32: u32 = 5;
const STRING: u32 = 8;
/// Tensor data begins at multiples of this.
const ALIGNMENT: usize = 32;
/// Floats per tensor.
const N_ELEMS: u64 = 64;

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
    gguf(&metadata(architecture), &["token_embd.weight"])
}

/// The same with a tensor per shard.
pub fn demo_sharded_gguf(n_shards: u16) -> Vec<Vec<u8>> {
    let shard = |n: u16| {
        let mut entries = if n == 0 { metadata("llama") } else { Vec::new() };
        entries.push(entry("split.no", U16, &n.to_le_bytes()));
        entries.push(entry("split.count", U16, &n_shards.to_le_bytes()));
        entries.push(entry("split.tensors.count", I32, &i32::from(n_shards).to_le_bytes()));
        gguf(&entries, &[&format!("blk.{n}.attn_norm.weight")])
    };
    (0..n_shards).map(shard).collect()
}

fn metadata(architecture: &str) -> Vec<Vec<u8>> {
    let count = |name: &str, value: u32| entry(&format!("{architecture}.{name}"), U32, &value.to_le_bytes());
    vec![
        entry("general.architecture", STRING, &string(architecture)),
        entry("general.name", STRING, &string("Tiny")),
        count("block_count", 1),
        count("context_length", 2048),
        count("embedding_length", 64),
        count("feed_forward_length", 64),
        count("attention.head_count", 1),
    ]
}

fn gguf(entries: &[Vec<u8>], tensors: &[&str]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((entries.len() as u64).to_le_bytes());
    file.extend(entries.concat());
    let tensor_bytes = N_ELEMS * 4;
    for (n, name) in (0u64..).zip(tensors) {
        file.extend(string(name));
        file.extend(1u32.to_le_bytes());
        file.extend(N_ELEMS.to_le_bytes());
        file.extend(0u32.to_le_bytes());
        file.extend((n * tensor_bytes).to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    let n_values = N_ELEMS * tensors.len() as u64;
    file.extend((0..n_values).flat_map(|n| (n as f32).to_le_bytes()));
    file
}

fn entry(key: &str, value_type: u32, value: &[u8]) -> Vec<u8> {
    [&string(key), &value_type.to_le_bytes()[..], value].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
