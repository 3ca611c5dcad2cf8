//! What the machine can do, measured with the engine's own threads and kernels: how fast memory is read, how fast weights of
//! a type are multiplied. Timing and judging is the caller's business; here is the work to time.
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::isa::per_isa;
use crate::cpu::{Activations, Cpu, Matrix, Rounding, matmul};
use crate::error::EngineError;
use crate::gguf::TensorType;
use crate::tensor::zeroed;

/// Streams that one thread reads at once, as the kernels do; more are no faster.
const STREAMS: usize = 4;
/// What one task of a read takes: long streams, at small cost of claiming.
const TASK_BYTES: usize = 1 << 20;
/// After so many bytes the same come again.
const PATTERN_BYTES: usize = 1 << 20;
/// Bytes of one cache line.
const LINE: usize = 64;
/// Bytes ahead of each stream to prefetch. Source: measured; 1 to 3 KB are equal.
const PREFETCH: usize = 1536;

/// Reads memory once, with all threads; gives the sum of its words, which nobody needs.
///
/// bytes    far more than the caches hold, or it is their speed that is seen
pub fn read(cpu: &Cpu, bytes: &[u8]) -> u64 {
    let sum = AtomicU64::new(0);
    cpu.pool.run(bytes.len().div_ceil(TASK_BYTES), &|task| {
        let first = task * TASK_BYTES;
        let part = &bytes[first..bytes.len().min(first + TASK_BYTES)];
        // SAFETY: the ISA of a `Cpu` is present.
        sum.fetch_add(unsafe { sum_of_streams(cpu.isa(), part) }, Ordering::Relaxed);
    });
    sum.into_inner()
}

/// Memory to read: as words, and as weights of any type.
#[derive(Debug)]
pub struct ReadProbe {
    words: Vec<u64>,
}

impl ReadProbe {
    /// Allocates and writes memory, so that all of it is really there.
    ///
    /// Errors   `OutOfMemory`
    pub fn new(n_bytes: usize) -> Result<Self, EngineError> {
        let mut words: Vec<u64> = zeroed("a probe of memory", 1, n_bytes / size_of::<u64>())?;
        let n_first = words.len().min(PATTERN_BYTES / size_of::<u64>());
        let (first, rest) = words.split_at_mut(n_first);
        fill(bytemuck::cast_slice_mut(first));
        for piece in rest.chunks_mut(first.len().max(1)) {
            piece.copy_from_slice(&first[..piece.len()]);
        }
        Ok(Self { words })
    }

    /// Bytes that `read` reads.
    pub fn n_bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Reads everything once, with all threads; gives the sum, which nobody needs.
    pub fn read(&self, cpu: &Cpu) -> u64 {
        read(cpu, bytemuck::cast_slice(&self.words))
    }

    /// Reads some of the bytes once, whole words of them.
    pub fn read_part(&self, cpu: &Cpu, bytes: Range<usize>) -> u64 {
        read(cpu, bytemuck::cast_slice(&self.words[bytes.start / size_of::<u64>()..bytes.end / size_of::<u64>()]))
    }
}

/// Which weights a product takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextWeights {
    /// The same, which the cache holds.
    Same,
    /// Those behind them in memory.
    Other,
}

/// What is multiplied with what.
#[derive(Clone, Copy, Debug)]
pub struct ProductShape {
    /// Type of the weights.
    pub tensor_type: TensorType,
    /// Columns: a multiple of every block's length, 256.
    pub n_cols: usize,
    /// Weights of about so many bytes, or all of the memory if that is less.
    pub n_bytes: usize,
    /// Which weights each run takes.
    pub next: NextWeights,
    /// Tokens that are multiplied at once.
    pub n_tokens: usize,
    /// How finely they are seen.
    pub rounding: Rounding,
}

/// Weights of one type, to be multiplied with tokens.
pub struct ProductProbe<'a> {
    tensor_type: TensorType,
    n_rows: usize,
    n_cols: usize,
    memory: &'a [u8],
    n_bytes: usize,
    first: usize,
    next: NextWeights,
    x: Activations,
    y: Vec<f32>,
}

impl<'a> ProductProbe<'a> {
    /// A matrix in the memory, and activations for it.
    ///
    /// Errors   `OutOfMemory`; panics if the type is not supported (`quant::supports`)
    pub fn new(cpu: &Cpu, memory: &'a ReadProbe, shape: ProductShape) -> Result<Self, EngineError> {
        let ProductShape { tensor_type, n_cols, n_bytes, next, n_tokens, rounding } = shape;
        let row_bytes = tensor_type.row_bytes(n_cols as u64).expect("a whole number of blocks") as usize;
        let n_rows = n_bytes.min(memory.n_bytes()) / row_bytes;
        let mut x = Activations::new(n_cols, n_tokens, rounding);
        let tokens: Vec<f32> = (0..n_cols * n_tokens).map(|i| (i as f32 * 0.37).sin()).collect();
        x.set(cpu, &tokens, n_cols);
        Ok(Self {
            tensor_type,
            n_rows,
            n_cols,
            memory: bytemuck::cast_slice(&memory.words),
            n_bytes: n_rows * row_bytes,
            first: 0,
            next,
            x,
            y: zeroed("a probe's results", n_tokens, n_rows)?,
        })
    }

    /// Bytes of the weights.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Multiplications and additions of one `run`.
    pub fn n_ops(&self) -> f64 {
        2.0 * self.n_rows as f64 * self.n_cols as f64 * self.x.n_tokens() as f64
    }

    /// Multiplies once, with all threads.
    pub fn run(&mut self, cpu: &Cpu) {
        let Self { tensor_type, n_rows, n_cols, memory, n_bytes, first, .. } = *self;
        let bytes = &memory[first..first + n_bytes];
        matmul(cpu, Matrix { tensor_type, n_rows, n_cols, bytes }, &self.x, &mut self.y);
        if self.next == NextWeights::Other {
            let next = first + n_bytes;
            self.first = if next + n_bytes <= memory.len() { next } else { 0 };
        }
    }
}

per_isa! {
    /// Sum of the words of all lines but those behind the last whole one of each stream.
    unsafe fn sum_of_streams<V>(bytes: &[u8]) -> u64 {
        let stream_bytes = bytes.len() / STREAMS / LINE * LINE;
        let mut sums = [[0u64; LINE / 8]; STREAMS];
        for at in (0..stream_bytes).step_by(LINE) {
            for (stream, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the line ends within its stream, and the streams within `bytes`.
                let p = unsafe { bytes.as_ptr().add(stream * stream_bytes + at) };
                // SAFETY: any address may be prefetched; the line is there, and any bits are numbers.
                let line = unsafe {
                    V::prefetch(p.wrapping_add(PREFETCH));
                    p.cast::<[u64; LINE / 8]>().read_unaligned()
                };
                for (sum, word) in sums.iter_mut().zip(line) {
                    *sum = sum.wrapping_add(word);
                }
            }
        }
        sums.as_flattened().iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

/// Bytes that are sound weights in every type: read as a scale in any float format they are small positive numbers.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u32;
    for byte in bytes {
        // Source: Numerical Recipes, "quick and dirty" linear congruential generator.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = 0x20 + (state >> 24) as u8 % 0x1c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::quant::FORMATS;

    #[test]
    fn a_read_sees_every_word() {
        let cpu = Cpu::new(Isa::best(), 2).unwrap();
        let probe = ReadProbe::new(5 << 20).unwrap();
        assert_eq!(probe.n_bytes(), 5 << 20);
        assert_eq!(probe.read(&cpu), probe.words.iter().copied().fold(0, u64::wrapping_add));
    }

    #[test]
    fn every_isa_reads_every_line_of_every_stream() {
        let n_words = (3 * STREAMS * LINE + 100) / 8;
        let words: Vec<u64> = (0..n_words as u64).map(|i| i << 32).collect();
        let expected = words[..3 * STREAMS * LINE / 8].iter().sum::<u64>();
        for isa in Isa::present() {
            let cpu = Cpu::new(isa, 2).unwrap();
            assert_eq!(read(&cpu, bytemuck::cast_slice(&words)), expected, "{isa}");
            assert_eq!(read(&cpu, &[]), 0);
        }
    }

    #[test]
    fn weights_of_every_type_give_numbers() {
        let cpu = Cpu::new(Isa::best(), 1).unwrap();
        let memory = ReadProbe::new(64 << 10).unwrap();
        for format in FORMATS {
            let shape = ProductShape {
                tensor_type: format.tensor_type,
                n_cols: 512,
                n_bytes: 16 << 10,
                next: NextWeights::Other,
                n_tokens: 2,
                rounding: Rounding::Once,
            };
            let mut probe = ProductProbe::new(&cpu, &memory, shape).unwrap();
            (0..5).for_each(|_| probe.run(&cpu));
            assert!(probe.y.iter().all(|y| y.is_finite()), "{}", format.tensor_type);
            assert!(probe.n_bytes() > 0 && probe.n_ops() > 0.0);
        }
    }
}
