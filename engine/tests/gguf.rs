//! GGUF files written and read back: round trips, every kind of damage by name, models in several files.

use std::path::Path;

use tandem_engine::gguf::{Array, GgufError, MappedModel, ModelFacts, Prefix, TensorType, Value, Writer};

fn small() -> Writer {
    Writer::new("llama")
        .meta("general.name", "Small")
        .meta("llama.block_count", 2_u32)
        .meta("llama.context_length", 128_u64)
        .meta("llama.attention.head_count", Array::from_scalars(&[4_i32, 2]))
        .meta("llama.rope.freq_base", 1e4_f64)
        .meta("tokenizer.ggml.tokens", Array::from_strings([&b"a"[..], b"", b"\xff\xfe"]))
        .meta("flag", true)
        .tensor_f32("token_embd.weight", &[3, 4], &[0.5; 12])
        .tensor_absent("blk.0.attn_q.weight", &[2, 64], TensorType::Q4_0)
        .tensor_f32("blk.1.attn_norm.weight", &[4], &[1.0, 2.0, 3.0, 4.0])
}

fn read(bytes: &[u8]) -> Result<ModelFacts, GgufError> {
    match ModelFacts::from_prefix(bytes, bytes.len() as u64)? {
        Prefix::Complete(facts) => Ok(facts),
        Prefix::NeedMore { at_least_bytes } => panic!("a whole file asks for {at_least_bytes} bytes"),
    }
}

#[test]
fn what_is_written_is_read() {
    for version in [2, 3] {
        let facts = read(&small().version(version).alignment(64).to_bytes().unwrap()).unwrap();
        assert_eq!(facts.architecture().unwrap(), "llama");
        assert_eq!(facts.name(), Some("Small"));
        assert_eq!(facts.n_layers().unwrap(), 2);
        assert_eq!(facts.context_length().unwrap(), 128);
        assert_eq!(facts.arch_u32_per_layer("attention.head_count").unwrap(), Some(vec![4, 2]));
        assert_eq!(facts.arch_u32_per_layer("context_length").unwrap(), Some(vec![128, 128]));
        assert_eq!(facts.arch_f32("rope.freq_base").unwrap(), 10_000.0);
        assert_eq!(facts.metadata.get("flag"), Some(&Value::Bool(true)));
        let tokens: Vec<_> = facts.metadata.get_strings("tokenizer.ggml.tokens").unwrap().unwrap().collect();
        assert_eq!(tokens, [&b"a"[..], b"", b"\xff\xfe"]);
        assert_eq!(facts.n_params(), 12 + 128 + 4);
        let tensor = facts.tensor("blk.0.attn_q.weight").unwrap();
        assert_eq!((&tensor.shape[..], tensor.tensor_type, tensor.n_bytes), (&[2, 64][..], TensorType::Q4_0, 72));
        assert!(tensor.offset_bytes.is_multiple_of(64) && facts.data_offset_bytes.is_multiple_of(64));
        assert_eq!(facts.tensor("blk.0"), None);
    }
}

#[test]
fn a_mapped_file_gives_each_tensor_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf");
    small().write(&path).unwrap();
    let model = MappedModel::open(&path).unwrap();
    let bytes = |name: &str| model.tensor_bytes(model.facts.tensor(name).unwrap());
    assert_eq!(bytes("blk.1.attn_norm.weight"), [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    assert_eq!(bytes("blk.0.attn_q.weight"), [0; 72]);
    assert_eq!(model.facts.files[0].name, "small.gguf");
}

#[test]
fn any_prefix_asks_for_more_until_the_header_is_whole() {
    let (header, file_bytes) =
        small().tensor_absent("huge.weight", &[1 << 20, 1 << 16], TensorType::F16).header().unwrap();
    let mut n_complete = 0;
    for n in 0..header.len() {
        match ModelFacts::from_prefix(&header[..n], file_bytes).unwrap() {
            Prefix::NeedMore { at_least_bytes } => assert!(at_least_bytes > n as u64 && at_least_bytes <= file_bytes),
            Prefix::Complete(_) => n_complete += 1,
        }
    }
    assert!((1..64).contains(&n_complete), "only the padding may be missing from a whole header: {n_complete}");
}

#[test]
fn a_model_in_several_files_opens_from_any_of_them() {
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path());
    for number in 1..=3 {
        let model = MappedModel::open(&folder.path().join(shard(number))).unwrap();
        assert_eq!(model.facts.tensors.len(), 3);
        assert_eq!(model.facts.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), [1, 2, 3].map(shard));
        let norm = model.facts.tensor("blk.1.attn_norm.weight").unwrap();
        assert_eq!(norm.file, 2);
        assert_eq!(model.tensor_bytes(norm)[..4], 1.0_f32.to_le_bytes());
        assert_eq!(model.facts.name(), Some("Small"));
    }
}

fn shard(number: u32) -> String {
    format!("small-Q4_0-{number:05}-of-00003.gguf")
}

fn write_shards(folder: &Path) {
    for (i, part) in small().split(3).iter().enumerate() {
        part.write(&folder.join(shard(i as u32 + 1))).expect("a temporary folder takes files");
    }
}
