//! Attention against its definition in f64, at odd sizes, on every ISA and for every type of K and V.
use super::*;
use crate::cpu::Isa;
use half::f16;

struct Case {
    n_tokens: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    first_pos: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    has_sinks: bool,
}

const fn case(n_tokens: usize, n_heads: usize, n_kv_heads: usize, head_dim: usize, first_pos: usize) -> Case {
    Case { n_tokens, n_heads, n_kv_heads, head_dim, first_pos, window: None, softcap: None, has_sinks: false }
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
    Case { window: Some(1), ..case(9, 4, 2, 16, 5) },
    Case { window: Some(40), ..case(50, 4, 2, 16, 70) },
    Case { window: Some(300), has_sinks: true, ..case(1, 4, 1, 32, 900) },
    Case { softcap: Some(2.0), ..case(7, 4, 2, 32, 40) },
    Case { has_sinks: true, ..case(12, 6, 2, 48, 20) },
];

/// Positions behind the last token that hold garbage, as a cache has.
const N_BEHIND: usize = 3;

fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin() * 2.0).collect()
}

/// Cached K or V: every value exact in half precision, NaN behind the last position.
fn cache(c: &Case, step: f32) -> Vec<f16> {
    let row = c.n_kv_heads * c.head_dim;
    let mut kv: Vec<f16> = wave((c.first_pos + c.n_tokens) * row, step).into_iter().map(f16::from_f32).collect();
    kv.extend(std::iter::repeat_n(f16::NAN, N_BEHIND * row));
    kv
}

fn reference(c: &Case, q: &[f32], k: &[f16], v: &[f16], scale: f32, sinks: &[f32]) -> Vec<f64> {
    let (dim, kv_row) = (c.head_dim, c.n_kv_heads * c.head_dim);
    let mut out = Vec::new();
    for (i, q) in q.chunks_exact(dim).enumerate() {
        let (token, head) = (i / c.n_heads, i % c.n_heads);
        let kv = head / (c.n_heads / c.n_kv_heads) * dim;
        let end = c.first_pos + token + 1;
        let seen = end.saturating_sub(c.window.unwrap_or(end))..end;
        let weights: Vec<f64> = seen
            .clone()
            .map(|p| {
                let k = &k[p * kv_row + kv..][..dim];
                let score = q.iter().zip(k).map(|(a, b)| f64::from(*a) * b.to_f64()).sum::<f64>() * f64::from(scale);
                c.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
            })
            .collect();
        let sink = if c.has_sinks { f64::from(sinks[head]).exp() } else { 0.0 };
        let sum = weights.iter().sum::<f64>() + sink;
        out.extend(
            (0..dim).map(|d| {
                seen.clone().zip(&weights).map(|(p, w)| v[p * kv_row + kv + d].to_f64() * w).sum::<f64>() / sum
            }),
        );
    }
    out
}

#[test]
fn attention_equals_its_definition() {
    for (i, c) in CASES.iter().enumerate() {
        let q = wave(c.n_tokens * c.n_heads * c.head_dim, 0.77);
        let (k, v) = (cache(c, 0.013), cache(c, 0.31));
        let (k32, v32): (Vec<f32>, Vec<f32>) =
            (k.iter().map(|v| v.to_f32()).collect(), v.iter().map(|v| v.to_f32()).collect());
        let sinks = wave(c.n_heads, 1.0);
        let scale = 1.0 / (c.head_dim as f32).sqrt();
        let want = reference(c, &q, &k, &v, scale, &sinks);
        let mut scratch = AttentionScratch::new(c.n_heads, c.head_dim);
        for isa in Isa::present() {
            for n_threads in [1, 4] {
                let cpu = Cpu::new(isa, n_threads).unwrap();
                for (k, v) in [
                    (KvSlice::F32(&k32), KvSlice::F32(&v32)),
                    (KvSlice::F16(&k), KvSlice::F16(&v)),
                    (KvSlice::F16(&k), KvSlice::F32(&v32)),
                    (KvSlice::F32(&k32), KvSlice::F16(&v)),
                ] {
                    let args = AttentionArgs {
                        q: &q,
                        k,
                        v,
                        n_heads: c.n_heads,
                        n_kv_heads: c.n_kv_heads,
                        head_dim: c.head_dim,
                        first_pos: c.first_pos,
                        scale,
                        options: AttentionOptions {
                            window: c.window,
                            softcap: c.softcap,
                            sinks: c.has_sinks.then_some(&sinks),
                        },
                    };
                    let mut out = vec![f32::NAN; q.len()];
                    attention(&cpu, &mut scratch, &args, &mut out);
                    for (j, (got, want)) in out.iter().zip(&want).enumerate() {
                        // values are below 2; scores of up to 64 terms lose 1e-5 at most
                        assert!((f64::from(*got) - want).abs() < 2e-5, "case {i} {isa} {n_threads} {j}: {got} {want}");
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
    let row = c.n_heads * c.head_dim;
    let (q, k, v) = (wave(c.n_tokens * row, 0.77), cache(&c, 0.013), cache(&c, 0.31));
    let cpu = Cpu::new(Isa::best(), 2).unwrap();
    let mut scratch = AttentionScratch::new(c.n_heads, c.head_dim);
    let mut run = |tokens: Range<usize>| {
        let mut out = vec![f32::NAN; tokens.len() * row];
        let args = AttentionArgs {
            q: &q[tokens.start * row..tokens.end * row],
            k: KvSlice::F16(&k),
            v: KvSlice::F16(&v),
            n_heads: c.n_heads,
            n_kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
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
