//! Whole quantised models on the simulated driver: every type with a kernel, and types without one, which stay with the
//! processor and are named.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

mod quantised;
mod tiny;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::f16;
use quantised::{Large, data, divergence, golden, is_as_near};
use tandem_engine::Flow;
use tandem_engine::cuda::supports;
use tandem_engine::gguf::{MappedModel, ModelFacts, TensorType, Writer};
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::place::{Device, PlacePart, Placement, Staying};
use tandem_engine::quant::{FORMATS, Format, decode_row, encode_row};
use tandem_engine::session::Session;
use tandem_simcuda::Simulator;
use tiny::{TINY, Tiny};

const GPU: Device = Device::Cuda(0);

/// Rows of a whole block of every type.
const SHAPE: Tiny = Tiny { n_embd: 256, n_kv_heads: 1, n_ff: 256, ..TINY };
/// More than a tile's least, and then one.
const TOKENS: [u32; 11] = [3, 17, 5, 22, 39, 9, 31, 2, 17, 17, 8];
/// The processor sees activations of small models in 16 bits, a card in 8: of the logits' size, root mean square.
const ROUNDING: f64 = 0.03;
/// Floats differ by the order of sums.
const ORDER: f64 = 1e-4;

/// Blocks of a type that stand for about these elements; any of the same size, where the type is not encoded.
fn blocks(format: &Format, elems: &[f32]) -> Vec<u8> {
    let row = format.tensor_type.row();
    let n_blocks = elems.len() / row.block_elems as usize;
    let mut bytes = vec![0; n_blocks * row.block_bytes as usize];
    if format.has_encode() {
        encode_row(format.tensor_type, elems, &mut bytes).unwrap();
    } else if supports(format.tensor_type) {
        // The lattice types begin with their scale as a half; everything else may be anything.
        let mut state = 1u32;
        for block in bytes.chunks_exact_mut(row.block_bytes as usize) {
            for byte in block.iter_mut() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            block[..2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        }
        let mut decoded = vec![0.0; elems.len()];
        decode_row(format.tensor_type, &bytes, &mut decoded).unwrap();
        let scale = (size(elems) / size(&decoded)) as f32;
        for block in bytes.chunks_exact_mut(row.block_bytes as usize) {
            block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        }
    } else {
        bytes.fill(0x11);
    }
    bytes
}

/// Root of the mean square.
fn size(elems: &[f32]) -> f64 {
    (elems.iter().map(|x| f64::from(x * x)).sum::<f64>() / elems.len() as f64).sqrt()
}

/// A model whose matrices are of a type, those that `is_of_type` says.
fn write(path: &Path, format: &Format, is_of_type: impl Fn(&str) -> bool) {
    let mut writer = Writer::default();
    SHAPE.write(path);
    let facts = ModelFacts::from_file(path).unwrap();
    for (key, value) in facts.metadata.iter() {
        writer = writer.meta(key, value.clone());
    }
    for (name, shape, elems) in SHAPE.tensors() {
        writer = if shape.len() == 2 && is_of_type(&name) {
            writer.tensor(&name, &shape, format.tensor_type, blocks(format, &elems))
        } else {
            writer.tensor_f32(&name, &shape, &elems)
        };
    }
    std::fs::remove_file(path).unwrap();
    writer.write(path).unwrap();
}

/// Logits of all positions, and what stayed with the processor.
fn run(path: &Path, placement: Placement, tokens: &[u32], chunks: &[usize]) -> (Vec<Vec<f32>>, Vec<Staying>) {
    let options = LoadOptions { placement, n_batch: tokens.len(), context_length: 128, ..SHAPE.options() };
    let model =
        Model::load(path, &options, &mut |_| Flow::Continue).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let staying = model.staying().to_vec();
    let tokens: Vec<u32> = tokens.iter().map(|token| token % model.n_vocab() as u32).collect();
    let mut session = Session::new(Arc::new(model)).unwrap();
    let mut rows = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        rows.push(logits.to_vec());
        Flow::Continue
    };
    session.teacher_forced(&tokens, chunks, &mut keep).unwrap();
    (rows, staying)
}

/// The simulated machine is one for the whole process: tests that look at its counters take turns.
fn machine() -> (MutexGuard<'static, ()>, &'static Simulator) {
    static TURN: Mutex<()> = Mutex::new(());
    (TURN.lock().unwrap_or_else(PoisonError::into_inner), Simulator::load())
}

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some()
}

fn all_on_gpu(n_layers: usize) -> Placement {
    Placement { embed: GPU, ..Placement::last_layers_on(GPU, n_layers, n_layers + 1, GPU) }
}

#[test]
fn every_type_with_a_kernel_runs_as_a_whole_model() {
    let (_turn, _simulator) = machine();
    let folder = tempfile::tempdir().unwrap();
    let mut n_types = 0;
    for format in FORMATS.iter().filter(|format| supports(format.tensor_type)) {
        n_types += 1;
        let path = folder.path().join(format!("{}.gguf", format.tensor_type));
        write(&path, format, |_| true);
        let chunks = [10, 1];
        let (want, _) = run(&path, Placement::all_cpu(2), &TOKENS, &chunks);
        let mut half = all_on_gpu(2);
        half.layers[0] = Placement::all_cpu(1).layers[0];
        let is_float = matches!(format.tensor_type, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        let is_k_quant = format.tensor_type == TensorType::Q4_K;
        for placement in std::iter::once(all_on_gpu(2)).chain((is_long() || is_k_quant).then_some(half)) {
            let (got, staying) = run(&path, placement, &TOKENS, &chunks);
            assert_eq!(staying, [], "{}", format.tensor_type);
            let (want, got) = (want.concat(), got.concat());
            let difference: Vec<f32> = want.iter().zip(&got).map(|(want, got)| want - got).collect();
            let off = size(&difference) / size(&want);
            assert!(off < if is_float { ORDER } else { ROUNDING }, "{}: {off} off", format.tensor_type);
        }
    }
    assert!(n_types >= 21, "{n_types}");
}

#[test]
fn types_without_a_kernel_stay_with_the_processor_by_name() {
    let (_turn, simulator) = machine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let without: Vec<_> = FORMATS.iter().filter(|format| !supports(format.tensor_type)).collect();
    assert!(!without.is_empty());
    for format in without {
        let _ = std::fs::remove_file(&path);
        write(&path, format, |name| name.starts_with("blk.1.ffn_down"));
        let (want, _) = run(&path, Placement::all_cpu(2), &TOKENS, &[10, 1]);
        let before = simulator.counters().n_launches;
        let (got, staying) = run(&path, all_on_gpu(2), &TOKENS, &[10, 1]);
        assert!(simulator.counters().n_launches > before, "the rest is on the card");
        let [only] = &staying[..] else { panic!("{staying:?}") };
        assert_eq!((only.part, only.wanted, only.tensor_type), (PlacePart::Ffn(1), GPU, format.tensor_type));
        assert!(only.to_string().contains("blk.1.ffn_down.weight"), "{only}");
        let (want, got) = (want.concat(), got.concat());
        let difference: Vec<f32> = want.iter().zip(&got).map(|(want, got)| want - got).collect();
        assert!(size(&difference) < ORDER * size(&want), "{}", format.tensor_type);
    }
    // Nothing is left for the card: it is not opened.
    let _ = std::fs::remove_file(&path);
    write(&path, FORMATS.iter().find(|format| !supports(format.tensor_type)).unwrap(), |_| true);
    let before = simulator.counters().n_launches;
    let (_, staying) = run(&path, all_on_gpu(2), &TOKENS, &[10, 1]);
    assert_eq!(simulator.counters().n_launches, before);
    let parts: Vec<_> = staying.iter().map(|staying| staying.part).collect();
    for part in [PlacePart::Embed, PlacePart::Head, PlacePart::Mixer(0), PlacePart::Ffn(0), PlacePart::Mixer(1)] {
        assert_eq!(parts.iter().filter(|there| **there == part).count(), 1, "{part}: {parts:?}");
    }
}

/// As `quantised_files_are_as_near_to_exact_as_llama_cpp`, which holds the processor to it.
#[test]
fn quantised_files_on_the_card_are_as_near_to_exact_as_llama_cpp() {
    let (_turn, _simulator) = machine();
    let (golden, tokens) = (golden(), quantised::tokens());
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("quantised.gguf");
    let (mut failures, mut with_experts) = (Vec::new(), [0.0, 0.0]);
    for (name, own) in golden.iter().filter(|(name, _)| is_long() || ["llama", "phi3", "qwen3moe"].contains(&&***name))
    {
        let model = MappedModel::open(&data(&format!("{name}.gguf"))).unwrap();
        let n_layers = model.facts.n_layers().unwrap() as usize;
        let mut sums = [0.0, 0.0];
        for (tensor_type, label) in [(TensorType::Q8_0, "Q8_0"), (TensorType::Q4_0, "Q4_0")] {
            let [exact, got] = [(Large::Decoded, Placement::all_cpu(n_layers)), (Large::Blocks, all_on_gpu(n_layers))]
                .map(|(large, placement)| {
                    let _ = std::fs::remove_file(&scratch);
                    quantised::quantised(&model, tensor_type, large).write(&scratch).unwrap();
                    run(&scratch, placement, &tokens, &[]).0
                });
            let all: f64 = exact.iter().zip(&got).map(|(exact, got)| divergence(exact, got)).sum();
            sums[0] += all / exact.len() as f64;
            sums[1] += own[label];
        }
        println!("{name}: {:.2e} from exact, llama.cpp {:.2e}", sums[0], sums[1]);
        if model.facts.arch_u32_or("expert_count", 0).unwrap() > 0 {
            with_experts = [with_experts[0] + sums[0], with_experts[1] + sums[1]];
        } else if !is_as_near(sums) {
            failures.push(format!("{name}: {:.2e} from exact, llama.cpp {:.2e}", sums[0], sums[1]));
        }
    }
    if is_long() && !is_as_near(with_experts) {
        failures.push(format!("experts: {with_experts:?}"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
