//! PTX text to instructions that the interpreter runs: nothing is looked up by name afterwards.

mod decode;
mod lex;
mod operands;
mod parse;

pub(crate) mod inst;

use std::collections::HashMap;
use std::sync::Arc;

use self::inst::{Inst, Reg};

pub(crate) use self::parse::parse;

/// A PTX file.
pub(crate) struct Module {
    /// PTX version times ten: 80 is 8.0.
    pub(crate) version: u32,
    /// Least compute capability times ten.
    pub(crate) target: u32,
    /// Kernels by name.
    pub(crate) kernels: HashMap<String, Arc<Kernel>>,
}

/// A kernel, ready to run.
///
/// Immediates, special registers and addresses of variables have registers of their own, filled once, so that every
/// operand is a register.
pub(crate) struct Kernel {
    /// Its name.
    pub(crate) name: String,
    /// Its parameters, in order.
    pub(crate) params: Vec<Param>,
    /// Bytes of all parameters.
    pub(crate) params_bytes: usize,
    /// Most threads of a block.
    pub(crate) max_threads: u32,
    /// Bytes of static shared memory.
    pub(crate) shared_bytes: usize,
    /// Bytes of local memory per thread.
    pub(crate) local_bytes: usize,
    /// Instructions.
    pub(crate) code: Vec<Inst>,
    /// Registers of instructions that have more than four.
    pub(crate) lists: Vec<Vec<Reg>>,
    /// Targets of jump tables.
    pub(crate) tables: Vec<Vec<u32>>,
    /// How many registers there are and what they begin with.
    pub(crate) registers: Registers,
    /// Variables in global memory that the module brings.
    pub(crate) variables: Arc<Vec<Variable>>,
    /// The text's lines, for reports.
    pub(crate) text: Arc<Vec<String>>,
}

/// A parameter of a kernel.
pub(crate) struct Param {
    /// Its offset among all parameters.
    pub(crate) offset: usize,
    /// Its bytes.
    pub(crate) bytes: usize,
    /// Its alignment.
    pub(crate) align: usize,
}

/// Registers of a kernel by class: up to 32 bits, 64 bits, predicates.
#[derive(Default)]
pub(crate) struct Registers {
    /// Registers of up to 32 bits.
    pub(crate) n_narrow: usize,
    /// Registers of 64 bits.
    pub(crate) n_wide: usize,
    /// Predicates.
    pub(crate) n_predicates: usize,
    /// Narrow constants.
    pub(crate) narrow: Vec<(Reg, u32)>,
    /// Wide constants.
    pub(crate) wide: Vec<(Reg, u64)>,
    /// Constant predicates.
    pub(crate) predicates: Vec<(Reg, bool)>,
    /// Special registers, all narrow.
    pub(crate) special: Vec<(Reg, Special)>,
}

/// What a special register tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Special {
    /// Thread within the block, by dimension.
    Thread(usize),
    /// Threads of a block, by dimension.
    BlockSize(usize),
    /// Block within the grid, by dimension.
    Block(usize),
    /// Blocks of the grid, by dimension.
    GridSize(usize),
    /// Lane within the warp.
    Lane,
    /// Warp within the block.
    Warp,
    /// Lanes before this one.
    LanesBefore,
    /// Lanes up to this one.
    LanesUpTo,
    /// This lane.
    LaneBit,
    /// Lanes after this one.
    LanesAfter,
    /// Lanes from this one on.
    LanesFrom,
    /// Bytes of shared memory that the launch asked for.
    DynamicShared,
}

/// A variable in global memory.
pub(crate) struct Variable {
    /// Its bytes, in words so that they are aligned.
    words: Box<[std::cell::UnsafeCell<u128>]>,
    /// Its size.
    pub(crate) bytes: usize,
}

// SAFETY: the bytes are reached by address only, by kernels, as those of any device memory are.
unsafe impl Sync for Variable {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Variable {}

impl Variable {
    /// A variable that begins with these bytes.
    pub(crate) fn new(contents: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut bytes = [0; 16];
            bytes[..chunk.len()].copy_from_slice(chunk);
            std::cell::UnsafeCell::new(u128::from_le_bytes(bytes))
        };
        Self { words: contents.chunks(16).map(word).collect(), bytes: contents.len() }
    }

    /// Its address.
    pub(crate) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }
}
