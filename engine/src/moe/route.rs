//! Routing: router logits to experts and weights, and the (token, expert) pairs in the order of experts, so that each expert's
//! weights are read once for all of its tokens.

use std::ops::Range;

use crate::cpu::{self, Cpu};
use crate::error::EngineError;
use crate::tensor::{room, zeroed};

/// What its buffers are called.
const WHAT: &str = "routes to experts";

/// How router logits become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
    /// Selection by the logits; softmax over those selected.
    SoftmaxOfSelected,
}

/// How a model routes. Source: llama.cpp `build_moe_ffn`; DeepSeek-V3 report section 2.1.2 for groups and bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Routing {
    /// Experts of a layer.
    pub(crate) n_experts: usize,
    /// Experts that a token goes to.
    pub(crate) n_used: usize,
    /// Logits to probabilities.
    pub(crate) gating: Gating,
    /// Whether the weights of a token's experts are made to add up to 1.
    pub(crate) weights: Weights,
    /// Factor on the weights.
    pub(crate) scale: f32,
    /// Only the best of several groups of experts are looked at.
    pub(crate) groups: Option<Groups>,
}

/// What happens to the weights of the selected experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    /// They stay as they are.
    AsTheyAre,
    /// They are divided by their sum.
    Normalised,
}

/// Experts in groups of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Groups.
    pub(crate) n_groups: usize,
    /// Groups that a token may use.
    pub(crate) n_used: usize,
}

/// A matrix of a stack, and the rows of an input that go to it.
pub(crate) type Group = (u32, Range<u32>);

/// A divisor below this would blow up rounding errors; the smallest normal f16. Source: llama.cpp `build_moe_ffn`.
const MIN_WEIGHT_SUM: f32 = 6.103_515_6e-5;

/// Where the tokens of a step go. A slot is one (token, expert) pair; slots lie in the order of their experts.
#[derive(Debug)]
pub(crate) struct Routes {
    /// [n_tokens · n_used] expert of each pair, token by token
    experts: Vec<u32>,
    /// [n_tokens · n_used] its weight
    weights: Vec<f32>,
    /// [n_tokens · n_used] its slot
    slots: Vec<u32>,
    /// [n_tokens · n_used] token of each slot
    tokens: Vec<u32>,
    /// (expert, its slots), for experts that have some
    groups: Vec<Group>,
    /// [n_experts] scratch of one token
    scores: Vec<f32>,
    /// [n_experts] first slot of each expert
    starts: Vec<u32>,
    n_used: usize,
    n_slots: usize,
}

/// The slot of a pair that a part leaves out, and its expert; kernels know it.
const NONE: u32 = u32::MAX;

impl Routes {
    /// Room for steps of `max_tokens`.
    ///
    /// Errors   `OutOfMemory`
    pub(crate) fn new(max_tokens: usize, max_experts: usize, max_used: usize) -> Result<Self, EngineError> {
        let n_pairs = max_tokens * max_used;
        Ok(Self {
            experts: room(WHAT, n_pairs)?,
            weights: room(WHAT, n_pairs)?,
            slots: zeroed(WHAT, 1, n_pairs)?,
            tokens: zeroed(WHAT, 1, n_pairs)?,
            groups: room(WHAT, max_experts)?,
            scores: zeroed(WHAT, 1, max_experts)?,
            starts: zeroed(WHAT, 1, max_experts)?,
            n_used: 0,
            n_slots: 0,
        })
    }

    /// Routes all tokens of a step.
    ///
    /// logits   [n_tokens, n_experts] of the router; probabilities afterwards
    /// bias     [n_experts] added for selecting only
    /// Cost     O(n_tokens · n_experts · n_used), no allocation
    pub(crate) fn set(&mut self, cpu: &Cpu, routing: &Routing, logits: &mut [f32], bias: Option<&[f32]>) {
        let &Routing { n_experts, n_used, .. } = routing;
        match routing.gating {
            Gating::Softmax => cpu::softmax(cpu, logits, n_experts),
            Gating::Sigmoid => cpu::sigmoid(cpu, logits),
            Gating::SoftmaxOfSelected => {}
        }
        self.n_used = n_used;
        self.experts.clear();
        self.weights.clear();
        for probabilities in logits.chunks_exact(n_experts) {
            let scores = &mut self.scores[..n_experts];
            scores.copy_from_slice(probabilities);
            if let Some(bias) = bias {
                scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
            }
            if let Some(groups) = routing.groups {
                keep_best_groups(scores, groups);
            }
            let first = self.weights.len();
            for _ in 0..n_used {
                let best = best(scores);
                scores[best] = f32::NEG_INFINITY;
                self.experts.push(best as u32);
                self.weights.push(probabilities[best]);
            }
            let weights = &mut self.weights[first..];
            if routing.gating == Gating::SoftmaxOfSelected {
                softmax(weights);
            }
            if routing.weights == Weights::Normalised {
                let sum = weights.iter().sum::<f32>().max(MIN_WEIGHT_SUM);
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            weights.iter_mut().for_each(|weight| *weight *= routing.scale);
        }
        self.sort(n_experts);
    }

    /// Becomes a part of other routes: the pairs whose expert has a matrix here.
    ///
    /// n_matrices  at most the experts that there is room for
    /// matrix_of   expert to matrix
    pub(crate) fn set_part(&mut self, all: &Routes, n_matrices: usize, matrix_of: impl Fn(u32) -> Option<u32>) {
        self.n_used = all.n_used;
        self.experts.clear();
        self.experts.extend(all.experts.iter().map(|&expert| matrix_of(expert).unwrap_or(NONE)));
        self.weights.clear();
        self.weights.extend_from_slice(&all.weights);
        self.sort(n_matrices);
    }

    /// Puts the pairs into the order of their experts (counting sort).
    fn sort(&mut self, n_experts: usize) {
        let starts = &mut self.starts[..n_experts];
        starts.fill(0);
        for &expert in self.experts.iter().filter(|expert| **expert != NONE) {
            starts[expert as usize] += 1;
        }
        self.groups.clear();
        let mut first = 0;
        for (expert, start) in starts.iter_mut().enumerate() {
            let n_slots = std::mem::replace(start, first);
            if n_slots > 0 {
                self.groups.push((expert as u32, first..first + n_slots));
            }
            first += n_slots;
        }
        self.n_slots = first as usize;
        for (pair, &expert) in self.experts.iter().enumerate() {
            if expert == NONE {
                self.slots[pair] = NONE;
                continue;
            }
            let slot = &mut starts[expert as usize];
            self.slots[pair] = *slot;
            self.tokens[*slot as usize] = (pair / self.n_used) as u32;
            *slot += 1;
        }
    }

    /// Slots: tokens times experts used, or fewer in a part.
    pub(crate) fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// The token of each slot.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens[..self.n_slots]
    }

    /// Every expert that has tokens, and its slots.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Experts that a token goes to.
    pub(crate) fn n_used(&self) -> usize {
        self.n_used
    }

    /// Slots and weights of all tokens, [n_tokens, n_used] each.
    pub(crate) fn pairs(&self) -> (&[u32], &[f32]) {
        (&self.slots[..self.experts.len()], &self.weights)
    }

    /// Slots of a token and their weights.
    pub(crate) fn of_token(&self, token: usize) -> impl Iterator<Item = (usize, f32)> {
        let pairs = token * self.n_used..(token + 1) * self.n_used;
        let all = self.slots[pairs.clone()].iter().zip(&self.weights[pairs]);
        all.filter(|(slot, _)| **slot != NONE).map(|(slot, weight)| (*slot as usize, *weight))
    }
}

/// Softmax of a few values.
fn softmax(x: &mut [f32]) {
    let max = x.iter().fold(f32::NEG_INFINITY, |max, v| max.max(*v));
    x.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|v| *v /= sum);
}

/// The first of the largest; NaN never wins, and the first expert stands for a row of nothing but NaN.
fn best(scores: &[f32]) -> usize {
    let mut best = 0;
    for (i, score) in scores.iter().enumerate() {
        if *score > scores[best] || scores[best].is_nan() {
            best = i;
        }
    }
    best
}

/// Takes the experts of all but the best groups out of the race; a group counts by the sum of its two best.
fn keep_best_groups(scores: &mut [f32], groups: Groups) {
    let size = scores.len() / groups.n_groups;
    let value = |group: &[f32]| {
        let top = group.iter().fold([f32::NEG_INFINITY; 2], |[first, second], &score| {
            if score > first { [score, first] } else { [first, second.max(score)] }
        });
        if size == 1 { top[0] } else { top[0] + top[1] }
    };
    for _ in groups.n_used..groups.n_groups {
        let live =
            scores.chunks_exact(size).enumerate().filter(|(_, group)| group.iter().any(|s| *s > f32::NEG_INFINITY));
        // the last of equals goes, since the first of equals wins elsewhere
        let worst = live.map(|(i, group)| (i, value(group))).min_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        if let Some((worst, _)) = worst {
            scores[worst * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    const PLAIN: Routing = Routing {
        n_experts: 4,
        n_used: 2,
        gating: Gating::Softmax,
        weights: Weights::AsTheyAre,
        scale: 1.0,
        groups: None,
    };

    fn routed(routing: &Routing, logits: &[f32], bias: Option<&[f32]>) -> (Routes, Vec<Vec<(u32, f32)>>) {
        let n_tokens = logits.len() / routing.n_experts;
        let mut routes = Routes::new(n_tokens, routing.n_experts, routing.n_used).unwrap();
        routes.set(&Cpu::new(Isa::best(), 1).unwrap(), routing, &mut logits.to_vec(), bias);
        let expert_of = |slot: usize| routes.groups.iter().find(|(_, slots)| slots.contains(&(slot as u32))).unwrap().0;
        let pairs = |token| routes.of_token(token).map(|(slot, weight)| (expert_of(slot), weight)).collect();
        let all = (0..n_tokens).map(pairs).collect();
        (routes, all)
    }

    #[track_caller]
    fn assert_pairs(got: &[(u32, f32)], want: &[(u32, f32)]) {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert!(got.0 == want.0 && (got.1 - want.1).abs() < 1e-6, "{got:?}, expected {want:?}");
        }
    }

    #[test]
    fn softmax_takes_the_most_likely_and_the_first_of_equals() {
        let ln = |p: f32| p.ln();
        let logits = [ln(0.1), ln(0.4), ln(0.2), ln(0.3), 1.0, 1.0, 1.0, 1.0];
        let (_, pairs) = routed(&PLAIN, &logits, None);
        assert_pairs(&pairs[0], &[(1, 0.4), (3, 0.3)]);
        assert_pairs(&pairs[1], &[(0, 0.25), (1, 0.25)]);
        let normalised = Routing { weights: Weights::Normalised, scale: 2.0, ..PLAIN };
        let (_, pairs) = routed(&normalised, &logits, None);
        assert_pairs(&pairs[0], &[(1, 0.8 / 0.7), (3, 0.6 / 0.7)]);
    }

    #[test]
    fn a_bias_selects_but_does_not_weigh() {
        let routing = Routing { gating: Gating::Sigmoid, ..PLAIN };
        let (_, pairs) = routed(&routing, &[0.0, 2.0, 1.0, -1.0], Some(&[0.0, 0.0, 0.0, 5.0]));
        let sigmoid = |v: f32| 1.0 / (1.0 + (-v).exp());
        assert_pairs(&pairs[0], &[(3, sigmoid(-1.0)), (1, sigmoid(2.0))]);
    }

    #[test]
    fn softmax_of_the_selected_adds_up_to_one() {
        let routing = Routing { gating: Gating::SoftmaxOfSelected, ..PLAIN };
        let (_, pairs) = routed(&routing, &[0.0, 2.0, 1.0, -1.0], None);
        let e = 1f32.exp();
        assert_pairs(&pairs[0], &[(1, e / (e + 1.0)), (2, 1.0 / (e + 1.0))]);
    }

    #[test]
    fn only_the_best_groups_are_used() {
        let groups = Some(Groups { n_groups: 3, n_used: 1 });
        let routing = Routing { n_experts: 6, gating: Gating::Sigmoid, groups, ..PLAIN };
        // the best single expert is in group 0, the best pair in group 1
        let (_, pairs) = routed(&routing, &[3.0, -9.0, 1.5, 1.6, 0.0, 0.1], None);
        assert_eq!(pairs[0].iter().map(|pair| pair.0).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn slots_lie_by_expert_and_know_their_tokens() {
        let logits = [5.0, 4.0, 0.0, 0.0, 0.0, 5.0, 4.0, 0.0, 4.0, 5.0, 0.0, 0.0];
        let (routes, _) = routed(&PLAIN, &logits, None);
        assert_eq!(routes.groups(), [(0, 0..2), (1, 2..5), (2, 5..6)]);
        assert_eq!(routes.tokens(), [0, 2, 0, 1, 2, 1]);
        assert_eq!(routes.n_slots(), 6);
        assert_eq!(routes.of_token(1).map(|(slot, _)| slot).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn parts_have_the_pairs_of_their_matrices_in_the_order_of_the_whole() {
        let logits = [5.0, 4.0, 0.0, 0.0, 0.0, 5.0, 4.0, 0.0, 4.0, 5.0, 0.0, 0.0];
        let (routes, pairs) = routed(&PLAIN, &logits, None);
        let mut part = Routes::new(3, 4, 2).unwrap();
        // Expert 1 in matrix 1, expert 2 in matrix 0.
        part.set_part(&routes, 2, |expert| [None, Some(1), Some(0), None][expert as usize]);
        assert_eq!((part.groups(), part.tokens()), (&[(0, 0..1), (1, 1..4)][..], &[1, 0, 1, 2][..]));
        assert_eq!(part.n_slots(), 4);
        let of_token = |token| part.of_token(token).collect::<Vec<_>>();
        assert_eq!(of_token(0), [(1, pairs[0][1].1)]);
        assert_eq!(of_token(1), [(2, pairs[1][0].1), (0, pairs[1][1].1)]);
        let (slots, weights) = part.pairs();
        assert_eq!((slots, weights.len()), (&[NONE, 1, 2, 0, 3, NONE][..], 6));
        part.set_part(&routes, 4, |_| None);
        assert_eq!((part.n_slots(), part.groups().len()), (0, 0));
    }

    #[test]
    fn rows_of_nan_are_routed_somewhere() {
        let (routes, _) = routed(&PLAIN, &[f32::NAN; 4], None);
        assert_eq!(routes.n_slots(), 2);
    }
}
