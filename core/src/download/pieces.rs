//! Which pieces of a file are here, who fetches which, and what each hashed to as it arrived. Pure.
//!
//! The file is cut into pieces of one size. A piece fills from its beginning; how far it is and the hash of that much go
//! into the journal, so that a piece that was damaged on disk is known without asking anybody.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// XXH3 of a piece's bytes as they arrived. It finds damage; against forgery stands the SHA256 of the whole file.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct PieceHash(u128);

/// The hash of a piece under way.
#[derive(Default)]
pub(super) struct PieceHasher(XxHash3_128);

/// A piece that the journal vouches for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedPiece {
    /// Which.
    pub(super) n: usize,
    /// So many bytes from its beginning.
    pub(super) arrived_bytes: u64,
    /// Hash of those; journals of old have none.
    pub(super) hash: Option<PieceHash>,
}

/// All pieces of a file.
pub(super) struct Pieces {
    size_bytes: u64,
    piece_bytes: u64,
    pieces: Vec<Piece>,
    arrived_bytes: u64,
    /// Ever written, what was thrown away included.
    written_bytes: u64,
}

struct Piece {
    arrived_bytes: u64,
    proof: Proof,
    is_claimed: bool,
    n_rejected: u32,
}

/// What is known of the bytes of a piece that have arrived.
enum Proof {
    /// There are none.
    Empty,
    /// Their hash, to be gone on with.
    Hasher(Box<PieceHasher>),
    /// Their hash alone.
    Hash(PieceHash),
    /// Nothing: an old journal only counted them.
    Unknown,
}

impl Pieces {
    /// saved     what the journal vouches for; what lies beyond the file or its pieces does not count
    /// on_disk_bytes  as long is the file; more cannot have arrived
    pub(super) fn new(size_bytes: u64, piece_bytes: u64, saved: &[SavedPiece], on_disk_bytes: u64) -> Self {
        let count = usize::try_from(size_bytes.div_ceil(piece_bytes)).expect("pieces are large enough to be counted");
        let mut pieces = Self {
            size_bytes,
            piece_bytes,
            pieces: (0..count).map(|_| Piece::empty()).collect(),
            arrived_bytes: 0,
            written_bytes: 0,
        };
        for SavedPiece { n, arrived_bytes, hash } in saved {
            let span = pieces.span(*n);
            if *n < count && *arrived_bytes <= span.end - span.start && span.start + arrived_bytes <= on_disk_bytes {
                let proof = hash.map_or(Proof::Unknown, Proof::Hash);
                pieces.pieces[*n] = Piece { arrived_bytes: *arrived_bytes, proof, ..Piece::empty() };
            }
        }
        pieces.arrived_bytes = pieces.pieces.iter().map(|piece| piece.arrived_bytes).sum();
        pieces
    }

    pub(super) fn count(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Bytes of the file that a piece is made of.
    pub(super) fn span(&self, n: usize) -> Range<u64> {
        let start = (n as u64).saturating_mul(self.piece_bytes).min(self.size_bytes);
        start..start.saturating_add(self.piece_bytes).min(self.size_bytes)
    }

    /// Which piece a byte belongs to.
    pub(super) fn at(&self, offset: u64) -> usize {
        (offset / self.piece_bytes) as usize
    }

    /// Bytes here, of all pieces.
    pub(super) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// How far a piece is: the offset in the file where it goes on.
    pub(super) fn frontier(&self, n: usize) -> u64 {
        self.span(n).start + self.pieces[n].arrived_bytes
    }

    pub(super) fn is_whole(&self, n: usize) -> bool {
        self.frontier(n) == self.span(n).end
    }

    pub(super) fn all_whole(&self) -> bool {
        self.arrived_bytes == self.size_bytes
    }

    /// Pieces that nobody fetches and that are not whole.
    pub(super) fn n_open(&self) -> usize {
        (0..self.count()).filter(|&n| self.is_open(n)).count()
    }

    /// Gives the first open piece to a connection, and up to `most` in all if empty ones follow it.
    pub(super) fn claim(&mut self, most: usize) -> Option<Range<usize>> {
        let first = (0..self.count()).find(|&n| self.is_open(n))?;
        let mut end = first + 1;
        while end < self.count() && end - first < most && self.is_open(end) && self.pieces[end].arrived_bytes == 0 {
            end += 1;
        }
        self.pieces[first..end].iter_mut().for_each(|piece| piece.is_claimed = true);
        Some(first..end)
    }

    /// Gives one more piece to a connection whose answer goes on; whether it is to be had.
    pub(super) fn claim_also(&mut self, n: usize) -> bool {
        match self.pieces.get_mut(n) {
            Some(piece) if !piece.is_claimed => {
                piece.is_claimed = true;
                true
            }
            _ => false,
        }
    }

    /// A connection lets go of pieces.
    pub(super) fn release(&mut self, claimed: Range<usize>) {
        self.pieces[claimed].iter_mut().for_each(|piece| piece.is_claimed = false);
    }

    /// What the bytes of a piece that is not whole hashed to, if that must be made sure of before it goes on.
    pub(super) fn unproven(&self, n: usize) -> Option<Option<PieceHash>> {
        match &self.pieces[n].proof {
            _ if self.is_whole(n) => None,
            Proof::Empty | Proof::Hasher(_) => None,
            Proof::Hash(hash) => Some(Some(*hash)),
            Proof::Unknown => Some(None),
        }
    }

    /// The bytes of a piece were read again and hash as they should.
    pub(super) fn prove(&mut self, n: usize, hasher: PieceHasher) {
        let is_whole = self.is_whole(n);
        self.pieces[n].proof = if is_whole { Proof::Hash(hasher.finish()) } else { Proof::Hasher(Box::new(hasher)) };
    }

    /// Bytes were written at the frontier of a piece.
    pub(super) fn note(&mut self, n: usize, bytes: &[u8]) {
        let piece = &mut self.pieces[n];
        if let Proof::Empty = piece.proof {
            piece.proof = Proof::Hasher(Box::default());
        }
        if let Proof::Hasher(hasher) = &mut piece.proof {
            hasher.update(bytes);
        }
        piece.arrived_bytes += bytes.len() as u64;
        self.arrived_bytes += bytes.len() as u64;
        self.written_bytes += bytes.len() as u64;
        if self.is_whole(n)
            && let Some(hash) = self.hash(n)
        {
            self.pieces[n].proof = Proof::Hash(hash);
        }
    }

    /// Throws a piece away; how often that has happened to it.
    pub(super) fn reject(&mut self, n: usize) -> u32 {
        let piece = &mut self.pieces[n];
        self.arrived_bytes -= piece.arrived_bytes;
        (piece.arrived_bytes, piece.proof) = (0, Proof::Empty);
        piece.n_rejected += 1;
        piece.n_rejected
    }

    /// Hash of what is here of a piece, if it is known.
    pub(super) fn hash(&self, n: usize) -> Option<PieceHash> {
        match &self.pieces[n].proof {
            Proof::Hasher(hasher) => Some(hasher.finish()),
            Proof::Hash(hash) => Some(*hash),
            Proof::Empty | Proof::Unknown => None,
        }
    }

    /// What the journal can vouch for once it is on the disk.
    pub(super) fn saved(&self) -> Vec<SavedPiece> {
        let here = self.pieces.iter().enumerate().filter(|(_, piece)| piece.arrived_bytes > 0);
        here.map(|(n, piece)| SavedPiece { n, arrived_bytes: piece.arrived_bytes, hash: self.hash(n) }).collect()
    }

    fn is_open(&self, n: usize) -> bool {
        !self.pieces[n].is_claimed && !self.is_whole(n)
    }
}

impl Piece {
    fn empty() -> Self {
        Self { arrived_bytes: 0, proof: Proof::Empty, is_claimed: false, n_rejected: 0 }
    }
}

impl PieceHasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(super) fn finish(&self) -> PieceHash {
        PieceHash(self.0.finish_128())
    }
}

impl fmt::Debug for PieceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<PieceHash> for String {
    fn from(hash: PieceHash) -> Self {
        format!("{hash:?}")
    }
}

impl TryFrom<String> for PieceHash {
    type Error = std::num::ParseIntError;

    fn try_from(hex: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&hex, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(bytes: &[u8]) -> PieceHash {
        let mut hasher = PieceHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    #[test]
    fn pieces_are_given_out_in_order_and_never_twice() {
        let mut pieces = Pieces::new(45, 10, &[], 0);
        assert_eq!((pieces.count(), pieces.span(4), pieces.at(44)), (5, 40..45, 4));
        assert_eq!(pieces.claim(2), Some(0..2));
        assert_eq!(pieces.claim(9), Some(2..5));
        assert_eq!((pieces.claim(1), pieces.claim_also(3)), (None, false));
        pieces.note(0, &[7; 10]);
        pieces.note(1, &[7; 4]);
        pieces.release(0..2);
        assert_eq!((pieces.claim(9), pieces.frontier(1)), (Some(1..2), 14), "a whole piece is not given out again");
        assert!(pieces.claim_also(0) && !pieces.claim_also(5), "but may be passed by");
        assert_eq!((pieces.arrived_bytes(), pieces.n_open()), (14, 0));
    }

    #[test]
    fn a_piece_begun_earlier_must_be_read_before_it_goes_on() {
        let saved = |n, arrived_bytes, hash| SavedPiece { n, arrived_bytes, hash };
        let known = [saved(0, 10, Some(hash(b"0123456789"))), saved(1, 3, Some(hash(b"abc"))), saved(2, 2, None)];
        let mut pieces = Pieces::new(30, 10, &known, 30);
        assert_eq!(
            (pieces.unproven(0), pieces.unproven(1), pieces.unproven(2)),
            (None, Some(Some(hash(b"abc"))), Some(None))
        );
        let mut hasher = PieceHasher::default();
        hasher.update(b"abc");
        pieces.prove(1, hasher);
        pieces.note(1, b"defghij");
        assert_eq!((pieces.hash(1), pieces.unproven(1)), (Some(hash(b"abcdefghij")), None));
        assert_eq!(pieces.reject(1), 1);
        assert_eq!((pieces.frontier(1), pieces.arrived_bytes(), pieces.written_bytes()), (10, 12, 7));
    }

    #[test]
    fn what_the_disk_or_the_file_cannot_hold_does_not_count() {
        let saved = |n, arrived_bytes| SavedPiece { n, arrived_bytes, hash: None };
        let pieces =
            Pieces::new(25, 10, &[saved(0, 10), saved(1, 4), saved(2, 6), saved(3, 1), saved(usize::MAX, 1)], 13);
        assert_eq!(pieces.saved(), [saved(0, 10)]);
        assert!(Pieces::new(0, 10, &[], 0).all_whole());
    }

    proptest! {
        #[test]
        fn whatever_order_bytes_arrive_in_the_journal_vouches_for_them(
            size in 1_u64..200, piece_bytes in 1_u64..40, steps in proptest::collection::vec((0_usize..50, 1_u64..30, 0_u8..8), 1..80),
        ) {
            let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let mut pieces = Pieces::new(size, piece_bytes, &[], 0);
            for (n, step, kind) in steps {
                let n = n % pieces.count();
                if kind == 0 {
                    pieces.reject(n);
                }
                let (from, end) = (pieces.frontier(n), pieces.span(n).end.min(pieces.frontier(n) + step));
                pieces.note(n, &bytes[from as usize..end as usize]);
            }
            let saved = pieces.saved();
            for one in &saved {
                let start = pieces.span(one.n).start as usize;
                prop_assert_eq!(one.hash, Some(hash(&bytes[start..start + one.arrived_bytes as usize])));
            }
            prop_assert_eq!(saved.iter().map(|one| one.arrived_bytes).sum::<u64>(), pieces.arrived_bytes());
            let again = Pieces::new(size, piece_bytes, &saved, size);
            prop_assert_eq!(again.saved(), saved);
            prop_assert_eq!(again.all_whole(), (0..again.count()).all(|n| again.is_whole(n)));
        }
    }
}
