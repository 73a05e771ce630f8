//! A global allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator. It calls the function with the bytes that are allocated, and with a negative number where they are
/// freed. The function must not allocate.
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering};
/// use gallerist_testkit::allocator::Counting;
///
/// static HELD: AtomicI64 = AtomicI64::new(0);
///
/// #[global_allocator]
/// static COUNTING: Counting = Counting(|bytes| {
///     HELD.fetch_add(bytes, Ordering::Relaxed);
/// });
///
/// let before = HELD.load(Ordering::Relaxed);
/// let buffer = vec![1_u8; 1000];
/// assert_eq!(HELD.load(Ordering::Relaxed) - before, 1000);
/// drop(buffer);
/// assert_eq!(HELD.load(Ordering::Relaxed), before);
/// ```
pub struct Counting(pub fn(i64));

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        (self.0)(size as i64 - layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        (self.0)(-(layout.size() as i64));
        // SAFETY: as the caller's.
        unsafe { System.dealloc(old, layout) }
    }
}
