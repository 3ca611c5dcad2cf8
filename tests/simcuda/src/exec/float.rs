//! Floats of 32 and 64 bits. Approximate instructions are computed as exactly as the host can.

use super::lanes::{N_LANES, Narrow};
use super::warp::Warp;
use crate::ptx::inst::{Float, Inst, NONE, Rounding, Saturate};

impl Warp {
    pub(crate) fn f32(&mut self, inst: &Inst, active: u32, op: Float, rounding: Rounding, saturate: Saturate) {
        if rounding != Rounding::Nearest || saturate == Saturate::Yes {
            return self.f32_exotic(inst, active, op, rounding, saturate);
        }
        match op {
            Float::Add => self.floats2(inst, active, |a, b| a + b),
            Float::Sub => self.floats2(inst, active, |a, b| a - b),
            Float::Mul => self.floats2(inst, active, |a, b| a * b),
            Float::Div => self.floats2(inst, active, |a, b| a / b),
            Float::Min => self.floats2(inst, active, f32::min),
            Float::Max => self.floats2(inst, active, f32::max),
            Float::Abs => self.map1(inst, active, |a| a & 0x7fff_ffff),
            Float::Neg => self.map1(inst, active, |a| a ^ 0x8000_0000),
            Float::CopySign => self.map2(inst, active, |a, b| b & 0x7fff_ffff | a & 0x8000_0000),
            Float::Fma => {
                let values = fma(self.narrow(inst.a), self.narrow(inst.b), self.narrow(inst.c));
                self.set_narrow(inst.d, active, &values);
            }
            Float::Sqrt => self.floats1(inst, active, f32::sqrt),
            Float::Rsqrt => self.floats1(inst, active, |a| (1.0 / f64::from(a).sqrt()) as f32),
            Float::Rcp => self.floats1(inst, active, |a| 1.0 / a),
            Float::Ex2 => self.floats1(inst, active, f32::exp2),
            Float::Lg2 => self.floats1(inst, active, f32::log2),
            Float::Sin => self.floats1(inst, active, |a| f64::from(a).sin() as f32),
            Float::Cos => self.floats1(inst, active, |a| f64::from(a).cos() as f32),
            Float::Tanh => self.floats1(inst, active, |a| f64::from(a).tanh() as f32),
            Float::MinNan | Float::MaxNan => {
                self.floats2(inst, active, |a, b| apply(op, a.into(), b.into(), 0.0) as f32);
            }
        }
    }

    #[inline(always)]
    fn floats1(&mut self, inst: &Inst, active: u32, f: impl Fn(f32) -> f32) {
        self.map1(inst, active, |a| f(f32::from_bits(a)).to_bits());
    }

    #[inline(always)]
    fn floats2(&mut self, inst: &Inst, active: u32, f: impl Fn(f32, f32) -> f32) {
        self.map2(inst, active, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits());
    }

    fn f32_exotic(&mut self, inst: &Inst, active: u32, op: Float, rounding: Rounding, saturate: Saturate) {
        let operand = |register| if register == NONE { [0; N_LANES] } else { *self.narrow(register) };
        let (a, b, c) = (operand(inst.a), operand(inst.b), operand(inst.c));
        let values = std::array::from_fn(|lane| {
            let [a, b, c] = [a[lane], b[lane], c[lane]].map(|bits| f64::from(f32::from_bits(bits)));
            let exact = apply(op, a, b, c);
            let value = round(exact, rounding);
            if saturate == Saturate::No {
                return value.to_bits();
            }
            // No number becomes zero.
            (if value > 0.0 { value.min(1.0) } else { 0.0 }).to_bits()
        });
        self.set_narrow(inst.d, active, &values);
    }

    pub(crate) fn f64(&mut self, inst: &Inst, active: u32, op: Float) {
        let operand = |register| if register == NONE { [0; N_LANES] } else { *self.wide(register) };
        let (a, b, c) = (operand(inst.a), operand(inst.b), operand(inst.c));
        let values = std::array::from_fn(|lane| {
            let [a, b, c] = [a[lane], b[lane], c[lane]].map(f64::from_bits);
            apply(op, a, b, c).to_bits()
        });
        self.set_wide(inst.d, active, &values);
    }
}

/// a · b + c with one rounding.
fn fma(a: &Narrow, b: &Narrow, c: &Narrow) -> Narrow {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the instructions are there.
        return unsafe { fma_vector(a, b, c) };
    }
    fma_lanes(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx2")]
fn fma_vector(a: &Narrow, b: &Narrow, c: &Narrow) -> Narrow {
    fma_lanes(a, b, c)
}

#[inline(always)]
fn fma_lanes(a: &Narrow, b: &Narrow, c: &Narrow) -> Narrow {
    let mut values = [0; N_LANES];
    for lane in 0..N_LANES {
        let [a, b, c] = [a[lane], b[lane], c[lane]].map(f32::from_bits);
        values[lane] = a.mul_add(b, c).to_bits();
    }
    values
}

/// An operation in f64.
pub(crate) fn apply(op: Float, a: f64, b: f64, c: f64) -> f64 {
    let either_nan = a.is_nan() || b.is_nan();
    match op {
        Float::Add => a + b,
        Float::Sub => a - b,
        Float::Mul => a * b,
        Float::Fma => a.mul_add(b, c),
        Float::Div => a / b,
        Float::MinNan | Float::MaxNan if either_nan => f64::NAN,
        Float::Min | Float::MinNan => a.min(b),
        Float::Max | Float::MaxNan => a.max(b),
        Float::Abs => a.abs(),
        Float::Neg => -a,
        Float::CopySign => b.copysign(a),
        Float::Sqrt => a.sqrt(),
        Float::Rsqrt => 1.0 / a.sqrt(),
        Float::Rcp => 1.0 / a,
        Float::Ex2 => a.exp2(),
        Float::Lg2 => a.log2(),
        Float::Sin => a.sin(),
        Float::Cos => a.cos(),
        Float::Tanh => a.tanh(),
    }
}

fn round(exact: f64, rounding: Rounding) -> f32 {
    let nearest = exact as f32;
    let above = f64::from(nearest) > exact;
    let below = f64::from(nearest) < exact;
    match rounding {
        Rounding::Down if above => nearest.next_down(),
        Rounding::Up if below => nearest.next_up(),
        Rounding::Zero if above && exact > 0.0 => nearest.next_down(),
        Rounding::Zero if below && exact < 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directed_rounding_goes_its_way() {
        let third = 1.0 / 3.0;
        assert!(f64::from(round(third, Rounding::Down)) < third);
        assert!(f64::from(round(third, Rounding::Up)) > third);
        assert_eq!(round(-third, Rounding::Zero), -round(third, Rounding::Down));
        assert_eq!(round(0.5, Rounding::Up), 0.5);
    }
}
