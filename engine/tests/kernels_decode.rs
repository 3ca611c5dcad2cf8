//! Scalar decode and encode of every format against vectors made by an independent implementation.
//!
//! `data/dequant-vectors.jsonl` holds two random blocks per format and their values, as llama.cpp's `ggml-quants.c`
//! decodes them (through `gguf` 0.19.0, `gguf.quants.dequantize`, which agrees).
use tandem_engine::gguf::TensorType;
use tandem_engine::quant::{FORMATS, decode_row, encode_row};

const VECTORS: &str = include_str!("data/dequant-vectors.jsonl");

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

/// Half a quantisation step, plus what rounding the scale to a half costs.
#[test]
fn encoded_rows_decode_to_within_half_a_step() {
    let steps = |t| match t {
        TensorType::F32 => f32::INFINITY,
        TensorType::F16 => 1024.0,
        TensorType::BF16 => 128.0,
        TensorType::Q8_0 => 127.0,
        TensorType::Q4_0 => 8.0,
        TensorType::Q5_0 => 16.0,
        TensorType::Q4_1 => 15.0,
        TensorType::Q5_1 => 31.0,
        other => panic!("{other} can be encoded but has no bound here"),
    };
    for format in FORMATS.iter().filter(|f| f.has_encode()) {
        let t = format.tensor_type;
        for amplitude in [0.0, 0.1, 1.0, 100.0] {
            let x: Vec<f32> = (0..576).map(|i| ((i * i) as f32 * 0.37).sin() * amplitude).collect();
            let mut bytes = vec![0; t.row_bytes(576).unwrap() as usize];
            encode_row(t, &x, &mut bytes).unwrap();
            let mut y = vec![0.0; 576];
            decode_row(t, &bytes, &mut y).unwrap();
            // the symmetric four- and five-bit formats lose a whole step at the end opposite to the widest value
            let step =
                if matches!(t, TensorType::Q4_1 | TensorType::Q5_1) { 2.0 * amplitude } else { amplitude } / steps(t);
            let whole = if matches!(t, TensorType::Q4_0 | TensorType::Q5_0) { 1.0 } else { 0.5 };
            for (x, y) in x.iter().zip(&y) {
                assert!((x - y).abs() <= step * whole + amplitude * 1e-3, "{t} {amplitude}: {x} {y}");
            }
        }
    }
}
