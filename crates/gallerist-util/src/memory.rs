//! Large pages for large buffers, and asking for values ahead.
//!
//! Where much memory is read with strides or in no order, looking up addresses costs as much as reading: a
//! page of 4 KiB has one entry in the processor's table of addresses, and the table has a few thousand. Most Linux
//! systems give pages of 2 MiB to programs that ask for them.

/// What is smaller gets no large page.
const LEAST_BYTES: usize = 2 << 20;

/// Asks the system for large pages behind all that `values` has room for, where it gives them on
/// request (Linux: 2 MiB in place of 4 KiB; `/sys/kernel/mm/transparent_hugepage/enabled` says `madvise` or `always`).
/// To be called before the memory is written for the first time: then it is also cleared with fewer faults.
///
/// Elsewhere, and where the system refuses, nothing happens.
///
/// ```
/// let mut values: Vec<f32> = Vec::with_capacity(10_000_000);
/// gallerist_util::memory::prefer_large_pages(&mut values);
/// values.resize(10_000_000, 0.0);
/// ```
pub fn prefer_large_pages<T>(values: &mut Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    if bytes < LEAST_BYTES {
        return;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sysconf reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page @ 1..) = usize::try_from(page) else { return };
        // All pages that hold a part of the vector: pieces of several vectors may then become one large page.
        let first = values.as_mut_ptr().cast::<u8>();
        let before = first.addr() % page;
        let length = (before + bytes).next_multiple_of(page);
        // SAFETY: every page of the range holds memory of the vector, so it is mapped; and the advice changes what
        // stands behind the addresses, never what is read from them, not even of memory beside the vector. Where it is
        // refused nothing is lost.
        unsafe { libc::madvise(first.wrapping_sub(before).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

/// A cache of the processor, by its distance from the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The nearest and smallest.
    First,
    /// The one behind it.
    Second,
}

/// Asks the processor for values before they are needed. Where it cannot be asked (other processors than x86-64) nothing
/// happens.
///
/// ```
/// gallerist_util::memory::prefetch(&[1.0, 2.0], gallerist_util::memory::Cache::First);
/// ```
#[inline(always)]
pub fn prefetch<T>(values: &[T], cache: Cache) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        const LINE: usize = 64;
        for line in values.chunks((LINE / size_of::<T>().max(1)).max(1)) {
            let address = line.as_ptr().cast();
            // SAFETY: a prefetch reads nothing and faults nowhere; the address is that of a value.
            unsafe {
                match cache {
                    Cache::First => _mm_prefetch::<_MM_HINT_T0>(address),
                    Cache::Second => _mm_prefetch::<_MM_HINT_T1>(address),
                }
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (values, cache);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_vector_stays() {
        for room in [0, 1000, 3_000_000] {
            let mut values: Vec<u32> = Vec::with_capacity(room);
            values.extend(0..room as u32 / 2);
            prefer_large_pages(&mut values);
            values.extend(room as u32 / 2..room as u32);
            assert!(values.iter().copied().eq(0..room as u32));
        }
    }

    /// The system tells of every range of addresses whether large pages were asked for (`hg`). An emulator of another
    /// processor does not ask.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[test]
    fn the_system_is_asked() {
        let asks = |values: &Vec<u8>| {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let middle = values.as_ptr().addr() + values.capacity() / 2;
            let mut inside = false;
            for line in maps.lines() {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let range = range.and_then(|(first, last)| {
                    Some(usize::from_str_radix(first, 16).ok()?..usize::from_str_radix(last, 16).ok()?)
                });
                match (range, line.strip_prefix("VmFlags:")) {
                    (Some(range), _) => inside = range.contains(&middle),
                    (None, Some(flags)) if inside => return flags.split(' ').any(|flag| flag == "hg"),
                    _ => {}
                }
            }
            panic!("the vector is in no range of addresses")
        };
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let mut values: Vec<u8> = Vec::with_capacity(64 << 20);
        assert!(!asks(&values));
        prefer_large_pages(&mut values);
        assert!(asks(&values));
    }
}
