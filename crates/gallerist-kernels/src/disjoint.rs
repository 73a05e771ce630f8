//! A result that several threads write, each at elements of its own.

use std::marker::PhantomData;

/// A mutable slice that several threads share. The elements are reached through unsafe code only, whose callers prove
/// that no two threads access the same element at the same time.
pub(crate) struct Disjoint<'a, T = f32> {
    start: *mut T,
    len: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Disjoint<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Disjoint<'_, T> {}

// SAFETY: the safe methods of a `Disjoint` access no element. The unsafe ones, and every access through `as_mut_ptr`,
// demand of their caller that no other thread accesses the same elements meanwhile, and a `T` may be sent to any thread.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: a shared reference allows what a copy allows, and copies may be sent to other threads, as shown above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows `values` mutably until the last copy of the result is gone.
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        Self { start: values.as_mut_ptr(), len: values.len(), values: PhantomData }
    }

    /// Number of elements from [`Self::as_mut_ptr`] on.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The address of the first element. The next [`Self::len`] elements belong to the slice.
    pub(crate) fn as_mut_ptr(self) -> *mut T {
        self.start
    }

    /// The elements from `first` on.
    ///
    /// # Panics
    ///
    /// If there are fewer than `first` elements.
    pub(crate) fn starting_at(self, first: usize) -> Self {
        assert!(first <= self.len, "element {first} of {}", self.len);
        // `first` elements are inside the slice or end with it.
        Self { start: self.start.wrapping_add(first), len: self.len - first, values: PhantomData }
    }

    /// The `len` elements from `first` on.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these elements while the result is in use.
    ///
    /// # Panics
    ///
    /// If they are not all inside.
    pub(crate) unsafe fn slice(self, first: usize, len: usize) -> &'a mut [T] {
        let from = self.starting_at(first);
        assert!(len <= from.len, "{len} elements from {first} of {}", self.len);
        // SAFETY: the elements are inside the slice that `new` borrowed for 'a, as was just checked, and the caller
        // promises that nothing else accesses them.
        unsafe { std::slice::from_raw_parts_mut(from.start, len) }
    }

    /// The `len` elements from `first` on, to be read.
    ///
    /// # Safety
    ///
    /// Nothing writes these elements while the result is in use.
    ///
    /// # Panics
    ///
    /// If they are not all inside.
    pub(crate) unsafe fn read(self, first: usize, len: usize) -> &'a [T] {
        let from = self.starting_at(first);
        assert!(len <= from.len, "{len} elements from {first} of {}", self.len);
        // SAFETY: the elements are inside the slice that `new` borrowed for 'a, as was just checked, and the caller
        // promises that nothing writes them.
        unsafe { std::slice::from_raw_parts(from.start, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_write_elements_of_their_own() {
        let mut values = vec![0.0; 12];
        let shared = Disjoint::new(&mut values);
        std::thread::scope(|scope| {
            for task in 0..3 {
                scope.spawn(move || {
                    // SAFETY: the parts of different tasks do not overlap.
                    unsafe { shared.starting_at(4 * task).slice(0, 4) }.fill(task as f32);
                });
            }
        });
        assert_eq!(values, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "3 elements from 2 of 4")]
    fn a_part_outside_is_refused() {
        let mut values = [0.0; 4];
        // SAFETY: nothing else uses the values; the call panics.
        unsafe { Disjoint::new(&mut values).slice(2, 3) };
    }
}
