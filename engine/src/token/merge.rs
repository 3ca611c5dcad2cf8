//! Merging: of all neighbours that may become one, those of the lowest rank do, the leftmost first, until none are left.
//! Byte-level and SentencePiece vocabularies differ only in who may merge and at which rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A run of a text and what stands for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Bytes of the text; none once the symbol is part of its left neighbour.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Its piece, or `NONE`.
    pub(super) id: u32,
    prev: u32,
    next: u32,
}

/// What two neighbours become, and how early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merged {
    pub(super) rank: u32,
    pub(super) id: u32,
}

/// The symbols of one text; room that encoding reuses from text to text.
#[derive(Default)]
pub(super) struct Symbols {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

/// Ordered by rank, then leftmost. Symbols only grow, so its length says whether it is still about the symbols as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    right: u32,
    n_bytes: u32,
    id: u32,
}

/// No piece, no neighbour.
pub(super) const NONE: u32 = u32::MAX;

impl Symbols {
    /// Forgets the last text.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a run of bytes, which must not be empty.
    pub(super) fn push(&mut self, start: u32, end: u32, id: u32) {
        let i = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = i;
        }
        self.symbols.push(Symbol { start, end, id, prev: i.checked_sub(1).unwrap_or(NONE), next: NONE });
    }

    /// Merges until no neighbours are left that may.
    ///
    /// pair     what two neighbours become, if they may; asked once per pair that comes up
    /// Cost     O(n log n) in the symbols
    pub(super) fn merge(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
        for right in 1..self.symbols.len() as u32 {
            self.enqueue(&pair, right - 1, right);
        }
        while let Some(Reverse(candidate)) = self.queue.pop() {
            let (left, right) = (self.symbols[candidate.left as usize], self.symbols[candidate.right as usize]);
            let is_gone = left.start == left.end || right.start == right.end;
            if is_gone || right.end - left.start != candidate.n_bytes {
                continue;
            }
            self.symbols[candidate.left as usize] =
                Symbol { end: right.end, id: candidate.id, next: right.next, ..left };
            self.symbols[candidate.right as usize].end = right.start;
            if right.next != NONE {
                self.symbols[right.next as usize].prev = candidate.left;
                self.enqueue(&pair, candidate.left, right.next);
            }
            if left.prev != NONE {
                self.enqueue(&pair, left.prev, candidate.left);
            }
        }
    }

    /// What is left, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.start != symbol.end)
    }

    fn enqueue(&mut self, pair: &impl Fn(&Symbol, &Symbol) -> Option<Merged>, left: u32, right: u32) {
        let (left_symbol, right_symbol) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some(Merged { rank, id }) = pair(left_symbol, right_symbol) {
            let n_bytes = right_symbol.end - left_symbol.start;
            self.queue.push(Reverse(Candidate { rank, left, right, n_bytes, id }));
        }
    }
}
