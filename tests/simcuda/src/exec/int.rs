//! Integers of 16, 32 and 64 bits.

use super::lanes::N_LANES;
use super::warp::Warp;
use crate::check::Fault;
use crate::ptx::inst::{Inst, Int, Op, Sign, Wrap};

/// The high half of a product.
macro_rules! high {
    ($sign:ident, $a:ident, $b:ident, $u:ty, $i:ty, $wide:ty) => {
        match $sign {
            Sign::Signed => (($a as $i as $wide * $b as $i as $wide) >> <$u>::BITS) as $u,
            Sign::Unsigned => (($a as $u as $wide).wrapping_mul($b as $u as $wide) >> <$u>::BITS) as $u,
        }
    };
}

/// One match for all widths; registers of 16 bits lie in 32 and have no high bits.
macro_rules! integers {
    ($warp:ident, $inst:ident, $active:ident, $op:ident, $map1:ident, $map2:ident, $map3:ident, $u:ty, $i:ty, $wide:ty) => {
        match $op {
            Int::Add => $warp.$map2($inst, $active, |a, b| (a as $u).wrapping_add(b as $u) as _),
            Int::Sub => $warp.$map2($inst, $active, |a, b| (a as $u).wrapping_sub(b as $u) as _),
            Int::Mul => $warp.$map2($inst, $active, |a, b| (a as $u).wrapping_mul(b as $u) as _),
            Int::MulHigh(sign) => $warp.$map2($inst, $active, |a, b| high!(sign, a, b, $u, $i, $wide) as _),
            Int::Mad => {
                $warp.$map3($inst, $active, |a, b, c| (a as $u).wrapping_mul(b as $u).wrapping_add(c as $u) as _)
            }
            Int::MadHigh(sign) => {
                $warp.$map3($inst, $active, |a, b, c| high!(sign, a, b, $u, $i, $wide).wrapping_add(c as $u) as _)
            }
            Int::Div(Sign::Signed) => {
                $warp.$map2($inst, $active, |a, b| (a as $i).checked_div(b as $i).unwrap_or(-1) as $u as _)
            }
            Int::Div(Sign::Unsigned) => {
                $warp.$map2($inst, $active, |a, b| (a as $u).checked_div(b as $u).unwrap_or(<$u>::MAX) as _)
            }
            Int::Rem(Sign::Signed) => {
                $warp.$map2($inst, $active, |a, b| (a as $i).checked_rem(b as $i).unwrap_or(-1) as $u as _)
            }
            Int::Rem(Sign::Unsigned) => {
                $warp.$map2($inst, $active, |a, b| (a as $u).checked_rem(b as $u).unwrap_or(<$u>::MAX) as _)
            }
            Int::Min(Sign::Signed) => $warp.$map2($inst, $active, |a, b| (a as $i).min(b as $i) as $u as _),
            Int::Min(Sign::Unsigned) => $warp.$map2($inst, $active, |a, b| (a as $u).min(b as $u) as _),
            Int::Max(Sign::Signed) => $warp.$map2($inst, $active, |a, b| (a as $i).max(b as $i) as $u as _),
            Int::Max(Sign::Unsigned) => $warp.$map2($inst, $active, |a, b| (a as $u).max(b as $u) as _),
            Int::And => $warp.$map2($inst, $active, |a, b| a & b),
            Int::Or => $warp.$map2($inst, $active, |a, b| a | b),
            Int::Xor => $warp.$map2($inst, $active, |a, b| a ^ b),
            Int::Not => $warp.$map1($inst, $active, |a| !(a as $u) as _),
            Int::LogicalNot => $warp.$map1($inst, $active, |a| (a == 0) as _),
            Int::Neg => $warp.$map1($inst, $active, |a| (a as $u).wrapping_neg() as _),
            Int::Abs => $warp.$map1($inst, $active, |a| (a as $i).wrapping_abs() as $u as _),
            Int::Brev => $warp.$map1($inst, $active, |a| (a as $u).reverse_bits() as _),
            Int::Sad(sign) => $warp.$map3($inst, $active, |a, b, c| {
                let apart = match sign {
                    Sign::Signed => (a as $i).abs_diff(b as $i),
                    Sign::Unsigned => (a as $u).abs_diff(b as $u),
                };
                apart.wrapping_add(c as $u) as _
            }),
            _ => return Err(Fault::new(0, "an integer operation of this width is not known")),
        }
    };
}

impl Warp {
    pub(crate) fn int32(&mut self, inst: &Inst, active: u32, op: Int) -> Result<(), Box<Fault>> {
        match op {
            Int::ShiftLeft => self.map2(inst, active, |a, b| if b > 31 { 0 } else { a << b }),
            Int::ShiftRight(Sign::Unsigned) => self.map2(inst, active, |a, b| if b > 31 { 0 } else { a >> b }),
            Int::ShiftRight(Sign::Signed) => self.map2(inst, active, |a, b| ((a as i32) >> b.min(31)) as u32),
            Int::Popc => self.map1(inst, active, u32::count_ones),
            Int::Clz => self.map1(inst, active, u32::leading_zeros),
            Int::Find(sign) => self.map1(inst, active, |a| 31u32.wrapping_sub(unsigned(sign, a).leading_zeros())),
            Int::FindShift(sign) => self.map1(inst, active, |a| match unsigned(sign, a) {
                0 => u32::MAX,
                a => a.leading_zeros(),
            }),
            Int::BitExtract(sign) => self.map3(inst, active, |a, b, c| extract(sign, a, b & 255, c & 255)),
            Int::BitInsert => {
                let length = *self.narrow(inst.imm as u16);
                let (a, b, c) = (self.narrow(inst.a), self.narrow(inst.b), self.narrow(inst.c));
                let values = std::array::from_fn(|lane| insert(a[lane], b[lane], c[lane] & 255, length[lane] & 255));
                self.set_narrow(inst.d, active, &values);
            }
            Int::Lop3 => {
                let table = inst.imm as u32;
                self.map3(inst, active, |a, b, c| lop3(table, a, b, c));
            }
            Int::Permute => self.map3(inst, active, permute),
            Int::FunnelLeft(wrap) => {
                self.map3(inst, active, |a, b, c| ((pair(a, b) << distance(wrap, c)) >> 32) as u32);
            }
            Int::FunnelRight(wrap) => self.map3(inst, active, |a, b, c| (pair(a, b) >> distance(wrap, c)) as u32),
            Int::Dp4a(Sign::Signed, Sign::Signed) => self.map3(inst, active, |a, b, c| {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                let product = |byte: usize| i32::from(a[byte] as i8) * i32::from(b[byte] as i8);
                (c as i32).wrapping_add(product(0) + product(1) + product(2) + product(3)) as u32
            }),
            Int::Dp4a(left, right) => self.map3(inst, active, |a, b, c| {
                let byte = |sign, value: u8| if sign == Sign::Signed { value as i8 as i32 } else { i32::from(value) };
                let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
                let sum: i32 = pairs.map(|(a, b)| byte(left, a) * byte(right, b)).sum();
                (c as i32).wrapping_add(sum) as u32
            }),
            _ => integers!(self, inst, active, op, map1, map2, map3, u32, i32, i64),
        }
        Ok(())
    }

    pub(crate) fn int16(&mut self, inst: &Inst, active: u32, op: Int, sign: Sign) -> Result<(), Box<Fault>> {
        match op {
            Int::ShiftLeft => self.map2(inst, active, |a, b| if b > 15 { 0 } else { (a << b) & 0xffff }),
            Int::ShiftRight(_) => match sign {
                Sign::Signed => self.map2(inst, active, |a, b| u32::from((a as i16 >> b.min(15)) as u16)),
                Sign::Unsigned => self.map2(inst, active, |a, b| if b > 15 { 0 } else { a >> b }),
            },
            _ => integers!(self, inst, active, op, map1, map2, map3, u16, i16, i32),
        }
        Ok(())
    }

    pub(crate) fn int64(&mut self, inst: &Inst, active: u32, op: Int) -> Result<(), Box<Fault>> {
        match op {
            Int::ShiftLeft | Int::ShiftRight(_) => {
                let (a, b) = (self.wide(inst.a), self.narrow(inst.b));
                let values = std::array::from_fn(|lane| match op {
                    Int::ShiftLeft => a[lane].checked_shl(b[lane]).unwrap_or(0),
                    Int::ShiftRight(Sign::Signed) => (a[lane] as i64 >> b[lane].min(63)) as u64,
                    _ => a[lane].checked_shr(b[lane]).unwrap_or(0),
                });
                self.set_wide(inst.d, active, &values);
            }
            Int::Popc | Int::Clz => {
                let a = self.wide(inst.a);
                let values: [u32; N_LANES] = std::array::from_fn(|lane| match op {
                    Int::Popc => a[lane].count_ones(),
                    _ => a[lane].leading_zeros(),
                });
                self.set_narrow(inst.d, active, &values);
            }
            Int::BitExtract(Sign::Unsigned) => {
                let (a, b, c) = (self.wide(inst.a), self.narrow(inst.b), self.narrow(inst.c));
                let values = std::array::from_fn(|lane| {
                    let field = a[lane].checked_shr(b[lane] & 255).unwrap_or(0);
                    field & 1u64.checked_shl(c[lane] & 255).map_or(u64::MAX, |bit| bit - 1)
                });
                self.set_wide(inst.d, active, &values);
            }
            _ => integers!(self, inst, active, op, wide1, wide2, wide3, u64, i64, i128),
        }
        Ok(())
    }

    /// Products of twice the width.
    pub(crate) fn wide_product(&mut self, inst: &Inst, active: u32) {
        let (a, b) = (self.narrow(inst.a), self.narrow(inst.b));
        let has_sum = inst.c != u16::MAX;
        match inst.op {
            Op::Wide16(sign) => {
                let c = if has_sum { *self.narrow(inst.c) } else { [0; N_LANES] };
                let values = std::array::from_fn(|lane| {
                    let product = match sign {
                        Sign::Signed => (i32::from(a[lane] as i16) * i32::from(b[lane] as i16)) as u32,
                        Sign::Unsigned => (a[lane] & 0xffff) * (b[lane] & 0xffff),
                    };
                    product.wrapping_add(c[lane])
                });
                self.set_narrow(inst.d, active, &values);
            }
            Op::Wide32(sign) => {
                let c = if has_sum { *self.wide(inst.c) } else { [0; N_LANES] };
                let values = match sign {
                    Sign::Signed => std::array::from_fn(|lane| {
                        (i64::from(a[lane] as i32) * i64::from(b[lane] as i32)).wrapping_add(c[lane] as i64) as u64
                    }),
                    Sign::Unsigned => {
                        std::array::from_fn(|lane| (u64::from(a[lane]) * u64::from(b[lane])).wrapping_add(c[lane]))
                    }
                };
                self.set_wide(inst.d, active, &values);
            }
            _ => unreachable!("called for products only"),
        }
    }
}

/// Bits whose highest is the first that is not the sign.
fn unsigned(sign: Sign, value: u32) -> u32 {
    if sign == Sign::Signed && (value as i32) < 0 { !value } else { value }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn distance(wrap: Wrap, by: u32) -> u32 {
    if wrap == Wrap::Wrap { by & 31 } else { by.min(32) }
}

fn extract(sign: Sign, value: u32, position: u32, length: u32) -> u32 {
    if length == 0 {
        return 0;
    }
    if sign == Sign::Unsigned {
        return value.checked_shr(position).unwrap_or(0) & 1u32.checked_shl(length).map_or(u32::MAX, |bit| bit - 1);
    }
    // The highest bit of the field is repeated; beyond the value, its highest.
    let top = (position + length - 1).min(31);
    let shifted = ((value << (31 - top)) as i32) >> 31;
    let kept = (top + 1).saturating_sub(position);
    if kept == 0 { shifted as u32 } else { (((value << (31 - top)) as i32) >> (32 - kept)) as u32 }
}

fn insert(field: u32, base: u32, position: u32, length: u32) -> u32 {
    let bits = 1u32.checked_shl(length).map_or(u32::MAX, |bit| bit - 1);
    let mask = bits.checked_shl(position).unwrap_or(0);
    base & !mask | field.checked_shl(position).unwrap_or(0) & mask
}

fn lop3(table: u32, a: u32, b: u32, c: u32) -> u32 {
    let pick = |bit: u32, value: u32| if bit != 0 { value } else { !value };
    (0..8).fold(0, |result, row| {
        if table >> row & 1 == 0 { result } else { result | pick(row & 4, a) & pick(row & 2, b) & pick(row & 1, c) }
    })
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = pair(a, b).to_le_bytes();
    let pick = |index: u32| {
        let control = selector >> (4 * index) & 15;
        let byte = bytes[(control & 7) as usize];
        if control & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_extracted_with_their_sign() {
        assert_eq!(extract(Sign::Unsigned, 0xabcd, 4, 8), 0xbc);
        assert_eq!(extract(Sign::Signed, 0xabcd, 4, 8), 0xffff_ffbc);
        assert_eq!(extract(Sign::Signed, 0x8000_0000, 28, 8), 0xffff_fff8);
        assert_eq!(extract(Sign::Signed, 0x8000_0000, 40, 8), u32::MAX);
    }

    #[test]
    fn fields_are_inserted() {
        assert_eq!(insert(0xf, 0, 28, 8), 0xf000_0000);
        assert_eq!(insert(0x5, u32::MAX, 4, 4), 0xffff_ff5f);
    }

    #[test]
    fn truth_tables_and_permutations_are_those_of_the_manual() {
        let (a, b, c) = (0xf0, 0xcc, 0xaa);
        assert_eq!(lop3(0xf0 & 0xcc & 0xaa, a, b, c), a & b & c);
        assert_eq!(lop3(0xf0 ^ 0xcc | 0xaa, a, b, c), a ^ b | c);
        assert_eq!(permute(0x3322_1100, 0x7766_5544, 0x7410), 0x7744_1100);
        assert_eq!(permute(0x0000_8000, 0, 0x9999), 0xffff_ffff);
    }
}
