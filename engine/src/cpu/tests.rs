//! Products of every format on every ISA present, against decoded weights in f64.
//!
//! The norm is the format's scalar decode times the activations *as quantised*: what is left is rounding in f32.
use super::check::isas;
use super::isa::per_isa;
use super::{Activations, Cpu, Isa, Matrix, Rounding, matmul, matmul_list};
use crate::gguf::TensorType;
use crate::quant::{FORMATS, Format, SPAN, decode_row, encode_row};

/// Small deterministic generator.
struct Rng(u64);

impl Rng {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Roughly normal, unit variance.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.bits() >> 40) as f32 / 16_777_216.0).sum::<f32>() - 6.0
    }
}

fn is_float(t: TensorType) -> bool {
    matches!(t, TensorType::F32 | TensorType::F16 | TensorType::BF16)
}

/// Brings the scales of a block of random bytes into a middle range: halves to 2^-7..2^-6, small floats below 2^-3.
/// Random ones would be infinite, NaN or far apart.
fn tame(t: TensorType, block: &mut [u8], rng: &mut Rng) {
    match t {
        TensorType::MXFP4 => block[0] = 122 + (block[0] & 3),
        TensorType::NVFP4 => block[..4].iter_mut().filter(|s| **s != 0x7f).for_each(|s| *s &= 0x27),
        // the top nibbles of four words, lowest first, are a half
        TensorType::IQ1_M => (block[53], block[55]) = (block[53] & 0x3f, 0x20 | (block[55] & 0x8f)),
        _ => halves(t).iter().for_each(|at| block[at + 1] = 0x20 | (rng.bits() as u8 & 0x83)),
    }
}

/// Where a block holds halves.
fn halves(t: TensorType) -> &'static [usize] {
    match t {
        TensorType::Q8_0 | TensorType::Q4_0 | TensorType::Q5_0 | TensorType::IQ4_NL | TensorType::IQ4_XS => &[0],
        TensorType::IQ3_S
        | TensorType::IQ3_XXS
        | TensorType::IQ2_S
        | TensorType::IQ2_XS
        | TensorType::IQ2_XXS
        | TensorType::IQ1_S => &[0],
        TensorType::TQ1_0 => &[52],
        TensorType::TQ2_0 => &[64],
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q6_K => &[208],
        other => panic!("{other} has no layout here"),
    }
}

/// Rows of random weights; of one byte, but for the scales, where `byte` is given.
fn weights(t: TensorType, n_elems: usize, byte: Option<u8>, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; t.row_bytes(n_elems as u64).unwrap() as usize];
    if is_float(t) {
        let x: Vec<f32> = (0..n_elems).map(|_| rng.normal()).collect();
        encode_row(t, &x, &mut bytes).unwrap();
        return bytes;
    }
    bytes.fill_with(|| byte.unwrap_or((rng.bits() >> 32) as u8));
    for block in bytes.chunks_exact_mut(t.row().block_bytes as usize) {
        tame(t, block, rng);
    }
    bytes
}

/// Row lengths that are whole blocks: shorter than a span, a span, tails of every number of blocks.
fn lengths(t: TensorType) -> Vec<usize> {
    match t.row().block_elems as usize {
        1 => vec![1, 7, 16, 33, 256, 577],
        n @ (32 | 64) => (1..=544 / n).map(|i| n * i).chain([576, 1536, 2112]).collect(),
        _ => vec![256, 512, 1280],
    }
}

/// What the kernel multiplies with, in f64.
fn seen_activations(format: &Format, a: &Activations) -> Vec<f64> {
    let (n_cols, mut x) = (a.n_cols(), Vec::new());
    for t in 0..a.n_tokens() {
        x.extend((0..n_cols).map(|i| {
            if is_float(format.tensor_type) {
                return f64::from(a.floats()[t * a.n_floats() + i]);
            }
            let parts = a.parts(t, i / SPAN).iter();
            parts.map(|part| f64::from(part.q[i % SPAN]) * f64::from(part.d[i % SPAN / 16])).sum()
        }));
    }
    x
}

/// Multiplies and compares; even numbers of rows with activations rounded twice. f32 sums over 16 lanes lose up to 1e-6 of the sum of magnitudes at these lengths; signed and
/// biased formats also add and take back `bias * scale * x` (at most 2 |x| here), of which f32 loses up to 1e-7.
fn compare(cpu: &Cpu, format: &Format, shape: (usize, usize, usize), byte: Option<u8>, rng: &mut Rng) {
    let (n_rows, n_cols, n_tokens) = shape;
    let t = format.tensor_type;
    let bytes = weights(t, n_rows * n_cols, byte, rng);
    let x: Vec<f32> = (0..n_tokens * n_cols)
        .map(|i| match byte {
            None => rng.normal(),
            Some(_) => [1.0, 1.0, -1.0][i / 32 % 3],
        })
        .collect();
    let rounding = if n_rows % 2 == 0 { Rounding::Twice } else { Rounding::Once };
    let mut a = Activations::new(n_cols, n_tokens, rounding);
    a.set(cpu, &x, n_cols);
    let mut w = vec![0.0; n_rows * n_cols];
    decode_row(t, &bytes, &mut w).unwrap();
    let mut y = vec![f32::NAN; n_tokens * n_rows];
    matmul(cpu, Matrix { tensor_type: t, n_rows, n_cols, bytes: &bytes }, &a, &mut y);
    let x = seen_activations(format, &a);
    for (token, x) in x.chunks_exact(n_cols).enumerate() {
        for (r, w) in w.chunks_exact(n_cols).enumerate() {
            let terms = w.iter().zip(x).map(|(w, x)| (f64::from(*w) * x, x.abs() * 128.0 / 64.0));
            let (want, magnitude, bias) =
                terms.fold((0.0, 0.0, 0.0), |(s, m, b), (term, x)| (s + term, m + f64::abs(term), b + x));
            let bias = if is_float(t) { 0.0 } else { bias };
            let got = f64::from(y[token * n_rows + r]);
            assert!(
                (got - want).abs() <= 1e-6 * magnitude + 1e-7 * bias,
                "{t} {} {shape:?} token {token} row {r}: {got} {want} {magnitude}",
                cpu.isa()
            );
        }
    }
}

#[test]
fn every_format_equals_its_decoded_product_at_every_length() {
    let mut rng = Rng(7);
    for isa in isas() {
        let cpu = Cpu::new(isa, 1).unwrap();
        for format in FORMATS {
            for n_cols in lengths(format.tensor_type) {
                for (n_rows, n_tokens) in [(1, 1), (4, 1), (7, 1), (2, 2), (3, 2), (5, 5), (18, 9), (19, 9)] {
                    compare(&cpu, format, (n_rows, n_cols, n_tokens), None, &mut rng);
                }
            }
        }
    }
}

/// All bits set, largest negative, largest positive: the integer sums must not wrap.
#[test]
fn every_format_survives_extreme_blocks() {
    let mut rng = Rng(9);
    for isa in isas() {
        let cpu = Cpu::new(isa, 1).unwrap();
        for format in FORMATS.iter().filter(|f| !is_float(f.tensor_type)) {
            for byte in [0xff, 0x80, 0x7f, 0x00, 0xf0, 0x0f] {
                for n_tokens in [1, 4, 6] {
                    compare(&cpu, format, (5, 1024, n_tokens), Some(byte), &mut rng);
                }
            }
        }
    }
}

per_isa! {
    /// The same byte as 16 scales of MXFP4 and of NVFP4; the scalar ISA takes them from a block that holds 1.
    unsafe fn small_float_scales<V: Quants>(x: u8, out: &mut [[f32; 16]; 2]) {
        let bytes = u128::from_le_bytes([x; 16]);
        // SAFETY: the ISA is the caller's; 16 floats each.
        unsafe {
            V::store(V::e8m0x8(bytes as u64), out[0].as_mut_ptr());
            V::store(V::ue4m3x16(bytes), out[1].as_mut_ptr());
        }
    } scalar {
        let mut w = [0.0; 64];
        decode_row(TensorType::MXFP4, &[[x, 1].as_slice(), &[0; 15]].concat(), &mut w[..32]).unwrap();
        out[0] = [w[0]; 16];
        decode_row(TensorType::NVFP4, &[[x, 0, 0, 0, 2].as_slice(), &[0; 31]].concat(), &mut w).unwrap();
        out[1] = [w[0]; 16];
    }
}

#[test]
fn every_small_float_scale_equals_its_decode() {
    for isa in isas() {
        for x in 0..=255 {
            let (mut got, mut want) = ([[f32::NAN; 16]; 2], [[f32::NAN; 16]; 2]);
            // SAFETY: the ISA is present.
            unsafe {
                small_float_scales(isa, x, &mut got);
                small_float_scales(Isa::Scalar, x, &mut want);
            }
            assert_eq!(got, want, "{isa} {x}");
        }
    }
}

/// A column's result does not depend on how many rows, threads or products went with it, nor, within tiles and within
/// panels, on how many columns.
#[test]
fn results_do_not_depend_on_how_the_work_is_cut() {
    let mut rng = Rng(11);
    let (n_cols, n_tokens) = (576, 70);
    for isa in isas() {
        let (one, three) = (Cpu::new(isa, 1).unwrap(), Cpu::new(isa, 3).unwrap());
        for t in [TensorType::Q4_1, TensorType::Q8_0, TensorType::F16] {
            let sizes = [300, 0, 64, 1];
            let bytes = sizes.map(|n_rows| weights(t, n_rows * n_cols, None, &mut rng));
            let matrix = |i: usize| Matrix { tensor_type: t, n_rows: sizes[i], n_cols, bytes: &bytes[i] };
            let x: Vec<f32> = (0..n_tokens * n_cols).map(|_| rng.normal()).collect();
            let mut a = Activations::new(n_cols, n_tokens, Rounding::Once);
            a.set(&three, &x, n_cols);
            let mut y = sizes.map(|n_rows| vec![f32::NAN; n_tokens * n_rows]);
            let [y0, y1, y2, y3] = &mut y;
            matmul_list(&three, &mut [(matrix(0), y0), (matrix(1), y1), (matrix(2), y2), (matrix(3), y3)], &a);
            for first in [0, 1, 3, 64] {
                a.set(&one, &x[first * n_cols..][..6 * n_cols], n_cols);
                for (i, y) in y.iter().enumerate() {
                    let mut want = vec![f32::NAN; 6 * sizes[i]];
                    matmul(&one, matrix(i), &a, &mut want);
                    assert_eq!(y[first * sizes[i]..][..want.len()], want, "{isa} {t} matrix {i} tokens from {first}");
                }
                let mut few = vec![f32::NAN; 3 * sizes[0]];
                a.set(&one, &x[first * n_cols..][..3 * n_cols], n_cols);
                matmul(&one, matrix(0), &a, &mut few);
                for (token, few) in few.chunks_exact(sizes[0]).enumerate() {
                    let mut want = vec![f32::NAN; sizes[0]];
                    a.set(&one, &x[(first + token) * n_cols..][..n_cols], n_cols);
                    matmul(&one, matrix(0), &a, &mut want);
                    assert_eq!(few, want, "{isa} {t} token {token} from {first}");
                }
            }
        }
    }
}

#[test]
fn non_finite_activations_are_seen_in_the_result() {
    for isa in isas() {
        let cpu = Cpu::new(isa, 1).unwrap();
        for format in FORMATS {
            let t = format.tensor_type;
            let bytes = weights(t, 512, None, &mut Rng(3));
            let mut a = Activations::new(512, 1, Rounding::Once);
            let mut x = [1.0; 512];
            x[300] = f32::NAN;
            a.set(&cpu, &x, 512);
            let mut y = [0.0];
            matmul(&cpu, Matrix { tensor_type: t, n_rows: 1, n_cols: 512, bytes: &bytes }, &a, &mut y);
            assert!(y[0].is_nan(), "{isa} {t}");
        }
    }
}

/// A mapped file ends where its last row ends: nothing behind it may be read, or matter.
#[cfg(target_os = "linux")]
#[test]
fn nothing_behind_the_last_row_is_read() {
    let mut rng = Rng(8);
    for isa in isas() {
        let cpu = Cpu::new(isa, 1).unwrap();
        for format in FORMATS {
            let t = format.tensor_type;
            for n_cols in lengths(t) {
                for (n_rows, n_tokens) in [(1, 1), (5, 1), (3, 4), (3, 5)] {
                    let bytes = weights(t, n_rows * n_cols, None, &mut rng);
                    let guarded = Guarded::new(&bytes);
                    let mut a = Activations::new(n_cols, n_tokens, Rounding::Once);
                    let x: Vec<f32> = (0..n_tokens * n_cols).map(|_| rng.normal()).collect();
                    a.set(&cpu, &x, n_cols);
                    let mut y = [vec![f32::NAN; n_tokens * n_rows], vec![f32::NAN; n_tokens * n_rows]];
                    let garbage = [&bytes[..], &[0xff; 512]].concat();
                    for (bytes, y) in [guarded.bytes(), &garbage[..bytes.len()]].into_iter().zip(&mut y) {
                        matmul(&cpu, Matrix { tensor_type: t, n_rows, n_cols, bytes }, &a, y);
                    }
                    assert_eq!(y[0], y[1], "{isa} {t} {n_cols}");
                }
            }
        }
    }
}

/// Bytes that end where readable memory ends.
#[cfg(target_os = "linux")]
struct Guarded {
    map: *mut u8,
    map_bytes: usize,
    n_bytes: usize,
}

#[cfg(target_os = "linux")]
impl Guarded {
    const PAGE: usize = 4096;

    fn new(bytes: &[u8]) -> Guarded {
        let readable = bytes.len().next_multiple_of(Self::PAGE);
        let map_bytes = readable + Self::PAGE;
        // SAFETY: a fresh private mapping, of which the last page is made inaccessible and the end of the rest written.
        unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let map = libc::mmap(std::ptr::null_mut(), map_bytes, prot, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let map = map.cast::<u8>();
            assert_eq!(libc::mprotect(map.add(readable).cast(), Self::PAGE, libc::PROT_NONE), 0);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.add(readable - bytes.len()), bytes.len());
            Guarded { map, map_bytes, n_bytes: bytes.len() }
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the last `n_bytes` before the guard page, written in `new`.
        unsafe {
            let end = self.map.add(self.map_bytes - Self::PAGE);
            std::slice::from_raw_parts(end.sub(self.n_bytes), self.n_bytes)
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; slices of it borrow `self`.
        unsafe { libc::munmap(self.map.cast(), self.map_bytes) };
    }
}
