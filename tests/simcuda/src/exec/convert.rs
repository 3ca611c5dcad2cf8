//! Conversions and comparisons.

use std::cmp::Ordering;

use super::half::{from_bf16, from_f16, to_bf16, to_f16, to_f16_towards_zero};
use super::lanes::{N_LANES, mask};
use super::warp::Warp;
use crate::ptx::inst::{Comparison, Conversion, Inst, Join, Reg, Relation, Round, Saturate, Scalar};

impl Warp {
    pub(crate) fn convert(&mut self, inst: &Inst, active: u32, by: Conversion) {
        let plain = by.saturate == Saturate::No;
        match (by.from, by.to, by.from_bits, by.to_bits) {
            (Scalar::U32, Scalar::U64, 32, 64) | (Scalar::U16, Scalar::U64, 16, 64) if plain => {
                let a = self.narrow(inst.a);
                let values = std::array::from_fn(|lane| u64::from(a[lane]));
                self.set_wide(inst.d, active, &values);
            }
            (Scalar::I32, Scalar::I64, 32, 64) if plain => {
                let a = self.narrow(inst.a);
                let values = std::array::from_fn(|lane| i64::from(a[lane] as i32) as u64);
                self.set_wide(inst.d, active, &values);
            }
            (Scalar::U64 | Scalar::I64, Scalar::U32 | Scalar::I32, 64, 32) if plain => {
                let a = self.wide(inst.a);
                let values = std::array::from_fn(|lane| a[lane] as u32);
                self.set_narrow(inst.d, active, &values);
            }
            (Scalar::U16, Scalar::U32 | Scalar::I32, 16, 32) if plain => self.map1(inst, active, |a| a),
            (Scalar::U32 | Scalar::I32, Scalar::U16 | Scalar::I16, 32, 16) if plain => {
                self.map1(inst, active, |a| a & 0xffff);
            }
            (Scalar::I32, Scalar::F32, 32, 32) => self.map1(inst, active, |a| (a as i32 as f32).to_bits()),
            (Scalar::F16, Scalar::F32, ..) if plain => self.map1(inst, active, |a| from_f16(a as u16).to_bits()),
            _ => self.convert_any(inst, active, by),
        }
    }

    fn convert_any(&mut self, inst: &Inst, active: u32, by: Conversion) {
        let values: [u64; N_LANES] = match by.from_bits {
            64 => std::array::from_fn(|lane| convert(self.wide(inst.a)[lane], by)),
            _ => std::array::from_fn(|lane| convert(u64::from(self.narrow(inst.a)[lane]), by)),
        };
        match by.to_bits {
            64 => self.set_wide(inst.d, active, &values),
            16 => self.set_narrow(inst.d, active, &values.map(|value| value as u32 & 0xffff)),
            _ => self.set_narrow(inst.d, active, &values.map(|value| value as u32)),
        }
    }

    pub(crate) fn compare(&mut self, inst: &Inst, active: u32, by: Comparison) {
        let holds = match by.of {
            Scalar::U8 | Scalar::U16 | Scalar::U32 => self.compared(inst, by.relation, |bits| bits),
            Scalar::I8 | Scalar::I16 => self.compared(inst, by.relation, |bits| bits as i16),
            Scalar::I32 => self.compared(inst, by.relation, |bits| bits as i32),
            Scalar::F32 => self.compared(inst, by.relation, f32::from_bits),
            Scalar::F16 => self.compared(inst, by.relation, |bits| from_f16(bits as u16)),
            Scalar::Bf16 => self.compared(inst, by.relation, |bits| from_bf16(bits as u16)),
            Scalar::U64 => self.compared_wide(inst, by.relation, |bits| bits),
            Scalar::I64 => self.compared_wide(inst, by.relation, |bits| bits as i64),
            Scalar::F64 => self.compared_wide(inst, by.relation, f64::from_bits),
        };
        let with = match by.join {
            Join::None => 0,
            _ => self.predicates[inst.c as usize] ^ if by.join_not { u32::MAX } else { 0 },
        };
        let join = |holds: u32| match by.join {
            Join::None => holds,
            Join::And => holds & with,
            Join::Or => holds | with,
            Join::Xor => holds ^ with,
        };
        self.set_predicate(inst.d, active, join(holds));
        self.set_predicate(inst.imm as Reg, active, join(!holds));
    }

    #[inline(always)]
    fn compared<T: PartialOrd>(&self, inst: &Inst, relation: Relation, value: impl Fn(u32) -> T) -> u32 {
        let (a, b) = (self.narrow(inst.a), self.narrow(inst.b));
        relate(relation, |lane| (value(a[lane]), value(b[lane])))
    }

    #[inline(always)]
    fn compared_wide<T: PartialOrd>(&self, inst: &Inst, relation: Relation, value: impl Fn(u64) -> T) -> u32 {
        let (a, b) = (self.wide(inst.a), self.wide(inst.b));
        relate(relation, |lane| (value(a[lane]), value(b[lane])))
    }
}

#[inline(always)]
fn relate<T: PartialOrd>(relation: Relation, of: impl Fn(usize) -> (T, T)) -> u32 {
    let order = |lane: usize| {
        let (a, b) = of(lane);
        a.partial_cmp(&b)
    };
    match relation {
        Relation::Equal => mask(|lane| of(lane).0 == of(lane).1),
        Relation::Less => mask(|lane| of(lane).0 < of(lane).1),
        Relation::LessOrEqual => mask(|lane| of(lane).0 <= of(lane).1),
        Relation::Greater => mask(|lane| of(lane).0 > of(lane).1),
        Relation::GreaterOrEqual => mask(|lane| of(lane).0 >= of(lane).1),
        Relation::NotEqual => mask(|lane| matches!(order(lane), Some(Ordering::Less | Ordering::Greater))),
        Relation::EqualOrNan => mask(|lane| matches!(order(lane), Some(Ordering::Equal) | None)),
        Relation::NotEqualOrNan => mask(|lane| order(lane) != Some(Ordering::Equal)),
        Relation::LessOrNan => mask(|lane| matches!(order(lane), Some(Ordering::Less) | None)),
        Relation::LessOrEqualOrNan => mask(|lane| order(lane) != Some(Ordering::Greater)),
        Relation::GreaterOrNan => mask(|lane| matches!(order(lane), Some(Ordering::Greater) | None)),
        Relation::GreaterOrEqualOrNan => mask(|lane| order(lane) != Some(Ordering::Less)),
        Relation::BothNumbers => mask(|lane| order(lane).is_some()),
        Relation::EitherNan => mask(|lane| order(lane).is_none()),
    }
}

/// One value from one type to another, as bits.
fn convert(bits: u64, by: Conversion) -> u64 {
    if by.from.is_float() {
        let value = float(bits, by.from);
        if by.to.is_float() { from_float(value, by) } else { to_integer(value, by) }
    } else {
        let value = integer(bits, by.from);
        if by.to.is_float() { from_float_of_integer(value, by) } else { from_integer(value, by) }
    }
}

fn float(bits: u64, kind: Scalar) -> f64 {
    match kind {
        Scalar::F16 => from_f16(bits as u16).into(),
        Scalar::Bf16 => from_bf16(bits as u16).into(),
        Scalar::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

fn integer(bits: u64, kind: Scalar) -> i128 {
    match kind {
        Scalar::I8 => i128::from(bits as i8),
        Scalar::I16 => i128::from(bits as i16),
        Scalar::I32 => i128::from(bits as i32),
        Scalar::I64 => i128::from(bits as i64),
        Scalar::U8 => i128::from(bits as u8),
        Scalar::U16 => i128::from(bits as u16),
        Scalar::U32 => i128::from(bits as u32),
        _ => i128::from(bits),
    }
}

fn whole(value: f64, round: Round) -> f64 {
    match round {
        Round::NearestInt => value.round_ties_even(),
        Round::ZeroInt => value.trunc(),
        Round::DownInt => value.floor(),
        Round::UpInt => value.ceil(),
        Round::Nearest | Round::TowardsZero => value,
    }
}

fn from_float(value: f64, by: Conversion) -> u64 {
    let value = whole(value, by.round);
    let value = match by.saturate {
        Saturate::Yes if value > 0.0 => value.min(1.0),
        Saturate::Yes => 0.0,
        Saturate::No => value,
    };
    match by.to {
        Scalar::F16 if by.round == Round::TowardsZero => to_f16_towards_zero(value as f32).into(),
        Scalar::F16 => to_f16(value as f32).into(),
        Scalar::Bf16 if by.round == Round::TowardsZero => u64::from((value as f32).to_bits() >> 16),
        Scalar::Bf16 => to_bf16(value as f32).into(),
        Scalar::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

fn from_float_of_integer(value: i128, by: Conversion) -> u64 {
    match by.to {
        Scalar::F32 => (value as f32).to_bits().into(),
        Scalar::F64 => (value as f64).to_bits(),
        _ => from_float(value as f64, by),
    }
}

/// Floats beyond an integer's range become its ends, no number zero: as the card does.
fn to_integer(value: f64, by: Conversion) -> u64 {
    let value = whole(value, by.round);
    match by.to {
        Scalar::I8 => value as i8 as u64,
        Scalar::I16 => value as i16 as u64,
        Scalar::I32 => value as i32 as u64,
        Scalar::I64 => value as i64 as u64,
        Scalar::U8 => value as u8 as u64,
        Scalar::U16 => value as u16 as u64,
        Scalar::U32 => value as u32 as u64,
        _ => value as u64,
    }
}

fn from_integer(value: i128, by: Conversion) -> u64 {
    let bits = by.to.bytes() * 8;
    let value = match by.saturate {
        Saturate::Yes if by.to.is_signed() => value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        Saturate::Yes => value.clamp(0, (1 << bits) - 1),
        Saturate::No => value,
    };
    match by.to {
        Scalar::I8 => value as i8 as u64,
        Scalar::I16 => value as i16 as u64,
        Scalar::I32 => value as i32 as u64,
        Scalar::U8 => value as u8 as u64,
        Scalar::U16 => value as u16 as u64,
        Scalar::U32 => value as u32 as u64,
        _ => value as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(from: Scalar, to: Scalar, round: Round, saturate: Saturate) -> Conversion {
        Conversion { from, to, round, saturate, from_bits: 32, to_bits: 32 }
    }

    #[test]
    fn bytes_are_extended_and_cut_by_their_sign() {
        let no = Saturate::No;
        assert_eq!(convert(0x1ff, by(Scalar::I8, Scalar::I32, Round::Nearest, no)) as u32, u32::MAX);
        assert_eq!(convert(0x1ff, by(Scalar::U8, Scalar::U32, Round::Nearest, no)), 0xff);
        assert_eq!(convert(300, by(Scalar::I32, Scalar::I8, Round::Nearest, Saturate::Yes)), 127);
    }

    #[test]
    fn floats_round_as_they_are_told() {
        let bits = |value: f32| u64::from(value.to_bits());
        let convert = |value, round| convert(bits(value), by(Scalar::F32, Scalar::I32, round, Saturate::No)) as i32;
        assert_eq!(convert(2.5, Round::NearestInt), 2);
        assert_eq!(convert(-2.5, Round::ZeroInt), -2);
        assert_eq!(convert(-2.5, Round::DownInt), -3);
        assert_eq!(convert(2.1, Round::UpInt), 3);
        assert_eq!(convert(1e20, Round::ZeroInt), i32::MAX);
        assert_eq!(convert(f32::NAN, Round::ZeroInt), 0);
    }
}
