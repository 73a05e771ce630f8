//! A library for `LD_PRELOAD` that lets one operation on a file fail, or kills the process there.
//!
//! `tests/faults/main.rs` compiles it and describes the environment variables. It counts what changes a file or a folder
//! below `FAULT_DIR`: creating or opening to write, writing, truncating, syncing, renaming, removing. The count is in the file
//! `FAULT_COUNT`, which all processes of a command share. With `FAULT_RECORD`, every operation is appended to that file:
//! `power.rs` reads it. Kinds of faults that begin with `map` take place at a mapping of a file instead.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn strlen(text: *const c_char) -> usize;
    fn strncmp(a: *const c_char, b: *const c_char, n: usize) -> c_int;
    fn atol(text: *const c_char) -> c_long;
    fn raise(signal: c_int) -> c_int;
    fn readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> isize;
    fn fstat64(fd: c_int, found: *mut u64) -> c_int;
    fn stat64(path: *const c_char, found: *mut u64) -> c_int;
    fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn close(fd: c_int) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// The next definition of a function after this library's.
macro_rules! real {
    ($name:literal, $type:ty) => {{
        // SAFETY: the C library defines the function with this signature; -1 is RTLD_NEXT.
        unsafe {
            let found = dlsym(-1isize as *mut c_void, concat!($name, "\0").as_ptr().cast());
            std::mem::transmute::<*mut c_void, $type>(found)
        }
    }};
}

const O_CREAT: c_int = 0o100;
const O_TRUNC: c_int = 0o1000;
const O_APPEND: c_int = 0o2000;
/// The bits for writing only, and for reading and writing.
const O_WRITE: c_int = 0o3;
/// The working directory, for the calls of the kind `…at`.
const AT_FDCWD: c_int = -100;
const SIGKILL: c_int = 9;
const EIO: c_int = 5;
const EACCES: c_int = 13;
const ENOSPC: c_int = 28;
const EROFS: c_int = 30;
const ENOSYS: c_int = 38;

/// The count of this process, if there is no file for it.
static COUNT: AtomicI64 = AtomicI64::new(0);
/// The count of all processes, in the mapped file.
static SHARED: AtomicPtr<AtomicI64> = AtomicPtr::new(std::ptr::null_mut());
/// Files that were mapped.
static MAPS: AtomicI64 = AtomicI64::new(0);
/// One operation at a time is recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

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
    let target = path_of(fd);
    // Of pipes and sockets, this is no path.
    target[0] as u8 == b'/' && is_watched(target.as_ptr())
}

/// The path of an open file, which ends with 0.
fn path_of(fd: c_int) -> [c_char; 4096] {
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
    unsafe { readlink(link.as_ptr().cast(), target.as_mut_ptr(), target.len() - 1) };
    target
}

/// The counter: in the file FAULT_COUNT, which has 8 bytes.
fn count() -> &'static AtomicI64 {
    let shared = SHARED.load(Ordering::Acquire);
    if !shared.is_null() {
        // SAFETY: the address of a map that is never unmapped.
        return unsafe { &*shared };
    }
    let path = variable(b"FAULT_COUNT\0");
    if path.is_null() {
        return &COUNT;
    }
    let (open, map) = (real!("open64", Open), real!("mmap64", Map));
    // SAFETY: the path ends with 0. 2: read and write. 3, 1: a shared map to read and write; pages are aligned.
    unsafe {
        let fd = open(path, 2, 0);
        let mapped = map(std::ptr::null_mut(), 8, 3, 1, fd, 0);
        close(fd);
        if fd < 0 || mapped as isize == -1 {
            std::process::abort();
        }
        SHARED.store(mapped.cast(), Ordering::Release);
        &*mapped.cast()
    }
}

/// What happens to the next operation.
fn next() -> Action {
    let now = count().fetch_add(1, Ordering::SeqCst) + 1;
    let (at, kind) = (variable(b"FAULT_AT\0"), variable(b"FAULT_KIND\0"));
    if at.is_null() || kind.is_null() {
        return Action::Pass;
    }
    // SAFETY: both end with 0, and the first byte of a text is readable.
    let (at, kind) = unsafe { (atol(at) as i64, *kind as u8) };
    match kind {
        // A full disk stays full.
        b'f' if now >= at => Action::Fail(ENOSPC),
        b'r' if now >= at => Action::Fail(EROFS),
        b'd' if now >= at => Action::Fail(EACCES),
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

/// A path as text.
struct Path(*const c_char);

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: paths end with 0.
        let path = unsafe { std::ffi::CStr::from_ptr(self.0) };
        f.write_str(path.to_str().map_err(|_| std::fmt::Error)?)
    }
}

/// Where an inode's number is in what the system says of a file, on x86-64 and AArch64.
const INODE: usize = 1;

fn inode(fd: c_int) -> u64 {
    let mut found = [0u64; 32];
    // SAFETY: the buffer is larger than what is written.
    unsafe { fstat64(fd, found.as_mut_ptr()) };
    found[INODE]
}

fn inode_of(path: *const c_char) -> Option<u64> {
    let mut found = [0u64; 32];
    // SAFETY: the path ends with 0, and the buffer is larger than what is written.
    (unsafe { stat64(path, found.as_mut_ptr()) } == 0).then_some(found[INODE])
}

/// Waits until no other thread records.
fn begin_to_record() {
    while RECORDING.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Does an operation and appends what `record` says of its result to FAULT_RECORD.
fn recorded<T: Copy + Into<i64>>(operation: impl FnOnce() -> T, record: impl FnOnce(T) -> Vec<u8>) -> T {
    let path = variable(b"FAULT_RECORD\0");
    if path.is_null() {
        return operation();
    }
    begin_to_record();
    let done = operation();
    if done.into() >= 0 {
        let bytes = record(done);
        let (open, write) = (real!("open64", Open), real!("write", Write));
        // SAFETY: the path ends with 0, and the bytes are there. 1: write only.
        unsafe {
            let fd = open(path, 1 | O_CREAT | O_APPEND, 0o600u32);
            // One call, because other processes append, too.
            if write(fd, bytes.as_ptr().cast(), bytes.len()) != bytes.len() as isize {
                std::process::abort();
            }
            close(fd);
        }
    }
    RECORDING.store(false, Ordering::Release);
    done
}

/// Runs when the process ends, while its other threads still work: an operation in progress is recorded, and no further
/// one begins.
#[used]
#[unsafe(link_section = ".fini_array")]
static LAST: extern "C" fn() = {
    extern "C" fn last() {
        begin_to_record();
    }
    last
};

/// Writes to a watched file.
fn written(
    fd: c_int,
    bytes: *const c_void,
    size: usize,
    offset: Option<i64>,
    call: impl Fn(usize) -> isize,
) -> isize {
    in_parts(size, |size| {
        recorded(
            || call(size) as i64,
            |done| {
                // SAFETY: moves nothing. 1: from the current place.
                let at = offset.unwrap_or_else(|| unsafe { lseek64(fd, 0, 1) } - done);
                // SAFETY: the caller's bytes, of which `done` were written.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), done as usize) };
                [format!("W {} {at} {done}\n", inode(fd)).as_bytes(), bytes].concat()
            },
        ) as isize
    })
}

/// Opens a file in a watched folder to create it or to write to it.
fn opened(path: *const c_char, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    whole(|| {
        let before = inode_of(path);
        recorded(call, |fd| match before {
            None => format!("C {} {}\n", inode(fd), Path(path)).into_bytes(),
            Some(inode) if flags & O_TRUNC != 0 => format!("T {inode} 0\n").into_bytes(),
            Some(_) => Vec::new(),
        })
    })
}

// SAFETY of all functions below: they have the signatures of the C library's, and hand the caller's arguments on.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, size: usize) -> isize {
    let real = real!("write", Write);
    match is_watched_file(fd) {
        true => written(fd, bytes, size, None, |size| unsafe { real(fd, bytes, size) }),
        false => unsafe { real(fd, bytes, size) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, size: usize, offset: i64) -> isize {
    let real = real!("pwrite64", unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize);
    match is_watched_file(fd) {
        true => written(fd, bytes, size, Some(offset), |size| unsafe { real(fd, bytes, size, offset) }),
        false => unsafe { real(fd, bytes, size, offset) },
    }
}

#[repr(C)]
pub struct iovec {
    base: *const c_void,
    length: usize,
}

/// Writes the first part that is not empty: a call may write less than it was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> isize {
    let real = real!("writev", unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize);
    if !is_watched_file(fd) {
        return unsafe { real(fd, parts, count) };
    }
    let parts = unsafe { std::slice::from_raw_parts(parts, count.max(0) as usize) };
    match parts.iter().find(|part| part.length > 0) {
        Some(part) => unsafe { write(fd, part.base, part.length) },
        None => 0,
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
        // The caller reads and writes instead.
        true => unsafe {
            *__errno_location() = ENOSYS;
            -1
        },
        false => unsafe { real(from, from_offset, to, to_offset, size, flags) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut i64, size: usize) -> isize {
    let real = real!("sendfile64", unsafe extern "C" fn(c_int, c_int, *mut i64, usize) -> isize);
    match is_watched_file(to) {
        true => unsafe {
            *__errno_location() = ENOSYS;
            -1
        },
        false => unsafe { real(to, from, offset, size) },
    }
}

fn synced(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    whole(|| recorded(call, |_| format!("S {}\n", inode(fd)).into_bytes()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    let real = real!("fsync", unsafe extern "C" fn(c_int) -> c_int);
    match is_watched_file(fd) {
        true => synced(fd, || unsafe { real(fd) }),
        false => unsafe { real(fd) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    let real = real!("fdatasync", unsafe extern "C" fn(c_int) -> c_int);
    match is_watched_file(fd) {
        true => synced(fd, || unsafe { real(fd) }),
        false => unsafe { real(fd) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, length: i64) -> c_int {
    let real = real!("ftruncate64", unsafe extern "C" fn(c_int, i64) -> c_int);
    let call = || unsafe { real(fd, length) };
    match is_watched_file(fd) {
        true => whole(|| recorded(call, |_| format!("T {} {length}\n", inode(fd)).into_bytes())),
        false => call(),
    }
}

/// Changes the names in a watched folder.
fn renamed(is_watched: bool, call: impl FnOnce() -> c_int, record: impl FnOnce() -> String) -> c_int {
    if !is_watched {
        return call();
    }
    whole(|| recorded(call, |_| record().into_bytes()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let real = real!("rename", unsafe extern "C" fn(*const c_char, *const c_char) -> c_int);
    renamed(is_watched(to), || unsafe { real(from, to) }, || format!("R {}\t{}\n", Path(from), Path(to)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let real = real!("unlink", unsafe extern "C" fn(*const c_char) -> c_int);
    renamed(is_watched(path), || unsafe { real(path) }, || format!("U {}\n", Path(path)))
}

/// Of a name in an open folder, or of a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, name: *const c_char, flags: c_int) -> c_int {
    let real = real!("unlinkat", unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int);
    let call = || unsafe { real(folder, name, flags) };
    if folder == AT_FDCWD {
        return renamed(is_watched(name), call, || format!("U {}\n", Path(name)));
    }
    let path = path_of(folder);
    let is_watched = folder >= 0 && is_watched(path.as_ptr());
    renamed(is_watched, call, || format!("U {}/{}\n", Path(path.as_ptr()), Path(name)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    let real = real!("rmdir", unsafe extern "C" fn(*const c_char) -> c_int);
    renamed(is_watched(path), || unsafe { real(path) }, || format!("U {}\n", Path(path)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: u32) -> c_int {
    let real = real!("mkdir", unsafe extern "C" fn(*const c_char, u32) -> c_int);
    renamed(
        is_watched(path),
        || unsafe { real(path, mode) },
        || format!("M {} {}\n", inode_of(path).unwrap_or(0), Path(path)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // The third argument of a variadic call is where the third argument of this one is, on Linux for x86-64 and AArch64.
    let real = real!("open64", Open);
    match flags & (O_CREAT | O_WRITE) != 0 && is_watched(path) {
        true => opened(path, flags, || unsafe { real(path, flags, mode) }),
        false => unsafe { real(path, flags, mode) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    unsafe { open64(path, flags, mode) }
}

/// After the file number FAULT_AT was mapped, another program cuts it to its half (`map cut`), writes into it (`map write`)
/// or puts the file FAULT_OTHER into its place (`map replace`).
fn mapped(fd: c_int) {
    let (at, kind) = (variable(b"FAULT_AT\0"), variable(b"FAULT_KIND\0"));
    // SAFETY: both end with 0.
    if at.is_null() || kind.is_null() || unsafe { strncmp(kind, b"map \0".as_ptr().cast(), 4) } != 0 {
        return;
    }
    // SAFETY: as above.
    if MAPS.fetch_add(1, Ordering::SeqCst) + 1 != unsafe { atol(at) } as i64 {
        return;
    }
    // Tells that it took place.
    count().fetch_add(1 << 32, Ordering::SeqCst);
    let path = path_of(fd);
    let open = real!("open64", Open);
    let truncate = real!("ftruncate64", unsafe extern "C" fn(c_int, i64) -> c_int);
    let write = real!("pwrite64", unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize);
    let rename = real!("rename", unsafe extern "C" fn(*const c_char, *const c_char) -> c_int);
    // SAFETY: the path ends with 0, as do the variables; the fifth byte of the kind is there.
    unsafe {
        match *kind.add(4) as u8 {
            b'r' => {
                rename(variable(b"FAULT_OTHER\0"), path.as_ptr());
            }
            other => {
                let to = open(path.as_ptr(), 1, 0);
                // 2: from the end.
                let half = lseek64(to, 0, 2) / 2;
                match other {
                    b'c' => truncate(to, half) as isize,
                    _ => write(to, b"\xff\xff\xff\xff".as_ptr().cast(), 4, half),
                };
                close(to);
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // Kept, because a handler of signals, whose stack is small, also maps.
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if REAL.load(Ordering::Acquire).is_null() {
        REAL.store(real!("mmap64", Map) as *mut c_void, Ordering::Release);
    }
    // SAFETY: the address of the C library's function.
    let real = unsafe { std::mem::transmute::<*mut c_void, Map>(REAL.load(Ordering::Acquire)) };
    let found = unsafe { real(at, size, access, flags, fd, offset) };
    if fd >= 0 && is_watched_file(fd) {
        mapped(fd);
    }
    found
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    unsafe { mmap64(at, size, access, flags, fd, offset) }
}
