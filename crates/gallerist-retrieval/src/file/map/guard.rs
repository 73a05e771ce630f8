//! A handler of SIGBUS, so that a mapped file that is cut short does not end the process.
//!
//! The first map of a process installs a handler of SIGBUS. When a page of a [`Guard`]ed range
//! cannot be read, it maps zeros over it and over all that follows in the range, and the read
//! continues; [`Guard::lost`] reports it. libwayland handles the memory that it shares with its clients
//! in the same way. A SIGBUS of any other address goes to the previous handler.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A range of addresses in which SIGBUS is handled, for as long as this lives.
pub(super) struct Guard {
    range: &'static Range,
}

/// One guarded range. Ranges are never freed, because a handler may be reading them; a range that is
/// no longer needed is used again.
struct Range {
    /// Odd while `start` and `length` are being changed.
    version: AtomicUsize,
    start: AtomicUsize,
    /// 0 for a range that nobody uses.
    length: AtomicUsize,
    lost: AtomicBool,
    next: *const Range,
}

// SAFETY: `next` is set before the range is shared, and points to a range that is never freed.
unsafe impl Sync for Range {}

/// The ranges, the latest first.
static RANGES: AtomicPtr<Range> = AtomicPtr::new(ptr::null_mut());
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// The handler that was there before.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: it is written once, before the handler that reads it is installed; from then on it is only read.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::uninit()));

impl Guard {
    /// Handles SIGBUS in `length` bytes from the address `start`.
    ///
    /// # Safety
    ///
    /// The bytes are a private, read-only map of a file, which starts at a page and is not unmapped while the guard
    /// lives: the handler replaces its pages by zeros.
    pub(super) unsafe fn new(start: usize, length: usize) -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let _one_at_a_time = changing();
        let free = ranges().find(|range| range.length.load(Ordering::Acquire) == 0);
        let range = free.unwrap_or_else(|| {
            let next = RANGES.load(Ordering::Acquire);
            let range: &'static Range = Box::leak(Box::new(Range {
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                length: AtomicUsize::new(0),
                lost: AtomicBool::new(false),
                next,
            }));
            RANGES.store(ptr::from_ref(range).cast_mut(), Ordering::Release);
            range
        });
        range.lost.store(false, Ordering::Relaxed);
        // A file of no bytes is never read; its range must not look free all the same.
        range.set(start, length.max(1));
        Self { range }
    }

    /// True when a page could not be read.
    pub(super) fn lost(&self) -> bool {
        // What was read from the map was read before this: an acquiring load alone does not order earlier reads.
        fence(Ordering::SeqCst);
        self.range.lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without the lock another thread could take the range, whose length is 0 already, while its version is odd:
        // the versions of both changes would overlap, and the handler would miss the new bounds.
        let _one_at_a_time = changing();
        self.range.set(0, 0);
    }
}

/// The lock of every change of a range. The handler never takes it.
fn changing() -> MutexGuard<'static, ()> {
    static CHANGES: Mutex<()> = Mutex::new(());
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Range {
    /// Changes the bounds. Only a thread that holds the lock of [`changing`] may.
    fn set(&self, start: usize, length: usize) {
        self.version.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Replaces pages by zeros. Another thread can read the zeros as soon as they are mapped, and must then find `lost` set.
    fn lose(&self, map_zeros: impl FnOnce() -> bool) -> bool {
        self.lost.store(true, Ordering::SeqCst);
        map_zeros()
    }

    /// Start and end. Nothing while another thread is changing them: it is then not the range of the
    /// thread that asks, which is reading from its own.
    fn bounds(&self) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (start, length) = (self.start.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        same.then_some((start, start + length))
    }
}

fn ranges() -> impl Iterator<Item = &'static Range> {
    let mut next = RANGES.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: every pointer in the list is null or to a range that is never freed.
        let range = unsafe { next.as_ref() }?;
        next = range.next;
        Some(range)
    })
}

fn install() {
    // Miri knows neither signals nor `sigaction`; it runs the list of ranges.
    if cfg!(miri) {
        return;
    }
    // SAFETY: `sysconf` reads a constant. All bytes of a `sigaction` may be zero, and the pointers given to the system
    // are to valid values. The handler makes atomic accesses and calls `mmap`, `sigaction` and `raise`; it takes no lock
    // and allocates nothing, so it may interrupt any code. `PREVIOUS` is written before the handler, its only reader, is
    // installed, and by one thread, because `Once` runs this function once.
    unsafe {
        if let Ok(size @ 1..) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
            PAGE.store(size, Ordering::Release);
        }
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return;
        }
        (*PREVIOUS.0.get()).write(before);
        fence(Ordering::SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        // Where it cannot be installed, SIGBUS ends the process, as it did before.
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

/// Only atomic loads and stores and system calls: nothing that a signal could have interrupted.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system gives a valid `info`; of a fault it holds the address.
    let (address, sent) = unsafe { ((*info).si_addr().addr(), (*info).si_code <= 0) };
    let end_of = |range: &'static Range| {
        let (start, end) = range.bounds()?;
        (start..end).contains(&address).then_some((range, end))
    };
    if !sent && let Some((range, end)) = ranges().find_map(end_of) {
        let page = PAGE.load(Ordering::Acquire);
        let first = address / page * page;
        // SAFETY: the bounds are those of a map, by the promise of `Guard::new`: its first byte starts a page, and
        // nothing else is in its last page. The address is in them, so `first..end`, rounded up to whole pages, is in
        // the map. The interrupted thread reads from this map, so it borrows the `FileMap`: the map is not unmapped
        // meanwhile, and the bounds do not change, because only `Guard::new` and the drop of a guard change them. The
        // map is read-only, so zeros replace nothing that a thread has written. `mmap` is a system call and takes no
        // lock of this process.
        let map_zeros = || unsafe {
            libc::mmap(
                ptr::without_provenance_mut(first),
                end - first,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED,
                -1,
                0,
            ) != libc::MAP_FAILED
        };
        if range.lose(map_zeros) {
            return;
        }
    }
    // SAFETY: `PREVIOUS` was written before this handler was installed and holds a valid action. After a fault, the
    // instruction is repeated when this returns, and the previous handler gets the signal; a signal that was sent is
    // sent again.
    unsafe {
        libc::sigaction(libc::SIGBUS, (*PREVIOUS.0.get()).as_ptr(), ptr::null_mut());
        if sent {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard of addresses that no test reads.
    fn guard(start: usize, length: usize) -> Guard {
        // SAFETY: the handler maps zeros only after a fault in the range, and nothing reads there.
        unsafe { Guard::new(start, length) }
    }

    #[test]
    fn a_range_is_used_again_and_two_at_a_time_are_two() {
        let (a, b) = (guard(4096, 10), guard(8192, 20));
        assert!(!ptr::eq(a.range, b.range));
        assert_eq!((a.range.bounds(), b.range.bounds()), (Some((4096, 4106)), Some((8192, 8212))));
        drop(a);
        let before = ranges().count();
        let again: Vec<Guard> = (0..50).map(|at| guard(at * 4096, 1)).collect();
        drop(again);
        let after = ranges().count();
        (0..50).for_each(|at| drop(guard(at * 4096, 1)));
        assert!(after > before && ranges().count() == after, "freed ranges are used again");
    }

    #[test]
    fn a_range_is_lost_before_its_pages_are_zeros() {
        let guard = guard(4096, 10);
        assert!(!guard.lost());
        assert!(guard.range.lose(|| guard.lost()), "a thread that reads zeros would find nothing lost");
    }

    #[test]
    fn ranges_that_come_and_go_in_several_threads_keep_their_bounds() {
        std::thread::scope(|scope| {
            for thread in 1..4 {
                scope.spawn(move || {
                    for round in 1..if cfg!(miri) { 20 } else { 2000 } {
                        let (start, length) = (thread << 40 | round << 12, round);
                        let guard = guard(start, length);
                        assert_eq!(guard.range.bounds(), Some((start, start + length)));
                        assert!(!guard.lost());
                    }
                });
            }
        });
    }
}
