//! A library for `LD_PRELOAD` that lets one operation on a file fail, or kills the process there.
//!
//! `tests/faults/main.rs` compiles it and describes the environment variables. It counts what changes a file or a folder
//! below `FAULT_DIR`: creating, writing, truncating, syncing and renaming.

#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicI64, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn strlen(text: *const c_char) -> usize;
    fn strncmp(a: *const c_char, b: *const c_char, n: usize) -> c_int;
    fn atol(text: *const c_char) -> c_long;
    fn raise(signal: c_int) -> c_int;
    fn readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> isize;
    fn __errno_location() -> *mut c_int;
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { abort() }
}

/// The next definition of a function after this library's.
macro_rules! real {
    ($name:literal, $type:ty) => {{
        // SAFETY: the C library defines the function with this signature; -1 is RTLD_NEXT.
        unsafe {
            let found = dlsym(-1isize as *mut c_void, concat!($name, "\0").as_ptr().cast());
            core::mem::transmute::<*mut c_void, $type>(found)
        }
    }};
}

const O_CREAT: c_int = 0o100;
const SIGKILL: c_int = 9;
const EIO: c_int = 5;
const ENOSPC: c_int = 28;

static COUNT: AtomicI64 = AtomicI64::new(0);

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Pass,
    Fail(c_int),
    KillBefore,
    KillAfter,
    /// A part of a write, then the kill.
    KillWithin,
}

fn variable(name: &'static [u8]) -> *const c_char {
    // SAFETY: the name ends with 0. Nothing in the program changes the environment.
    unsafe { getenv(name.as_ptr().cast()) }
}

/// Whether the path, which ends with 0, is below FAULT_DIR. A relative one is, because the process works there.
fn is_watched(path: *const c_char) -> bool {
    let folder = variable(b"FAULT_DIR\0");
    // SAFETY: both end with 0, so that the first byte is readable.
    !folder.is_null() && unsafe { *path as u8 != b'/' || strncmp(path, folder, strlen(folder)) == 0 }
}

fn is_watched_file(fd: c_int) -> bool {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let (mut digits, mut rest) = ([0u8; 10], fd.max(0));
    let mut count = 0;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for at in 0..count {
        link[14 + at] = digits[count - 1 - at];
    }
    let mut target = [0 as c_char; 4096];
    // SAFETY: the buffer is larger than the size, so that it ends with 0.
    let length = unsafe { readlink(link.as_ptr().cast(), target.as_mut_ptr(), target.len() - 1) };
    // Of pipes and sockets, this is no path.
    length > 0 && target[0] as u8 == b'/' && is_watched(target.as_ptr())
}

/// What happens to the next operation.
fn next() -> Action {
    let now = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    let (at, kind) = (variable(b"FAULT_AT\0"), variable(b"FAULT_KIND\0"));
    if at.is_null() || kind.is_null() {
        return Action::Pass;
    }
    // SAFETY: both end with 0, and the first byte of a text is readable.
    let (at, kind) = unsafe { (atol(at) as i64, *kind as u8) };
    match kind {
        // A full disk stays full.
        b'f' if now >= at => Action::Fail(ENOSPC),
        b'e' if now == at => Action::Fail(EIO),
        b'b' if now == at => Action::KillBefore,
        b'a' if now == at => Action::KillAfter,
        b'w' if now == at => Action::KillWithin,
        _ => Action::Pass,
    }
}

fn kill() {
    // SAFETY: ends the process.
    unsafe { raise(SIGKILL) };
}

/// Does an operation that has no parts.
fn whole<T: From<i8>>(operation: impl FnOnce() -> T) -> T {
    match next() {
        Action::Pass => operation(),
        Action::Fail(error) => {
            // SAFETY: the address of this thread's error number.
            unsafe { *__errno_location() = error };
            T::from(-1)
        }
        Action::KillBefore => {
            kill();
            T::from(-1)
        }
        Action::KillAfter | Action::KillWithin => {
            let done = operation();
            kill();
            done
        }
    }
}

/// Does a write, of which a kill leaves the first half; `operation` gets the number of bytes.
fn in_parts(size: usize, operation: impl Fn(usize) -> isize) -> isize {
    match next() {
        Action::KillWithin => {
            operation(size / 2);
            kill();
            -1
        }
        Action::Pass => operation(size),
        Action::Fail(error) => {
            // SAFETY: the address of this thread's error number.
            unsafe { *__errno_location() = error };
            -1
        }
        Action::KillBefore => {
            kill();
            -1
        }
        Action::KillAfter => {
            let done = operation(size);
            kill();
            done
        }
    }
}

// SAFETY of all functions below: they have the signatures of the C library's, and hand the caller's arguments on.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, size: usize) -> isize {
    let real = real!("write", unsafe extern "C" fn(c_int, *const c_void, usize) -> isize);
    match is_watched_file(fd) {
        true => in_parts(size, |size| unsafe { real(fd, bytes, size) }),
        false => unsafe { real(fd, bytes, size) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, size: usize, offset: i64) -> isize {
    let real = real!("pwrite64", unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize);
    match is_watched_file(fd) {
        true => in_parts(size, |size| unsafe { real(fd, bytes, size, offset) }),
        false => unsafe { real(fd, bytes, size, offset) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    let real = real!("writev", unsafe extern "C" fn(c_int, *const c_void, c_int) -> isize);
    match is_watched_file(fd) {
        true => whole(|| unsafe { real(fd, parts, count) }),
        false => unsafe { real(fd, parts, count) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    size: usize,
    flags: u32,
) -> isize {
    type Copy = unsafe extern "C" fn(c_int, *mut i64, c_int, *mut i64, usize, u32) -> isize;
    let real = real!("copy_file_range", Copy);
    match is_watched_file(to) {
        true => in_parts(size, |size| unsafe { real(from, from_offset, to, to_offset, size, flags) }),
        false => unsafe { real(from, from_offset, to, to_offset, size, flags) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    let real = real!("fsync", unsafe extern "C" fn(c_int) -> c_int);
    match is_watched_file(fd) {
        true => whole(|| unsafe { real(fd) }),
        false => unsafe { real(fd) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    let real = real!("fdatasync", unsafe extern "C" fn(c_int) -> c_int);
    match is_watched_file(fd) {
        true => whole(|| unsafe { real(fd) }),
        false => unsafe { real(fd) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, length: i64) -> c_int {
    let real = real!("ftruncate64", unsafe extern "C" fn(c_int, i64) -> c_int);
    match is_watched_file(fd) {
        true => whole(|| unsafe { real(fd, length) }),
        false => unsafe { real(fd, length) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let real = real!("rename", unsafe extern "C" fn(*const c_char, *const c_char) -> c_int);
    match is_watched(to) {
        true => whole(|| unsafe { real(from, to) }),
        false => unsafe { real(from, to) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // The third argument of a variadic call is where the third argument of this one is, on Linux for x86-64 and AArch64.
    let real = real!("open64", unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int);
    match flags & O_CREAT != 0 && is_watched(path) {
        true => whole(|| unsafe { real(path, flags, mode) }),
        false => unsafe { real(path, flags, mode) },
    }
}

/// Writes the number of operations to the file FAULT_COUNT when the process ends.
extern "C" fn report() {
    let path = variable(b"FAULT_COUNT\0");
    if path.is_null() {
        return;
    }
    let open = real!("open64", unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int);
    let write = real!("write", unsafe extern "C" fn(c_int, *const c_void, usize) -> isize);
    let count = COUNT.load(Ordering::SeqCst).to_ne_bytes();
    // SAFETY: the path ends with 0, and the bytes are there. 0o1101: write only, create, truncate.
    unsafe { write(open(path, 0o1101, 0o600u32), count.as_ptr().cast(), count.len()) };
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = report;
