//! Operations that only move elements: rows cut in pieces, put together, turned.

use std::ops::Range;

use super::{On, Ops};
use crate::cpu::DeltaNet;
use crate::tensor::Rows;

impl Ops {
    /// Cuts every piece of `x` in two.
    ///
    /// x        [.., a_dim + b_dim]
    /// a        [.., a_dim]
    /// b        [.., b_dim]
    pub(crate) fn split(&self, x: &Rows, [a_dim, b_dim]: [usize; 2], a: &mut Rows, b: &mut Rows) {
        let _timer = self.profile.time("split");
        match self.on(x.device()) {
            On::Cpu(_) => {
                let halves = a.elems_mut().chunks_exact_mut(a_dim).zip(b.elems_mut().chunks_exact_mut(b_dim));
                for (x, (a, b)) in x.elems().chunks_exact(a_dim + b_dim).zip(halves) {
                    a.copy_from_slice(&x[..a_dim]);
                    b.copy_from_slice(&x[a_dim..]);
                }
            }
            On::Cuda(gpu) => {
                let (x, a, b) = (x.on(gpu), a.on_mut(gpu), b.on_mut(gpu));
                let m = x.width / (a_dim + b_dim);
                gpu.copy_pieces(x.pieces(0, a_dim + b_dim), a.pieces(0, a_dim), [x.n_rows, m, a_dim]);
                gpu.copy_pieces(x.pieces(a_dim, a_dim + b_dim), b.pieces(0, b_dim), [x.n_rows, m, b_dim]);
            }
        }
    }

    /// Puts pieces together again.
    ///
    /// a        [.., a_dim]
    /// b        [.., b_dim]
    /// x        [.., a_dim + b_dim]
    pub(crate) fn join(&self, a: &Rows, b: &Rows, [a_dim, b_dim]: [usize; 2], x: &mut Rows) {
        let _timer = self.profile.time("join");
        match self.on(a.device()) {
            On::Cpu(_) => {
                let halves = a.elems().chunks_exact(a_dim).zip(b.elems().chunks_exact(b_dim));
                for (x, (a, b)) in x.elems_mut().chunks_exact_mut(a_dim + b_dim).zip(halves) {
                    x[..a_dim].copy_from_slice(a);
                    x[a_dim..].copy_from_slice(b);
                }
            }
            On::Cuda(gpu) => {
                let (x, a, b) = (x.on_mut(gpu), a.on(gpu), b.on(gpu));
                let m = x.width / (a_dim + b_dim);
                gpu.copy_pieces(a.pieces(0, a_dim), x.pieces(0, a_dim + b_dim), [x.n_rows, m, a_dim]);
                gpu.copy_pieces(b.pieces(0, b_dim), x.pieces(a_dim, a_dim + b_dim), [x.n_rows, m, b_dim]);
            }
        }
    }

    /// Copies some columns.
    ///
    /// x        [n_tokens, width]
    /// y        [n_tokens, columns.len()]
    pub(crate) fn columns(&self, x: &Rows, columns: Range<usize>, y: &mut Rows) {
        let _timer = self.profile.time("columns");
        match self.on(x.device()) {
            On::Cpu(_) => {
                let rows = x.elems().chunks_exact(x.width()).zip(y.elems_mut().chunks_exact_mut(columns.len()));
                for (x, y) in rows {
                    y.copy_from_slice(&x[columns.clone()]);
                }
            }
            On::Cuda(gpu) => {
                let (x, y) = (x.on(gpu), y.on_mut(gpu));
                gpu.copy_pieces(x.pieces(columns.start, 0), y.pieces(0, 0), [x.n_rows, 1, columns.len()]);
            }
        }
    }

    /// Swaps the first two dimensions: tokens of heads to heads of tokens, or back.
    ///
    /// x        [n, m, dim]
    /// y        [m, n, dim]
    pub(crate) fn transpose(&self, x: &Rows, [n, m, dim]: [usize; 3], y: &mut Rows) {
        let _timer = self.profile.time("transpose");
        match self.on(x.device()) {
            On::Cpu(_) => {
                let (x, y) = (x.elems(), y.elems_mut());
                for i in 0..n {
                    for j in 0..m {
                        y[(j * n + i) * dim..][..dim].copy_from_slice(&x[(i * m + j) * dim..][..dim]);
                    }
                }
            }
            On::Cuda(gpu) => {
                let (x, y) = (x.on(gpu).at, y.on_mut(gpu).at);
                let from = crate::cuda::Pieces { at: x, row: m * dim, piece: dim };
                gpu.copy_pieces(from, crate::cuda::Pieces { at: y, row: dim, piece: n * dim }, [n, m, dim]);
            }
        }
    }

    /// Takes apart what old files make in one product, key head by key head: q, k, then v and z of its value heads.
    ///
    /// x        [n_tokens, n_k_heads, q | k | v | z]
    /// qkv      [n_tokens, qkv_width]
    /// z        [n_tokens, v_width]
    pub(crate) fn split_qkvz(&self, net: &DeltaNet, x: &Rows, qkv: &mut Rows, z: &mut Rows) {
        let _timer = self.profile.time("split_qkvz");
        let dim = net.head_dim;
        let v_dim = net.v_width() / net.n_k_heads;
        match self.on(x.device()) {
            On::Cpu(_) => {
                let (qkv_width, z_width) = (qkv.width(), z.width());
                let rows = qkv.elems_mut().chunks_exact_mut(qkv_width).zip(z.elems_mut().chunks_exact_mut(z_width));
                for (x, (qkv, z)) in x.elems().chunks_exact(x.width()).zip(rows) {
                    let (q, kv) = qkv.split_at_mut(net.n_k_heads * dim);
                    let (k, v) = kv.split_at_mut(net.n_k_heads * dim);
                    for (head, x) in x.chunks_exact(2 * dim + 2 * v_dim).enumerate() {
                        q[head * dim..][..dim].copy_from_slice(&x[..dim]);
                        k[head * dim..][..dim].copy_from_slice(&x[dim..2 * dim]);
                        v[head * v_dim..][..v_dim].copy_from_slice(&x[2 * dim..2 * dim + v_dim]);
                        z[head * v_dim..][..v_dim].copy_from_slice(&x[2 * dim + v_dim..]);
                    }
                }
            }
            On::Cuda(gpu) => {
                let (x, qkv, z) = (x.on(gpu), qkv.on_mut(gpu), z.on_mut(gpu));
                let (n_heads, head) = (net.n_k_heads, 2 * dim + 2 * v_dim);
                for (first, to, dim) in [
                    (0, qkv.pieces(0, dim), dim),
                    (dim, qkv.pieces(n_heads * dim, dim), dim),
                    (2 * dim, qkv.pieces(2 * n_heads * dim, v_dim), v_dim),
                    (2 * dim + v_dim, z.pieces(0, v_dim), v_dim),
                ] {
                    gpu.copy_pieces(x.pieces(first, head), to, [x.n_rows, n_heads, dim]);
                }
            }
        }
    }
}
