//! What the machine can do, measured with the engine's own threads and kernels: how fast memory is read, how fast weights of
//! a type are multiplied. Timing and judging is the caller's business; here is the work to time.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::{Activations, Cpu, Matrix, matmul};
use crate::error::EngineError;
use crate::gguf::TensorType;
use crate::tensor::zeroed;

/// Streams that one thread reads at once, as the kernels do; more are no faster.
const STREAMS: usize = 4;
/// What one task of a read takes: long streams, at small cost of claiming.
const TASK_BYTES: usize = 1 << 20;

/// Memory to read.
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
        words.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
        Ok(Self { words })
    }

    /// Bytes that `read` reads.
    pub fn n_bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Reads everything once, with all threads; gives the sum, which nobody needs.
    pub fn read(&self, cpu: &Cpu) -> u64 {
        let sum = AtomicU64::new(0);
        let tasks: Vec<&[u64]> = self.words.chunks(TASK_BYTES / size_of::<u64>()).collect();
        cpu.pool.run(tasks.len(), &|task| {
            sum.fetch_add(sum_of_streams(tasks[task]), Ordering::Relaxed);
        });
        sum.into_inner()
    }
}

/// Weights of one type, to be multiplied with tokens.
pub struct ProductProbe {
    tensor_type: TensorType,
    n_rows: usize,
    n_cols: usize,
    weights: Vec<u8>,
    x: Activations,
    y: Vec<f32>,
}

impl ProductProbe {
    /// A matrix of about `n_bytes` and activations of `n_tokens`.
    ///
    /// n_cols   a multiple of every block's length: 256
    /// Errors   `OutOfMemory`; panics if the type is not supported (`quant::supports`)
    pub fn new(
        cpu: &Cpu,
        tensor_type: TensorType,
        n_cols: usize,
        n_bytes: usize,
        n_tokens: usize,
    ) -> Result<Self, EngineError> {
        let row_bytes = tensor_type.row_bytes(n_cols as u64).expect("a whole number of blocks") as usize;
        let n_rows = (n_bytes / row_bytes).max(1);
        let mut weights: Vec<u8> = zeroed("a probe of weights", n_rows, row_bytes)?;
        fill(&mut weights);
        let mut x = Activations::new(n_cols, n_tokens);
        let tokens: Vec<f32> = (0..n_cols * n_tokens).map(|i| (i as f32 * 0.37).sin()).collect();
        x.set(cpu, &tokens, n_cols);
        Ok(Self { tensor_type, n_rows, n_cols, weights, x, y: zeroed("a probe's results", n_tokens, n_rows)? })
    }

    /// Bytes of the weights.
    pub fn n_bytes(&self) -> usize {
        self.weights.len()
    }

    /// Multiplications and additions of one `run`.
    pub fn n_ops(&self) -> f64 {
        2.0 * self.n_rows as f64 * self.n_cols as f64 * self.x.n_tokens() as f64
    }

    /// Multiplies once, with all threads.
    pub fn run(&mut self, cpu: &Cpu) {
        let Self { tensor_type, n_rows, n_cols, .. } = *self;
        matmul(cpu, Matrix { tensor_type, n_rows, n_cols, bytes: &self.weights }, &self.x, &mut self.y);
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
    fn a_read_sees_every_word_of_whole_streams() {
        let cpu = Cpu::new(Isa::best(), 2).unwrap();
        let probe = ReadProbe::new(5 << 20).unwrap();
        let n = probe.n_bytes() as u64 / 8;
        assert_eq!(probe.read(&cpu), n * (n - 1) / 2);
    }

    #[test]
    fn weights_of_every_type_give_numbers() {
        let cpu = Cpu::new(Isa::best(), 1).unwrap();
        for format in FORMATS {
            let mut probe = ProductProbe::new(&cpu, format.tensor_type, 512, 16 << 10, 2).unwrap();
            probe.run(&cpu);
            assert!(probe.y.iter().all(|y| y.is_finite()), "{}", format.tensor_type);
            assert!(probe.n_bytes() > 0 && probe.n_ops() > 0.0);
        }
    }
}
