//! Encoding by least squares: the scale, or scale and min, under which rounded weights lie closest to the weights.
//!
//! A few scales near the obvious one are tried; for each, rounding gives quants, and for those the best scale is a formula.
//! For fixtures and tests: no importance of weights is taken into account, and nobody waits for it.
use super::codec::{inverse, min_max, widest};

/// Scales tried on each side of the obvious one.
const N_TRIES: i32 = 10;

/// The d for which `d * nearest(x / d)` is closest to x.
///
/// x        a group of weights
/// end      the level of the widest weight; tried as well are up to `reach` less and more
/// nearest  the level next to a weight in units of d
pub(super) fn scale(x: &[f32], end: f32, reach: f32, nearest: impl Fn(f32) -> f32) -> f32 {
    let to_widest = inverse(widest(x));
    let (mut best, mut best_gain) = (0.0, 0.0);
    for k in -N_TRIES..=N_TRIES {
        let by = (end + reach * k as f32 / N_TRIES as f32) * to_widest;
        let (mut xq, mut qq) = (0.0, 0.0);
        for &v in x {
            let q = nearest(v * by);
            xq += v * q;
            qq += q * q;
        }
        // under the best scale for these levels, xq / qq, the squared error is less by this than under 0
        let gain = xq * xq * inverse(qq);
        if gain > best_gain {
            (best, best_gain) = (xq / qq, gain);
        }
    }
    best
}

/// Scale and min, not negative, for which `scale * q - min` with q in 0..=n_max is closest to x.
fn scale_and_min(x: &[f32], n_max: f32) -> (f32, f32) {
    let (low, high) = min_max(x);
    let low = low.min(0.0);
    let n = x.len() as f32;
    let (mut best, mut least) = ((0.0, -low), f32::INFINITY);
    for k in -N_TRIES..=N_TRIES {
        let by = (n_max + k as f32 / N_TRIES as f32) * inverse(high - low);
        let level = |v: f32| ((v - low) * by).round().clamp(0.0, n_max);
        let (mut sx, mut sq, mut xq, mut qq) = (0.0, 0.0, 0.0, 0.0);
        for &v in x {
            let q = level(v);
            sx += v;
            sq += q;
            xq += v * q;
            qq += q * q;
        }
        let determinant = inverse(n * qq - sq * sq);
        let (mut d, mut m) = ((n * xq - sx * sq) * determinant, (sq * xq - qq * sx) * determinant);
        if m < 0.0 {
            (d, m) = (xq * inverse(qq), 0.0);
        }
        let error: f32 = x.iter().map(|&v| (d * level(v) - m - v).powi(2)).sum();
        if d > 0.0 && error < least {
            (best, least) = ((d, m), error);
        }
    }
    best
}

/// 256 weights as groups with small integer scales and mins: `d * scale * q - dmin * min`.
pub(super) struct Affine {
    pub(super) d: f32,
    pub(super) dmin: f32,
    /// Of each group.
    pub(super) scales: [u8; 16],
    /// Of each group.
    pub(super) mins: [u8; 16],
    pub(super) q: [u8; 256],
}

/// Fits groups of `x.len() / n_groups` weights; quants up to `n_max`, scales and mins up to `steps`.
pub(super) fn affine(x: &[f32], n_groups: usize, n_max: f32, steps: f32) -> Affine {
    let group = x.len() / n_groups;
    let mut fits = [(0.0, 0.0); 16];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(group)) {
        *fit = scale_and_min(x, n_max);
    }
    let d = as_half(fits.iter().fold(0.0, |m: f32, fit| m.max(fit.0)) / steps);
    let dmin = as_half(fits.iter().fold(0.0, |m: f32, fit| m.max(fit.1)) / steps);
    let small = |v: f32, d: f32| (v * inverse(d)).round().min(steps) as u8;
    let mut all = Affine { d, dmin, scales: [0; 16], mins: [0; 16], q: [0; 256] };
    for (g, (x, q)) in x.chunks_exact(group).zip(all.q.chunks_exact_mut(group)).enumerate() {
        (all.scales[g], all.mins[g]) = (small(fits[g].0, d), small(fits[g].1, dmin));
        let (by, m) = (inverse(d * f32::from(all.scales[g])), dmin * f32::from(all.mins[g]));
        for (x, q) in x.iter().zip(q) {
            *q = ((x + m) * by).round().clamp(0.0, n_max) as u8;
        }
    }
    all
}

/// Scales of groups as `d * small integer`.
pub(super) struct Signed {
    pub(super) d: f32,
    /// Of each group; from `end` to `-end - 1`.
    pub(super) scales: [i8; 16],
}

impl Signed {
    /// Makes the scales of `n_groups` groups of `x` small; `end` is the smallest integer.
    pub(super) fn new(x: &[f32], n_groups: usize, end: f32, scale: impl Fn(&[f32]) -> f32) -> Signed {
        let mut wide = [0.0; 16];
        for (wide, x) in wide.iter_mut().zip(x.chunks_exact(x.len() / n_groups)) {
            *wide = scale(x);
        }
        let d = as_half(widest(&wide) / end);
        Signed { d, scales: wide.map(|s| (s * inverse(d)).round().clamp(end, -end - 1.0) as i8) }
    }

    /// What takes a weight of group `g` to units of its scale.
    pub(super) fn inverse(&self, g: usize) -> f32 {
        inverse(self.d * f32::from(self.scales[g]))
    }
}

/// Rounded to a half, as the block will hold it.
pub(super) fn as_half(v: f32) -> f32 {
    half::f16::from_f32(v).to_f32()
}
