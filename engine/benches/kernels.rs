//! Every kernel of products on one thread: each format of weights on each instruction set of this CPU, one token and many,
//! from memory and from the cache; and the plain read that they are measured against.
//!
//!     cargo bench -p tandem-engine --bench kernels -- Q4_K
use std::fmt;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tandem_engine::cpu::{Cpu, Isa, Rounding};
use tandem_engine::probe::{NextWeights, ProductProbe, ProductShape, ReadProbe};
use tandem_engine::quant::{FORMATS, Format};

/// Far more than the caches hold.
const MEMORY_BYTES: usize = 256 << 20;
/// A matrix that the second-level cache holds with its token.
const CACHED_BYTES: usize = 256 << 10;
/// A matrix of a layer.
const MATRIX_BYTES: usize = 4 << 20;
/// Weights per row.
const N_COLS: usize = 2048;
/// Tokens of a prompt that are computed at once.
const N_TOKENS: usize = 128;

fn main() {
    divan::main();
}

/// A format on an instruction set.
#[derive(Clone, Copy)]
struct Case {
    format: &'static Format,
    isa: Isa,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.format.tensor_type, self.isa)
    }
}

/// All of them but the norm, which is not meant to be fast.
fn cases() -> Vec<Case> {
    let isas: Vec<Isa> = Isa::present().into_iter().filter(|isa| *isa != Isa::Scalar).collect();
    FORMATS.iter().flat_map(|format| isas.iter().map(move |&isa| Case { format, isa })).collect()
}

fn one_thread(isa: Isa) -> Cpu {
    Cpu::new(isa, 1).expect("only present instruction sets are listed, and one thread starts none")
}

fn memory(n_bytes: usize) -> ReadProbe {
    ReadProbe::new(n_bytes).expect("a machine for benchmarks has the memory")
}

/// A token's product with weights that no cache holds, as in generation.
#[divan::bench(args = cases(), sample_count = 20)]
fn generation_from_memory(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, MEMORY_BYTES, MATRIX_BYTES, NextWeights::Other, 1);
}

/// The same with weights that the second-level cache holds: what instructions take.
#[divan::bench(args = cases(), sample_count = 20)]
fn generation_from_cache(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, CACHED_BYTES, CACHED_BYTES, NextWeights::Same, 1);
}

/// Many tokens' product, as in prompts.
#[divan::bench(args = cases(), sample_count = 10)]
fn prompt(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, CACHED_BYTES, CACHED_BYTES, NextWeights::Same, N_TOKENS);
}

/// Bytes of weights per second, and operations (items) per second.
fn product(bencher: Bencher<'_, '_>, case: Case, held: usize, n_bytes: usize, next: NextWeights, n_tokens: usize) {
    let (cpu, memory) = (one_thread(case.isa), memory(held));
    let shape = ProductShape {
        tensor_type: case.format.tensor_type,
        n_cols: N_COLS,
        n_bytes,
        next,
        n_tokens,
        rounding: Rounding::Once,
    };
    let mut probe = ProductProbe::new(&cpu, &memory, shape).expect("a machine for benchmarks has the memory");
    let bencher = bencher.counter(BytesCount::new(probe.n_bytes())).counter(ItemsCount::new(probe.n_ops() as usize));
    bencher.bench_local(|| probe.run(&cpu));
}

/// Reading and nothing else.
#[divan::bench(sample_count = 20)]
fn plain_read(bencher: Bencher<'_, '_>) {
    let (cpu, memory) = (one_thread(Isa::best()), memory(MEMORY_BYTES));
    bencher.counter(BytesCount::new(memory.n_bytes())).bench_local(|| memory.read(&cpu));
}
