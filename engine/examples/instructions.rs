//! Work for a counter of instructions: products of one format with a fixed number of tokens, as often as is said.
//! `bench/instructions.py` runs it under valgrind twice and prints what one weight takes.
//!
//!     instructions TYPE ISA N_TOKENS N_RUNS      prints the weights that one run multiplies, times tokens
//!     instructions                               lists the types and instruction sets
#![expect(clippy::print_stdout, reason = "a script reads what this prints")]

use tandem_engine::cpu::{Cpu, Isa, Rounding};
use tandem_engine::probe::{NextWeights, ProductProbe, ProductShape, ReadProbe};
use tandem_engine::quant::FORMATS;

/// Weights per row.
const N_COLS: usize = 2048;
/// Of the matrix.
const N_BYTES: usize = 64 << 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, isa, n_tokens, n_runs] = args.as_slice() else {
        let types = FORMATS.iter().map(|format| format.tensor_type.to_string());
        println!("{}", types.collect::<Vec<_>>().join(" "));
        return println!("{}", Isa::present().iter().map(Isa::to_string).collect::<Vec<_>>().join(" "));
    };
    let format = FORMATS.iter().find(|format| format.tensor_type.to_string() == *name).expect("a type of the list");
    let isa: Isa = isa.parse().expect("an instruction set");
    let (n_tokens, n_runs): (usize, usize) =
        (n_tokens.parse().expect("a number of tokens"), n_runs.parse().expect("a number of runs"));
    let cpu = Cpu::new(isa, 1).expect("an instruction set that is present");
    let memory = ReadProbe::new(N_BYTES).expect("64 KiB of memory");
    let shape = ProductShape {
        tensor_type: format.tensor_type,
        n_cols: N_COLS,
        n_bytes: N_BYTES,
        next: NextWeights::Same,
        n_tokens,
        rounding: Rounding::Once,
    };
    let mut probe = ProductProbe::new(&cpu, &memory, shape).expect("memory for a small matrix");
    (0..n_runs).for_each(|_| probe.run(&cpu));
    println!("{}", probe.n_ops() / 2.0);
}
