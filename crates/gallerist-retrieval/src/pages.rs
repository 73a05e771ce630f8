//! Memory that is read in no order: large pages for it, and asking for it ahead.

/// What is smaller is not worth a call.
const LEAST_BYTES: usize = 4 << 20;

/// Asks the system for large pages behind all that `values` has room for, where it gives them on
/// request (Linux: 2 MiB in place of 4 KiB; `/sys/kernel/mm/transparent_hugepage/enabled` says
/// `madvise`). Then random reads miss the table of addresses less often, and memory is cleared with
/// fewer faults. To be called before the memory is written for the first time.
pub(crate) fn prefer_large<T>(values: &mut Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    if bytes < LEAST_BYTES {
        return;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sysconf reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page @ 1..) = usize::try_from(page) else { return };
        let first = values.as_mut_ptr().cast::<u8>();
        let skipped = first.align_offset(page);
        let whole = bytes.saturating_sub(skipped) / page * page;
        // SAFETY: the range lies within the vector's own memory, and the advice changes what stands
        // behind the addresses, never what is read from them. Where it is refused nothing is lost.
        unsafe { libc::madvise(first.wrapping_add(skipped).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_vector_stays() {
        for room in [0, 1000, 3_000_000] {
            let mut values: Vec<u32> = Vec::with_capacity(room);
            values.extend(0..room as u32 / 2);
            prefer_large(&mut values);
            values.extend(room as u32 / 2..room as u32);
            assert!(values.iter().copied().eq(0..room as u32));
        }
    }
}
