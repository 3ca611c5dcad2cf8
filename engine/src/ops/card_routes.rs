//! Operations of experts that a card chose for a few tokens: the host asks for them without knowing which they are, and so waits
//! for nothing. What they mean is said in `experts`.

use super::Ops;
use crate::cuda::{DeviceGroups, Gpu};
use crate::moe::Routing;
use crate::tensor::{CardRoutes, Input, Rows, Vector, WeightStack};

impl Ops {
    /// Decides which experts the tokens go to, where the logits are.
    ///
    /// logits   [n_tokens, n_experts] of the router
    /// bias     [n_experts] added for selecting only
    pub(crate) fn route_on_card(
        &self,
        routing: &Routing,
        logits: &Rows,
        bias: Option<&Vector>,
        routes: &mut CardRoutes,
    ) {
        let _timer = self.profile.time("route");
        let gpu = self.card(logits.device());
        routes.set_tokens(logits.n_rows());
        let to = routes.on(gpu);
        gpu.route(routing, logits.on(gpu), bias.map(|bias| bias.on(gpu)), [to.experts, to.weights]);
    }

    /// Takes the token of each pair.
    pub(crate) fn gather_pairs(&self, from: &Input, routes: &CardRoutes, input: &mut Input) {
        let _timer = self.profile.time("gather");
        let gpu = self.card(from.device());
        let from = from.on(gpu);
        gpu.gather(&from, routes.on(gpu).tokens, &input.on_mut(gpu, [routes.n_pairs(), from.floats.width]));
    }

    /// Products of each pair with the matrix of its expert.
    ///
    /// list     stacks [n_experts, n_rows, n_cols] and their results [n_pairs, n_rows]
    pub(crate) fn pair_products<const N: usize>(
        &self,
        routes: &CardRoutes,
        mut list: [(&WeightStack, &mut Rows); N],
        input: &Input,
    ) {
        let _timer = self.profile.time_products("group_products", || {
            (0..routes.n_pairs()).flat_map(|_| list.iter().map(|(stack, _)| stack.matrix_size()))
        });
        let gpu = self.card(input.device());
        let groups = DeviceGroups::each(routes.on(gpu).experts);
        for (stack, y) in &mut list {
            let (matrices, y) = (stack.on_gpu(), y.on_mut(gpu));
            gpu.group_product(&matrices, &groups, &input.on(gpu), y);
            if stack.is_scaled() {
                let factors = gpu.stage((0..matrices.n_matrices).map(|i| stack.scale(i)));
                gpu.scale_groups(y, factors, groups.ids);
            }
        }
    }

    /// Adds to each pair's row the bias of its expert, if there are biases.
    ///
    /// x        [n_pairs, width], changed in place
    /// biases   [n_experts, width]
    pub(crate) fn add_pair_bias(&self, routes: &CardRoutes, x: &mut Rows, biases: Option<&Vector>) {
        let Some(biases) = biases else { return };
        let _timer = self.profile.time("add_group_bias");
        let gpu = self.card(x.device());
        gpu.add_group_bias(x.on_mut(gpu), biases.on(gpu), routes.on(gpu).experts);
    }

    /// Adds up what a token's experts yield, by their weights.
    ///
    /// x        [n_pairs, width]
    /// y        [n_tokens, width]
    pub(crate) fn combine_pairs(&self, x: &Rows, routes: &CardRoutes, y: &mut Rows) {
        let _timer = self.profile.time("combine");
        let gpu = self.card(x.device());
        let from = routes.on(gpu);
        gpu.combine(x.on(gpu).at, from.pairs, from.weights, routes.n_used(), y.on_mut(gpu));
    }

    fn card(&self, device: crate::place::Device) -> &Gpu {
        let gpu = self.gpus.get(device).expect("the placement's devices were opened at load");
        gpu.expect("routes of a card are used there")
    }
}
