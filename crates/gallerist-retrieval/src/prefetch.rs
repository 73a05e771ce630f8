//! Asking for memory ahead that is read in no order.

/// Asks the processor for values before they are needed.
#[inline]
pub(crate) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        for line in values.chunks((LINE / size_of::<T>().max(1)).max(1)) {
            // SAFETY: a prefetch reads nothing and faults nowhere; the address is that of a value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
