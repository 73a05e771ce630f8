//! Huge pages for large buffers, prefetch, and memory that the allocator keeps.
//!
//! A program that reads much memory with strides or in random order spends as much time on address translation as on
//! reading: the CPU caches the translation of a few thousand pages (TLB), and a page has 4 KiB. Most Linux systems give
//! huge pages of 2 MiB to programs that ask for them.

/// The size of a huge page. Smaller buffers do not ask for one.
const HUGE_PAGE: usize = 2 << 20;

/// Asks the system for huge pages for the whole capacity of `values` (Linux: 2 MiB instead of 4 KiB, if
/// `/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` or `always`).
///
/// Call it before the memory is written for the first time: clearing it then also takes fewer page faults. On other
/// systems, and if the system refuses, nothing happens.
///
/// ```
/// let mut values: Vec<f32> = Vec::with_capacity(10_000_000);
/// gallerist_util::memory::prefer_large_pages(&mut values);
/// values.resize(10_000_000, 0.0);
/// ```
pub fn prefer_large_pages<T>(values: &mut Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    if bytes < HUGE_PAGE {
        return;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sysconf takes a number, reads a constant of the system and writes no memory of the program.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page @ 1..) = usize::try_from(page) else { return };
        // All pages that hold a part of the vector, so that parts of several vectors can become one huge page.
        let first = values.as_mut_ptr().cast::<u8>();
        let before = first.addr() % page;
        let length = (before + bytes).next_multiple_of(page);
        // SAFETY: every page of the range holds memory of the vector, so it is mapped. The advice changes the size of the
        // pages, never the values that are read, neither in the vector nor in other memory of the same pages. A refusal
        // changes nothing.
        unsafe { libc::madvise(first.wrapping_sub(before).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

/// Limits the arenas of glibc's allocator to one for each hardware thread, instead of eight.
///
/// Threads take turns with their arenas, and an arena keeps freed memory: where large buffers come and go on many threads, each
/// arena grows to the largest number that it ever held. Call it before threads are started; arenas that exist stay. Does nothing
/// with other C libraries.
pub fn limit_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let most = libc::c_int::try_from(threads).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two numbers and changes a limit under the lock of the allocator; no memory of the program
        // changes. A refusal changes nothing.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
}

/// Gives the pages of freed memory that glibc's allocator keeps back to the system. Does nothing with other C libraries.
///
/// It takes the lock of each arena in turn, for some milliseconds where much is free; the pages are zeroed when they are used
/// again. So call it now and then, not after every buffer.
pub fn release_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: malloc_trim takes a number, may be called by any thread, and gives back only pages without allocated memory.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// A cache of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The first-level cache, the smallest and fastest.
    First,
    /// The second-level cache.
    Second,
}

/// Prefetches values into a cache. Does nothing on CPUs other than x86-64.
///
/// ```
/// gallerist_util::memory::prefetch(&[1.0, 2.0], gallerist_util::memory::Cache::First);
/// ```
#[inline(always)]
pub fn prefetch<T>(values: &[T], cache: Cache) {
    const LINE: usize = 64;
    for line in values.chunks((LINE / size_of::<T>().max(1)).max(1)) {
        prefetch_line(line.as_ptr(), cache);
    }
}

/// Prefetches the cache line of an address, which may be anywhere, into a cache. Does nothing on CPUs other than x86-64.
///
/// ```
/// let value = 1.0;
/// gallerist_util::memory::prefetch_line(&value, gallerist_util::memory::Cache::First);
/// ```
#[inline(always)]
pub fn prefetch_line<T>(address: *const T, cache: Cache) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let address = address.cast();
        // SAFETY: a prefetch is a hint: it reads and changes no value, and causes no fault, whatever the address. The
        // instruction belongs to SSE, which every x86-64 CPU has.
        unsafe {
            match cache {
                Cache::First => _mm_prefetch::<_MM_HINT_T0>(address),
                Cache::Second => _mm_prefetch::<_MM_HINT_T1>(address),
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, cache);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_vector_are_unchanged() {
        for room in [0, 1000, 3_000_000] {
            let mut values: Vec<u32> = Vec::with_capacity(room);
            values.extend(0..room as u32 / 2);
            prefer_large_pages(&mut values);
            values.extend(room as u32 / 2..room as u32);
            assert!(values.iter().copied().eq(0..room as u32));
        }
    }

    /// `/proc/self/smaps` marks the address ranges for which huge pages were requested (`hg`). An emulator of another CPU
    /// does not pass the request on.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[test]
    fn huge_pages_are_requested() {
        let requested = |values: &Vec<u8>| {
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
        assert!(!requested(&values));
        prefer_large_pages(&mut values);
        assert!(requested(&values));
    }
}
