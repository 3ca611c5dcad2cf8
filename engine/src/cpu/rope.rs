//! Rotary position embedding: angles prepared once per pass, applied to query and key heads of every layer.
use bytemuck::allocation::try_zeroed_vec;

use super::Cpu;
use super::isa::per_isa;
use super::shared::SharedSlice;

/// Which channels of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// (2j, 2j + 1)
    Norm,
    /// (j, j + n_rot / 2)
    Neox,
}

/// How angles are changed for contexts beyond the one trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All angles divided by the factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Low frequencies divided, high ones kept, a ramp between.
    Yarn {
        /// Context over trained context.
        factor: f32,
        /// Trained context, tokens.
        original_context: f32,
        /// Rotations above which a frequency is kept (32).
        beta_fast: f32,
        /// Rotations below which a frequency is divided (1).
        beta_slow: f32,
    },
}

/// What a model says about its rotary embedding.
#[derive(Clone, Copy, Debug)]
pub struct RopeOptions<'a> {
    /// Pairing.
    pub kind: RopeKind,
    /// Channels of a head that rotate, even; the others pass.
    pub n_rot: usize,
    /// Base of the frequencies.
    pub freq_base: f32,
    /// [n_rot / 2] divisors of the frequencies (`rope_freqs.weight`).
    pub freq_factors: Option<&'a [f32]>,
    /// Scaling.
    pub scaling: RopeScaling,
    /// Factor of the rotated values, 1 where nothing was stretched.
    pub magnitude: f32,
}

/// Frequencies of a model, and the angles of the tokens of a pass.
pub struct Rope {
    kind: RopeKind,
    n_rot: usize,
    magnitude: f32,
    /// [n_rot / 2] radians per position
    frequencies: Vec<f64>,
    /// [n_tokens, n_rot / 2]
    cos: Vec<f32>,
    /// [n_tokens, n_rot / 2]
    sin: Vec<f32>,
    max_tokens: usize,
    n_tokens: usize,
}

/// Elements per task; smaller ones run on the caller alone.
const GRAIN: usize = 16 * 1024;

impl Rope {
    /// Computes the frequencies and allocates the angles of at most `max_tokens` tokens.
    ///
    /// Errors   none; panics if `n_rot` is odd or `freq_factors` has another length than n_rot / 2, and without memory
    /// Source   Su et al. 2021 section 3.2; Peng et al. 2023 (YaRN) section 3.2
    pub fn new(options: &RopeOptions<'_>, max_tokens: usize) -> Rope {
        Rope::try_new(options, max_tokens).expect("memory for angles")
    }

    /// The same; `None` without memory for the angles.
    pub fn try_new(options: &RopeOptions<'_>, max_tokens: usize) -> Option<Rope> {
        assert!(options.n_rot.is_multiple_of(2), "n_rot {}", options.n_rot);
        let n = options.n_rot / 2;
        assert!(options.freq_factors.is_none_or(|f| f.len() == n), "frequency factors");
        let frequency = |j: usize| {
            let plain = f64::from(options.freq_base).powf(-2.0 * j as f64 / options.n_rot as f64);
            let plain = plain / options.freq_factors.map_or(1.0, |f| f64::from(f[j]));
            plain * scaling_of(options, j)
        };
        Some(Rope {
            kind: options.kind,
            n_rot: options.n_rot,
            magnitude: options.magnitude,
            frequencies: (0..n).map(frequency).collect(),
            cos: try_zeroed_vec(n * max_tokens).ok()?,
            sin: try_zeroed_vec(n * max_tokens).ok()?,
            max_tokens,
            n_tokens: 0,
        })
    }

    /// Prepares the angles of tokens at first_pos..first_pos + n_tokens; once per pass, for all layers.
    pub fn set_positions(&mut self, first_pos: usize, n_tokens: usize) {
        assert!(n_tokens <= self.max_tokens, "{n_tokens} tokens, room for {}", self.max_tokens);
        self.n_tokens = n_tokens;
        let n = self.frequencies.len();
        for t in 0..n_tokens {
            for (j, frequency) in self.frequencies.iter().enumerate() {
                let (sin, cos) = ((first_pos + t) as f64 * frequency).sin_cos();
                self.cos[t * n + j] = cos as f32 * self.magnitude;
                self.sin[t * n + j] = sin as f32 * self.magnitude;
            }
        }
    }

    /// Which channels form a pair.
    pub fn kind(&self) -> RopeKind {
        self.kind
    }

    /// Pairs of channels that turn.
    pub fn n_pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Cosines and sines of the positions that were set, [n_tokens, n_pairs] each, with the magnitude in them.
    pub fn angles(&self) -> (&[f32], &[f32]) {
        let n = self.n_tokens * self.frequencies.len();
        (&self.cos[..n], &self.sin[..n])
    }

    /// Rotates the heads of all tokens by their positions.
    ///
    /// x        [n_tokens, n_heads, head_dim] f32, changed in place; n_tokens as in `set_positions`
    /// Errors   none; panics if shapes do not fit or n_rot exceeds head_dim
    /// Cost     O(n_tokens * n_heads * n_rot), no allocation
    /// Source   Su et al. 2021 section 3.4.2
    pub fn apply(&self, cpu: &Cpu, x: &mut [f32], head_dim: usize) {
        assert!(self.n_rot <= head_dim, "{} of {head_dim} channels", self.n_rot);
        if self.n_tokens == 0 || self.n_rot == 0 {
            return;
        }
        let (n, row) = (self.n_rot / 2, x.len() / self.n_tokens);
        assert!(x.len() == row * self.n_tokens && row.is_multiple_of(head_dim), "heads");
        let x = SharedSlice::new(x);
        cpu.pool.split(self.n_tokens, GRAIN.div_ceil(row.max(1)), &|tokens| {
            for t in tokens {
                // SAFETY: `split` hands each token to one task.
                let x = unsafe { x.part(t * row..(t + 1) * row) };
                let (cos, sin) = (&self.cos[t * n..][..n], &self.sin[t * n..][..n]);
                // SAFETY: the ISA of a `Cpu` is present.
                unsafe {
                    match self.kind {
                        RopeKind::Norm => rotate_neighbours(cpu.isa(), x, head_dim, cos, sin),
                        RopeKind::Neox => rotate_halves(cpu.isa(), x, head_dim, cos, sin),
                    }
                }
            }
        });
    }
}

per_isa! {
    unsafe fn rotate_neighbours<V>(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in x.chunks_exact_mut(head_dim) {
            for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = a * s + b * c;
            }
        }
    }
}

per_isa! {
    unsafe fn rotate_halves<V>(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in x.chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(cos.len());
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }
}

/// What frequency j is multiplied with.
fn scaling_of(options: &RopeOptions<'_>, j: usize) -> f64 {
    match options.scaling {
        RopeScaling::None => 1.0,
        RopeScaling::Linear { factor } => 1.0 / f64::from(factor),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
            let n_rot = options.n_rot as f64;
            // the pair that turns so many times within the trained context
            let pair = |turns: f32| {
                let wavelengths = f64::from(original_context) / (2.0 * std::f64::consts::PI * f64::from(turns));
                n_rot * wavelengths.ln() / (2.0 * f64::from(options.freq_base).ln())
            };
            let low = pair(beta_fast).floor().max(0.0);
            let high = pair(beta_slow).ceil().min(n_rot - 1.0);
            let kept = 1.0 - ((j as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (1.0 - kept) / f64::from(factor) + kept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    const PLAIN: RopeOptions<'_> = RopeOptions {
        kind: RopeKind::Norm,
        n_rot: 8,
        freq_base: 10_000.0,
        freq_factors: None,
        scaling: RopeScaling::None,
        magnitude: 1.0,
    };

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.7).sin()).collect()
    }

    /// The definition: pair by pair, in f64.
    fn reference(o: &RopeOptions<'_>, x: &[f32], head_dim: usize, first_pos: usize, n_tokens: usize) -> Vec<f64> {
        let mut y: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let row = x.len() / n_tokens;
        for (t, row) in y.chunks_exact_mut(row).enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                for j in 0..o.n_rot / 2 {
                    let mut angle =
                        (first_pos + t) as f64 / f64::from(o.freq_base).powf(2.0 * j as f64 / o.n_rot as f64);
                    angle /= o.freq_factors.map_or(1.0, |f| f64::from(f[j]));
                    if let RopeScaling::Linear { factor } = o.scaling {
                        angle /= f64::from(factor);
                    }
                    let (a, b) = if o.kind == RopeKind::Norm { (2 * j, 2 * j + 1) } else { (j, j + o.n_rot / 2) };
                    (head[a], head[b]) =
                        (head[a] * angle.cos() - head[b] * angle.sin(), head[a] * angle.sin() + head[b] * angle.cos());
                }
            }
        }
        y
    }

    #[test]
    fn rotation_equals_f64_for_every_kind_size_and_isa() {
        let factors: Vec<f32> = (0..40).map(|j| 1.0 + j as f32 * 0.3).collect();
        for kind in [RopeKind::Norm, RopeKind::Neox] {
            for (n_rot, head_dim, n_heads, n_tokens, first_pos) in
                [(8, 8, 1, 1, 0), (8, 12, 3, 2, 5), (64, 64, 9, 40, 1000), (80, 80, 2, 3, 100_000), (6, 7, 5, 4, 31)]
            {
                for freq_factors in [None, Some(&factors[..n_rot / 2])] {
                    for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 4.0 }] {
                        let o = RopeOptions { kind, n_rot, freq_factors, scaling, ..PLAIN };
                        let x = wave(n_tokens * n_heads * head_dim);
                        let want = reference(&o, &x, head_dim, first_pos, n_tokens);
                        let mut rope = Rope::new(&o, n_tokens);
                        rope.set_positions(first_pos, n_tokens);
                        for isa in Isa::present() {
                            let mut y = x.clone();
                            rope.apply(&Cpu::new(isa, 2).unwrap(), &mut y, head_dim);
                            for (g, w) in y.iter().zip(&want) {
                                assert!((f64::from(*g) - w).abs() < 1e-6, "{isa} {o:?}: {g} {w}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn yarn_keeps_fast_pairs_divides_slow_ones_and_scales_values() {
        let scaling = RopeScaling::Yarn { factor: 4.0, original_context: 4096.0, beta_fast: 32.0, beta_slow: 1.0 };
        let o = RopeOptions { n_rot: 128, scaling, magnitude: 1.5, ..PLAIN };
        let (yarn, plain) = (Rope::new(&o, 1), Rope::new(&RopeOptions { scaling: RopeScaling::None, ..o }, 1));
        let ratio: Vec<f64> = yarn.frequencies.iter().zip(&plain.frequencies).map(|(a, b)| a / b).collect();
        // c(32) = 20.95 and c(1) = 45.03 for these numbers: kept up to pair 20, divided from pair 46 on
        assert!(ratio[..=20].iter().all(|r| (r - 1.0).abs() < 1e-12));
        assert!(ratio[46..].iter().all(|r| (r - 0.25).abs() < 1e-12));
        assert!((ratio[33] - (1.0 - 0.75 * 13.0 / 26.0)).abs() < 1e-9, "{}", ratio[33]);
        let mut yarn = yarn;
        yarn.set_positions(0, 1);
        let mut x = wave(128);
        let want: Vec<f32> = x.iter().map(|v| v * 1.5).collect();
        yarn.apply(&Cpu::new(Isa::best(), 1).unwrap(), &mut x, 128);
        assert_eq!(x, want);
    }
}
