//! Which bytes of memory an operation touched, in sectors of 32 bytes.

use std::collections::HashMap;

const SECTOR_BITS: u32 = 5;
/// A page has 256 sectors: four words of bits.
const PAGE_BITS: u32 = SECTOR_BITS + 8;
const N_CACHED: usize = 16;

type Bits = [u64; 4];

/// A set of sectors.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    /// Where the bits of a page lie.
    pages: HashMap<u64, u32>,
    bits: Vec<Bits>,
    /// Pages found last.
    cache: [(u64, u32); N_CACHED],
}

impl Default for Touched {
    fn default() -> Self {
        Self { pages: HashMap::new(), bits: Vec::new(), cache: [(u64::MAX, 0); N_CACHED] }
    }
}

impl Touched {
    /// The set of one range.
    pub(crate) fn of(address: u64, bytes: usize) -> Self {
        let mut touched = Self::default();
        touched.mark(address, bytes);
        touched
    }

    /// Adds the sectors of a range.
    #[inline]
    pub(crate) fn mark(&mut self, address: u64, bytes: usize) {
        let mut sector = address >> SECTOR_BITS;
        let last = (address + bytes as u64 - 1) >> SECTOR_BITS;
        while sector <= last {
            let page = sector >> 8;
            let first_bit = sector & 255;
            let last_bit = if last >> 8 == page { last & 255 } else { 255 };
            let bits = self.page(page);
            if first_bit == last_bit {
                bits[(first_bit >> 6) as usize] |= 1 << (first_bit & 63);
            } else {
                for bit in first_bit..=last_bit {
                    bits[(bit >> 6) as usize] |= 1 << (bit & 63);
                }
            }
            sector = (page << 8) + last_bit + 1;
        }
    }

    #[inline]
    fn page(&mut self, page: u64) -> &mut Bits {
        let slot = page as usize % N_CACHED;
        if self.cache[slot].0 != page {
            let bits = &mut self.bits;
            let at = *self.pages.entry(page).or_insert_with(|| {
                bits.push([0; 4]);
                bits.len() as u32 - 1
            });
            self.cache[slot] = (page, at);
        }
        &mut self.bits[self.cache[slot].1 as usize]
    }

    /// Adds all of another set.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (&page, &at) in &other.pages {
            let bits = self.page(page);
            for (word, more) in bits.iter_mut().zip(other.bits[at as usize]) {
                *word |= more;
            }
        }
    }

    /// An address that is in both.
    pub(crate) fn meets(&self, other: &Self) -> Option<u64> {
        let (few, many) = if self.pages.len() <= other.pages.len() { (self, other) } else { (other, self) };
        few.pages.iter().find_map(|(page, &at)| {
            let theirs = many.bits[*many.pages.get(page)? as usize];
            let common = few.bits[at as usize].iter().zip(theirs).map(|(one, other)| one & other);
            let (word, bits) = common.enumerate().find(|(_, bits)| *bits != 0)?;
            Some((page << PAGE_BITS) + ((word as u64 * 64 + u64::from(bits.trailing_zeros())) << SECTOR_BITS))
        })
    }

    /// Bytes in the set, in whole sectors.
    pub(crate) fn bytes(&self) -> u64 {
        let sectors: u32 = self.bits.iter().flatten().map(|word| word.count_ones()).sum();
        u64::from(sectors) << SECTOR_BITS
    }

    /// Whether nothing was touched.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_over_pages_are_counted_in_sectors() {
        let touched = Touched::of((1 << PAGE_BITS) - 1, 2);
        assert_eq!(touched.bytes(), 64);
        assert_eq!(Touched::of(0, 3 << PAGE_BITS).bytes(), 3 << PAGE_BITS);
    }

    #[test]
    fn sets_meet_where_they_share_a_sector() {
        let one = Touched::of(1000, 100);
        assert_eq!(one.meets(&Touched::of(1095, 5)), Some(1088));
        assert_eq!(one.meets(&Touched::of(1120, 5)), None);
        let mut both = Touched::of(1 << 20, 4);
        both.merge(&one);
        assert_eq!(both.meets(&Touched::of(1 << 20, 1)), Some(1 << 20));
    }
}
