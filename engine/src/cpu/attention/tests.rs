//! Attention against its definition in f64, at odd sizes, on every ISA and for every type of K and V.
use super::*;
use crate::cpu::Isa;
use crate::cpu::check::isas;
use crate::gguf::TensorType;
use crate::quant;
use half::f16;

struct Case {
    n_tokens: usize,
    n_heads: usize,
    n_kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    first_pos: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    has_sinks: bool,
    /// Rows of the cache, if it is a ring.
    n_rows: Option<usize>,
    /// The values are the first channels of the keys.
    is_in_keys: bool,
}

const fn case(n_tokens: usize, n_heads: usize, n_kv_heads: usize, head_dim: usize, first_pos: usize) -> Case {
    Case {
        n_tokens,
        n_heads,
        n_kv_heads,
        key_dim: head_dim,
        value_dim: head_dim,
        first_pos,
        window: None,
        softcap: None,
        has_sinks: false,
        n_rows: None,
        is_in_keys: false,
    }
}

const CASES: &[Case] = &[
    case(1, 1, 1, 4, 0),
    case(1, 9, 3, 64, 0),
    case(1, 9, 3, 64, 777),
    case(1, 40, 2, 80, 1300),
    case(2, 4, 4, 20, 31),
    case(5, 9, 3, 64, 32),
    case(17, 6, 1, 16, 0),
    case(40, 9, 3, 64, 100),
    case(33, 8, 8, 24, 1),
    case(3, 64, 2, 128, 63),
    case(1, 6, 2, 96, 600),
    Case { value_dim: 64, is_in_keys: true, ..case(6, 9, 1, 96, 40) },
    Case { window: Some(1), ..case(9, 4, 2, 16, 5) },
    Case { window: Some(40), ..case(50, 4, 2, 16, 70) },
    Case { window: Some(300), has_sinks: true, ..case(1, 4, 1, 32, 900) },
    Case { softcap: Some(2.0), ..case(7, 4, 2, 32, 40) },
    Case { has_sinks: true, ..case(12, 6, 2, 48, 20) },
    Case { value_dim: 24, ..case(9, 6, 2, 40, 50) },
    Case { value_dim: 64, ..case(1, 6, 2, 32, 900) },
    Case { value_dim: 64, is_in_keys: true, ..case(5, 20, 1, 72, 33) },
    Case { value_dim: 32, is_in_keys: true, ..case(1, 20, 1, 40, 700) },
    Case { window: Some(40), n_rows: Some(64), ..case(25, 4, 2, 16, 200) },
    Case { window: Some(40), n_rows: Some(96), ..case(25, 4, 2, 16, 60) },
    Case { window: Some(600), n_rows: Some(601), ..case(1, 4, 2, 16, 5000) },
];

/// Positions behind the last token that hold garbage, as a cache has.
const N_BEHIND: usize = 3;

fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin() * 2.0).collect()
}

/// Pairs of types of K and V.
const TYPES: [(TensorType, TensorType); 8] = [
    (TensorType::F32, TensorType::F32),
    (TensorType::F16, TensorType::F16),
    (TensorType::F16, TensorType::F32),
    (TensorType::F32, TensorType::F16),
    (TensorType::Q8_0, TensorType::Q8_0),
    (TensorType::Q4_0, TensorType::Q4_0),
    (TensorType::Q8_0, TensorType::Q4_0),
    (TensorType::Q4_0, TensorType::F16),
];

/// K or V as a cache holds them.
struct Stored {
    tensor_type: TensorType,
    f32: Vec<f32>,
    f16: Vec<f16>,
    blocks: Vec<u8>,
    /// [n_positions, n_kv_heads, dim] what the rows stand for.
    positions: Vec<f32>,
}

impl Stored {
    /// Rows that hold no position, or one that the ring has given up, are NaN.
    ///
    /// positions  [n_positions, n_kv_heads, dim]
    fn new(c: &Case, tensor_type: TensorType, positions: &[f32], dim: usize) -> Stored {
        let n_positions = c.first_pos + c.n_tokens;
        let n_rows = c.n_rows.unwrap_or(n_positions + N_BEHIND);
        let width = c.n_kv_heads * dim;
        let row_bytes = tensor_type.row_bytes(width as u64).unwrap() as usize;
        let mut bytes = vec![0xff; n_rows * row_bytes];
        let mut decoded = vec![0.0; positions.len()];
        for (p, (x, decoded)) in positions.chunks_exact(width).zip(decoded.chunks_exact_mut(width)).enumerate() {
            let mut row = vec![0; row_bytes];
            quant::encode_row(tensor_type, x, &mut row).unwrap();
            quant::decode_row(tensor_type, &row, decoded).unwrap();
            if p + n_rows >= n_positions {
                bytes[p % n_rows * row_bytes..][..row_bytes].copy_from_slice(&row);
            }
        }
        let f32 = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let f16 = bytes.chunks_exact(2).map(|b| f16::from_le_bytes(b.try_into().unwrap())).collect();
        Stored { tensor_type, f32, f16, blocks: bytes, positions: decoded }
    }

    fn slice(&self) -> KvSlice<'_> {
        match self.tensor_type {
            TensorType::F32 => KvSlice::F32(&self.f32),
            TensorType::F16 => KvSlice::F16(&self.f16),
            TensorType::Q8_0 => KvSlice::Q8_0(&self.blocks),
            _ => KvSlice::Q4_0(&self.blocks),
        }
    }
}

fn wave_positions(c: &Case, dim: usize, step: f32) -> Vec<f32> {
    wave((c.first_pos + c.n_tokens) * c.n_kv_heads * dim, step)
}

/// The definition.
///
/// k        [n_positions, n_kv_heads, key_dim]
/// v        [n_positions, n_kv_heads, value_dim]
fn reference(c: &Case, q: &[f32], k: &[f32], v: &[f32], scale: f32, sinks: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for (i, q) in q.chunks_exact(c.key_dim).enumerate() {
        let (token, head) = (i / c.n_heads, i % c.n_heads);
        let kv_head = head / (c.n_heads / c.n_kv_heads);
        let of = |kv: &[f32], p: usize, dim: usize, d: usize| f64::from(kv[(p * c.n_kv_heads + kv_head) * dim + d]);
        let end = c.first_pos + token + 1;
        let seen = end.saturating_sub(c.window.unwrap_or(end))..end;
        let weight = |p: usize| {
            let products = q.iter().enumerate().map(|(d, q)| f64::from(*q) * of(k, p, c.key_dim, d));
            let score = products.sum::<f64>() * f64::from(scale);
            c.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
        };
        let weights: Vec<f64> = seen.clone().map(weight).collect();
        let sink = if c.has_sinks { f64::from(sinks[head]).exp() } else { 0.0 };
        let sum = weights.iter().sum::<f64>() + sink;
        let mean = |d| seen.clone().zip(&weights).map(|(p, w)| of(v, p, c.value_dim, d) * w).sum::<f64>() / sum;
        out.extend((0..c.value_dim).map(mean));
    }
    out
}

/// The first channels of every key.
fn values_in(c: &Case, k: &[f32]) -> Vec<f32> {
    k.chunks_exact(c.key_dim).flat_map(|key| &key[..c.value_dim]).copied().collect()
}

#[test]
fn attention_equals_its_definition() {
    for (i, c) in CASES.iter().enumerate() {
        let q = wave(c.n_tokens * c.n_heads * c.key_dim, 0.77);
        let sinks = wave(c.n_heads, 1.0);
        let scale = 1.0 / (c.key_dim as f32).sqrt();
        let mut scratch = AttentionScratch::new(c.n_heads, c.value_dim);
        let is_whole_blocks = c.key_dim.is_multiple_of(32) && c.value_dim.is_multiple_of(32);
        for (k_type, v_type) in TYPES {
            if !is_whole_blocks && [k_type, v_type].iter().any(|t| t.row().block_elems > 1) {
                continue;
            }
            let k = Stored::new(c, k_type, &wave_positions(c, c.key_dim, 0.013), c.key_dim);
            let v = Stored::new(c, v_type, &wave_positions(c, c.value_dim, 0.31), c.value_dim);
            let values = if c.is_in_keys { values_in(c, &k.positions) } else { v.positions.clone() };
            let want = reference(c, &q, &k.positions, &values, scale, &sinks);
            for isa in isas() {
                for n_threads in [1, 4] {
                    let cpu = Cpu::new(isa, n_threads).unwrap();
                    let args = AttentionArgs {
                        q: &q,
                        k: k.slice(),
                        v: (!c.is_in_keys).then_some(v.slice()),
                        n_heads: c.n_heads,
                        n_kv_heads: c.n_kv_heads,
                        key_dim: c.key_dim,
                        value_dim: c.value_dim,
                        first_pos: c.first_pos,
                        scale,
                        options: AttentionOptions {
                            window: c.window,
                            softcap: c.softcap,
                            sinks: c.has_sinks.then_some(&sinks),
                        },
                    };
                    let mut out = vec![f32::NAN; want.len()];
                    attention(&cpu, &mut scratch, &args, &mut out);
                    for (j, (got, want)) in out.iter().zip(&want).enumerate() {
                        let what = || format!("case {i} {k_type} {v_type} {isa} {n_threads} {j}: {got} {want}");
                        // values are about 2; scores of up to 128 terms lose 1e-5 at most
                        assert!((f64::from(*got) - want).abs() < 2e-5, "{}", what());
                    }
                }
            }
        }
    }
}

/// A prompt in one piece and in chunks gives the same rows, whatever the chunks.
#[test]
fn chunks_give_what_the_whole_gives() {
    let c = case(61, 9, 3, 64, 0);
    let row = c.n_heads * c.key_dim;
    let [k, v] =
        [0.013, 0.31].map(|step| Stored::new(&c, TensorType::F16, &wave_positions(&c, c.key_dim, step), c.key_dim));
    let q = wave(c.n_tokens * row, 0.77);
    let cpu = Cpu::new(Isa::best(), 2).unwrap();
    let mut scratch = AttentionScratch::new(c.n_heads, c.value_dim);
    let mut run = |tokens: Range<usize>| {
        let mut out = vec![f32::NAN; tokens.len() * row];
        let args = AttentionArgs {
            q: &q[tokens.start * row..tokens.end * row],
            k: k.slice(),
            v: Some(v.slice()),
            n_heads: c.n_heads,
            n_kv_heads: c.n_kv_heads,
            key_dim: c.key_dim,
            value_dim: c.value_dim,
            first_pos: tokens.start,
            scale: 0.125,
            options: AttentionOptions::default(),
        };
        attention(&cpu, &mut scratch, &args, &mut out);
        out
    };
    let whole = run(0..61);
    for sizes in [&[61][..], &[1, 60], &[7, 3, 11, 40], &[32, 29]] {
        let mut first = 0;
        for n in sizes {
            let part = run(first..first + n);
            for (got, want) in part.iter().zip(&whole[first * row..]) {
                assert!((got - want).abs() < 1e-5, "{sizes:?}: {got} {want}");
            }
            first += n;
        }
    }
}
