//! What the machine can do, measured with the engine's own threads and kernels: how fast memory is read, how fast weights of
//! a type are multiplied. Timing and judging is the caller's business; here is the work to time.
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

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
        self.read_part(cpu, 0..self.n_bytes())
    }

    /// Reads some of the bytes once, whole words of them.
    pub fn read_part(&self, cpu: &Cpu, bytes: Range<usize>) -> u64 {
        let sum = AtomicU64::new(0);
        let words = &self.words[bytes.start / size_of::<u64>()..bytes.end / size_of::<u64>()];
        let tasks: Vec<&[u64]> = words.chunks(TASK_BYTES / size_of::<u64>()).collect();
        cpu.pool.run(tasks.len(), &|task| {
            sum.fetch_add(sum_of_streams(tasks[task]), Ordering::Relaxed);
        });
        sum.into_inner()
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
    /// A matrix of about `n_bytes` of the memory, or of all of it if that is less, and activations of `n_tokens`.
    ///
    /// n_cols   a multiple of every block's length: 256
    /// Errors   `OutOfMemory`; panics if the type is not supported (`quant::supports`)
    pub fn new(
        cpu: &Cpu,
        memory: &'a ReadProbe,
        tensor_type: TensorType,
        n_cols: usize,
        n_bytes: usize,
        next: NextWeights,
        n_tokens: usize,
    ) -> Result<Self, EngineError> {
        let row_bytes = tensor_type.row_bytes(n_cols as u64).expect("a whole number of blocks") as usize;
        let n_rows = n_bytes.min(memory.n_bytes()) / row_bytes;
        let mut x = Activations::new(n_cols, n_tokens, Rounding::Once);
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

fn sum_of_streams(words: &[u64]) -> u64 {
    let quarter = words.len() / STREAMS;
    let (a, rest) = words.split_at(quarter);
    let (b, rest) = rest.split_at(quarter);
    let (c, d) = rest.split_at(quarter);
    let mut sums = [0u64; 16];
    let streams = a.chunks_exact(4).zip(b.chunks_exact(4)).zip(c.chunks_exact(4).zip(d.chunks_exact(4)));
    for ((a, b), (c, d)) in streams {
        for i in 0..4 {
            sums[i] = sums[i].wrapping_add(a[i]);
            sums[4 + i] = sums[4 + i].wrapping_add(b[i]);
            sums[8 + i] = sums[8 + i].wrapping_add(c[i]);
            sums[12 + i] = sums[12 + i].wrapping_add(d[i]);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
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
    fn weights_of_every_type_give_numbers() {
        let cpu = Cpu::new(Isa::best(), 1).unwrap();
        let memory = ReadProbe::new(64 << 10).unwrap();
        for format in FORMATS {
            let mut probe =
                ProductProbe::new(&cpu, &memory, format.tensor_type, 512, 16 << 10, NextWeights::Other, 2).unwrap();
            (0..5).for_each(|_| probe.run(&cpu));
            assert!(probe.y.iter().all(|y| y.is_finite()), "{}", format.tensor_type);
            assert!(probe.n_bytes() > 0 && probe.n_ops() > 0.0);
        }
    }
}
