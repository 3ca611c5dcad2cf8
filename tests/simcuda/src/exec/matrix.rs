//! Tensor cores: products of small matrices that a whole warp holds in its registers.
//!
//! Layout of fragments. Source: PTX ISA 8.0, "Matrix multiply-accumulate operation using mma instruction".

use super::block::Block;
use super::half::{from_bf16, from_f16};
use super::lanes::{N_LANES, Narrow};
use super::warp::Warp;
use crate::check::Fault;
use crate::check::shared::Act;
use crate::ptx::inst::{Inst, Mma, Sign, Space};

/// Rows of the largest first matrix.
const MAX_ROWS: usize = 16;
/// Columns of every second matrix.
const N_COLUMNS: usize = 8;
/// Longest inner dimension.
const MAX_DEPTH: usize = 32;

impl Warp {
    pub(crate) fn mma(&mut self, block: &Block<'_>, inst: &Inst, active: u32, mma: Mma) -> Result<(), Box<Fault>> {
        if active != u32::MAX {
            return Err(Fault::new(active.trailing_zeros() as usize, "a product of matrices with lanes away"));
        }
        let list = &block.launch.kernel.lists[inst.imm as usize];
        match mma {
            Mma::I8x8x16(a, b) => self.mma_i8::<8, 1>(list, a, b),
            Mma::I8x16x16(a, b) => self.mma_i8::<16, 1>(list, a, b),
            Mma::I8x16x32(a, b) => self.mma_i8::<16, 2>(list, a, b),
            Mma::F16x8 => self.mma_half::<1>(list, from_f16),
            Mma::F16x16 => self.mma_half::<2>(list, from_f16),
            Mma::Bf16x8 => self.mma_half::<1>(list, from_bf16),
            Mma::Bf16x16 => self.mma_half::<2>(list, from_bf16),
        }
        Ok(())
    }

    fn mma_i8<const ROWS: usize, const PARTS: usize>(&mut self, list: &[u16], a: Sign, b: Sign) {
        let value = |sign, register: u32, byte: usize| {
            let byte = register.to_le_bytes()[byte];
            if sign == Sign::Signed { i32::from(byte as i8) } else { i32::from(byte) }
        };
        self.multiply::<ROWS, PARTS, 4, i32>(
            list,
            |register, byte| value(a, register, byte),
            |register, byte| value(b, register, byte),
            |sum, left, right| {
                let products = left.iter().zip(right).map(|(left, right)| left * right);
                products.fold(sum as i32, i32::wrapping_add) as u32
            },
        );
    }

    fn mma_half<const PARTS: usize>(&mut self, list: &[u16], from: fn(u16) -> f32) {
        let value = |register: u32, half: usize| from((register >> (16 * half)) as u16);
        self.multiply::<16, PARTS, 2, f32>(list, value, value, |sum, left, right| {
            // Products of halves are exact in f64; the card's own rounding of sums is not specified.
            let products = left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right));
            ((f64::from(f32::from_bits(sum)) + products.sum::<f64>()) as f32).to_bits()
        });
    }

    /// d [ROWS, 8] = a [ROWS, depth] · b [depth, 8] + c, depth = PARTS · 4 · EACH
    ///
    /// list     registers of d, a, b, c
    /// EACH     values of a register
    fn multiply<const ROWS: usize, const PARTS: usize, const EACH: usize, T: Copy + Default>(
        &mut self,
        list: &[u16],
        left: impl Fn(u32, usize) -> T,
        right: impl Fn(u32, usize) -> T,
        dot: impl Fn(u32, &[T], &[T]) -> u32,
    ) {
        let halves = ROWS / 8;
        let n_results = 2 * halves;
        let (d, rest) = list.split_at(n_results);
        let (a, rest) = rest.split_at(PARTS * halves);
        let (b, c) = rest.split_at(PARTS);
        let mut rows = [[T::default(); MAX_DEPTH]; MAX_ROWS];
        let mut columns = [[T::default(); MAX_DEPTH]; N_COLUMNS];
        let depth = PARTS * 4 * EACH;
        for lane in 0..N_LANES {
            let (group, within) = (lane / 4, lane % 4);
            for part in 0..PARTS {
                for each in 0..EACH {
                    let at = part * 4 * EACH + within * EACH + each;
                    for half in 0..halves {
                        let register = self.narrow(a[part * halves + half])[lane];
                        rows[half * 8 + group][at] = left(register, each);
                    }
                    columns[group][at] = right(self.narrow(b[part])[lane], each);
                }
            }
        }
        let results: Vec<Narrow> = (0..n_results)
            .map(|result| {
                let sums = self.narrow(c[result]);
                std::array::from_fn(|lane| {
                    let row = result / 2 * 8 + lane / 4;
                    let column = lane % 4 * 2 + result % 2;
                    dot(sums[lane], &rows[row][..depth], &columns[column][..depth])
                })
            })
            .collect();
        for (register, values) in d.iter().zip(&results) {
            self.set_narrow(*register, u32::MAX, values);
        }
    }

    /// Matrices of 8 x 8 halves: eight lanes each give the addresses of one matrix's rows.
    pub(crate) fn load_matrix(
        &mut self,
        block: &mut Block<'_>,
        inst: &Inst,
        active: u32,
        n: usize,
        transposed: bool,
    ) -> Result<(), Box<Fault>> {
        if active != u32::MAX {
            return Err(Fault::new(active.trailing_zeros() as usize, "ldmatrix with lanes away"));
        }
        let list = &block.launch.kernel.lists[inst.imm as usize];
        let (registers, rest) = list.split_at(n);
        let offset = i64::from(self.narrow(rest[1])[0] as i32);
        let addresses: [u64; N_LANES] = std::array::from_fn(|lane| {
            let base = if rest[0] != 0 { self.narrow(inst.a)[lane].into() } else { self.wide(inst.a)[lane] };
            base.wrapping_add_signed(offset)
        });
        let asking = if n == 4 { u32::MAX } else { (1 << (8 * n)) - 1 };
        self.reach(block, Space::Shared, asking, &addresses, 16, Act::Read)?;
        for (matrix, register) in registers.iter().enumerate() {
            let half = |row: usize, column: usize| {
                let at = addresses[matrix * 8 + row] as usize + 2 * column;
                u32::from(u16::from_le_bytes([block.shared[at], block.shared[at + 1]]))
            };
            let values = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                if transposed {
                    half(column, row) | half(column + 1, row) << 16
                } else {
                    half(row, column) | half(row, column + 1) << 16
                }
            });
            self.set_narrow(*register, active, &values);
        }
        Ok(())
    }
}
