//! Headers that lie: cut anywhere, with any bytes changed, with absurd numbers anywhere. Reading them neither panics nor
//! allocates more than a small multiple of the file's size, which a counting allocator watches.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use tandem_engine::gguf::{Array, GgufError, ModelFacts, Prefix, TensorType, Writer};
use tandem_engine::token::{Special, Tokenizer};

/// The system's allocator, with a count of what each thread holds.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(held: impl FnOnce(usize) -> usize) {
    // At the end of a thread its counts are gone; nothing is measured by then.
    let _ = HELD_BYTES.try_with(|bytes| {
        bytes.set(held(bytes.get()));
        let _ = PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(bytes.get())));
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the trait's contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|held| held.wrapping_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(|held| held.saturating_sub(layout.size()));
        // SAFETY: `pointer` came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes held at once for each byte of a file: a tensor record of 25 bytes becomes a struct in a growing list, a key
/// of 14 bytes half a node of a tree.
const BYTES_PER_BYTE: usize = 16;
const BYTES_AT_LEAST: usize = 8 << 10;

/// Reads a file and what is derived from its header, measuring.
fn read(bytes: &[u8]) -> Result<Prefix, GgufError> {
    let held = HELD_BYTES.get();
    PEAK_BYTES.set(held);
    let result = ModelFacts::from_prefix(bytes, bytes.len() as u64);
    let peak = PEAK_BYTES.get() - held;
    assert!(peak <= BYTES_PER_BYTE * bytes.len() + BYTES_AT_LEAST, "{peak} bytes held for a file of {}", bytes.len());
    if let Ok(Prefix::Complete(facts)) = &result {
        let _ = facts.refusal();
        let _ = facts.quant_label();
        let _ = facts.arch_u32_per_layer("attention.head_count_kv");
        for tensor in &facts.tensors {
            assert!(tensor.offset_bytes + tensor.n_bytes <= bytes.len() as u64, "{tensor:?} lies outside");
        }
    }
    result
}

/// A file with every kind of value, and the length of its header.
fn file() -> (Vec<u8>, usize) {
    let writer = Writer::new("llama")
        .meta("general.name", "Small")
        .meta("general.alignment", 32_u32)
        .meta("general.file_type", 2_i32)
        .meta("llama.block_count", 2_u32)
        .meta("llama.expert_count", 4_u16)
        .meta("llama.expert_used_count", 2_u8)
        .meta("llama.attention.head_count", 4_u64)
        .meta("llama.attention.head_count_kv", Array::from_scalars(&[2_i32, 1]))
        .meta("llama.rope.freq_base", 1e4_f32)
        .meta("flag", true)
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.tokens", Array::from_strings(["a", "b", "ab", "<s>"]))
        .meta("tokenizer.ggml.token_type", Array::from_scalars(&[1_i32, 1, 1, 3]))
        .meta("tokenizer.ggml.merges", Array::from_strings(["a b"]))
        .meta("tokenizer.ggml.bos_token_id", 3_u32)
        .tensor_f32("token_embd.weight", &[4, 2], &[0.5; 8])
        .tensor_absent("blk.0.attn_q.weight", &[2, 32], TensorType::Q4_0)
        .tensor_absent("blk.1.ffn_gate_exps.weight", &[4, 2, 256], TensorType::Q6_K);
    let (header, _) = writer.header().expect("a fixture can be written");
    (writer.to_bytes().expect("a fixture can be written"), header.len())
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let (bytes, header_bytes) = file();
    assert!(matches!(read(&bytes), Ok(Prefix::Complete(_))));
    for n in 0..bytes.len() {
        let error = read(&bytes[..n]).expect_err("a cut file is not whole");
        let is_named = match error {
            GgufError::NotGguf { .. } => n == 0,
            GgufError::Truncated { file_bytes, needed_bytes, .. } => {
                n < header_bytes && file_bytes == n as u64 && needed_bytes > file_bytes
            }
            // Counts are refused before what they count is missed.
            GgufError::TooMany { .. } => n < header_bytes,
            GgufError::TensorOutsideFile { .. } => n + 32 > header_bytes,
            _ => false,
        };
        assert!(is_named, "cut at {n}: {error}");
    }
}

#[test]
fn absurd_numbers_anywhere_are_survived() {
    let (bytes, header_bytes) = file();
    let numbers = [
        0,
        1,
        2,
        63,
        64,
        513,
        65_536,
        1 << 20,
        1 << 31,
        u64::from(u32::MAX),
        1 << 32,
        1 << 40,
        1 << 62,
        i64::MAX as u64,
        u64::MAX - 31,
        u64::MAX,
    ];
    let mut n_refused = 0;
    for at in 4..header_bytes - 8 {
        for number in numbers {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].copy_from_slice(&number.to_le_bytes());
            n_refused += usize::from(read(&hostile).is_err());
            hostile[at..at + 4].copy_from_slice(&bytes[at..at + 4]);
            n_refused += usize::from(read(&hostile).is_err());
        }
    }
    assert!(n_refused > header_bytes, "{n_refused} of many were refused");
}

#[test]
fn counts_beyond_the_file_are_refused_before_they_are_believed() {
    let (bytes, _) = file();
    for at in [8, 16] {
        for count in [1 << 32, 1 << 40, u64::MAX] {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].copy_from_slice(&count.to_le_bytes());
            assert!(matches!(read(&hostile), Err(GgufError::TooMany { got, .. }) if got == count));
        }
    }
}

#[test]
fn a_file_that_is_cut_is_called_cut_wherever_that_is() {
    let (bytes, _) = file();
    for kept in 1..bytes.len() {
        let error = read(&bytes[..kept]).unwrap_err();
        let (GgufError::Truncated { needed_bytes: needed, .. }
        | GgufError::TensorOutsideFile { end_bytes: needed, .. }) = error
        else {
            panic!("{kept}: {error}");
        };
        assert!(needed > kept as u64, "{kept}: {needed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes_are_survived(changes in prop::collection::vec((0_usize..1500, any::<u8>()), 1..12), keep in 0_usize..4000) {
        let (mut bytes, _) = file();
        for (at, byte) in changes {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        bytes.truncate(keep.max(1));
        let _ = read(&bytes);
    }

    #[test]
    fn any_bytes_after_a_good_start_are_survived(rest: Vec<u8>, n_tensors in 0_u64..4, n_keys in 0_u64..8) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(n_tensors.to_le_bytes());
        bytes.extend(n_keys.to_le_bytes());
        bytes.extend(rest);
        let _ = read(&bytes);
    }

    #[test]
    fn any_bytes_at_all_are_survived(bytes: Vec<u8>) {
        let _ = read(&bytes);
    }
}

proptest! {
    // Each case builds a tokenizer, which takes a while.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn changed_vocabularies_are_survived(changes in prop::collection::vec((300_usize..900, any::<u8>()), 1..4)) {
        let (mut bytes, _) = file();
        for (at, byte) in changes {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        if let Ok(Prefix::Complete(facts)) = read(&bytes) {
            let tokenizer = Tokenizer::from_facts(&facts);
            let _ = tokenizer.map(|tokenizer| tokenizer.encode("ab<s>", Special::Parse));
        }
    }
}
