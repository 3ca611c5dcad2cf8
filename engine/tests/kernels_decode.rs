//! Scalar decode and encode of every format against vectors made by an independent implementation.
//!
//! `data/dequant-vectors.jsonl` holds two random blocks per format and their values, as llama.cpp's `ggml-quants.c`
//! decodes them (through `gguf` 0.19.0, `gguf.quants.dequantize`, which agrees). `data/quant-goldens.json` is made by
//! `tests/goldens/make_quant_goldens.py`.
use tandem_engine::gguf::TensorType;
use tandem_engine::quant::{FORMATS, Format, decode_row, encode_row};

const VECTORS: &str = include_str!("data/dequant-vectors.jsonl");
const GOLDENS: &str = include_str!("data/quant-goldens.json");

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits")).collect()
}

#[test]
fn decoded_blocks_equal_the_vectors_bit_for_bit() {
    let mut n_seen = vec![0; FORMATS.len()];
    for line in VECTORS.lines() {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        let tensor_type = TensorType::from_name(v["type"].as_str().unwrap()).unwrap();
        let want: Vec<u32> = hex(v["f32le"].as_str().unwrap())
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let mut got = vec![0.0; want.len()];
        decode_row(tensor_type, &hex(v["block"].as_str().unwrap()), &mut got).unwrap();
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got.to_bits(), *want, "{tensor_type} {i}: {got} {}", f32::from_bits(*want));
        }
        n_seen[FORMATS.iter().position(|f| f.tensor_type == tensor_type).unwrap()] += 1;
    }
    for (format, n) in FORMATS.iter().zip(n_seen) {
        let is_float = matches!(format.tensor_type, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        assert!(n == if is_float { 0 } else { 2 }, "{} has {n} vectors", format.tensor_type);
    }
}

/// What other implementations make of each format: `decode_hash` of many blocks, `encode_error` of llama.cpp.
fn goldens() -> serde_json::Value {
    serde_json::from_str(GOLDENS).expect("the goldens are JSON")
}

/// The same numbers as the script draws.
fn random_words(mut seed: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    })
}

fn is_float(format: &Format) -> bool {
    matches!(format.tensor_type, TensorType::F32 | TensorType::F16 | TensorType::BF16)
}

/// 256 random blocks reach every entry of the smaller tables and most of the largest.
#[test]
fn many_random_blocks_decode_as_elsewhere() {
    let goldens = goldens();
    for format in FORMATS.iter().filter(|format| !is_float(format)) {
        let row = format.tensor_type.row();
        let mut bytes = random_words(u64::from(row.id) + 1).map(|word| (word >> 32) as u8);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for _ in 0..256 {
            let block: Vec<u8> = bytes.by_ref().take(row.block_bytes as usize).collect();
            let mut out = vec![0.0; row.block_elems as usize];
            decode_row(format.tensor_type, &block, &mut out).unwrap();
            if out.iter().all(|v| v.is_finite()) {
                for byte in out.iter().flat_map(|v| v.to_le_bytes()) {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        assert_eq!(goldens[row.name]["decode_hash"], format!("{hash:016x}"), "{}", row.name);
    }
}

#[test]
fn encoded_values_are_as_close_as_llama_cpps() {
    let goldens = goldens();
    let (n_rows, n_cols) = (32, 512);
    let words: Vec<f32> = random_words(1).take(12 * n_rows * n_cols).map(|word| (word >> 40) as f32).collect();
    let normal: Vec<f32> =
        words.chunks_exact(12).map(|w| w.iter().map(|w| w / 16_777_216.0).sum::<f32>() - 6.0).collect();
    let cubes: Vec<f32> = normal.iter().map(|x| x * x * x).collect();
    for format in FORMATS.iter().filter(|format| format.has_encode() && !is_float(format)) {
        let t = format.tensor_type;
        let theirs = &goldens[t.row().name]["encode_error"];
        for (x, theirs) in [(&normal, &theirs[0]), (&cubes, &theirs[1])] {
            let theirs = theirs.as_f64().expect("llama.cpp encodes what we do");
            let mut bytes = vec![0; t.row_bytes(x.len() as u64).unwrap() as usize];
            encode_row(t, x, &mut bytes).unwrap();
            let mut y = vec![0.0; x.len()];
            decode_row(t, &bytes, &mut y).unwrap();
            let square = |v: f32| f64::from(v) * f64::from(v);
            let error: f64 = x.iter().zip(&y).map(|(x, y)| square(x - y)).sum();
            let ours = (error / x.iter().map(|&x| square(x)).sum::<f64>()).sqrt();
            // equal formulas give equal figures; the fitted formats do better
            assert!(ours <= theirs * 1.000_1, "{t}: {ours} against {theirs}");
        }
    }
}

#[test]
fn float_formats_decode_their_bits() {
    let mut out = [0.0; 4];
    decode_row(TensorType::F32, bytes_of(&[1f32, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY]), &mut out).unwrap();
    assert_eq!(out.map(f32::to_bits), [1f32, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY].map(f32::to_bits));
    // 1, -2, the smallest denormal, infinity
    decode_row(TensorType::F16, bytes_of(&[0x3c00u16, 0xc000, 1, 0x7c00]), &mut out).unwrap();
    assert_eq!(out, [1.0, -2.0, 2f32.powi(-24), f32::INFINITY]);
    decode_row(TensorType::BF16, bytes_of(&[0x3f80u16, 0xc000, 1, 0x7f80]), &mut out).unwrap();
    assert_eq!(out, [1.0, -2.0, f32::from_bits(1 << 16), f32::INFINITY]);
}

fn bytes_of<T: bytemuck::NoUninit>(v: &[T]) -> &[u8] {
    bytemuck::cast_slice(v)
}

/// Half a quantisation step, plus what rounding the scale to a half costs; a whole step where the scale is fitted, or
/// where the levels are not symmetric.
#[test]
fn encoded_rows_decode_to_within_a_step() {
    // steps from 0 to the widest value, and how much of one may be lost
    let bound = |t| match t {
        TensorType::F32 => (f32::INFINITY, 0.5),
        TensorType::F16 => (1024.0, 0.5),
        TensorType::BF16 => (128.0, 0.5),
        TensorType::Q8_0 => (127.0, 0.5),
        TensorType::Q4_0 => (8.0, 1.0),
        TensorType::Q5_0 => (16.0, 1.0),
        TensorType::Q4_1 => (7.5, 0.5),
        TensorType::Q5_1 => (15.5, 0.5),
        TensorType::Q2_K => (1.5, 1.0),
        TensorType::Q3_K => (4.0, 1.0),
        TensorType::Q4_K => (7.5, 1.0),
        TensorType::Q5_K => (15.5, 1.0),
        TensorType::Q6_K => (32.0, 1.0),
        // the widest gap between levels
        TensorType::IQ4_NL | TensorType::IQ4_XS => (113.0 / 24.0, 1.0),
        TensorType::MXFP4 => (3.0, 1.0),
        other => panic!("{other} can be encoded but has no bound here"),
    };
    for format in FORMATS.iter().filter(|f| f.has_encode()) {
        let t = format.tensor_type;
        for amplitude in [0.0, 0.1, 1.0, 100.0] {
            let x: Vec<f32> = (0..768).map(|i| ((i * i) as f32 * 0.37).sin() * amplitude).collect();
            let mut bytes = vec![0; t.row_bytes(768).unwrap() as usize];
            encode_row(t, &x, &mut bytes).unwrap();
            let mut y = vec![0.0; 768];
            decode_row(t, &bytes, &mut y).unwrap();
            let (steps, part) = bound(t);
            for (x, y) in x.iter().zip(&y) {
                assert!((x - y).abs() <= amplitude * (part / steps + 1e-3), "{t} {amplitude}: {x} {y}");
            }
        }
    }
}
