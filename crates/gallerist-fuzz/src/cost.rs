//! What a reader may cost: CPU time and memory, by the bytes of the input and the units that it declares.
//!
//! Memory is counted by [`COUNTING`], which a program sets as its global allocator. CPU time is that of the process, since
//! some readers use a pool of threads; nothing else may run in the process meanwhile. Neither depends on how busy the
//! machine is.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

pub use gallerist_testkit::allocator::Counting;

/// Counts the bytes that the process holds, and the most it has held.
pub const COUNTING: Counting = Counting(count);

static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

/// How many times as much CPU time instrumented code may take.
static SLOWER: AtomicU32 = AtomicU32::new(1);

/// AddressSanitizer and the counters of coverage make code slower, by 3 to 10 times; the limits on CPU time are 20 times
/// as high from here on.
pub fn instrumented() {
    SLOWER.store(20, Ordering::Relaxed);
}

/// Most memory and CPU time of one call: a constant, a part for each byte of the input, and a part for each unit that the
/// input declares.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory for each byte of the input.
    pub memory_of_byte: u64,
    /// Bytes of memory for each unit.
    pub memory_of_unit: u64,
    /// CPU time.
    pub time: Duration,
    /// Nanoseconds of CPU time for each byte of the input.
    pub ns_of_byte: u64,
    /// Nanoseconds of CPU time for each unit.
    pub ns_of_unit: u64,
}

impl Limit {
    /// For readers that parse text or numbers: 16 MiB and 200 ms for buffers, thread pools and registries that are made at
    /// the first call; 200 bytes and 20 µs for each byte, since one byte of text can become an element of a list of
    /// strings or tables (24 to 100 bytes, twice while the list grows) and a fault is formatted with its surroundings.
    pub const TEXT: Limit = Limit {
        memory: 16 << 20,
        memory_of_byte: 200,
        memory_of_unit: 0,
        time: Duration::from_millis(200),
        ns_of_byte: 20_000,
        ns_of_unit: 0,
    };

    /// For pictures, with the bytes of the decoded picture as units. Memory is what `DecodeLimits` documents. Time: a byte
    /// of the file costs below 1 µs in all formats, a decoded byte below 50 ns; a progressive JPEG may visit its blocks 100
    /// times.
    pub const PICTURE: Limit = Limit {
        memory: 32 << 20,
        memory_of_byte: 2,
        memory_of_unit: 6,
        time: Duration::from_millis(200),
        ns_of_byte: 10_000,
        ns_of_unit: 500,
    };

    /// For files that may be compressed by deflate, which makes at most 1,032 bytes of one; numbers become f64, eight
    /// times as long, in a list that doubles when it grows.
    pub const DEFLATED: Limit = Limit {
        memory: 16 << 20,
        memory_of_byte: 1032 * 3 * 8,
        memory_of_unit: 0,
        time: Duration::from_millis(200),
        ns_of_byte: 1032 * 50,
        ns_of_unit: 0,
    };
}

/// What a call has cost.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// The most bytes that were held in addition to those before.
    pub memory: u64,
    /// CPU time of all threads.
    pub time: Duration,
}

/// Calls a reader and measures it.
pub fn measured<T>(read: impl FnOnce() -> T) -> (T, Spent) {
    let held = HELD.load(Ordering::Relaxed);
    PEAK.store(held, Ordering::Relaxed);
    let start = cpu_time();
    let result = read();
    let time = cpu_time().saturating_sub(start);
    let memory = PEAK.load(Ordering::Relaxed).saturating_sub(held).max(0) as u64;
    (result, Spent { memory, time })
}

impl Spent {
    /// Compares with a limit.
    ///
    /// # Panics
    /// Where the call has cost more.
    pub fn check(self, limit: Limit, bytes: usize, units: u64) {
        let bytes = bytes as u64;
        let memory = limit.memory + limit.memory_of_byte * bytes + limit.memory_of_unit * units;
        assert!(
            self.memory <= memory,
            "cost: {} bytes of memory for {bytes} bytes and {units} units, where {memory} are permitted",
            self.memory
        );
        let time = limit.time
            + Duration::from_nanos(limit.ns_of_byte * bytes)
            + Duration::from_nanos(limit.ns_of_unit * units);
        let time = time * SLOWER.load(Ordering::Relaxed);
        assert!(
            self.time <= time,
            "cost: {:?} of CPU time for {bytes} bytes and {units} units, where {time:?} are permitted",
            self.time
        );
    }
}

/// [`measured`] and [`Spent::check`] for a reader whose input declares nothing.
pub fn within<T>(limit: Limit, bytes: &[u8], read: impl FnOnce() -> T) -> T {
    let (result, spent) = measured(read);
    spent.check(limit, bytes.len(), 0);
    result
}

/// CPU time of the process so far; zero on systems that are not Unix.
fn cpu_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a timespec that the call may write to.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        assert_eq!(result, 0, "the clock of the process");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(unix))]
    Duration::ZERO
}
