//! The products of quantised matrices against the scalar decode of the engine, at odd sizes.
//!
//! Blocks are random bytes, so that every bit of a format is tried; only their scales are made moderate. The activations that
//! both sides see are those that the kernel rounded, so what differs is the order of sums in f32.

use half::f16;
use tandem_engine::gguf::TensorType;
use tandem_engine::quant::decode_row;

use crate::instructions::numbers;
use crate::machine::Machine;

/// A format: its blocks, and where they keep scales as halves.
struct Format {
    name: &'static str,
    tensor_type: TensorType,
    elems: usize,
    bytes: usize,
    halves: &'static [usize],
    ptx: [&'static str; 2],
}

macro_rules! formats {
    ($($name:ident $tensor_type:ident $elems:literal $bytes:literal $halves:expr;)*) => {
        static FORMATS: &[Format] = &[$(Format {
            name: stringify!($name),
            tensor_type: TensorType::$tensor_type,
            elems: $elems,
            bytes: $bytes,
            halves: &$halves,
            ptx: [ptx!($name, "75"), ptx!($name, "80")],
        }),*];
    };
}

macro_rules! ptx {
    ($name:ident, $arch:literal) => {
        include_str!(concat!("../../../../engine/src/cuda/kernels/quant_", stringify!($name), "_sm", $arch, ".ptx"))
    };
}

formats! {
    q8_0 Q8_0 32 34 [0];
    q4_0 Q4_0 32 18 [0];
    q4_1 Q4_1 32 20 [0, 2];
    q5_0 Q5_0 32 22 [0];
    q5_1 Q5_1 32 24 [0, 2];
    q2_K Q2_K 256 84 [80, 82];
    q3_K Q3_K 256 110 [108];
    q4_K Q4_K 256 144 [0, 2];
    q5_K Q5_K 256 176 [0, 2];
    q6_K Q6_K 256 210 [208];
    iq4_nl IQ4_NL 32 18 [0];
    iq4_xs IQ4_XS 256 136 [0];
    iq3_s IQ3_S 256 110 [0];
    iq3_xxs IQ3_XXS 256 98 [0];
    iq2_s IQ2_S 256 82 [0];
    iq2_xs IQ2_XS 256 74 [0];
    iq2_xxs IQ2_XXS 256 66 [0];
    mxfp4 MXFP4 32 17 [];
}

const ACTIVATIONS: [&str; 2] = [
    include_str!("../../../../engine/src/cuda/kernels/quant_activations_sm75.ptx"),
    include_str!("../../../../engine/src/cuda/kernels/quant_activations_sm80.ptx"),
];
const CARDS: [&str; 2] = ["card 6 GiB compute 7.5", "card 6 GiB compute 8.0"];

/// Rows: no multiple of a warp's or a tile's.
const N_ROWS: usize = 67;
const N_MATRICES: usize = 3;
/// Sums in f32 of at most this many terms, each rounded: relative to the sum of magnitudes.
const TOLERANCE: f64 = 3e-6;

/// Matrices in blocks of a format, on the card and decoded.
struct Matrices {
    width: usize,
    bytes: usize,
    at: u64,
    weights: Vec<f32>,
}

impl Matrices {
    fn new(machine: &Machine, format: &Format) -> Self {
        // 18 groups of 32: what a warp of 32 lanes does not divide.
        let width = if format.elems == 32 { 576 } else { 768 };
        let n_blocks = N_MATRICES * N_ROWS * width / format.elems;
        let words = numbers(n_blocks * format.bytes.div_ceil(4));
        let mut bytes: Vec<u8> =
            words.iter().flat_map(|word| word.to_le_bytes()).take(n_blocks * format.bytes).collect();
        for (index, block) in bytes.chunks_mut(format.bytes).enumerate() {
            for &at in format.halves {
                let scale = f16::from_f32((index % 37) as f32 * 0.001 - 0.015);
                block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            if format.halves.is_empty() {
                block[0] = 120 + (index % 7) as u8;
            }
        }
        let mut weights = vec![0.0; N_MATRICES * N_ROWS * width];
        let row_bytes = width / format.elems * format.bytes;
        for (row, out) in bytes.chunks(row_bytes).zip(weights.chunks_mut(width)) {
            decode_row(format.tensor_type, row, out).unwrap();
        }
        Self { width, bytes: N_ROWS * row_bytes, at: machine.put(&bytes), weights }
    }

    /// The product of one row with activations, and the sum of magnitudes.
    fn product(&self, matrix: usize, row: usize, x: &[f64]) -> (f64, f64) {
        let begin = (matrix * N_ROWS + row) * self.width;
        let terms = self.weights[begin..begin + self.width].iter().zip(x).map(|(w, x)| f64::from(*w) * x);
        terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
    }
}

/// Activations on the card, rounded there, and what they are.
struct Activations {
    q: u64,
    scales: u64,
    rows: Vec<Vec<f64>>,
}

impl Activations {
    fn new(machine: &Machine, ptx: &str, n: usize, width: usize) -> Self {
        let x: Vec<f32> = numbers(n * width).iter().map(|bits| (*bits as f32 / u32::MAX as f32 - 0.5) * 6.0).collect();
        let mut x = x;
        // A group of zeros has no scale.
        x[32..64].fill(0.0);
        let (dx, q, scales) =
            (machine.put(&x), machine.put(&vec![0i8; n * width]), machine.put(&vec![0f32; n * width / 16]));
        let kernel = machine.kernel(ptx, "quantize_activations");
        let args = [dx, q, scales, width as u64];
        let code = machine.queue_grid(kernel, [width.div_ceil(256) as u32, n as u32, 1], 256, &args);
        assert_eq!(code, 0);
        let bytes = machine.get::<i8>(q, n * width);
        let pairs = machine.get::<f32>(scales, n * width / 16);
        for (group, x) in x.chunks(32).enumerate() {
            let d = x.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
            let expected = x.iter().map(|x| if d == 0.0 { 0 } else { (x / d).round_ties_even() as i8 });
            let got = &bytes[32 * group..][..32];
            assert!(expected.eq(got.iter().copied()), "group {group}");
            let sum: i32 = got.iter().map(|&q| i32::from(q)).sum();
            assert_eq!((pairs[2 * group], pairs[2 * group + 1]), (d, d * sum as f32), "group {group}");
        }
        let value = |at: usize| f64::from(bytes[at]) * f64::from(pairs[at / 32 * 2]);
        let rows = (0..n).map(|row| (0..width).map(|column| value(row * width + column)).collect()).collect();
        Self { q, scales, rows }
    }
}

/// Compares `y` [n, N_ROWS] with the products of matrix and input that `of` tells for each.
fn check(format: &Format, what: &str, y: &[f32], m: &Matrices, x: &Activations, of: impl Fn(usize) -> (usize, usize)) {
    for (index, y) in y.chunks(N_ROWS).enumerate() {
        let (matrix, input) = of(index);
        for (row, y) in y.iter().enumerate() {
            let (expected, magnitude) = m.product(matrix, row, &x.rows[input]);
            let error = (f64::from(*y) - expected).abs();
            assert!(
                error <= TOLERANCE * magnitude.max(1e-30),
                "{} {what}: result {index} row {row} is {y}, expected {expected} (magnitude {magnitude})",
                format.name
            );
        }
    }
}

/// Every format on both kinds of cards.
fn each(test: impl Fn(&Machine, &Format, usize)) {
    for (arch, card) in CARDS.iter().enumerate() {
        let machine = Machine::new(card);
        for format in FORMATS {
            test(&machine, format, arch);
        }
    }
}

fn kernel(machine: &Machine, format: &Format, arch: usize, what: &str) -> crate::machine::Handle {
    machine.kernel(format.ptx[arch], &format!("quant_{what}_{}", format.name))
}

#[test]
fn single_rows_are_decoded() {
    each(|machine, format, arch| {
        let m = Matrices::new(machine, format);
        let ids = [66u32, 0, 31];
        let n = ids.len() * m.width;
        let (di, dx) = (machine.put(&ids), machine.put(&vec![0f32; n]));
        let args = [m.at, di, dx, m.width as u64, n as u64];
        let rows = kernel(machine, format, arch, "rows");
        assert_eq!(machine.queue_grid(rows, [(n / 32).div_ceil(64) as u32, 1, 1], 64, &args), 0);
        let x = machine.get::<f32>(dx, n);
        for (&id, x) in ids.iter().zip(x.chunks(m.width)) {
            for (at, (x, w)) in x.iter().zip(&m.weights[id as usize * m.width..]).enumerate() {
                assert!((x - w).abs() <= 1e-6 * w.abs().max(1e-3), "{}: weight {at}: {x}, expected {w}", format.name);
            }
        }
    });
}

#[test]
fn products_with_few_inputs_are_right() {
    each(|machine, format, arch| {
        let m = Matrices::new(machine, format);
        let x = Activations::new(machine, ACTIVATIONS[arch], 5, m.width);
        let y = machine.put(&vec![0f32; 5 * N_ROWS]);
        let args =
            |ids: u64, n: usize| [m.at, m.bytes as u64, ids, x.q, x.scales, y, N_ROWS as u64, m.width as u64, n as u64];
        let blocks = N_ROWS.div_ceil(8) as u32;
        let one = kernel(machine, format, arch, "matvec");
        assert_eq!(machine.queue_grid(one, [blocks, 1, 1], 256, &args(0, 1)), 0);
        check(format, "matvec", &machine.get(y, N_ROWS), &m, &x, |_| (0, 0));
        let ids = [2u32, 0, 1, 1, 2];
        assert_eq!(machine.queue_grid(one, [blocks, 5, 1], 256, &args(machine.put(&ids), 5)), 0);
        check(format, "matvec of experts", &machine.get(y, 5 * N_ROWS), &m, &x, |i| (ids[i] as usize, i));
        let eight = kernel(machine, format, arch, "matvec8");
        assert_eq!(machine.queue_grid(eight, [blocks, 1, 1], 256, &args(0, 5)), 0);
        check(format, "matvec8", &machine.get(y, 5 * N_ROWS), &m, &x, |i| (0, i));
    });
}

#[test]
fn products_with_many_inputs_are_right() {
    const N: usize = 37;
    each(|machine, format, arch| {
        let m = Matrices::new(machine, format);
        let x = Activations::new(machine, ACTIVATIONS[arch], N, m.width);
        let y = machine.put(&vec![0f32; N * N_ROWS]);
        let args = |offsets: u64, inputs: u64, share: u64| {
            let shape = [N_ROWS as u64, m.width as u64, N as u64];
            [m.at, m.bytes as u64, offsets, inputs, share, x.q, x.scales, y, shape[0], shape[1], shape[2]]
        };
        // Inputs of each matrix: none of the second; results share an input by two.
        let offsets: [u32; N_MATRICES + 1] = [0, 33, 33, 37];
        let inputs: Vec<u32> = (0..N as u32).map(|i| (i * 11) % 37).collect();
        let (doffsets, dinputs) = (machine.put(&offsets), machine.put(&inputs));
        let whats: &[&str] = if arch == 0 { &["matmul", "matmul_dp4a"] } else { &["matmul"] };
        for what in whats {
            let tiles = kernel(machine, format, arch, what);
            let grid = [N_ROWS.div_ceil(64) as u32, N.div_ceil(32) as u32, 1];
            assert_eq!(machine.queue_grid(tiles, grid, 128, &args(0, 0, 1)), 0);
            check(format, what, &machine.get(y, N * N_ROWS), &m, &x, |i| (0, i));
            let grid = [grid[0], 2, N_MATRICES as u32];
            assert_eq!(machine.queue_grid(tiles, grid, 128, &args(doffsets, dinputs, 2)), 0);
            check(format, &format!("{what} of experts"), &machine.get(y, N * N_ROWS), &m, &x, |i| {
                let place = inputs.iter().position(|&input| input as usize == i).unwrap();
                let matrix = offsets.iter().rposition(|&offset| offset as usize <= place).unwrap();
                (matrix, i / 2)
            });
        }
    });
}
