//! Floats of 16 bits.

use super::float::apply;
use super::lanes::N_LANES;
use super::warp::Warp;
use crate::ptx::inst::{Float, HalfKind, Inst, NONE};

/// The value of an IEEE half.
pub(crate) fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 31;
    let fraction = u32::from(bits) & 1023;
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 * 2f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest IEEE half, ties to even.
pub(crate) fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        return sign | (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16;
    }
    let rounded = magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1);
    sign | (rounded >> 13) as u16
}

/// The nearest half that is not further from zero.
pub(crate) fn to_f16_towards_zero(value: f32) -> u16 {
    let nearest = to_f16(value);
    let further = from_f16(nearest).abs() > value.abs();
    if further && !value.is_nan() { nearest - 1 } else { nearest }
}

/// The value of a bfloat16.
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16, ties to even.
pub(crate) fn to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

impl Warp {
    /// Arithmetic on halves and pairs of halves. One operation in f32 or f64 and one rounding: as exact as the card.
    pub(crate) fn half(&mut self, inst: &Inst, active: u32, op: Float, kind: HalfKind) {
        let is_ieee = matches!(kind, HalfKind::F16 | HalfKind::F16x2);
        let from = if is_ieee { from_f16 } else { from_bf16 };
        let to = if is_ieee { to_f16 } else { to_bf16 };
        let operand = |register| if register == NONE { [0; N_LANES] } else { *self.narrow(register) };
        let (a, b, c) = (operand(inst.a), operand(inst.b), operand(inst.c));
        let one = |a: u32, b: u32, c: u32| {
            let [a, b, c] = [a, b, c].map(|bits| f64::from(from(bits as u16)));
            // f64 holds every product and sum of halves but for the last bits of far apart ones.
            u32::from(to(apply(op, a, b, c) as f32))
        };
        let is_pair = matches!(kind, HalfKind::F16x2 | HalfKind::Bf16x2);
        let values = std::array::from_fn(|lane| {
            let low = one(a[lane] & 0xffff, b[lane] & 0xffff, c[lane] & 0xffff);
            if is_pair { low | one(a[lane] >> 16, b[lane] >> 16, c[lane] >> 16) << 16 } else { low }
        });
        self.set_narrow(inst.d, active, &values);
    }

    /// Two floats to a pair of halves.
    pub(crate) fn convert_pair(&mut self, inst: &Inst, active: u32, kind: HalfKind) {
        let to = if matches!(kind, HalfKind::F16x2 | HalfKind::F16) { to_f16 } else { to_bf16 };
        self.map2(inst, active, |high, low| {
            u32::from(to(f32::from_bits(high))) << 16 | u32::from(to(f32::from_bits(low)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let value = from_f16(bits);
            if value.is_nan() {
                assert!(from_f16(to_f16(value)).is_nan());
            } else {
                assert_eq!(to_f16(value), bits);
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        assert_eq!(to_f16(1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(to_f16(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
        assert_eq!(to_f16(65519.9), 0x7bff);
        assert_eq!(to_f16(65520.0), 0x7c00);
        assert_eq!(to_bf16(1.0 + 2f32.powi(-8)), 0x3f80);
        assert_eq!(to_bf16(1.0 + 3.0 * 2f32.powi(-8)), 0x3f82);
    }

    #[test]
    fn rounding_towards_zero_stays_below() {
        assert_eq!(to_f16_towards_zero(0.1), 0x2e66);
        assert_eq!(to_f16_towards_zero(-0.1), 0xae66);
        assert_eq!(to_f16_towards_zero(65535.0), 0x7bff);
    }
}
