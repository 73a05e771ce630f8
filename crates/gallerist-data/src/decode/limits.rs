//! What decoding one file may cost, and the count that is kept while it is decoded.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longest permitted side of an image, in pixels.
pub const MAX_SIDE: usize = 16_384;

/// Largest permitted decoded image, in bytes.
pub const MAX_DECODED_BYTES: u64 = 256 << 20;

/// Largest permitted image file, in bytes; the limit for an archive's entries too.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// Longest EXIF that is read.
pub(super) const MAX_METADATA_BYTES: usize = 1 << 20;

/// What decoding one file may cost, see [`decode_with`](crate::decode_with).
///
/// # Bounds of every format
///
/// Time and memory are linear in the bytes of a file and in its pixels, whatever the file says. Beyond the
/// limits on size ([`MAX_SIDE`](crate::MAX_SIDE), [`MAX_DECODED_BYTES`](crate::MAX_DECODED_BYTES),
/// [`MAX_FILE_BYTES`](crate::MAX_FILE_BYTES)):
///
/// * Memory: at most twice the file, six times the decoded image, and 32 MiB.
/// * JPEG: the scans of a progressive file may visit a block 100 times on average, which is checked before the
///   first is decoded. A sequential file codes each component once. 1,000 tables at most.
/// * PNG, GIF, WebP: the decoders get only those chunks that the pixels of the first frame need. Profiles and
///   texts are never unpacked. An orientation (EXIF) longer than 1 MiB is ignored.
/// * PNG, GIF, WebP, BMP, TIFF: a decoder may read twice the decoded size and 4 MiB, repeated reads included.
/// * WebP without loss: its code tables may take twice the decoded size (of four bytes a pixel) and 16 MiB.
/// * TIFF: a directory has 4,096 entries at most, and no more strips or tiles than the size of the image explains.
///   Strips of JPEG are checked as files are; they have twice the pixels of the image at most.
///
/// ```
/// use std::time::Duration;
/// use gallerist_data::DecodeLimits;
///
/// // For files from strangers: 16 million pixels of RGB, two seconds.
/// let limits = DecodeLimits { max_decoded_bytes: 48_000_000, ..DecodeLimits::default() };
/// let limits = limits.within(Duration::from_secs(2));
/// assert!(limits.deadline.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Longest side, in pixels.
    pub max_side: usize,
    /// Largest decoded image in bytes: width x height x the bytes of a pixel in the file. Refused from the
    /// header, before memory is allocated for it.
    pub max_decoded_bytes: u64,
    /// When to stop with [`Error::DecodeDeadline`](crate::Error::DecodeDeadline). The decoders check it
    /// about every 4 KiB of the file and every row of blocks. `None`: no deadline.
    pub deadline: Option<Instant>,
}

impl Default for DecodeLimits {
    /// [`MAX_SIDE`](crate::MAX_SIDE), [`MAX_DECODED_BYTES`](crate::MAX_DECODED_BYTES), no deadline.
    fn default() -> Self {
        DecodeLimits { max_side: MAX_SIDE, max_decoded_bytes: MAX_DECODED_BYTES, deadline: None }
    }
}

impl DecodeLimits {
    /// The same limits with a deadline this long from now.
    pub fn within(self, time: Duration) -> DecodeLimits {
        // A time beyond the clock's range is no deadline.
        DecodeLimits { deadline: Instant::now().checked_add(time), ..self }
    }

    /// Refuses a size from a header.
    pub(super) fn check_size(&self, width: usize, height: usize, decoded_bytes: u64) -> Result<(), String> {
        if width == 0 || height == 0 {
            return Err(format!("its header says {width} x {height} pixels"));
        }
        if width > self.max_side || height > self.max_side {
            return Err(format!(
                "its header says {width} x {height} pixels, and a side may have {}",
                self.max_side
            ));
        }
        if decoded_bytes > self.max_decoded_bytes {
            return Err(format!(
                "{width} x {height} pixels decode to {} MiB, and an image may have {} MiB",
                decoded_bytes.div_ceil(1 << 20),
                self.max_decoded_bytes >> 20
            ));
        }
        Ok(())
    }
}

/// Why a decoder was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The deadline has passed.
    Deadline,
    /// More of the file was read than an image of this size can need.
    Bytes,
}

/// The limits of one file and what of them is left. The reader and the decoders share it.
pub(super) struct Watch {
    pub(super) limits: DecodeLimits,
    /// Bytes that may still be read.
    left: Cell<u64>,
    /// Work since the clock was last read.
    unchecked: Cell<u32>,
    stopped: Cell<Option<Stop>>,
    /// Tests only: checks until the clock counts as past the deadline.
    #[cfg(test)]
    pub(super) checks_left: Cell<u64>,
}

/// Work between two readings of the clock, which take 20 to 50 ns each: 4 KiB of the file, or 256 calls.
const CHECK_EVERY: u32 = 256;

/// Bytes of the file that count as much as one call of the reader.
const BYTES_PER_CALL: usize = 16;

impl Watch {
    pub(super) fn new(limits: DecodeLimits) -> Watch {
        Watch {
            limits,
            left: Cell::new(u64::MAX),
            unchecked: Cell::new(0),
            stopped: Cell::new(None),
            #[cfg(test)]
            checks_left: Cell::new(u64::MAX),
        }
    }

    /// Why the decoder was stopped, if it was.
    pub(super) fn stopped(&self) -> Option<Stop> {
        self.stopped.get()
    }

    /// Permits so many further bytes to be read.
    pub(super) fn permit(&self, bytes: u64) {
        self.left.set(bytes);
    }

    /// Reads the clock; `Err` past the deadline.
    pub(super) fn check(&self) -> Result<(), Stop> {
        #[cfg(test)]
        {
            let left = self.checks_left.get();
            if left == 0 {
                self.stopped.set(Some(Stop::Deadline));
            }
            self.checks_left.set(left.saturating_sub(1));
        }
        if self.limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.stopped.set(Some(Stop::Deadline));
        }
        self.stopped.get().map_or(Ok(()), Err)
    }

    /// Counts a call of the reader; reads the clock after a number of them.
    pub(super) fn count_call(&self) -> Result<(), Stop> {
        self.count(1)
    }

    /// Counts bytes that a decoder has read.
    pub(super) fn count_bytes(&self, bytes: usize) -> Result<(), Stop> {
        let Some(left) = self.left.get().checked_sub(bytes as u64) else {
            self.stopped.set(Some(Stop::Bytes));
            return Err(Stop::Bytes);
        };
        self.left.set(left);
        self.count((bytes / BYTES_PER_CALL) as u32)
    }

    fn count(&self, work: u32) -> Result<(), Stop> {
        let unchecked = self.unchecked.get().saturating_add(work);
        if unchecked < CHECK_EVERY {
            self.unchecked.set(unchecked);
            return self.stopped.get().map_or(Ok(()), Err);
        }
        self.unchecked.set(0);
        self.check()
    }
}
