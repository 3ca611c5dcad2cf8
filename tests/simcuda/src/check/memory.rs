//! What memory a kernel may reach.

/// Addresses that a kernel may read and write, as they were when it was launched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    /// First address and the one after the last, sorted, none overlapping.
    regions: Vec<(u64, u64)>,
}

impl Map {
    /// A map of these regions.
    pub(crate) fn new(mut regions: Vec<(u64, u64)>) -> Self {
        regions.sort_unstable();
        Self { regions }
    }

    /// Whether all bytes from `begin` to before `end` lie in one region. `hint` is where the last one was found.
    #[inline]
    pub(crate) fn covers(&self, hint: &mut usize, begin: u64, end: u64) -> bool {
        if self.regions.get(*hint).is_some_and(|&(first, last)| first <= begin && end <= last) {
            return true;
        }
        let at = self.regions.partition_point(|&(first, _)| first <= begin);
        if at == 0 || end > self.regions[at - 1].1 {
            return false;
        }
        *hint = at - 1;
        true
    }

    /// What an address outside of all regions is nearest to.
    pub(crate) fn nearest(&self, address: u64) -> String {
        let at = self.regions.partition_point(|&(first, _)| first <= address);
        match at.checked_sub(1).map(|at| self.regions[at]) {
            Some((first, end)) if address - first < (end - first).saturating_mul(2).max(1 << 20) => {
                format!("{} bytes into an allocation of {}", address - first, end - first)
            }
            _ => "near no allocation".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_must_lie_in_one_region() {
        let map = Map::new(vec![(200, 300), (100, 200)]);
        let mut hint = 0;
        assert!(map.covers(&mut hint, 100, 200));
        assert!(map.covers(&mut hint, 299, 300));
        assert!(!map.covers(&mut hint, 199, 201));
        assert!(!map.covers(&mut hint, 99, 101));
        assert!(!map.covers(&mut hint, 300, 301));
    }
}
