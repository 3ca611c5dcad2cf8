//! Operations of experts: who goes where, and products that differ from token to token.

use super::{On, Ops};
use crate::cpu::{self, MatrixOf};
use crate::moe::{Group, Routes, Routing};
use crate::tensor::{Input, Rows, Vector, WeightStack};

impl Ops {
    /// Decides which experts the tokens go to; the host does, so the logits come to it.
    ///
    /// logits   [n_tokens, n_experts] of the router; probabilities afterwards
    /// bias     [n_experts] added for selecting only
    pub(crate) fn route(&self, routing: &Routing, logits: &mut Rows, bias: Option<&Vector>, routes: &mut Routes) {
        let _timer = self.profile.time("route");
        logits.move_to(crate::place::Device::Cpu);
        routes.set(&self.cpu, routing, logits.elems_mut(), bias.map(Vector::elems));
    }

    /// Takes some tokens of an input, as often as they are named.
    ///
    /// tokens   [n], tokens of `from`
    pub(crate) fn gather(&self, from: &Input, tokens: &[u32], input: &mut Input) {
        let _timer = self.profile.time("gather");
        match self.on(from.device()) {
            On::Cpu(_) => input.activations_mut().gather(from.activations(), tokens),
            On::Cuda(gpu) => {
                let (from, tokens_on_gpu) = (from.on(gpu), gpu.stage(tokens.iter().copied()));
                gpu.gather(&from, tokens_on_gpu, &input.on_mut(gpu, [tokens.len(), from.floats.width]));
            }
        }
    }

    /// Products of the matrices of stacks, each with tokens of its own.
    ///
    /// groups   (index of a matrix, its tokens), which follow each other
    /// list     stacks [n, n_rows, n_cols] and their results [n_tokens, n_rows]
    pub(crate) fn group_products<'a, const N: usize>(
        &self,
        groups: &[Group],
        mut list: [(&'a WeightStack, &'a mut Rows); N],
        input: &Input,
    ) {
        let _timer = self.profile.time_products("group_products", || {
            groups.iter().flat_map(|_| list.iter().map(|(stack, _)| stack.matrix_size()))
        });
        match self.on(input.device()) {
            On::Cpu(_) => self.group_products_here(groups, list, input),
            On::Cuda(gpu) => {
                let input = input.on(gpu);
                for (stack, y) in &mut list {
                    let (matrices, y) = (stack.on_gpu(), y.on_mut(gpu));
                    let groups = gpu.groups(groups, matrices.n_matrices, y.n_rows);
                    gpu.group_product(&matrices, &groups, &input, y);
                    if stack.is_scaled() {
                        let factors = gpu.stage((0..matrices.n_matrices).map(|i| stack.scale(i)));
                        gpu.scale_groups(y, factors, groups.ids);
                    }
                }
            }
        }
    }

    fn group_products_here<'a, const N: usize>(
        &self,
        groups: &[Group],
        mut list: [(&'a WeightStack, &'a mut Rows); N],
        input: &Input,
    ) {
        let matrices = list.each_ref().map(|(stack, _)| {
            let stack: &'a WeightStack = stack;
            move |i| stack.matrix(i)
        });
        let mut matrices_left = matrices.iter();
        let products = list.each_mut().map(|(_, y)| {
            let matrix: MatrixOf<'_, 'a> = matrices_left.next().expect("one per item of the list");
            (matrix, y.elems_mut())
        });
        cpu::matmul_groups(&self.cpu, groups, products, input.activations());
        for (stack, y) in &mut list {
            for (i, tokens) in groups.iter().filter(|(i, _)| stack.scale(*i as usize) != 1.0) {
                let width = y.width();
                let rows = &mut y.elems_mut()[tokens.start as usize * width..tokens.end as usize * width];
                cpu::scale(&self.cpu, rows, stack.scale(*i as usize));
            }
        }
    }

    /// Adds to each group's rows the bias of its matrix, if there are biases.
    ///
    /// x        [n_tokens, width], changed in place
    /// biases   [n_matrices, width]
    pub(crate) fn add_group_bias(&self, groups: &[Group], x: &mut Rows, biases: Option<&Vector>) {
        let Some(biases) = biases else { return };
        let _timer = self.profile.time("add_group_bias");
        let width = x.width();
        match self.on(x.device()) {
            On::Cpu(cpu) => {
                for (i, tokens) in groups {
                    let rows = &mut x.elems_mut()[tokens.start as usize * width..tokens.end as usize * width];
                    cpu::add(cpu, rows, &biases.elems()[*i as usize * width..][..width]);
                }
            }
            On::Cuda(gpu) => {
                let ids = gpu.groups(groups, biases.len() / width, x.n_rows()).ids;
                gpu.add_group_bias(x.on_mut(gpu), biases.on(gpu), ids);
            }
        }
    }

    /// Adds up what a token's experts yield, by their weights.
    ///
    /// x        [n_slots, width]
    /// y        [n_tokens, width]
    pub(crate) fn combine(&self, x: &Rows, routes: &Routes, y: &mut Rows) {
        let _timer = self.profile.time("combine");
        let width = x.width();
        match self.on(x.device()) {
            On::Cpu(_) => {
                for (token, y) in y.elems_mut().chunks_exact_mut(width).enumerate() {
                    y.fill(0.0);
                    for (slot, weight) in routes.of_token(token) {
                        for (y, x) in y.iter_mut().zip(&x.elems()[slot * width..][..width]) {
                            *y += weight * x;
                        }
                    }
                }
            }
            On::Cuda(gpu) => {
                let (slots, weights) = routes.pairs();
                let (slots, weights) = (gpu.stage(slots.iter().copied()), gpu.stage(weights.iter().copied()));
                gpu.combine(x.on(gpu).at, slots, weights, routes.n_used(), y.on_mut(gpu));
            }
        }
    }
}
