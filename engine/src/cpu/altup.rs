//! Alternating updates: several residual streams per token, of which one passes through the layer and the others are predicted from
//! all and corrected by what came out. The arithmetic between the small products.
//!
//! Source   Baykal et al. 2023 (alternating updates); Gemma 3n

/// Most streams of a token.
pub const MAX_STREAMS: usize = 8;

/// Replaces every stream by its prediction: itself plus a mix of all.
///
/// active   [n_tokens, width], the stream that passes through layers, changed in place
/// others   [n_tokens, n - 1, width], changed in place
/// coefs    [n_tokens, n, n]: how much of stream j goes to stream i
/// Errors   none; panics if shapes do not fit or there are more than `MAX_STREAMS`
/// Cost     O(n_tokens · n² · width), no allocation
pub fn predict_streams(active: &mut [f32], others: &mut [f32], coefs: &[f32], n: usize, width: usize) {
    assert!((1..=MAX_STREAMS).contains(&n), "{n} streams");
    let n_tokens = active.len() / width;
    assert!(active.len() == n_tokens * width && others.len() == n_tokens * (n - 1) * width, "streams");
    assert_eq!(coefs.len(), n_tokens * n * n, "coefficients");
    for t in 0..n_tokens {
        let (active, others) =
            (&mut active[t * width..][..width], &mut others[t * (n - 1) * width..][..(n - 1) * width]);
        let coefs = &coefs[t * n * n..][..n * n];
        for c in 0..width {
            let mut old = [0.0; MAX_STREAMS];
            old[0] = active[c];
            for (old, other) in old[1..n].iter_mut().zip(others.chunks_exact(width)) {
                *old = other[c];
            }
            let predicted = |i: usize| old[i] + coefs[i * n..][..n].iter().zip(&old).map(|(c, v)| c * v).sum::<f32>();
            active[c] = predicted(0);
            for (i, other) in others.chunks_exact_mut(width).enumerate() {
                other[c] = predicted(i + 1);
            }
        }
    }
}

/// Corrects every predicted stream by what the layer made of the active one.
///
/// made     [n_tokens, width], what the layer made of the active stream; the corrected active stream afterwards
/// active   [n_tokens, width], the active stream as predicted
/// others   [n_tokens, n - 1, width], changed in place
/// coefs    [n_tokens, n]: how much of the change each stream takes, less 1
/// Errors   none; panics if shapes do not fit
pub fn correct_streams(made: &mut [f32], active: &[f32], others: &mut [f32], coefs: &[f32], n: usize, width: usize) {
    assert!(made.len() == active.len() && others.len() == made.len() * (n - 1), "streams");
    assert_eq!(coefs.len() * width, made.len() * n, "coefficients");
    let tokens = made.chunks_exact_mut(width).zip(active.chunks_exact(width));
    for (t, (made, active)) in tokens.enumerate() {
        let coefs = &coefs[t * n..][..n];
        for (i, other) in others[t * (n - 1) * width..][..(n - 1) * width].chunks_exact_mut(width).enumerate() {
            for ((other, made), active) in other.iter_mut().zip(&*made).zip(active) {
                *other += (1.0 + coefs[i + 1]) * (made - active);
            }
        }
        for (made, active) in made.iter_mut().zip(active) {
            *made = active + (1.0 + coefs[0]) * (*made - active);
        }
    }
}

/// Gives rows the length of others.
///
/// x        [n_tokens, n, width], changed in place
/// to       [n_tokens, width]
pub fn match_length(x: &mut [f32], to: &[f32], width: usize) {
    let length = |row: &[f32]| row.iter().map(|v| v * v).sum::<f32>().sqrt();
    let per_token = x.len() / to.len() * width;
    for (x, to) in x.chunks_exact_mut(per_token).zip(to.chunks_exact(width)) {
        let wanted = length(to);
        for row in x.chunks_exact_mut(width) {
            let own = length(row);
            // A row of zeros has no direction and stays one.
            let factor = if own > 0.0 { wanted / own } else { 0.0 };
            row.iter_mut().for_each(|v| *v *= factor);
        }
    }
}

/// Leaves of each row what lies above its mean by so many standard deviations: x = max(0, x - mean - n_deviations · deviation).
///
/// x        [n_rows, n_cols], changed in place
pub fn keep_outstanding(x: &mut [f32], n_cols: usize, n_deviations: f32) {
    for row in x.chunks_exact_mut(n_cols) {
        let mean = row.iter().sum::<f32>() / n_cols as f32;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / (n_cols - 1).max(1) as f32;
        let threshold = mean + n_deviations * variance.sqrt();
        for v in row {
            let above = *v - threshold;
            // What is no number stays none.
            *v = if above < 0.0 { 0.0 } else { above };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_predicted_and_corrected_by_hand() {
        // one token, two streams of two elements
        let (mut active, mut others) = (vec![1.0, 2.0], vec![10.0, 20.0]);
        predict_streams(&mut active, &mut others, &[0.5, 0.1, 0.0, 1.0], 2, 2);
        assert_eq!((active.as_slice(), others.as_slice()), (&[2.5, 5.0][..], &[20.0, 40.0][..]));
        let mut made = vec![3.5, 4.0];
        correct_streams(&mut made, &active, &mut others, &[1.0, -0.5], 2, 2);
        assert_eq!((made.as_slice(), others.as_slice()), (&[4.5, 3.0][..], &[20.5, 39.5][..]));
    }

    #[test]
    fn rows_get_the_length_of_others() {
        let mut x = [3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 1.0, 0.0];
        match_length(&mut x, &[0.0, 10.0, 5.0, 0.0], 2);
        assert_eq!(x, [6.0, 8.0, 0.0, 0.0, 3.0, 4.0, 5.0, 0.0]);
    }

    #[test]
    fn only_what_stands_out_is_kept() {
        let mut x = [1.0, 2.0, 3.0, 1.0, 1.0, 7.0];
        keep_outstanding(&mut x, 3, 1.0);
        assert_eq!(x[..3], [0.0; 3]);
        let threshold = 3.0 + 12f32.sqrt();
        assert_eq!(x[3..], [0.0, 0.0, 7.0 - threshold]);
        let mut x = [1.0, f32::NAN, 3.0];
        keep_outstanding(&mut x, 3, 1.0);
        assert!(x.iter().all(|v| v.is_nan()), "what is no number is not taken for small");
    }
}
