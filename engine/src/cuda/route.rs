//! The choice of experts for a few tokens, and products by that choice, which the host does not see.

use super::gpu::{Arg, At, Gpu};
use super::ops::DeviceRows;
use crate::moe::{Gating, Groups, Routing, Weights};

/// Most that there is a kernel for.
const MAX_EXPERTS: usize = 1024;
const MAX_USED: usize = 32;
const MAX_GROUPS: usize = 64;
/// Threads of a block, which takes a token; the kernel counts on it.
const THREADS: usize = 32;

/// Whether there is a kernel that chooses experts so.
pub(crate) fn routes(routing: &Routing) -> bool {
    let n_groups = routing.groups.map_or(1, |groups| groups.n_groups);
    routing.n_experts <= MAX_EXPERTS && routing.n_used <= MAX_USED && n_groups <= MAX_GROUPS
}

impl Gpu {
    /// logits   [n_tokens, n_experts]
    /// bias     [n_experts]
    /// ids      [n_tokens, n_used], u32
    /// weights  [n_tokens, n_used]
    pub(crate) fn route(&self, routing: &Routing, logits: DeviceRows, bias: Option<At>, [ids, weights]: [At; 2]) {
        let &Routing { n_experts, n_used, gating, weights: kind, scale, groups } = routing;
        let Groups { n_groups, n_used: n_used_groups } = groups.unwrap_or(Groups { n_groups: 1, n_used: 1 });
        let gating = match gating {
            Gating::Softmax => 0u32,
            Gating::Sigmoid => 1,
            Gating::SoftmaxOfSelected => 2,
        };
        let args: [Arg; 11] = [
            logits.at.into(),
            bias.unwrap_or(At::NONE).into(),
            ids.into(),
            weights.into(),
            n_experts.into(),
            n_used.into(),
            gating.into(),
            (kind == Weights::Normalised).into(),
            scale.into(),
            n_groups.into(),
            n_used_groups.into(),
        ];
        self.launch(self.functions.route, [logits.n_rows, 1, 1], THREADS, args);
    }
}
