//! Elementary functions written as plain arithmetic, so that loops over them vectorise and every ISA gets the same bits.

/// e^x, within 2 units in the last place; 0 for -inf, inf above 88.73, NaN for NaN.
///
/// Source   range reduction and coefficients of Cephes `expf`
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits
    const ROUND: f32 = 12_582_912.0;
    // comparisons and not `clamp`, which is a call for NaN's sake on some targets
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let nf = shifted - ROUND;
    let r = x - nf * 0.693_359_4 - nf * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    // 2^n in two factors: n reaches from -150 (denormals) to 128
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n - half)
}

/// Hyperbolic tangent, within 2e-7.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // near 0 the difference below would lose digits; the series is exact to f32 there
    let small = x - x * x * x * (1.0 / 3.0) + x * x * x * x * x * (2.0 / 15.0);
    let large = 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
    if x > -0.05 && x < 0.05 { small } else { large }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_of_f64() {
        let mut worst = 0.0f64;
        for i in -880_000..887_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            let ulp = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
            worst = worst.max((f64::from(exp(x)) - want).abs() / ulp);
        }
        assert!(worst <= 2.0, "{worst}");
    }

    #[test]
    fn tanh_is_near_f64() {
        for i in -100_000..100_000 {
            let x = i as f32 * 2e-4;
            let want = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - want).abs() <= 2e-7 * want.abs().max(0.01) + 1e-7, "{x}");
        }
        assert_eq!((tanh(100.0), tanh(-100.0), tanh(0.0)), (1.0, -1.0, 0.0));
    }

    #[test]
    fn exp_of_the_ends() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(90.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-95.0) > 0.0, "denormal results are kept");
    }
}
