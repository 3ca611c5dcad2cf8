//! The mixture of experts: a router picks a few of many feed-forward networks for each token; an expert that every token goes to
//! may stand beside them. The routed ones live together (`bank`), and some may have copies on a card (`copies`).

mod bank;
mod copies;

use super::super::{Loader, Part};
use super::{Activation, Buffers, Dense, DenseNames, Sizes, Step};
use crate::cpu::Rounding;
use crate::cuda::{self, Gpus};
use crate::error::EngineError;
use crate::moe::{Gating, Groups, Routes, Routing, Weights};
use crate::place::Device;
use crate::tensor::{CardRoutes, Input, Rows, Vector, Weight};
use bank::Bank;
pub(crate) use copies::ExpertUse;
use copies::{CardBuffers, Copies};

/// What a family says about its experts; the rest is in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertOptions {
    /// Width of the residual stream.
    pub(crate) n_embd: usize,
    /// Inside of an expert.
    pub(crate) n_ff: usize,
    /// What the inside goes through.
    pub(crate) activation: Activation,
    /// How tokens are routed.
    pub(crate) routing: Routing,
}

/// Weights of a mixture of experts.
#[derive(Debug)]
pub(crate) struct Experts {
    options: ExpertOptions,
    router: Weight,
    router_bias: Option<Vector>,
    selection_bias: Option<Vector>,
    /// Experts may work in a narrower space than the residual stream.
    latent: Option<[Weight; 2]>,
    all: Bank,
    copies: Option<Copies>,
    shared: Option<Shared>,
}

/// The expert that every token goes to.
#[derive(Debug)]
struct Shared {
    dense: Dense,
    /// How much of it each token takes, where the model has such a gate.
    gate: Option<Weight>,
}

/// Buffers of a step's experts.
pub(crate) struct ExpertBuffers {
    /// The router's logits, then probabilities [n_tokens, n_experts].
    logits: Rows,
    /// Who goes where.
    routes: Routes,
    /// Who goes to experts that the card does not compute.
    rest: Routes,
    part: PartBuffers,
    /// Who goes where, if a card chose and the host does not know.
    on_card: CardRoutes,
    /// Of copies on a card, where a layer has some.
    card: Option<CardBuffers>,
    /// What the tokens' experts yield together [n_tokens, n_embd].
    pub(crate) routed: Rows,
    /// The shared expert's gate [n_tokens, 1].
    shared_gate: Rows,
    /// How copies are used.
    pub(crate) uses: ExpertUse,
}

/// Buffers of the experts of one device; a slot is a (token, expert) pair.
struct PartBuffers {
    /// What the experts take [n_slots, n_embd or n_ff].
    input: Input,
    /// Gates [n_slots, n_ff].
    gate: Rows,
    /// The other branch [n_slots, n_ff].
    up: Rows,
    /// What the experts yield [n_slots, n_embd].
    slots: Rows,
}

/// What experts need of the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpertSizes {
    n_experts: usize,
    n_used: usize,
    n_ff: usize,
    n_embd: usize,
    /// Whether some experts have copies on a card.
    has_copies: bool,
}

impl ExpertOptions {
    /// Reads the usual keys: counts, the weights' scale and whether they are normalised, groups.
    ///
    /// gating   unless the file says otherwise
    /// Errors   counts of zero, more used than there are, groups that do not divide, an unknown gating
    pub(crate) fn load(loader: &Loader, n_embd: usize, gating: Gating, weights: Weights) -> Result<Self, EngineError> {
        let n_experts = loader.count("expert_count")?;
        let n_used = loader.count_of_all("expert_used_count")?;
        if n_used > n_experts {
            return Err(loader.invalid("expert_used_count", format!("at most the {n_experts} experts"), n_used));
        }
        let gating = match loader.facts().arch_u32_or("expert_gating_func", 0)? {
            0 => gating,
            1 => Gating::Softmax,
            2 => Gating::Sigmoid,
            3 => Gating::SoftmaxOfSelected,
            other => return Err(loader.invalid("expert_gating_func", "1, 2 or 3", other)),
        };
        let weights = match loader.facts().arch_bool_or("expert_weights_norm", weights == Weights::Normalised)? {
            true => Weights::Normalised,
            false => Weights::AsTheyAre,
        };
        // Zero stands for no factor.
        let scale = match loader.facts().arch_f32_or("expert_weights_scale", 1.0)? {
            0.0 => 1.0,
            scale if scale.is_finite() => scale,
            scale => return Err(loader.invalid("expert_weights_scale", "a number", scale)),
        };
        let key = "expert_feed_forward_length";
        let widths = loader.facts().arch_u32_per_layer(key)?.unwrap_or_default();
        let is_said = widths.iter().any(|width| *width > 0);
        let n_ff = loader.count_of_all(if is_said { key } else { "feed_forward_length" })?;
        let routing = Routing { n_experts, n_used, gating, weights, scale, groups: groups(loader, n_experts, n_used)? };
        Ok(Self { n_embd, n_ff, activation: Activation::SILU, routing })
    }
}

fn groups(loader: &Loader, n_experts: usize, n_used_experts: usize) -> Result<Option<Groups>, EngineError> {
    let n_groups = loader.facts().arch_u32_or("expert_group_count", 0)? as usize;
    if n_groups <= 1 {
        return Ok(None);
    }
    if !n_experts.is_multiple_of(n_groups) {
        return Err(loader.invalid("expert_group_count", format!("a divisor of the {n_experts} experts"), n_groups));
    }
    let n_used = loader.count("expert_group_used_count")?;
    if n_used > n_groups || n_used * (n_experts / n_groups) < n_used_experts {
        let expected = format!("at most {n_groups}, and enough for {n_used_experts} experts");
        return Err(loader.invalid("expert_group_used_count", expected, n_used));
    }
    Ok((n_used < n_groups).then_some(Groups { n_groups, n_used }))
}

impl Experts {
    /// Reads router, experts, and the shared expert if the file has one.
    ///
    /// Errors   tensors that are absent or of another shape
    pub(crate) fn load(loader: &Loader, layer: usize, options: ExpertOptions) -> Result<Self, EngineError> {
        let (part, routed) = (loader.ffn(layer), loader.experts(layer));
        let ExpertOptions { n_embd, activation, routing: Routing { n_experts, .. }, .. } = options;
        let latent = match part.has("ffn_latent_down.weight") {
            true => {
                let n_latent = part.shape("ffn_latent_down.weight")?.first().copied().unwrap_or(0) as usize;
                let down = part.weight("ffn_latent_down.weight", [n_latent, n_embd])?;
                Some([down, part.weight("ffn_latent_up.weight", [n_embd, n_latent])?])
            }
            false => None,
        };
        let width = latent.as_ref().map_or(n_embd, |[down, _]| down.n_rows());
        let all = Bank::load(&routed, &options, width)?;
        let copies = loader.copies(layer)?;
        let copies = copies.map(|(gpu, n)| Copies::new(&all, n_experts, gpu, n)).transpose()?;
        Ok(Self {
            router: part.weight("ffn_gate_inp.weight", [n_experts, n_embd])?,
            router_bias: part.vector_if_there("ffn_gate_inp.bias", n_experts)?,
            selection_bias: part.vector_if_there("exp_probs_b.bias", n_experts)?,
            latent,
            all,
            copies,
            shared: Shared::load(&part, n_embd, activation)?,
            options,
        })
    }

    pub(crate) fn grow(&self, sizes: &mut Sizes) {
        let ExpertOptions { n_embd, n_ff, routing: Routing { n_experts, n_used, .. }, .. } = self.options;
        let experts = &mut sizes.experts;
        experts.n_experts = experts.n_experts.max(n_experts);
        experts.n_used = experts.n_used.max(n_used);
        experts.n_ff = experts.n_ff.max(n_ff);
        experts.n_embd = experts.n_embd.max(n_embd);
        experts.has_copies |= self.copies.is_some();
        if let Some([down, _]) = &self.latent {
            sizes.n_ff = sizes.n_ff.max(down.n_rows());
        }
        if let Some(shared) = &self.shared {
            shared.dense.grow(sizes);
        }
    }

    /// h -> out: routed experts and the shared one. Where they live apart, the shared one is started first: its device works on
    /// it while the other one works on the rest.
    pub(crate) fn run(&self, step: &mut Step<'_>) {
        self.route(step);
        match &self.shared {
            Some(shared) => {
                if self.all.device() == self.router.device() {
                    self.run_routed(step);
                    shared.run(step);
                } else {
                    step.buffers.h.copy_to(self.all.device());
                    shared.run(step);
                    self.run_routed(step);
                }
                step.ops.add(&mut step.buffers.out, &step.buffers.experts.routed);
            }
            None => {
                self.run_routed(step);
                std::mem::swap(&mut step.buffers.out, &mut step.buffers.experts.routed);
            }
        }
    }

    /// h -> routes: decides which experts each token goes to.
    pub(crate) fn route(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let Buffers { h, input, experts, .. } = &mut *step.buffers;
        experts.logits.reshape(n_tokens, self.router.n_rows());
        step.ops.prepare(h, input);
        step.ops.products([(&self.router, &mut experts.logits)], input);
        step.ops.add_bias(&mut experts.logits, self.router_bias.as_ref());
        let bias = self.selection_bias.as_ref();
        if self.is_routed_on_card(n_tokens, &experts.on_card) {
            step.ops.route_on_card(&self.options.routing, &experts.logits, bias, &mut experts.on_card);
            return;
        }
        if self.all.device() == Device::Cpu {
            h.fetch();
        }
        step.ops.route(&self.options.routing, &mut experts.logits, bias, &mut experts.routes);
    }

    /// Whether experts are chosen where the router and all of them are, for few tokens: then the host need not wait for the
    /// choice. Many tokens are better sorted by experts, so that weights are read once for several.
    fn is_routed_on_card(&self, n_tokens: usize, routes: &CardRoutes) -> bool {
        let routing = &self.options.routing;
        let is_one_card = self.router.device() != Device::Cpu && self.router.device() == self.all.device();
        is_one_card && n_tokens <= routes.max_tokens() && routing.n_used == routes.n_used() && cuda::routes(routing)
    }

    /// h -> routed, by the routes made before: what each token's experts yield together.
    pub(crate) fn run_routed(&self, step: &mut Step<'_>) {
        let n_tokens = step.n_tokens();
        let ops = step.ops;
        let (home, away) = (self.router.device(), self.all.device());
        let Buffers { h, input, up, experts, .. } = &mut *step.buffers;
        let is_on_card = self.is_routed_on_card(n_tokens, &experts.on_card);
        let ExpertBuffers { routes, rest, part, card, on_card, routed, uses, .. } = experts;
        let source = match &self.latent {
            Some([down, _]) => {
                ops.prepare(h, input);
                up.reshape(n_tokens, down.n_rows());
                ops.products([(down, &mut *up)], input);
                up
            }
            None => h,
        };
        let mut own = &*routes;
        let mut copied = self.copies.as_ref().zip(card.as_mut()).map(|(copies, card)| (copies.lock(), card));
        let mut is_any_there = false;
        if let Some((copied, card)) = &mut copied {
            source.move_to(copied.device());
            ops.prepare(source, input);
            is_any_there = copied.start(&self.all, ops, (routes, input, n_tokens), card, uses);
            if is_any_there && home == Device::Cpu {
                card.sum.fetch();
            }
            rest.set_part(routes, self.options.routing.n_experts, |expert| {
                (!card.is_there[expert as usize]).then_some(expert)
            });
            own = rest;
        }
        if own.n_slots() > 0 || !is_any_there {
            source.move_to(away);
            ops.prepare(source, input);
            match is_on_card {
                true => self.all.run_on_card(ops, on_card, input, part, n_tokens, routed),
                false => self.all.run(ops, own, input, part, n_tokens, routed),
            }
            routed.move_to(home);
        }
        source.move_to(home);
        if let Some((copied, card)) = &mut copied {
            copied.follow(&self.all, routes, uses);
            if is_any_there {
                card.sum.move_to(home);
            }
            match is_any_there {
                true if own.n_slots() > 0 => ops.add(routed, &card.sum),
                true => std::mem::swap(routed, &mut card.sum),
                false => {}
            }
        }
        drop(copied);
        if let Some([_, up]) = &self.latent {
            ops.prepare(routed, input);
            routed.reshape(n_tokens, up.n_rows());
            ops.products([(up, routed)], input);
        }
    }
}

impl Shared {
    /// Its width is that of its tensors: files disagree about the key.
    fn load(part: &Part<'_>, n_embd: usize, activation: Activation) -> Result<Option<Self>, EngineError> {
        let names =
            ["ffn_up_shexp.weight", "ffn_gate_shexp.weight", "ffn_down_shexp.weight", "ffn_gate_inp_shexp.weight"];
        if !names.iter().any(|name| part.has(name)) {
            return Ok(None);
        }
        let n_ff = part.shape("ffn_up_shexp.weight")?.first().copied().unwrap_or(0) as usize;
        let dense = Dense::load_named(part, DenseNames::Shared, n_embd, n_ff, activation)?;
        let gate = part.row_if_there("ffn_gate_inp_shexp.weight", n_embd)?;
        Ok(Some(Self { dense, gate }))
    }

    /// h -> out
    fn run(&self, step: &mut Step<'_>) {
        self.dense.run(step);
        let Some(gate) = &self.gate else { return };
        let n_tokens = step.n_tokens();
        let Buffers { h, input, out, experts, .. } = &mut *step.buffers;
        experts.shared_gate.reshape(n_tokens, 1);
        step.ops.prepare(h, input);
        step.ops.products([(gate, &mut experts.shared_gate)], input);
        step.ops.sigmoid_mul(out, &experts.shared_gate);
    }
}

impl ExpertSizes {
    /// Elements that products take of one token, as it goes to all of its experts.
    pub(crate) fn inputs(&self) -> usize {
        self.n_used * self.n_embd.max(self.n_ff)
    }

    /// Elements of the buffers of one token.
    pub(crate) fn per_token(&self) -> usize {
        let slot = 2 * self.n_ff + 2 * self.n_embd.max(self.n_ff) + self.n_embd;
        let part = self.n_used * slot;
        let copies = if self.has_copies { part + 2 * self.n_embd } else { 0 };
        if self.n_used == 0 { 0 } else { self.n_experts + part + copies + self.n_embd + 1 }
    }
}

impl ExpertBuffers {
    pub(crate) fn new(gpus: &Gpus, sizes: &Sizes, n_batch: usize) -> Result<Self, EngineError> {
        let (rounding, sizes) = (sizes.rounding, &sizes.experts);
        let n_tokens = if sizes.n_used == 0 { 0 } else { n_batch };
        let card = || CardBuffers::new(gpus, sizes, rounding, n_tokens);
        let n_rest = if sizes.has_copies { n_tokens } else { 0 };
        Ok(Self {
            logits: Rows::crossing(gpus, n_tokens, sizes.n_experts)?,
            routes: Routes::new(n_tokens, sizes.n_experts, sizes.n_used)?,
            rest: Routes::new(n_rest, sizes.n_experts, sizes.n_used)?,
            part: PartBuffers::new(gpus, sizes, rounding, n_tokens)?,
            on_card: CardRoutes::new(gpus, n_tokens.min(MAX_ROUTED_ON_CARD), sizes.n_used)?,
            card: sizes.has_copies.then(card).transpose()?,
            routed: Rows::crossing(gpus, n_tokens, sizes.n_embd)?,
            shared_gate: Rows::new(gpus, n_tokens, 1)?,
            uses: ExpertUse::default(),
        })
    }
}

/// Most tokens of a step whose experts a card chooses: more are sorted by experts on the host.
const MAX_ROUTED_ON_CARD: usize = 4;

impl PartBuffers {
    fn new(gpus: &Gpus, sizes: &ExpertSizes, rounding: Rounding, n_batch: usize) -> Result<Self, EngineError> {
        let n_slots = n_batch * sizes.n_used;
        Ok(Self {
            input: Input::new(gpus, n_slots, sizes.n_embd.max(sizes.n_ff), rounding)?,
            gate: Rows::new(gpus, n_slots, sizes.n_ff)?,
            up: Rows::new(gpus, n_slots, sizes.n_ff)?,
            slots: Rows::new(gpus, n_slots, sizes.n_embd)?,
        })
    }
}
