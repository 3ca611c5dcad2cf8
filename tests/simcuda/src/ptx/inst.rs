//! Instructions as the interpreter runs them.

/// Index of a register within its class.
pub(crate) type Reg = u16;

/// No register: a result that nobody wants.
pub(crate) const NONE: Reg = Reg::MAX;

/// One instruction. What `d`, `a`, `b` and `c` are depends on `op`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    /// What it does.
    pub(crate) op: Op,
    /// Predicate that must hold, or `NONE`.
    pub(crate) guard: Reg,
    /// Whether the predicate must not hold instead.
    pub(crate) unless: bool,
    /// Result.
    pub(crate) d: Reg,
    /// First operand.
    pub(crate) a: Reg,
    /// Second operand.
    pub(crate) b: Reg,
    /// Third operand.
    pub(crate) c: Reg,
    /// Offset of an address, or what else is known beforehand.
    pub(crate) imm: i32,
    /// Line of the PTX.
    pub(crate) line: u32,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    Exit,
    Trap,
    /// To `imm`.
    Branch,
    /// To the entry `a` of table `imm`.
    BranchTable,
    /// All threads of the block; barrier `a`.
    Barrier,
    /// Lanes of mask `a`.
    WarpBarrier,
    Mov32,
    Mov64,
    MovPredicate,
    /// d = a | b << 16
    Pack16,
    /// d, c = halves of a
    Unpack16,
    /// d (wide) = a | b << 32
    Pack32,
    /// d, c = halves of a (wide)
    Unpack32,
    /// d (wide) = four registers of list `imm`
    Pack16x4,
    /// four registers of list `imm` = a (wide)
    Unpack16x4,
    Int32(Int),
    /// Operands are extended by sign first, or have no high bits.
    Int16(Int, Sign),
    Int64(Int),
    /// d (wide) = a · b (+ c, if it is there)
    Wide32(Sign),
    /// d (32 bits) = a · b (+ c, if it is there), 16 bits each
    Wide16(Sign),
    F32(Float, Rounding, Saturate),
    F64(Float),
    /// Halves or pairs of halves.
    Half(Float, HalfKind),
    PredicateAnd,
    PredicateOr,
    PredicateXor,
    PredicateNot,
    /// Predicates d and, where it is there, list `imm`'s second are set by comparing a with b.
    Compare(Comparison),
    Select32,
    Select64,
    Convert(Conversion),
    /// Two f32 to a pair of halves: a high, b low.
    ConvertPair(HalfKind),
    /// Address within a space to a generic one, or back.
    ToGeneric(Space),
    FromGeneric(Space),
    IsInSpace(Space),
    Load(Access),
    Store(Access),
    /// d = what was there; a address, b operand, c second operand of `Cas`
    Atomic(Atomic, AtomicType, Space),
    Shuffle(Shuffle),
    Vote(Vote),
    ActiveMask,
    MatchAny,
    Redux(Int),
    /// list `imm` = matrices at a
    LoadMatrix {
        n: u8,
        transposed: bool,
    },
    /// list `imm`: d, a, b, c registers
    Mma(Mma),
    /// shared a, global b; c: bytes that are read, the rest is zero
    CopyAsync {
        bytes: u8,
    },
    CopyCommit,
    /// Until at most `imm` groups are left; negative: until nothing is.
    CopyWait,
}

/// Whether integers have a sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sign {
    Signed,
    Unsigned,
}

/// Integer operations; the width stands beside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Int {
    Add,
    Sub,
    Mul,
    MulHigh(Sign),
    Mad,
    MadHigh(Sign),
    Div(Sign),
    Rem(Sign),
    Min(Sign),
    Max(Sign),
    And,
    Or,
    Xor,
    Not,
    LogicalNot,
    Neg,
    Abs,
    ShiftLeft,
    ShiftRight(Sign),
    Popc,
    Clz,
    Brev,
    /// Position of the highest bit that is not the sign.
    Find(Sign),
    /// How far it is from the top.
    FindShift(Sign),
    BitExtract(Sign),
    /// Base b, field a, position c, length in list `imm`.
    BitInsert,
    /// Truth table in `imm`.
    Lop3,
    Permute,
    FunnelLeft(Wrap),
    FunnelRight(Wrap),
    /// Signs of a and b.
    Dp4a(Sign, Sign),
    /// Sum of absolute differences.
    Sad(Sign),
}

/// What a shift by 32 or more does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wrap {
    Wrap,
    Clamp,
}

/// Operations on floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Float {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Min,
    Max,
    MinNan,
    MaxNan,
    Abs,
    Neg,
    CopySign,
    Sqrt,
    Rsqrt,
    Rcp,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

/// Rounding of a float result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// Whether a result is brought between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Saturate {
    No,
    Yes,
}

/// Kinds of 16-bit floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HalfKind {
    F16,
    F16x2,
    Bf16,
    Bf16x2,
}

/// A comparison and what it compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) relation: Relation,
    pub(crate) of: Scalar,
    /// What joins the outcome with predicate c, negated or not.
    pub(crate) join: Join,
    pub(crate) join_not: bool,
}

/// What is between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// As above, and true where one is no number.
    EqualOrNan,
    NotEqualOrNan,
    LessOrNan,
    LessOrEqualOrNan,
    GreaterOrNan,
    GreaterOrEqualOrNan,
    BothNumbers,
    EitherNan,
}

/// How a comparison is joined with a predicate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Join {
    None,
    And,
    Or,
    Xor,
}

/// Types that are compared or converted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Scalar {
    /// Bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether it is a float.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Whether it is a signed integer.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }
}

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Conversion {
    pub(crate) from: Scalar,
    pub(crate) to: Scalar,
    pub(crate) round: Round,
    pub(crate) saturate: Saturate,
    /// Bits of the registers.
    pub(crate) from_bits: u8,
    pub(crate) to_bits: u8,
}

/// Rounding of a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Round {
    /// To the nearest float.
    Nearest,
    /// To a float towards zero.
    TowardsZero,
    /// To integers.
    NearestInt,
    ZeroInt,
    DownInt,
    UpInt,
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// A load or a store: one to four registers in `d`, or in list `imm_list` if there are several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    /// Bytes of one element.
    pub(crate) bytes: u8,
    /// Elements.
    pub(crate) n: u8,
    /// Whether elements are extended by sign.
    pub(crate) signed: bool,
    /// Whether the registers have 64 bits.
    pub(crate) wide: bool,
    /// Bits of narrow registers: 16 or 32.
    pub(crate) bits: u8,
    /// Whether the address is in a narrow register.
    pub(crate) narrow_address: bool,
}

/// What an atomic operation does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Atomic {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    Cas,
    Increment,
    Decrement,
}

/// Types of atomic operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AtomicType {
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    F16x2,
}

/// Where a lane's value comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// Products of matrices, by shape and type. Accumulators are i32 or f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mma {
    /// m8n8k16
    I8x8x16(Sign, Sign),
    /// m16n8k16
    I8x16x16(Sign, Sign),
    /// m16n8k32
    I8x16x32(Sign, Sign),
    /// m16n8k8
    F16x8,
    /// m16n8k16
    F16x16,
    /// m16n8k8
    Bf16x8,
    /// m16n8k16
    Bf16x16,
}
