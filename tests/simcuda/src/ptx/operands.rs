//! Names within a kernel: registers, variables, parameters, immediates, special registers. Each becomes a register index.

use std::collections::HashMap;

use super::inst::Reg;
use super::lex::Token;
use super::{Registers, Special};

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, a variable, a label.
    Name(&'a str),
    /// A negated predicate.
    Not(&'a str),
    /// An integer, or the bits of a float.
    Bits(u64),
    /// `[base + offset]`
    Address(Box<Operand<'a>>, i64),
    /// `{a, b}`
    List(Vec<Operand<'a>>),
}

/// Class of a register and its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Class {
    /// 16 bits, kept in 32; the high bits are zero.
    Half,
    Narrow,
    Wide,
    Predicate,
}

/// What names mean at a place in a kernel.
pub(crate) struct Scope {
    /// Innermost last.
    names: Vec<HashMap<String, (Class, Reg)>>,
    /// Addresses of variables and parameters.
    pub(crate) symbols: HashMap<String, u64>,
    pub(crate) registers: Registers,
    narrow: HashMap<u32, Reg>,
    wide: HashMap<u64, Reg>,
    special: Vec<(String, Reg)>,
}

impl Scope {
    /// No registers yet, and these addresses.
    pub(crate) fn new(symbols: HashMap<String, u64>) -> Self {
        Self {
            names: vec![HashMap::new()],
            symbols,
            registers: Registers::default(),
            narrow: HashMap::new(),
            wide: HashMap::new(),
            special: Vec::new(),
        }
    }

    /// Begins a scope of registers.
    pub(crate) fn open(&mut self) {
        self.names.push(HashMap::new());
    }

    /// Ends the innermost one.
    pub(crate) fn close(&mut self) {
        if self.names.len() > 1 {
            self.names.pop();
        }
    }

    /// Declares a register of a type: `.b32`, `.pred`.
    pub(crate) fn declare(&mut self, kind: &str, name: String) -> Result<(), String> {
        let class = match kind {
            ".pred" => Class::Predicate,
            ".b8" | ".u8" | ".s8" | ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Class::Half,
            ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Class::Narrow,
            ".b64" | ".u64" | ".s64" | ".f64" => Class::Wide,
            _ => return Err(format!("registers of type {kind}")),
        };
        let register = self.fresh(class)?;
        self.names.last_mut().expect("there is always one").insert(name, (class, register));
        Ok(())
    }

    fn fresh(&mut self, class: Class) -> Result<Reg, String> {
        let count = match class {
            Class::Half | Class::Narrow => &mut self.registers.n_narrow,
            Class::Wide => &mut self.registers.n_wide,
            Class::Predicate => &mut self.registers.n_predicates,
        };
        let register = Reg::try_from(*count).ok().filter(|&register| register != Reg::MAX);
        *count += 1;
        register.ok_or_else(|| "too many registers".to_owned())
    }

    /// Class and index of a named register.
    pub(crate) fn register(&self, name: &str) -> Option<(Class, Reg)> {
        self.names.iter().rev().find_map(|names| names.get(name)).copied()
    }

    /// Class of an operand, if it is a register.
    pub(crate) fn class(&self, operand: &Operand<'_>) -> Option<Class> {
        match operand {
            Operand::Name(name) | Operand::Not(name) => {
                self.register(name).map(|(class, _)| class).or_else(|| special(name).map(|_| Class::Narrow))
            }
            _ => None,
        }
    }

    /// An operand of at most 32 bits.
    pub(crate) fn narrow(&mut self, operand: &Operand<'_>) -> Result<Reg, String> {
        match operand {
            Operand::Bits(bits) => self.constant_narrow(*bits as u32),
            Operand::Name(name) => match self.register(name) {
                Some((Class::Half | Class::Narrow, register)) => Ok(register),
                Some(_) => Err(format!("`{name}` has not 32 bits")),
                None => match (self.symbols.get(*name).copied(), special(name)) {
                    (Some(address), _) => self.constant_narrow(address as u32),
                    (_, Some(special)) => self.special(name, special),
                    _ if CLOCKS.contains(name) => self.constant_narrow(0),
                    _ => Err(format!("`{name}` is not known")),
                },
            },
            _ => Err("an operand of 32 bits is expected".to_owned()),
        }
    }

    /// An operand of 64 bits.
    pub(crate) fn wide(&mut self, operand: &Operand<'_>) -> Result<Reg, String> {
        match operand {
            Operand::Bits(bits) => self.constant_wide(*bits),
            Operand::Name(name) => match self.register(name) {
                Some((Class::Wide, register)) => Ok(register),
                Some(_) => Err(format!("`{name}` has not 64 bits")),
                None => match self.symbols.get(*name).copied() {
                    Some(address) => self.constant_wide(address),
                    None if CLOCKS.contains(name) => self.constant_wide(0),
                    None => Err(format!("`{name}` is not known")),
                },
            },
            _ => Err("an operand of 64 bits is expected".to_owned()),
        }
    }

    /// A predicate, and whether it is negated.
    pub(crate) fn predicate(&mut self, operand: &Operand<'_>) -> Result<(Reg, bool), String> {
        let (name, not) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Bits(bits) => {
                let register = self.fresh(Class::Predicate)?;
                self.registers.predicates.push((register, *bits != 0));
                return Ok((register, false));
            }
            _ => return Err("a predicate is expected".to_owned()),
        };
        match self.register(name) {
            Some((Class::Predicate, register)) => Ok((register, not)),
            _ => Err(format!("`{name}` is no predicate")),
        }
    }

    fn constant_narrow(&mut self, value: u32) -> Result<Reg, String> {
        if let Some(&register) = self.narrow.get(&value) {
            return Ok(register);
        }
        let register = self.fresh(Class::Narrow)?;
        self.narrow.insert(value, register);
        self.registers.narrow.push((register, value));
        Ok(register)
    }

    fn constant_wide(&mut self, value: u64) -> Result<Reg, String> {
        if let Some(&register) = self.wide.get(&value) {
            return Ok(register);
        }
        let register = self.fresh(Class::Wide)?;
        self.wide.insert(value, register);
        self.registers.wide.push((register, value));
        Ok(register)
    }

    fn special(&mut self, name: &str, special: Special) -> Result<Reg, String> {
        if let Some((_, register)) = self.special.iter().find(|(known, _)| known == name) {
            return Ok(*register);
        }
        let register = self.fresh(Class::Narrow)?;
        self.special.push((name.to_owned(), register));
        self.registers.special.push((register, special));
        Ok(register)
    }
}

/// Registers that tell a time: it stands still.
const CLOCKS: [&str; 4] = ["%clock", "%clock64", "%globaltimer", "%globaltimer_lo"];

fn special(name: &str) -> Option<Special> {
    let dimension = |name: &str| ["x", "y", "z"].iter().position(|dimension| *dimension == name);
    if let Some((register, last)) = name.rsplit_once('.') {
        let dimension = dimension(last)?;
        return match register {
            "%tid" => Some(Special::Thread(dimension)),
            "%ntid" => Some(Special::BlockSize(dimension)),
            "%ctaid" => Some(Special::Block(dimension)),
            "%nctaid" => Some(Special::GridSize(dimension)),
            _ => None,
        };
    }
    match name {
        "%laneid" => Some(Special::Lane),
        "%warpid" => Some(Special::Warp),
        "%lanemask_lt" => Some(Special::LanesBefore),
        "%lanemask_le" => Some(Special::LanesUpTo),
        "%lanemask_eq" => Some(Special::LaneBit),
        "%lanemask_gt" => Some(Special::LanesAfter),
        "%lanemask_ge" => Some(Special::LanesFrom),
        "%dynamic_smem_size" => Some(Special::DynamicShared),
        _ => None,
    }
}

/// Operands of an instruction, separated by commas (or `|` between two results).
pub(crate) fn operands<'a>(tokens: &[Token<'a>]) -> Result<Vec<Operand<'a>>, String> {
    let mut at = 0;
    let mut found = Vec::new();
    while at < tokens.len() {
        found.push(operand(tokens, &mut at)?);
        match tokens.get(at) {
            None => break,
            Some(token) if token.is(",") || token.is("|") => at += 1,
            Some(token) => return Err(format!("`{}` is not expected", token.text)),
        }
    }
    Ok(found)
}

fn operand<'a>(tokens: &[Token<'a>], at: &mut usize) -> Result<Operand<'a>, String> {
    let token = *tokens.get(*at).ok_or("an operand is expected")?;
    *at += 1;
    match token.text {
        "[" => {
            let base = operand(tokens, at)?;
            let mut offset = 0i64;
            while tokens.get(*at).is_some_and(|token| token.is("+") || token.is("-")) {
                *at += 1;
                let negative = tokens[*at - 1].is("-") || tokens.get(*at).is_some_and(|token| token.is("-"));
                *at += usize::from(tokens.get(*at).is_some_and(|token| token.is("-")));
                let text = tokens.get(*at).ok_or("an offset is expected")?.text;
                let value = number(text).ok_or_else(|| format!("offset `{text}`"))? as i64;
                offset += if negative { -value } else { value };
                *at += 1;
            }
            expect(tokens, at, "]")?;
            Ok(Operand::Address(Box::new(base), offset))
        }
        "{" => {
            let mut list = Vec::new();
            while !tokens.get(*at).is_some_and(|token| token.is("}")) {
                list.push(operand(tokens, at)?);
                *at += usize::from(tokens.get(*at).is_some_and(|token| token.is(",")));
            }
            *at += 1;
            Ok(Operand::List(list))
        }
        "!" => {
            *at += 1;
            Ok(Operand::Not(tokens.get(*at - 1).ok_or("a predicate is expected")?.text))
        }
        "-" => {
            *at += 1;
            let text = tokens.get(*at - 1).ok_or("a number is expected")?.text;
            number(text).map(|value| Operand::Bits(value.wrapping_neg())).ok_or_else(|| format!("number `{text}`"))
        }
        text => Ok(number(text).map_or(Operand::Name(text), Operand::Bits)),
    }
}

fn expect(tokens: &[Token<'_>], at: &mut usize, text: &str) -> Result<(), String> {
    match tokens.get(*at) {
        Some(token) if token.is(text) => {
            *at += 1;
            Ok(())
        }
        other => Err(format!("`{text}` is expected, not `{}`", other.map_or("the end", |token| token.text))),
    }
}

/// A number: `12`, `0x1F`, `0f3F800000`, `0d3FF0000000000000`; the bits, if it is a float.
pub(crate) fn number(text: &str) -> Option<u64> {
    let hex = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(bits) = hex(["0f", "0F"]).or_else(|| hex(["0d", "0D"])) {
        return u64::from_str_radix(bits, 16).ok();
    }
    let text = text.strip_suffix('U').unwrap_or(text);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::lex::tokens;

    #[test]
    fn operands_are_read_as_they_are_written() {
        let read = |text| operands(&tokens(text)).unwrap();
        assert_eq!(
            read("%r1|%p1, [%rd2+-8], {%f1, %f2}, !%p2, -3, 0f3F800000"),
            [
                Operand::Name("%r1"),
                Operand::Name("%p1"),
                Operand::Address(Box::new(Operand::Name("%rd2")), -8),
                Operand::List(vec![Operand::Name("%f1"), Operand::Name("%f2")]),
                Operand::Not("%p2"),
                Operand::Bits(-3i64 as u64),
                Operand::Bits(0x3f80_0000),
            ]
        );
    }

    #[test]
    fn an_inner_scope_hides_names_until_it_ends() {
        let mut scope = Scope::new(HashMap::new());
        scope.declare(".b32", "t".to_owned()).unwrap();
        scope.open();
        scope.declare(".b64", "t".to_owned()).unwrap();
        assert_eq!(scope.register("t"), Some((Class::Wide, 0)));
        scope.close();
        assert_eq!(scope.register("t"), Some((Class::Narrow, 0)));
    }
}
