//! Memory of the kernels' results, kept for the next step of the training loop.
//!
//! A training step allocates the same large tensors again and again. The system's allocator hands
//! blocks of this size back to the kernel, so that every step pays for the page faults of all its
//! activations. Freed buffers are kept here instead and given out again.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use gallerist_memory::prefer_large_pages;

/// A cache line: 64-byte alignment keeps every vector load inside one line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// Buffers below this size come from the system: it keeps small blocks by itself.
const SMALLEST_KEPT: usize = 16 * 1024;

struct Store {
    free: Vec<Vec<Line>>,
    free_lines: usize,
    live_lines: usize,
    peak_lines: usize,
}

static STORE: Mutex<Store> =
    Mutex::new(Store { free: Vec::new(), free_lines: 0, live_lines: 0, peak_lines: 0 });

fn store() -> MutexGuard<'static, Store> {
    // No code panics while it holds the lock; a poisoned store would still be consistent.
    STORE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Store {
    /// The smallest free buffer of at least `lines` lines that is no more than half as large again.
    fn take(&mut self, lines: usize) -> Option<Vec<Line>> {
        let (index, _) = self
            .free
            .iter()
            .enumerate()
            .filter(|(_, buffer)| buffer.len() >= lines && buffer.len() <= lines + lines / 2)
            .min_by_key(|(_, buffer)| buffer.len())?;
        let buffer = self.free.swap_remove(index);
        self.free_lines -= buffer.len();
        Some(buffer)
    }

    /// Keeps `buffer`, and drops the oldest buffers once what is kept and in use is a quarter more than ever
    /// was in use: of every size as many are needed as are in use together at some time, and that is more than
    /// what is in use of all sizes at one time.
    fn put(&mut self, buffer: Vec<Line>) {
        self.free_lines += buffer.len();
        self.free.push(buffer);
        let most = self.peak_lines + self.peak_lines / 4;
        while self.free_lines + self.live_lines > most && self.free.len() > 1 {
            let oldest = self.free.remove(0);
            self.free_lines -= oldest.len();
        }
    }
}

/// Gives the memory that is kept for later results back to the system.
///
/// Worth calling between training and a phase of other shapes; never needed for correctness.
pub fn release_memory() {
    let mut store = store();
    store.free.clear();
    store.free_lines = 0;
    store.peak_lines = store.live_lines;
}

/// New memory, in large pages where there are any: maps are read with strides of their number of channels.
fn zeros(lines: usize) -> Vec<Line> {
    let mut zeros = Vec::with_capacity(lines);
    prefer_large_pages(&mut zeros);
    zeros.resize(lines, Line([0.0; LINE]));
    zeros
}

/// `len` floats of initialised memory with unspecified values.
pub(crate) struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// A buffer whose values the caller will overwrite: they are left over from earlier use.
    pub(crate) fn new(len: usize) -> Self {
        let count = len.div_ceil(LINE);
        let lines = if count * size_of::<Line>() < SMALLEST_KEPT {
            vec![Line([0.0; LINE]); count]
        } else {
            let kept = {
                let mut store = store();
                let kept = store.take(count);
                store.live_lines += kept.as_ref().map_or(count, Vec::len);
                store.peak_lines = store.peak_lines.max(store.live_lines);
                kept
            };
            kept.unwrap_or_else(|| zeros(count))
        };
        Self { lines, len }
    }

    /// [`Buffer::new`], unless there is another place.
    pub(crate) fn unless(other: bool, len: usize) -> Option<Self> {
        (!other).then(|| Self::new(len))
    }

    /// A buffer of zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut buffer = Self::new(len);
        buffer.fill(0.0);
        buffer
    }

    /// The storage of a tensor with these values.
    pub(crate) fn into_bytes(self) -> Bytes {
        let bytes = self.len * size_of::<f32>();
        // SAFETY: the controller hands out exactly `bytes` initialised bytes.
        unsafe { Bytes::from_controller(Box::new(Storage(self)), bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if size_of_val(self.lines.as_slice()) >= SMALLEST_KEPT {
            let lines = std::mem::take(&mut self.lines);
            let mut store = store();
            store.live_lines = store.live_lines.saturating_sub(lines.len());
            store.put(lines);
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &floats(&self.lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let len = self.len;
        &mut floats_mut(&mut self.lines)[..len]
    }
}

fn floats(lines: &[Line]) -> &[f32] {
    // SAFETY: a `Line` is exactly `LINE` floats, without padding.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * LINE) }
}

fn floats_mut(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: as `floats`; the lines are borrowed mutably for as long as the floats.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE) }
}

/// A [`Buffer`] as the storage of a tensor.
struct Storage(Buffer);

impl AllocationController for Storage {
    fn alloc_align(&self) -> usize {
        // More than the engine supports would only make copies of the tensor fail.
        align_of::<u128>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Native
    }

    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let floats: &mut [f32] = &mut self.0;
        // SAFETY: floats may be viewed as bytes; the caller promises to write initialised bytes.
        Ok(unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) })
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let floats: &[f32] = &self.0;
        // SAFETY: floats may be viewed as bytes.
        Ok(unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) })
    }
}

thread_local! {
    static SCRATCH: [RefCell<Vec<Line>>; 4] = const { [const { RefCell::new(Vec::new()) }; 4] };
}

/// Runs `work` with `len` floats of this thread's scratch memory (unspecified values).
///
/// `slot` 0 to 3 are separate memories, so that four may be in use at once: 0 and 1 hold the factors of a product
/// that are not in memory, 2 and 3 the same rounded.
pub(crate) fn with_scratch<R>(slot: usize, len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with(|scratch| {
        let mut lines = scratch[slot].borrow_mut();
        if lines.len() * LINE < len {
            lines.resize(len.div_ceil(LINE), Line([0.0; LINE]));
        }
        work(&mut floats_mut(&mut lines)[..len])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_what_is_written() {
        for len in [1, 15, 16, 17, 5000, 10_000] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().addr() % 64, 0);
            for (index, value) in buffer.iter_mut().enumerate() {
                *value = index as f32;
            }
            assert!(buffer.iter().enumerate().all(|(index, value)| *value == index as f32));
        }
        assert!(Buffer::zeros(5000).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn storage_of_a_tensor_can_be_read_written_and_copied() {
        let mut buffer = Buffer::new(5000);
        buffer.fill(1.5);
        let mut bytes = buffer.into_bytes();
        assert_eq!(bytes.len(), 20_000);
        let copy = bytes.clone();
        bytes[..4].copy_from_slice(&2.5f32.to_ne_bytes());
        assert_eq!(bytes[..8], [2.5f32.to_ne_bytes(), 1.5f32.to_ne_bytes()].concat());
        assert!(copy.chunks_exact(4).all(|value| value == 1.5f32.to_ne_bytes()));
    }

    #[test]
    fn storage_can_be_dropped_by_another_thread() {
        let bytes = Buffer::new(5000).into_bytes();
        std::thread::spawn(move || drop(bytes)).join().unwrap();
    }

    #[test]
    fn little_more_is_kept_than_was_ever_in_use() {
        let mut store = Store { free: vec![], free_lines: 0, live_lines: 0, peak_lines: 80 };
        let buffer = |lines| vec![Line([0.0; LINE]); lines];
        store.put(buffer(60));
        store.put(buffer(50));
        assert_eq!((store.free.len(), store.free_lines), (1, 50), "the oldest goes first");
        assert!(store.take(33).is_none(), "too wasteful");
        assert!(store.take(51).is_none(), "too small");
        assert_eq!(store.take(45).map(|buffer| buffer.len()), Some(50));
        assert_eq!(store.free_lines, 0);
    }

    #[test]
    fn scratch_memories_do_not_overlap() {
        with_scratch(0, 100, |a| {
            a.fill(1.0);
            with_scratch(1, 100, |b| b.fill(2.0));
            assert!(a.iter().all(|value| *value == 1.0));
        });
    }
}
