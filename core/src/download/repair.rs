//! Damage on the wire: all bytes came, as the disk gives them back, and they are not the file. Piece after piece is
//! fetched once more and compared; where two fetches differ, more fetches decide, from another source if there is one.
//! What agrees is kept, until the SHA256 of the whole holds. Pure.

use std::collections::BTreeMap;

use super::pieces::PieceHash;

/// A search for damage under way.
#[derive(Debug)]
pub(super) struct Repair {
    n_pieces: usize,
    n_sources: usize,
    next: usize,
    put_back: Vec<usize>,
    n_compared: usize,
    /// Hashes of pieces that came differently, in the order of their fetches; the first is what was here.
    doubts: BTreeMap<usize, Vec<PieceHash>>,
    /// Pieces of which each source keeps giving its own version; the other source's was kept.
    torn: Vec<usize>,
    is_last_hearing: bool,
}

/// What to make of a piece that was fetched and written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It is what it must be, as far as anybody knows.
    Keep {
        /// Whether it is other than before.
        is_other: bool,
    },
    /// Fetch it again.
    Again,
    /// It comes differently each time.
    GiveUp,
}

impl Repair {
    pub(super) fn new(n_pieces: usize, n_sources: usize) -> Self {
        let (doubts, put_back, torn) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { n_pieces, n_sources, next: 0, put_back, n_compared: 0, doubts, torn, is_last_hearing: false }
    }

    /// So many sources are left.
    pub(super) fn set_sources(&mut self, n_sources: usize) {
        self.n_sources = n_sources;
    }

    /// The next piece to fetch once more.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.put_back.pop().or_else(|| {
            let n = self.next;
            self.next = (n + 1).min(self.n_pieces);
            (n < self.n_pieces).then_some(n)
        })
    }

    /// A comparison came to nothing.
    pub(super) fn put_back(&mut self, piece: usize) {
        self.put_back.push(piece);
    }

    /// A piece came once more; whether it is in doubt now.
    ///
    /// here     hash of what is here
    /// came     hash of what came
    pub(super) fn compare(&mut self, piece: usize, here: PieceHash, came: PieceHash) -> bool {
        self.n_compared += 1;
        if here != came {
            self.doubts.insert(piece, vec![here, came]);
        }
        here != came
    }

    /// How often a piece has come.
    pub(super) fn n_fetches(&self, piece: usize) -> usize {
        self.doubts.get(&piece).map_or(0, Vec::len)
    }

    /// Pieces that are being fetched and written again.
    pub(super) fn doubtful(&self) -> Vec<usize> {
        self.doubts.keys().copied().collect()
    }

    /// A piece in doubt was fetched and written again.
    pub(super) fn rule(&mut self, piece: usize, hash: PieceHash) -> Ruling {
        let Some(votes) = self.doubts.get_mut(&piece) else { return Ruling::Keep { is_other: false } };
        votes.push(hash);
        let count = |of: PieceHash| votes.iter().filter(|&&vote| vote == of).count();
        let (first, is_other) = (votes[0], hash != votes[0]);
        // Of two sources the second may differ for good: then the first one's word alone does not count.
        let is_enough = count(hash) >= if is_other || self.n_sources == 1 { 2 } else { 3 };
        if !is_enough && !self.is_last_hearing {
            return if votes.len() < MOST_FETCHES { Ruling::Again } else { Ruling::GiveUp };
        }
        if is_other && count(first) >= 2 {
            self.torn.push(piece);
        }
        self.doubts.remove(&piece);
        Ruling::Keep { is_other }
    }

    /// All pieces were compared and ruled upon, and the whole is still wrong: the pieces to be taken from the first
    /// source after all, if there are any.
    pub(super) fn last_hearing(&mut self) -> Vec<usize> {
        self.is_last_hearing = true;
        let torn = std::mem::take(&mut self.torn);
        self.doubts.extend(torn.iter().map(|&piece| (piece, Vec::new())));
        torn
    }

    /// Pieces compared.
    pub(super) fn n_compared(&self) -> usize {
        self.n_compared
    }

    /// Whether nothing is left to be compared or fetched.
    pub(super) fn is_over(&self) -> bool {
        self.n_compared == self.n_pieces && self.doubts.is_empty()
    }
}

/// Of one piece.
const MOST_FETCHES: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use Ruling::{Again, GiveUp, Keep};

    fn hash(name: u8) -> PieceHash {
        format!("{name:032x}").try_into().unwrap()
    }

    /// Rulings on the third and later fetches of a piece; the first two are what was here and what came to compare.
    fn rulings(n_sources: usize, fetches: &[u8]) -> Vec<Ruling> {
        let mut repair = Repair::new(1, n_sources);
        assert_eq!((repair.next(), repair.next()), (Some(0), None));
        assert!(repair.compare(0, hash(fetches[0]), hash(fetches[1])));
        fetches[2..].iter().map(|&name| repair.rule(0, hash(name))).collect()
    }

    #[test]
    fn what_agrees_is_kept() {
        let (old, new) = (Keep { is_other: false }, Keep { is_other: true });
        assert_eq!(rulings(1, &[7, 1, 1]), [new], "damaged when it first came");
        assert_eq!(rulings(1, &[1, 7, 1]), [old], "damaged when it came to compare");
        assert_eq!(rulings(1, &[7, 8, 1, 9, 1]), [Again, Again, new]);
        assert_eq!(rulings(1, &[1, 2, 3, 4, 5, 6, 7]), [Again, Again, Again, Again, GiveUp]);
        assert_eq!(rulings(2, &[7, 1, 1]), [new], "the second source is right");
        assert_eq!(rulings(2, &[7, 1, 7, 1]), [Again, new], "the first source is damaged for good");
        assert_eq!(rulings(2, &[1, 7, 1, 8, 1]), [Again, Again, old], "the second source is a mess");
    }

    #[test]
    fn where_sources_stay_torn_the_first_is_heard_last() {
        let mut repair = Repair::new(2, 2);
        assert_eq!((repair.next(), repair.next()), (Some(0), Some(1)));
        repair.put_back(1);
        assert!(!repair.compare(0, hash(1), hash(1)));
        assert_eq!(repair.next(), Some(1));
        repair.compare(1, hash(1), hash(7));
        assert_eq!((repair.doubtful(), repair.n_fetches(1), repair.is_over()), (vec![1], 2, false));
        assert_eq!((repair.rule(1, hash(1)), repair.rule(1, hash(7))), (Again, Keep { is_other: true }));
        assert!(repair.is_over());
        assert_eq!((repair.last_hearing(), repair.is_over()), (vec![1], false));
        assert_eq!(repair.rule(1, hash(1)), Keep { is_other: false });
        assert_eq!((repair.last_hearing(), repair.is_over()), (vec![], true));
    }
}
