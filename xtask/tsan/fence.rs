//! Fences for the runtime of ThreadSanitizer, which ignores them.
//!
//! `Arc` decrements its counter with release ordering and then runs an acquire fence; the standard library replaces the
//! fence by a load when it is compiled with the sanitizer, which the one that comes with the compiler is not. Without the
//! fence, the last owner's drop of the value seems to race with earlier uses of it. Here an acquire fence acquires what
//! was released to the counter that the thread decremented last, as the memory model says. That is less than a fence
//! does (it acquires from all atomics that the thread has read), so it hides no race.
//!
//! The functions of the runtime are renamed to `__real_…`; these take their names: see `src/tsan/sysroot.rs`.

#![no_std]
#![feature(thread_local)]

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// `__tsan_memory_order_acquire`; consume is below it, release above.
const ACQUIRE: c_int = 2;
const RELEASE: c_int = 3;

/// The counter that this thread decremented last; null if a fence followed.
#[thread_local]
static LAST: Cell<*mut c_void> = Cell::new(null_mut());

unsafe extern "C" {
    fn __tsan_acquire(address: *mut c_void);
    fn __real___tsan_atomic_thread_fence(order: c_int);
    fn __real___tsan_atomic64_fetch_sub(address: *mut u64, value: u64, order: c_int) -> u64;
}

/// # Safety
///
/// As `AtomicU64::fetch_sub`: the sanitizer passes the address of an atomic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tsan_atomic64_fetch_sub(address: *mut u64, value: u64, order: c_int) -> u64 {
    LAST.set(address.cast());
    // SAFETY: the arguments are those of the caller.
    unsafe { __real___tsan_atomic64_fetch_sub(address, value, order) }
}

/// # Safety
///
/// None: the address is only a key, and may be that of memory that was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tsan_atomic_thread_fence(order: c_int) {
    let address = LAST.replace(null_mut());
    if order >= ACQUIRE && order != RELEASE && !address.is_null() {
        // SAFETY: the runtime does not read what is stored at the address.
        unsafe { __tsan_acquire(address) };
    }
    // SAFETY: a fence can be run anywhere.
    unsafe { __real___tsan_atomic_thread_fence(order) };
}
