//! Statements to instructions. What is not known here is refused, with the statement, when the module is loaded.

use super::inst::{
    Access, Atomic, AtomicType, Comparison, Conversion, Float, HalfKind, Inst, Int, Join, Mma, NONE, Op, Reg, Relation,
    Round, Rounding, Saturate, Scalar, Shuffle, Sign, Space, Vote, Wrap,
};
use super::lex::Token;
use super::operands::{Class, Operand, Scope, operands};

/// A kernel's body so far.
pub(crate) struct Body {
    pub(crate) scope: Scope,
    pub(crate) code: Vec<Inst>,
    pub(crate) lists: Vec<Vec<Reg>>,
}

type Result<T> = std::result::Result<T, String>;

/// Appends the instruction of a statement. Yields the label it jumps to.
pub(crate) fn decode<'a>(body: &mut Body, statement: &[Token<'a>], line: u32) -> Result<Option<&'a str>> {
    let mut rest = statement;
    let mut inst = Inst { op: Op::Nop, guard: NONE, unless: false, d: NONE, a: NONE, b: NONE, c: NONE, imm: 0, line };
    if let [first, guard @ ..] = rest
        && first.is("@")
    {
        inst.unless = guard.first().is_some_and(|token| token.is("!"));
        let name = guard.get(usize::from(inst.unless)).ok_or("a predicate is expected")?;
        inst.guard = body.scope.predicate(&Operand::Name(name.text))?.0;
        rest = &guard[usize::from(inst.unless) + 1..];
    }
    let (opcode, arguments) = rest.split_first().ok_or("an instruction is expected")?;
    let parts: Vec<&str> = opcode.text.split('.').collect();
    let target = match (parts[0], arguments) {
        ("bra", [label]) => Some(label.text),
        ("brx", [_, _, table]) => Some(table.text),
        _ => None,
    };
    let operands = if parts[0] == "bra" { Vec::new() } else { operands(arguments)? };
    let mut decoder = Decoder { body, parts, operands, inst };
    decoder.decode()?;
    let inst = decoder.inst;
    body.code.push(inst);
    Ok(target)
}

/// A type as it stands in an opcode.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Predicate,
    /// Bits without a meaning.
    Bits(usize),
    Of(Scalar),
    Pair(HalfKind),
}

impl Kind {
    fn of(part: &str) -> Option<Self> {
        Some(match part {
            "pred" => Self::Predicate,
            "b8" => Self::Bits(1),
            "b16" => Self::Bits(2),
            "b32" => Self::Bits(4),
            "b64" => Self::Bits(8),
            "u8" => Self::Of(Scalar::U8),
            "u16" => Self::Of(Scalar::U16),
            "u32" => Self::Of(Scalar::U32),
            "u64" => Self::Of(Scalar::U64),
            "s8" => Self::Of(Scalar::I8),
            "s16" => Self::Of(Scalar::I16),
            "s32" => Self::Of(Scalar::I32),
            "s64" => Self::Of(Scalar::I64),
            "f16" => Self::Of(Scalar::F16),
            "bf16" => Self::Of(Scalar::Bf16),
            "f32" => Self::Of(Scalar::F32),
            "f64" => Self::Of(Scalar::F64),
            "f16x2" => Self::Pair(HalfKind::F16x2),
            "bf16x2" => Self::Pair(HalfKind::Bf16x2),
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::Predicate => 1,
            Self::Bits(bytes) => bytes,
            Self::Of(scalar) => scalar.bytes(),
            Self::Pair(_) => 4,
        }
    }

    fn sign(self) -> Sign {
        match self {
            Self::Of(scalar) if scalar.is_signed() => Sign::Signed,
            _ => Sign::Unsigned,
        }
    }

    fn scalar(self) -> Scalar {
        match self {
            Self::Of(scalar) => scalar,
            Self::Bits(8) => Scalar::U64,
            Self::Bits(2) => Scalar::U16,
            Self::Bits(1) | Self::Predicate => Scalar::U8,
            Self::Bits(_) | Self::Pair(_) => Scalar::U32,
        }
    }
}

struct Decoder<'b, 'a> {
    body: &'b mut Body,
    /// The opcode at its dots.
    parts: Vec<&'a str>,
    operands: Vec<Operand<'a>>,
    inst: Inst,
}

impl<'a> Decoder<'_, 'a> {
    fn decode(&mut self) -> Result<()> {
        let inst = match self.parts[0] {
            "mov" => return self.mov(),
            "ld" | "ldu" => return self.load_or_store(0, 1),
            "st" => return self.load_or_store(1, 0),
            "cvt" => return self.convert(),
            "setp" => return self.compare(),
            "selp" => return self.select(),
            "cvta" | "isspacep" => return self.address(),
            "atom" => return self.atomic(1),
            "red" => return self.atomic(0),
            "shfl" => return self.shuffle(),
            "vote" | "activemask" | "match" | "redux" => return self.vote(),
            "ldmatrix" => return self.load_matrix(),
            "mma" => return self.mma(),
            "cp" => return self.copy(),
            "bar" | "barrier" => return self.barrier(),
            "fma" | "sqrt" | "rsqrt" | "rcp" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" => {
                return self.float();
            }
            "bra" => Op::Branch,
            "brx" => {
                self.inst.a = self.narrow(0)?;
                Op::BranchTable
            }
            "ret" | "exit" => Op::Exit,
            "trap" => Op::Trap,
            "membar" | "fence" | "prefetch" | "nanosleep" | "pragma" => Op::Nop,
            _ => return self.arithmetic(),
        };
        self.inst.op = inst;
        Ok(())
    }

    fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.parts[1..].iter().filter_map(|part| Kind::of(part))
    }

    fn kind(&self) -> Result<Kind> {
        self.kinds().next().ok_or_else(|| "a type is expected".to_owned())
    }

    fn operand(&self, index: usize) -> Result<Operand<'a>> {
        self.operands.get(index).cloned().ok_or_else(|| "an operand is missing".to_owned())
    }

    fn narrow(&mut self, index: usize) -> Result<Reg> {
        let operand = self.operands.get(index).ok_or("an operand is missing")?;
        self.body.scope.narrow(operand)
    }

    fn wide(&mut self, index: usize) -> Result<Reg> {
        let operand = self.operands.get(index).ok_or("an operand is missing")?;
        self.body.scope.wide(operand)
    }

    fn predicate(&mut self, index: usize) -> Result<(Reg, bool)> {
        let operand = self.operands.get(index).ok_or("an operand is missing")?;
        self.body.scope.predicate(operand)
    }

    /// A register of as many bytes.
    fn sized(&mut self, index: usize, bytes: usize) -> Result<Reg> {
        if bytes == 8 { self.wide(index) } else { self.narrow(index) }
    }

    /// An operand, or `NONE` for `_`.
    fn result(scope: &mut Scope, operand: &Operand<'_>, wide: bool) -> Result<Reg> {
        match operand {
            Operand::Name("_") => Ok(NONE),
            _ if wide => scope.wide(operand),
            _ => scope.narrow(operand),
        }
    }

    fn list(&mut self, list: Vec<Reg>) -> i32 {
        self.body.lists.push(list);
        (self.body.lists.len() - 1) as i32
    }

    fn sign(&self) -> Result<Sign> {
        Ok(self.kind()?.sign())
    }

    fn saturate(&self) -> Saturate {
        if self.has("sat") { Saturate::Yes } else { Saturate::No }
    }

    // ---- arithmetic ----

    fn arithmetic(&mut self) -> Result<()> {
        let kind = self.kind()?;
        if kind == Kind::Predicate {
            return self.predicates();
        }
        let is_float = matches!(kind, Kind::Pair(_)) || matches!(kind, Kind::Of(scalar) if scalar.is_float());
        if is_float { self.float() } else { self.integer(kind) }
    }

    fn predicates(&mut self) -> Result<()> {
        self.inst.op = match self.parts[0] {
            "and" => Op::PredicateAnd,
            "or" => Op::PredicateOr,
            "xor" => Op::PredicateXor,
            "not" => Op::PredicateNot,
            other => return Err(format!("`{other}` of predicates")),
        };
        self.inst.d = self.predicate(0)?.0;
        self.inst.a = self.predicate(1)?.0;
        if self.inst.op != Op::PredicateNot {
            self.inst.b = self.predicate(2)?.0;
        }
        Ok(())
    }

    fn integer(&mut self, kind: Kind) -> Result<()> {
        let sign = kind.sign();
        let bytes = kind.bytes();
        if self.has("cc") || matches!(self.parts[0], "addc" | "subc" | "madc") {
            return Err("carries are not known".to_owned());
        }
        let op = match self.parts[0] {
            "add" => Int::Add,
            "sub" => Int::Sub,
            "mul" | "mad" if self.has("wide") => return self.wide_product(sign, bytes),
            "mul" if self.has("hi") => Int::MulHigh(sign),
            "mul" => Int::Mul,
            "mad" if self.has("hi") => Int::MadHigh(sign),
            "mad" => Int::Mad,
            "div" => Int::Div(sign),
            "rem" => Int::Rem(sign),
            "min" => Int::Min(sign),
            "max" => Int::Max(sign),
            "and" => Int::And,
            "or" => Int::Or,
            "xor" => Int::Xor,
            "not" => Int::Not,
            "cnot" => Int::LogicalNot,
            "neg" => Int::Neg,
            "abs" => Int::Abs,
            "shl" => Int::ShiftLeft,
            "shr" => Int::ShiftRight(sign),
            "popc" => Int::Popc,
            "clz" => Int::Clz,
            "brev" => Int::Brev,
            "bfind" if self.has("shiftamt") => Int::FindShift(sign),
            "bfind" => Int::Find(sign),
            "bfe" => Int::BitExtract(sign),
            "bfi" => Int::BitInsert,
            "lop3" => Int::Lop3,
            "prmt" => Int::Permute,
            "sad" => Int::Sad(sign),
            "shf" => {
                let wrap = if self.has("wrap") { Wrap::Wrap } else { Wrap::Clamp };
                if self.has("l") { Int::FunnelLeft(wrap) } else { Int::FunnelRight(wrap) }
            }
            "dp4a" => {
                let signs: Vec<Sign> = self.kinds().map(Kind::sign).collect();
                Int::Dp4a(signs[0], *signs.get(1).ok_or("two types are expected")?)
            }
            other => return Err(format!("`{other}` is not known")),
        };
        if self.saturate() == Saturate::Yes {
            return Err("saturated integers are not known".to_owned());
        }
        if op == Int::Permute && self.parts.len() > 2 {
            return Err("this kind of permutation".to_owned());
        }
        let is_count = matches!(op, Int::Popc | Int::Clz | Int::Find(_) | Int::FindShift(_));
        let is_shift = matches!(op, Int::ShiftLeft | Int::ShiftRight(_));
        let narrow_from = match op {
            _ if is_shift => 2,
            Int::BitExtract(_) => 2,
            Int::BitInsert => 3,
            _ => usize::MAX,
        };
        self.inst.op = match bytes {
            2 => Op::Int16(op, sign),
            8 => Op::Int64(op),
            _ => Op::Int32(op),
        };
        self.inst.d = if is_count { self.narrow(0)? } else { self.sized(0, bytes)? };
        let n_operands = if op == Int::Lop3 || op == Int::BitInsert { 4 } else { self.operands.len() };
        for index in 1..n_operands.min(4) {
            let bytes = if index >= narrow_from { 4 } else { bytes };
            let register = self.sized(index, bytes)?;
            match index {
                1 => self.inst.a = register,
                2 => self.inst.b = register,
                _ => self.inst.c = register,
            }
        }
        match op {
            Int::Lop3 => match self.operand(4)? {
                Operand::Bits(table) => self.inst.imm = table as i32,
                _ => return Err("a truth table is expected".to_owned()),
            },
            Int::BitInsert => self.inst.imm = i32::from(self.narrow(4)?),
            _ => {}
        }
        Ok(())
    }

    fn wide_product(&mut self, sign: Sign, bytes: usize) -> Result<()> {
        let result = bytes * 2;
        self.inst.op = if bytes == 2 { Op::Wide16(sign) } else { Op::Wide32(sign) };
        self.inst.d = self.sized(0, result)?;
        self.inst.a = self.narrow(1)?;
        self.inst.b = self.narrow(2)?;
        if self.parts[0] == "mad" {
            self.inst.c = self.sized(3, result)?;
        }
        Ok(())
    }

    fn float(&mut self) -> Result<()> {
        let kind = self.kind()?;
        let nan = self.has("NaN");
        let op = match self.parts[0] {
            "add" => Float::Add,
            "sub" => Float::Sub,
            "mul" => Float::Mul,
            "fma" | "mad" => Float::Fma,
            "div" => Float::Div,
            "min" if nan => Float::MinNan,
            "max" if nan => Float::MaxNan,
            "min" => Float::Min,
            "max" => Float::Max,
            "abs" => Float::Abs,
            "neg" => Float::Neg,
            "copysign" => Float::CopySign,
            "sqrt" => Float::Sqrt,
            "rsqrt" => Float::Rsqrt,
            "rcp" => Float::Rcp,
            "ex2" => Float::Ex2,
            "lg2" => Float::Lg2,
            "sin" => Float::Sin,
            "cos" => Float::Cos,
            "tanh" => Float::Tanh,
            other => return Err(format!("`{other}` of floats")),
        };
        let rounding = match self.parts.iter().find(|part| ["rz", "rm", "rp"].contains(part)) {
            Some(&"rz") => Rounding::Zero,
            Some(&"rm") => Rounding::Down,
            Some(_) => Rounding::Up,
            None => Rounding::Nearest,
        };
        let exotic = rounding != Rounding::Nearest || self.saturate() == Saturate::Yes;
        self.inst.op = match kind {
            Kind::Of(Scalar::F32) => Op::F32(op, rounding, self.saturate()),
            _ if exotic => return Err("rounding or saturation of this type".to_owned()),
            Kind::Of(Scalar::F64) => Op::F64(op),
            Kind::Of(Scalar::F16) => Op::Half(op, HalfKind::F16),
            Kind::Of(Scalar::Bf16) => Op::Half(op, HalfKind::Bf16),
            Kind::Pair(kind) => Op::Half(op, kind),
            _ => return Err("no float".to_owned()),
        };
        let bytes = kind.bytes();
        self.inst.d = self.sized(0, bytes)?;
        self.inst.a = self.sized(1, bytes)?;
        if self.operands.len() > 2 {
            self.inst.b = self.sized(2, bytes)?;
        }
        if self.operands.len() > 3 {
            self.inst.c = self.sized(3, bytes)?;
        }
        Ok(())
    }

    // ---- moves, comparisons, conversions ----

    fn mov(&mut self) -> Result<()> {
        let kind = self.kind()?;
        let bytes = kind.bytes();
        if kind == Kind::Predicate {
            self.inst.op = Op::MovPredicate;
            self.inst.d = self.predicate(0)?.0;
            (self.inst.a, _) = self.predicate(1)?;
            return Ok(());
        }
        match (self.operand(0)?, self.operand(1)?) {
            (Operand::List(into), _) => {
                let scope = &mut self.body.scope;
                let wide = bytes == 8 && into.len() == 1;
                let into: Vec<Reg> =
                    into.iter().map(|operand| Self::result(scope, operand, wide)).collect::<Result<_>>()?;
                self.inst.a = self.sized(1, bytes)?;
                match (bytes, into.as_slice()) {
                    (4, &[low, high]) => (self.inst.op, self.inst.d, self.inst.c) = (Op::Unpack16, low, high),
                    (8, &[low, high]) => (self.inst.op, self.inst.d, self.inst.c) = (Op::Unpack32, low, high),
                    (8, [_, _, _, _]) => (self.inst.op, self.inst.imm) = (Op::Unpack16x4, self.list(into)),
                    _ => return Err("such a vector".to_owned()),
                }
            }
            (_, Operand::List(from)) => {
                let scope = &mut self.body.scope;
                let from: Vec<Reg> = from.iter().map(|operand| scope.narrow(operand)).collect::<Result<_>>()?;
                self.inst.d = self.sized(0, bytes)?;
                match (bytes, from.as_slice()) {
                    (4, &[low, high]) => (self.inst.op, self.inst.a, self.inst.b) = (Op::Pack16, low, high),
                    (8, &[low, high]) => (self.inst.op, self.inst.a, self.inst.b) = (Op::Pack32, low, high),
                    (8, [_, _, _, _]) => (self.inst.op, self.inst.imm) = (Op::Pack16x4, self.list(from)),
                    _ => return Err("such a vector".to_owned()),
                }
            }
            _ => {
                self.inst.op = if bytes == 8 { Op::Mov64 } else { Op::Mov32 };
                self.inst.d = self.sized(0, bytes)?;
                self.inst.a = self.sized(1, bytes)?;
            }
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        let relation = match self.parts[1] {
            "eq" => Relation::Equal,
            "ne" => Relation::NotEqual,
            "lt" | "lo" => Relation::Less,
            "le" | "ls" => Relation::LessOrEqual,
            "gt" | "hi" => Relation::Greater,
            "ge" | "hs" => Relation::GreaterOrEqual,
            "equ" => Relation::EqualOrNan,
            "neu" => Relation::NotEqualOrNan,
            "ltu" => Relation::LessOrNan,
            "leu" => Relation::LessOrEqualOrNan,
            "gtu" => Relation::GreaterOrNan,
            "geu" => Relation::GreaterOrEqualOrNan,
            "num" => Relation::BothNumbers,
            "nan" => Relation::EitherNan,
            other => return Err(format!("comparison `{other}`")),
        };
        let join = match self.parts[2] {
            "and" => Join::And,
            "or" => Join::Or,
            "xor" => Join::Xor,
            _ => Join::None,
        };
        let kind = self.kind()?;
        let (bytes, of) = (kind.bytes(), kind.scalar());
        let n_results = self.operands.len() - 2 - usize::from(join != Join::None);
        self.inst.d = self.predicate(0)?.0;
        let second = if n_results == 2 { self.predicate(1)?.0 } else { NONE };
        self.inst.imm = i32::from(second);
        self.inst.a = self.sized(n_results, bytes)?;
        self.inst.b = self.sized(n_results + 1, bytes)?;
        let mut join_not = false;
        if join != Join::None {
            (self.inst.c, join_not) = self.predicate(n_results + 2)?;
        }
        self.inst.op = Op::Compare(Comparison { relation, of, join, join_not });
        Ok(())
    }

    fn select(&mut self) -> Result<()> {
        let bytes = self.kind()?.bytes();
        self.inst.op = if bytes == 8 { Op::Select64 } else { Op::Select32 };
        self.inst.d = self.sized(0, bytes)?;
        self.inst.a = self.sized(1, bytes)?;
        self.inst.b = self.sized(2, bytes)?;
        self.inst.c = self.predicate(3)?.0;
        Ok(())
    }

    fn convert(&mut self) -> Result<()> {
        let kinds: Vec<Kind> = self.kinds().collect();
        let &[to, from] = kinds.as_slice() else { return Err("two types are expected".to_owned()) };
        if self.has("relu") || self.has("satfinite") {
            return Err("this kind of saturation".to_owned());
        }
        if let Kind::Pair(kind) = to {
            self.inst.op = Op::ConvertPair(kind);
            (self.inst.d, self.inst.a, self.inst.b) = (self.narrow(0)?, self.narrow(1)?, self.narrow(2)?);
            return Ok(());
        }
        let round = match self.parts.iter().find(|part| part.starts_with('r')) {
            Some(&"rz") => Round::TowardsZero,
            Some(&"rn") | None => Round::Nearest,
            Some(&"rni") => Round::NearestInt,
            Some(&"rzi") => Round::ZeroInt,
            Some(&"rmi") => Round::DownInt,
            Some(&"rpi") => Round::UpInt,
            Some(other) => return Err(format!("rounding `{other}`")),
        };
        let bits = |scope: &Scope, operand: &Operand<'_>| match scope.class(operand) {
            Some(Class::Half) => 16,
            Some(Class::Wide) => 64,
            _ => 32,
        };
        let (to_bits, from_bits) =
            (bits(&self.body.scope, &self.operand(0)?), bits(&self.body.scope, &self.operand(1)?));
        self.inst.d = self.sized(0, usize::from(to_bits) / 8)?;
        self.inst.a = self.sized(1, usize::from(from_bits) / 8)?;
        let saturate = self.saturate();
        self.inst.op =
            Op::Convert(Conversion { from: from.scalar(), to: to.scalar(), round, saturate, from_bits, to_bits });
        Ok(())
    }

    // ---- memory ----

    fn space(&self) -> Space {
        let space = self.parts.iter().find_map(|part| match *part {
            "global" | "const" => Some(Space::Global),
            "shared" | "shared::cta" => Some(Space::Shared),
            "local" => Some(Space::Local),
            "param" => Some(Space::Param),
            _ => None,
        });
        space.unwrap_or(Space::Generic)
    }

    /// Register of an address, whether it is a narrow one, and the offset.
    fn pointer(&mut self, index: usize) -> Result<(Reg, bool, i32)> {
        let Operand::Address(base, offset) = self.operand(index)? else {
            return Err("an address is expected".to_owned());
        };
        let offset = i32::try_from(offset).map_err(|_| "an offset of more than 31 bits")?;
        let scope = &mut self.body.scope;
        let narrow = scope.class(&base) == Some(Class::Narrow);
        let register = if narrow { scope.narrow(&base)? } else { scope.wide(&base)? };
        Ok((register, narrow, offset))
    }

    fn load_or_store(&mut self, value: usize, address: usize) -> Result<()> {
        let kind = self.kind()?;
        let space = self.space();
        let (register, narrow_address, offset) = self.pointer(address)?;
        self.inst.a = register;
        self.inst.imm = offset;
        let values = match self.operand(value)? {
            Operand::List(values) => values,
            value => vec![value],
        };
        let class = values.iter().find_map(|value| self.body.scope.class(value));
        let wide = class.map_or(kind.bytes() == 8, |class| class == Class::Wide);
        let scope = &mut self.body.scope;
        let registers: Vec<Reg> = values.iter().map(|value| Self::result(scope, value, wide)).collect::<Result<_>>()?;
        let access = Access {
            space,
            bytes: kind.bytes() as u8,
            n: registers.len() as u8,
            signed: kind.sign() == Sign::Signed,
            wide,
            bits: if class == Some(Class::Half) { 16 } else { 32 },
            narrow_address,
        };
        self.inst.op = if address == 1 { Op::Load(access) } else { Op::Store(access) };
        match registers.as_slice() {
            &[register] => self.inst.d = register,
            _ => self.inst.c = self.list(registers) as Reg,
        }
        Ok(())
    }

    fn address(&mut self) -> Result<()> {
        let space = self.space();
        if self.parts[0] == "isspacep" {
            self.inst.op = Op::IsInSpace(space);
            self.inst.d = self.predicate(0)?.0;
            self.inst.a = self.wide(1)?;
            return Ok(());
        }
        if self.kind()?.bytes() != 8 {
            return Err("addresses of 32 bits".to_owned());
        }
        self.inst.op = if self.has("to") { Op::FromGeneric(space) } else { Op::ToGeneric(space) };
        self.inst.d = self.wide(0)?;
        self.inst.a = self.wide(1)?;
        Ok(())
    }

    fn atomic(&mut self, address: usize) -> Result<()> {
        let op = self.parts.iter().find_map(|part| match *part {
            "add" => Some(Atomic::Add),
            "min" => Some(Atomic::Min),
            "max" => Some(Atomic::Max),
            "and" => Some(Atomic::And),
            "or" => Some(Atomic::Or),
            "xor" => Some(Atomic::Xor),
            "exch" => Some(Atomic::Exchange),
            "cas" => Some(Atomic::Cas),
            "inc" => Some(Atomic::Increment),
            "dec" => Some(Atomic::Decrement),
            _ => None,
        });
        let kind = self.kind()?;
        let of = match kind {
            Kind::Bits(4) | Kind::Of(Scalar::U32) => AtomicType::U32,
            Kind::Of(Scalar::I32) => AtomicType::I32,
            Kind::Bits(8) | Kind::Of(Scalar::U64) => AtomicType::U64,
            Kind::Of(Scalar::I64) => AtomicType::I64,
            Kind::Of(Scalar::F32) => AtomicType::F32,
            Kind::Of(Scalar::F64) => AtomicType::F64,
            Kind::Pair(HalfKind::F16x2) => AtomicType::F16x2,
            _ => return Err("atomic operations of this type".to_owned()),
        };
        let (register, narrow, offset) = self.pointer(address)?;
        if narrow {
            return Err("atomic operations with addresses of 32 bits".to_owned());
        }
        self.inst.op = Op::Atomic(op.ok_or("such an atomic operation")?, of, self.space());
        self.inst.a = register;
        self.inst.imm = offset;
        let bytes = kind.bytes();
        if address == 1 && self.operand(0)? != Operand::Name("_") {
            self.inst.d = self.sized(0, bytes)?;
        }
        self.inst.b = self.sized(address + 1, bytes)?;
        if op == Some(Atomic::Cas) {
            self.inst.c = self.sized(address + 2, bytes)?;
        }
        Ok(())
    }

    fn copy(&mut self) -> Result<()> {
        if self.has("commit_group") {
            self.inst.op = Op::CopyCommit;
            return Ok(());
        }
        if self.has("wait_group") || self.has("wait_all") {
            self.inst.op = Op::CopyWait;
            self.inst.imm = -1;
            if let Some(Operand::Bits(n_groups)) = self.operands.first() {
                self.inst.imm = *n_groups as i32;
            }
            return Ok(());
        }
        if !self.has("async") || self.has("bulk") || self.has("mbarrier") {
            return Err("this kind of copy".to_owned());
        }
        let (into, narrow, into_offset) = self.pointer(0)?;
        let (from, _, from_offset) = self.pointer(1)?;
        let Operand::Bits(bytes) = self.operand(2)? else { return Err("a size is expected".to_owned()) };
        self.inst.op = Op::CopyAsync { bytes: bytes as u8 };
        (self.inst.a, self.inst.b) = (into, from);
        if self.operands.len() > 3 {
            self.inst.c = self.narrow(3)?;
        }
        let offsets = [into_offset, from_offset].map(|offset| offset as u32 as u64);
        let mut list = vec![Reg::from(narrow)];
        for offset in offsets {
            list.push(self.body.scope.narrow(&Operand::Bits(offset))?);
        }
        self.inst.imm = self.list(list);
        Ok(())
    }

    // ---- warps and blocks ----

    fn barrier(&mut self) -> Result<()> {
        if self.has("warp") {
            self.inst.op = Op::WarpBarrier;
            self.inst.a = self.narrow(0)?;
            return Ok(());
        }
        if !self.has("sync") || self.operands.len() > 1 {
            return Err("this kind of barrier".to_owned());
        }
        self.inst.op = Op::Barrier;
        self.inst.a = self.narrow(0)?;
        Ok(())
    }

    fn shuffle(&mut self) -> Result<()> {
        let mode = match self.parts.get(2) {
            Some(&"up") => Shuffle::Up,
            Some(&"down") => Shuffle::Down,
            Some(&"bfly") => Shuffle::Butterfly,
            Some(&"idx") => Shuffle::Index,
            _ => return Err("such a shuffle".to_owned()),
        };
        self.inst.op = Op::Shuffle(mode);
        self.inst.d = self.narrow(0)?;
        let first = self.operands.len().checked_sub(4).ok_or("an operand is missing")?;
        let found = if first == 2 { self.predicate(1)?.0 } else { NONE };
        self.inst.a = self.narrow(first)?;
        self.inst.b = self.narrow(first + 1)?;
        let list = vec![found, self.narrow(first + 2)?, self.narrow(first + 3)?];
        self.inst.imm = self.list(list);
        Ok(())
    }

    fn vote(&mut self) -> Result<()> {
        match self.parts[0] {
            "activemask" => {
                self.inst.op = Op::ActiveMask;
                self.inst.d = self.narrow(0)?;
            }
            "match" if self.has("any") && self.has("b32") => {
                self.inst.op = Op::MatchAny;
                (self.inst.d, self.inst.a, self.inst.b) = (self.narrow(0)?, self.narrow(1)?, self.narrow(2)?);
            }
            "redux" => {
                let sign = self.sign()?;
                let op = match self.parts.get(2) {
                    Some(&"add") => Int::Add,
                    Some(&"min") => Int::Min(sign),
                    Some(&"max") => Int::Max(sign),
                    Some(&"and") => Int::And,
                    Some(&"or") => Int::Or,
                    Some(&"xor") => Int::Xor,
                    _ => return Err("such a reduction".to_owned()),
                };
                self.inst.op = Op::Redux(op);
                (self.inst.d, self.inst.a, self.inst.b) = (self.narrow(0)?, self.narrow(1)?, self.narrow(2)?);
            }
            "vote" => {
                let vote = match self.parts.get(2) {
                    Some(&"all") => Vote::All,
                    Some(&"any") => Vote::Any,
                    Some(&"uni") => Vote::Uniform,
                    Some(&"ballot") => Vote::Ballot,
                    _ => return Err("such a vote".to_owned()),
                };
                self.inst.op = Op::Vote(vote);
                self.inst.d = if vote == Vote::Ballot { self.narrow(0)? } else { self.predicate(0)?.0 };
                let (register, not) = self.predicate(1)?;
                (self.inst.a, self.inst.imm) = (register, i32::from(not));
                self.inst.b = self.narrow(2)?;
            }
            _ => return Err("this kind of match".to_owned()),
        }
        Ok(())
    }

    fn load_matrix(&mut self) -> Result<()> {
        let (register, narrow, offset) = self.pointer(1)?;
        self.inst.a = register;
        // Kept beside: `imm` is the list.
        let offset = self.body.scope.narrow(&Operand::Bits(offset as u32 as u64))?;
        let Operand::List(into) = self.operand(0)? else { return Err("registers are expected".to_owned()) };
        let scope = &mut self.body.scope;
        let mut list = into.iter().map(|operand| scope.narrow(operand)).collect::<Result<Vec<_>>>()?;
        self.inst.op = Op::LoadMatrix { n: list.len() as u8, transposed: self.has("trans") };
        list.extend([Reg::from(narrow), offset]);
        self.inst.imm = self.list(list);
        Ok(())
    }

    fn mma(&mut self) -> Result<()> {
        let signs = |wanted: usize| -> Vec<Sign> { self.kinds().skip(1).take(wanted).map(Kind::sign).collect() };
        let kinds: Vec<Kind> = self.kinds().collect();
        let is_bytes = kinds.get(1).is_some_and(|kind| kind.bytes() == 1);
        let is_f16 = kinds.get(1) == Some(&Kind::Of(Scalar::F16)) && kinds[0] == Kind::Of(Scalar::F32);
        let is_bf16 = kinds.get(1) == Some(&Kind::Of(Scalar::Bf16));
        let mma = match self.parts.get(3) {
            Some(&"m8n8k16") if is_bytes => Mma::I8x8x16(signs(2)[0], signs(2)[1]),
            Some(&"m16n8k16") if is_bytes => Mma::I8x16x16(signs(2)[0], signs(2)[1]),
            Some(&"m16n8k32") if is_bytes => Mma::I8x16x32(signs(2)[0], signs(2)[1]),
            Some(&"m16n8k8") if is_f16 => Mma::F16x8,
            Some(&"m16n8k16") if is_f16 => Mma::F16x16,
            Some(&"m16n8k8") if is_bf16 => Mma::Bf16x8,
            Some(&"m16n8k16") if is_bf16 => Mma::Bf16x16,
            _ => return Err("products of matrices of this shape".to_owned()),
        };
        let mut list = Vec::new();
        for operand in &self.operands {
            let Operand::List(registers) = operand else { return Err("registers are expected".to_owned()) };
            for register in registers {
                list.push(self.body.scope.narrow(register)?);
            }
        }
        self.inst.op = Op::Mma(mma);
        self.inst.imm = self.list(list);
        Ok(())
    }
}
