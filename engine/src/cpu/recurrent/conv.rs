//! The causal convolution over time: every channel by itself, the inputs before the first token carried over from step to step.
//!
//! Some channels go through all tokens together, with their last inputs in a small ring; so it works in place.
use crate::cpu::Cpu;
use crate::cpu::isa::per_isa;
use crate::cpu::math::exp;
use crate::cpu::shared::SharedSlice;
use std::ops::Range;

/// Taps of the longest kernel. Models have 3 or 4.
pub const MAX_TAPS: usize = 8;

/// Channels that go through time together: whole cache lines of every row, and a ring that stays in the first cache.
const BLOCK: usize = 64;

/// Elements per task; each costs several multiplications and an exponential.
const GRAIN: usize = 4096;

/// The weights of a convolution.
#[derive(Clone, Copy)]
pub struct CausalConv<'a> {
    /// [n_taps, n_channels], the last tap for the token itself
    pub taps: &'a [f32],
    /// [n_channels]
    pub bias: Option<&'a [f32]>,
    /// What follows.
    pub activation: ConvActivation,
}

/// What is done to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvActivation {
    /// Nothing.
    None,
    /// v / (1 + e^-v)
    Silu,
}

/// y[t] = activation(bias + sum_j taps[j] * x[t + 1 - n_taps + j]), channel by channel.
///
/// x        [n_tokens, n_channels] f32, changed in place
/// history  [n_taps - 1, n_channels] the inputs before the first token, oldest first; after it, those before the next token
/// Errors   none; panics if shapes do not fit
/// Cost     O(n_tokens * n_channels * n_taps), no allocation; the same bits on every ISA and for every split of the tokens
/// Source   van den Oord et al. 2016 section 2.1
pub fn causal_conv(cpu: &Cpu, conv: &CausalConv<'_>, n_channels: usize, x: &mut [f32], history: &mut [f32]) {
    assert!(n_channels > 0 && x.len().is_multiple_of(n_channels), "{} elements in rows of {n_channels}", x.len());
    let n_taps = conv.taps.len() / n_channels;
    assert!((1..=MAX_TAPS).contains(&n_taps) && conv.taps.len() == n_taps * n_channels, "{n_taps} taps");
    assert_eq!(history.len(), (n_taps - 1) * n_channels, "history");
    assert!(conv.bias.is_none_or(|bias| bias.len() == n_channels), "bias");
    let n_tokens = x.len() / n_channels;
    let (x, history) = (SharedSlice::new(x), SharedSlice::new(history));
    let grain = GRAIN.div_ceil(BLOCK * n_tokens.max(1));
    cpu.pool.split(n_channels.div_ceil(BLOCK), grain, &|blocks| {
        for block in blocks {
            let channels = block * BLOCK..n_channels.min((block + 1) * BLOCK);
            // SAFETY: the ISA of a `Cpu` is present; `split` hands each block of channels to one task.
            unsafe { channels_through_time(cpu.isa(), conv, n_channels, n_tokens, channels, &x, &history) };
        }
    });
}

per_isa! {
    /// All tokens of some channels; nobody else touches these channels of `x` and `history`.
    unsafe fn channels_through_time<V>(
        conv: &CausalConv<'_>,
        n_channels: usize,
        n_tokens: usize,
        channels: Range<usize>,
        x: &SharedSlice<'_, f32>,
        history: &SharedSlice<'_, f32>,
    ) {
        let (first, width) = (channels.start, channels.len());
        let n_taps = conv.taps.len() / n_channels;
        let row = |at: usize| at * n_channels + first..at * n_channels + first + width;
        // input i, counted from the oldest of the history, lies in slot i % n_taps
        let mut ring = [[0f32; BLOCK]; MAX_TAPS];
        for (i, input) in ring.iter_mut().enumerate().take(n_taps - 1) {
            // SAFETY: these channels belong to this task.
            input[..width].copy_from_slice(unsafe { history.part(row(i)) });
        }
        for t in 0..n_tokens {
            // SAFETY: as above.
            let x = unsafe { x.part(row(t)) };
            ring[(t + n_taps - 1) % n_taps][..width].copy_from_slice(x);
            match conv.bias {
                Some(bias) => x.copy_from_slice(&bias[channels.clone()]),
                None => x.fill(0.0),
            }
            for j in 0..n_taps {
                for ((x, input), tap) in x.iter_mut().zip(&ring[(t + j) % n_taps]).zip(&conv.taps[row(j)]) {
                    *x += input * tap;
                }
            }
            if conv.activation == ConvActivation::Silu {
                for x in x.iter_mut() {
                    *x /= 1.0 + exp(-*x);
                }
            }
        }
        for i in 0..n_taps - 1 {
            // SAFETY: as above.
            unsafe { history.part(row(i)) }.copy_from_slice(&ring[(n_tokens + i) % n_taps][..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::check::{assert_near, on_each, wave};

    /// The definition, in f64: outputs and the history that is left.
    fn reference(conv: &CausalConv<'_>, n_channels: usize, x: &[f32], history: &[f32]) -> (Vec<f64>, Vec<f32>) {
        let inputs = [history, x].concat();
        let n_taps = conv.taps.len() / n_channels;
        let y = (0..x.len()).map(|i| {
            let sum: f64 = (0..n_taps)
                .map(|j| f64::from(inputs[i + j * n_channels]) * f64::from(conv.taps[j * n_channels + i % n_channels]))
                .sum();
            let sum = sum + conv.bias.map_or(0.0, |bias| f64::from(bias[i % n_channels]));
            if conv.activation == ConvActivation::Silu { sum / (1.0 + (-sum).exp()) } else { sum }
        });
        (y.collect(), inputs[x.len()..].to_vec())
    }

    #[test]
    fn convolution_equals_f64_for_all_sizes() {
        for (n_tokens, n_channels, n_taps) in
            [(1, 1, 1), (1, 5, 4), (2, 64, 4), (3, 65, 3), (40, 130, 4), (7, 1000, 2), (9, 63, MAX_TAPS)]
        {
            let (x, taps) = (wave(n_tokens * n_channels, 0.37), wave(n_taps * n_channels, 0.11));
            let (bias, history) = (wave(n_channels, 0.7), wave((n_taps - 1) * n_channels, 0.23));
            for bias in [None, Some(&bias[..])] {
                for activation in [ConvActivation::None, ConvActivation::Silu] {
                    let conv = CausalConv { taps: &taps, bias, activation };
                    let (want, want_history) = reference(&conv, n_channels, &x, &history);
                    on_each(|cpu, on| {
                        let (mut y, mut left) = (x.clone(), history.clone());
                        causal_conv(cpu, &conv, n_channels, &mut y, &mut left);
                        assert_near(&y, &want, 1e-6, &format!("{on}, {n_tokens} x {n_channels}, {n_taps} taps"));
                        assert_eq!(left, want_history, "{on}");
                    });
                }
            }
        }
    }

    #[test]
    fn tokens_in_parts_are_tokens_at_once() {
        let (n_tokens, n_channels) = (23, 70);
        let (x, taps) = (wave(n_tokens * n_channels, 0.37), wave(4 * n_channels, 0.11));
        let conv = CausalConv { taps: &taps, bias: None, activation: ConvActivation::Silu };
        on_each(|cpu, on| {
            let (mut whole, mut history) = (x.clone(), vec![0.0; 3 * n_channels]);
            causal_conv(cpu, &conv, n_channels, &mut whole, &mut history);
            let (mut parts, mut carried) = (x.clone(), vec![0.0; 3 * n_channels]);
            let mut rest = &mut parts[..];
            for n in [1, 2, 7, 1, 12] {
                let (part, behind) = rest.split_at_mut(n * n_channels);
                causal_conv(cpu, &conv, n_channels, part, &mut carried);
                rest = behind;
            }
            assert!(rest.is_empty());
            assert_eq!((parts, carried), (whole, history), "{on}");
        });
    }
}
