//! Which experts of a layer have a copy on a card: a few slots, each with one expert. The host alone knows; what is copied, and
//! when, is said here, the copying itself is `arch::blocks::experts`.

use super::Group;

/// The slots of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// [n_experts] the slot of each expert that has one
    slot_of: Vec<Option<u32>>,
    /// [n_slots] the expert of each slot
    expert_of: Vec<u32>,
    /// [n_slots] the step in which it was used last
    used_in: Vec<u64>,
    step: u64,
}

impl Slots {
    /// The first experts, one per slot.
    ///
    /// n_slots  at most `n_experts`
    pub(crate) fn new(n_experts: usize, n_slots: usize) -> Self {
        assert!(n_slots <= n_experts, "{n_slots} slots for {n_experts} experts");
        let slot_of = (0..n_experts).map(|expert| (expert < n_slots).then_some(expert as u32)).collect();
        Self { slot_of, expert_of: (0..n_slots as u32).collect(), used_in: vec![0; n_slots], step: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.expert_of.len()
    }

    /// Where an expert lies.
    pub(crate) fn slot(&self, expert: u32) -> Option<u32> {
        self.slot_of[expert as usize]
    }

    /// Begins a step that goes to these experts.
    pub(crate) fn begin(&mut self, groups: &[Group]) {
        self.step += 1;
        for (expert, _) in groups {
            if let Some(slot) = self.slot(*expert) {
                self.used_in[slot as usize] = self.step;
            }
        }
    }

    /// Gives an expert the slot whose expert was not used for longest, the first of equals.
    pub(crate) fn take(&mut self, expert: u32) -> u32 {
        let slots = self.used_in.iter().enumerate();
        let (slot, _) = slots.min_by_key(|(_, used_in)| **used_in).expect("there are slots");
        self.step += 1;
        let previous = std::mem::replace(&mut self.expert_of[slot], expert);
        self.slot_of[previous as usize] = None;
        self.slot_of[expert as usize] = Some(slot as u32);
        self.used_in[slot] = self.step;
        slot as u32
    }

    /// The routed expert without a slot that has most tokens, the first of equals, if there is a slot whose expert this step
    /// did not go to.
    pub(crate) fn missed(&self, groups: &[Group]) -> Option<u32> {
        let is_routed = |expert: u32| groups.binary_search_by_key(&expert, |(expert, _)| *expert).is_ok();
        if self.expert_of.iter().all(|expert| is_routed(*expert)) {
            return None;
        }
        let missed = groups.iter().filter(|(expert, _)| self.slot(*expert).is_none());
        missed.max_by_key(|(expert, slots)| (slots.len(), std::cmp::Reverse(*expert))).map(|(expert, _)| *expert)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_makes_room() {
        let mut slots = Slots::new(6, 3);
        assert_eq!((slots.slot(2), slots.slot(3)), (Some(2), None));
        slots.begin(&[(0, 0..1), (4, 1..2)]);
        slots.begin(&[(2, 0..1)]);
        assert_eq!(slots.take(5), 1, "never used");
        assert_eq!(slots.take(4), 0, "used before 2");
        assert_eq!([0, 1, 2, 4, 5].map(|expert| slots.slot(expert)), [None, None, Some(2), Some(0), Some(1)]);
        assert_eq!(slots.take(3), 2);
        assert_eq!(slots.len(), 3);
    }

    #[test]
    fn the_missed_expert_with_most_tokens_comes_first_and_none_drives_out_a_routed_one() {
        let mut slots = Slots::new(6, 2);
        let groups = [(1, 0..4), (3, 4..5), (4, 5..8), (5, 8..11)];
        slots.begin(&groups);
        assert_eq!(slots.missed(&groups), Some(4));
        assert_eq!(slots.take(4), 0);
        assert_eq!(slots.missed(&groups), None, "both slots are in use");
        assert_eq!(slots.missed(&[(1, 0..1)]), None, "nothing is missed");
    }
}
