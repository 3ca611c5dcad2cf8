//! A slice that several tasks write at once, each its own part.
use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that hands out disjoint parts to concurrent tasks.
pub(super) struct SharedSlice<'a, T> {
    at: *mut T,
    len: usize,
    lent: PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out parts of a `&mut [T]`, and `part`'s contract keeps them disjoint.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        SharedSlice { at: slice.as_mut_ptr(), len: slice.len(), lent: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// While the part lives, no other part that overlaps it does.
    #[expect(clippy::mut_from_ref, reason = "disjoint parts, see the contract")]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice (checked); disjoint by contract.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(range.start), range.len()) }
    }

    /// The element at `start`, as a pointer for kernels that write with a stride.
    pub(super) fn ptr(&self, start: usize) -> *mut T {
        assert!(start <= self.len, "{start} of {}", self.len);
        // SAFETY: inside the slice or one past it (checked).
        unsafe { self.at.add(start) }
    }
}
