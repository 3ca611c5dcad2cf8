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

#[test]
fn missing_shards_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path());
    std::fs::remove_file(folder.path().join(shard(2))).unwrap();
    let error = ModelFacts::from_file(&folder.path().join(shard(1))).unwrap_err();
    assert!(matches!(&error, GgufError::MissingShards { missing, count: 3 } if *missing == [shard(2)]), "{error}");
}

#[test]
fn doubled_and_shuffled_shards_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number| folder.path().join(shard(number));
    write_shards(folder.path());
    std::fs::copy(path(1), path(2)).unwrap();
    let error = ModelFacts::from_file(&path(1)).unwrap_err();
    let is_named = |error: &GgufError, wrong: u32, holds: u32| matches!(error, GgufError::WrongShard { file, expected, got, .. } if *file == shard(wrong) && (*expected, *got) == (wrong, holds));
    assert!(is_named(&error, 2, 1), "{error}");
    write_shards(folder.path());
    std::fs::rename(path(2), folder.path().join("aside")).unwrap();
    std::fs::rename(path(3), path(2)).unwrap();
    std::fs::rename(folder.path().join("aside"), path(3)).unwrap();
    let error = ModelFacts::from_file(&path(1)).unwrap_err();
    assert!(is_named(&error, 2, 3), "{error}");
}

#[test]
fn headers_of_shards_join_in_any_order() {
    let parts = small().split(3);
    let facts = |i: usize| (shard(i as u32 + 1), read(&parts[i].to_bytes().expect("a fixture")).expect("a part"));
    let joined = ModelFacts::from_shards(vec![facts(2), facts(0), facts(1)]).unwrap();
    assert_eq!((joined.tensors.len(), joined.files[2].name.clone()), (3, shard(3)));
    let error = ModelFacts::from_shards(vec![facts(2), facts(0), facts(2)]).unwrap_err();
    assert!(matches!(error, GgufError::DoubledShard { number: 3, .. }), "{error}");
    let error = ModelFacts::from_shards(vec![facts(0), facts(1)]).unwrap_err();
    assert!(matches!(&error, GgufError::MissingShards { missing, .. } if *missing == [shard(3)]), "{error}");
    assert!(ModelFacts::from_shards(vec![]).is_err());
}

#[test]
fn shards_that_lost_tensors_are_refused() {
    let mut parts = small().split(2);
    parts[1] = Writer::default().meta("split.no", 1_u16).meta("split.count", 2_u16);
    let facts = |i: usize| {
        (format!("m-0000{}-of-00002.gguf", i + 1), read(&parts[i].to_bytes().expect("a fixture")).expect("a part"))
    };
    let error = ModelFacts::from_shards(vec![facts(0), facts(1)]).unwrap_err();
    assert!(matches!(error, GgufError::ShardTensorCount { expected: 3, got: 2 }), "{error}");
}

#[test]
fn files_that_are_something_else_are_named() {
    for (bytes, expected) in [
        (&b""[..], "an empty file"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\n <HTML>", "a web page"),
        (b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}", "safetensors weights"),
        (b"PK\x03\x04rest", "a zip archive (PyTorch weights, perhaps)"),
        (b"\x80\x02}q\x00", "a Python pickle (PyTorch weights)"),
        (b"{\"error\":\"not found\"}", "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file it points to"),
        (b"lmgg\x01\0\0\0", "a GGML file from before GGUF"),
        (b"\x1f\x8b\x08", "a gzip archive"),
        (b"\xde\xad\xbe\xef", "something that begins with `\\xde\\xad\\xbe\\xef`"),
    ] {
        assert_eq!(read(bytes).unwrap_err().to_string(), format!("not a GGUF file but {expected}"));
    }
    let version = |version: [u8; 4]| read(&[b"GGUF", &version[..], &[0; 16]].concat()).unwrap_err().to_string();
    assert_eq!(version([0, 0, 0, 3]), "a big-endian GGUF file");
    assert_eq!(version([1, 0, 0, 0]), "GGUF version 1 (2 and 3 are read)");
    assert_eq!(version([9, 0, 0, 0]), "GGUF version 9 (2 and 3 are read)");
}

#[test]
fn folders_and_absent_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(ModelFacts::from_file(folder.path()).unwrap_err(), GgufError::NotAFile { .. }));
    assert!(matches!(ModelFacts::from_file(&folder.path().join("no.gguf")).unwrap_err(), GgufError::Io { .. }));
}

/// `small` with the type of its second tensor replaced by an id.
fn with_type_id(id: u32) -> String {
    let mut bytes = small().to_bytes().expect("a fixture can be written");
    let name = b"blk.0.attn_q.weight";
    let at =
        bytes.windows(name.len()).position(|window| window == name).expect("the tensor is there") + name.len() + 4 + 16;
    bytes[at..at + 4].copy_from_slice(&id.to_le_bytes());
    read(&bytes).expect_err("the type is not known").to_string()
}

#[test]
fn unknown_tensor_types_are_named() {
    let tensor = "tensor `blk.0.attn_q.weight` has";
    assert_eq!(with_type_id(5000), format!("{tensor} the unknown type 5000"));
    assert_eq!(with_type_id(31), format!("{tensor} type Q4_0_4_4 (31), which was removed from GGUF"));
    assert_eq!(with_type_id(36), format!("{tensor} type I2_S (36) of ik_llama.cpp"));
    assert_eq!(with_type_id(144), format!("{tensor} type IQ4_KS (144) of ik_llama.cpp"));
    assert_eq!(with_type_id(210), format!("{tensor} type a row-interleaved type (210) of ik_llama.cpp"));
}

#[test]
fn layers_that_predict_further_ahead_do_not_count() {
    let read = |n_ahead: u32| read(&small().meta("llama.nextn_predict_layers", n_ahead).to_bytes().unwrap()).unwrap();
    assert_eq!(read(0).n_layers().unwrap(), 2);
    assert_eq!(read(1).n_layers().unwrap(), 1);
    assert_eq!(read(1).arch_u32_per_layer("attention.head_count").unwrap(), Some(vec![4]));
    for n_ahead in [2, 3] {
        let expected = format!("key `llama.nextn_predict_layers` is {n_ahead}: no layers are left");
        assert_eq!(read(n_ahead).n_layers().unwrap_err().to_string(), expected);
    }
    assert_eq!(ModelFacts::layer_of("blk.12.attn_q.weight"), Some((12, "attn_q.weight")));
    for name in ["output.weight", "blk.x.attn", "blk.", "blk.1", "blk.99999999999999999999.a"] {
        assert_eq!(ModelFacts::layer_of(name), None, "{name}");
    }
}

#[test]
fn contradictions_are_named() {
    let error = |writer: Writer| {
        read(&writer.to_bytes().expect("a fixture can be written")).expect_err("it is wrong").to_string()
    };
    let tensor = |writer: Writer, name: &str| writer.tensor_f32(name, &[1], &[0.0]);
    for (writer, expected) in [
        (small().meta("flag", 1_u8), "key `flag` appears twice"),
        (tensor(tensor(small(), "x"), "x"), "tensor `x` appears twice"),
        (small().meta("general.alignment", 48_u32), "key `general.alignment` is 48: not a power of two up to 2^20"),
        (
            Writer::new("llama").meta("llama.block_count", 513_u32),
            "key `llama.block_count` is 513: more than 512 layers",
        ),
        (
            Writer::new("llama").meta("llama.expert_count", 2_u32).meta("llama.expert_used_count", 3_u32),
            "key `llama.expert_used_count` is 3: more experts used than there are",
        ),
        (tensor(small(), &"x".repeat(64)), "a tensor name is 64, at most 63 is possible here"),
    ] {
        assert_eq!(error(writer), expected);
    }
    let facts = read(&small().to_bytes().unwrap()).unwrap();
    assert_eq!(facts.arch_u32("no_such_key").unwrap_err().to_string(), "key `llama.no_such_key` is missing");
    assert_eq!(
        facts.get_u32("general.name").unwrap_err().to_string(),
        "key `general.name` should be a 32-bit count, is `Small`"
    );
}

#[test]
fn what_does_not_chat_is_refused_by_name() {
    use tandem_engine::gguf::{NotChat, Refusal};
    let chat = |architecture: &str| {
        Writer::new(architecture)
            .meta("tokenizer.ggml.model", "gpt2")
            .meta("tokenizer.ggml.pre", "smollm")
            .tensor_f32("token_embd.weight", &[1], &[0.0])
            .tensor_f32("blk.0.attn_norm.weight", &[1], &[0.0])
    };
    let refusal = |writer: Writer, name: &str| {
        read(&writer.to_bytes().expect("a fixture")).expect("a whole file").with_file_name(name).refusal()
    };
    let not_chat = |kind| Err(Refusal::NotAChatModel { kind });
    for (writer, name, expected) in [
        (chat("clip"), "mmproj-F16.gguf", not_chat(NotChat::Projector)),
        (chat("llama").meta("general.type", "mmproj"), "m.gguf", not_chat(NotChat::Projector)),
        (chat("llama").meta("general.type", "adapter"), "m.gguf", not_chat(NotChat::Adapter)),
        (chat("llama").meta("general.type", "imatrix"), "m.gguf", not_chat(NotChat::ImportanceMatrix)),
        (chat("llama"), "mtp-gemma.gguf", not_chat(NotChat::Draft)),
        (chat("eagle3"), "m.gguf", not_chat(NotChat::Draft)),
        (chat("nomic-bert"), "m.gguf", not_chat(NotChat::Embedding)),
        (chat("qwen3").meta("qwen3.pooling_type", 3_u32), "m.gguf", not_chat(NotChat::Embedding)),
        (Writer::new("llama"), "m.gguf", not_chat(NotChat::VocabularyOnly)),
        (Writer::default(), "m.gguf", Err(Refusal::NoArchitecture)),
        (chat("no-such-arch"), "m.gguf", Err(Refusal::UnknownArchitecture { architecture: "no-such-arch".into() })),
        (
            chat("llama").tensor_absent("x", &[8], TensorType::I64),
            "m.gguf",
            Err(Refusal::UnknownTensorType { tensor: "x".into(), tensor_type: TensorType::I64 }),
        ),
        (
            Writer::new("llama").meta("tokenizer.ggml.model", "t5").tensor_f32("x", &[1], &[0.0]),
            "m.gguf",
            Err(Refusal::UnknownTokenizer { model: "t5".into(), pre: None }),
        ),
        (Writer::new("llama").tensor_f32("x", &[1], &[0.0]), "m.gguf", Err(Refusal::NoTokenizer)),
    ] {
        assert_eq!(refusal(writer, name), expected, "{name}");
    }
}

#[test]
fn the_label_comes_from_name_then_file_type_then_tensors() {
    let facts =
        |writer: Writer, name: &str| read(&writer.to_bytes().expect("a fixture")).expect("whole").with_file_name(name);
    assert_eq!(facts(small().meta("general.file_type", 15_u32), "m-UD-Q4_K_XL.gguf").quant_label(), "UD-Q4_K_XL");
    assert_eq!(facts(small().meta("general.file_type", 1024 + 15_u32), "m.gguf").quant_label(), "Q4_K_M");
    assert_eq!(facts(small().meta("general.file_type", 9999_u32), "m.gguf").quant_label(), "Q4_0");
    assert_eq!(facts(Writer::new("llama"), "m.gguf").quant_label(), "?");
}
