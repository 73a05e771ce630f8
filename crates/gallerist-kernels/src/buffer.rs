//! An allocator for the kernels' results, which reuses freed memory in the next pass.
//!
//! A training step, or the embedding of a batch, allocates the same large tensors again and again. The system's allocator
//! returns blocks of this size to the operating system, so that every pass would pay for the page faults of all its
//! activations. This allocator keeps freed memory and reuses it.
//!
//! Memory comes from the system in blocks. A buffer is a segment of a block; adjacent free segments are merged. So the
//! same memory serves buffers of any size: a pass without gradients, whose feature maps have many sizes and short lives,
//! takes no more memory than is in use at one time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use gallerist_util::memory::prefer_large_pages;

/// A cache line. With an alignment of 64 bytes, no vector load crosses two lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Elements of a cache line.
pub(crate) const LINE: usize = 16;

/// Smaller buffers come from the system's allocator, which reuses small blocks itself.
const SMALLEST_KEPT: usize = 16 * 1024;

/// Memory from the system's allocator.
struct Block {
    id: u64,
    memory: NonNull<[Line]>,
}

// SAFETY: a block owns its memory, and `Line` is plain data.
unsafe impl Send for Block {}

impl Block {
    fn new(id: u64, lines: usize) -> Self {
        let memory = Box::into_raw(zeros(lines).into_boxed_slice());
        Self { id, memory: NonNull::new(memory).expect("a box is not null") }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `Block::new` made the pointer from a box, and this is the only place that turns it back. The store drops
        // a block only when all its lines are one free segment (`Store::release`), so that no segment in use points to it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

/// A part of a block that is in use by one buffer.
struct Segment {
    block: u64,
    start: usize,
    lines: usize,
    memory: NonNull<Line>,
}

// SAFETY: segments do not overlap: `Store::take` removes a free segment, or a part of it, before it hands it out.
unsafe impl Send for Segment {}
// SAFETY: as for a vector of lines: shared references only read.
unsafe impl Sync for Segment {}

struct Store {
    /// In the order of their allocation.
    blocks: Vec<Block>,
    /// The length of each free segment by its block and start. No two are adjacent.
    free: BTreeMap<(u64, usize), usize>,
    /// Number of blocks that were ever allocated.
    grown: u64,
    held_lines: usize,
    live_lines: usize,
    peak_lines: usize,
}

static STORE: Mutex<Store> = Mutex::new(Store::new());

fn store() -> MutexGuard<'static, Store> {
    // No code panics while it holds the lock; a poisoned store would still be consistent.
    STORE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Store {
    const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            free: BTreeMap::new(),
            grown: 0,
            held_lines: 0,
            live_lines: 0,
            peak_lines: 0,
        }
    }

    /// The start of the smallest free segment of at least `lines` lines. `None` if a new block is needed.
    fn take(&mut self, lines: usize) -> Option<Segment> {
        let fits = self.free.iter().filter(|&(_, &free)| free >= lines);
        let (&(block, start), &free) = fits.min_by_key(|&(_, &free)| free)?;
        self.free.remove(&(block, start));
        let rest = free - lines;
        // A remainder that no buffer fits into stays with this segment.
        let lines = if rest * size_of::<Line>() < SMALLEST_KEPT { free } else { lines };
        if lines < free {
            self.free.insert((block, start + lines), free - lines);
        }
        self.count_live(lines);
        let memory = self.blocks.iter().find(|of| of.id == block)?.memory.cast::<Line>();
        // SAFETY: free segments are inside their block, and this one starts at line `start` of it.
        Some(Segment { block, start, lines, memory: unsafe { memory.add(start) } })
    }

    /// A segment of a new block.
    fn add(&mut self, block: Block) -> Segment {
        let (id, lines) = (block.id, block.memory.len());
        let memory = block.memory.cast();
        self.held_lines += lines;
        self.count_live(lines);
        self.blocks.push(block);
        Segment { block: id, start: 0, lines, memory }
    }

    fn count_live(&mut self, lines: usize) {
        self.live_lines += lines;
        self.peak_lines = self.peak_lines.max(self.live_lines);
    }

    /// Takes a segment back and merges it with adjacent free segments.
    fn put(&mut self, segment: Segment) {
        let Segment { block, mut start, mut lines, .. } = segment;
        self.live_lines -= lines;
        if let Some((&(of, before), &free)) = self.free.range(..(block, start)).next_back()
            && of == block
            && before + free == start
        {
            self.free.remove(&(block, before));
            (start, lines) = (before, lines + free);
        }
        if let Some(free) = self.free.remove(&(block, start + lines)) {
            lines += free;
        }
        self.free.insert((block, start), lines);
    }

    /// The id of a new block of `lines` lines, and the blocks to free before it is allocated. Free blocks are released, the
    /// oldest first, until the memory held is at most a quarter above the peak of the memory in use. This bounds what
    /// fragmentation can waste.
    fn prepare_block(&mut self, lines: usize) -> (u64, Vec<Block>) {
        let peak = self.peak_lines.max(self.live_lines + lines);
        let released = self.release(lines, peak + peak / 4);
        self.grown += 1;
        (self.grown, released)
    }

    /// Takes out free blocks until the lines held and `lines` more are at most `most`.
    fn release(&mut self, lines: usize, most: usize) -> Vec<Block> {
        let mut released = Vec::new();
        let mut at = 0;
        while self.held_lines + lines > most && at < self.blocks.len() {
            let (id, of_block) = (self.blocks[at].id, self.blocks[at].memory.len());
            if self.free.get(&(id, 0)) == Some(&of_block) {
                self.free.remove(&(id, 0));
                self.held_lines -= of_block;
                released.push(self.blocks.remove(at));
            } else {
                at += 1;
            }
        }
        released
    }
}

/// A segment of freed memory, or else of a new block.
fn segment(lines: usize) -> Segment {
    let (id, released) = {
        let mut store = store();
        if let Some(segment) = store.take(lines) {
            return segment;
        }
        store.prepare_block(lines)
    };
    // The system is slow to free memory: no thread waits for the lock meanwhile.
    drop(released);
    let block = Block::new(id, lines);
    store().add(block)
}

/// Returns the memory that is kept for later results to the system.
///
/// Useful between training and a phase with other shapes; never needed for correctness.
pub fn release_memory() {
    let released = {
        let mut store = store();
        store.peak_lines = store.live_lines;
        store.release(0, 0)
    };
    drop(released);
}

/// New memory, in huge pages if possible: kernels read feature maps with large strides.
fn zeros(lines: usize) -> Vec<Line> {
    let mut zeros = Vec::with_capacity(lines);
    prefer_large_pages(&mut zeros);
    zeros.resize(lines, Line([0.0; LINE]));
    zeros
}

/// `len` floats of initialised memory with unspecified values.
pub(crate) struct Buffer {
    memory: Allocation,
    len: usize,
}

enum Allocation {
    /// Too small to be reused.
    Own(Vec<Line>),
    /// Returned to the store when the buffer is dropped.
    Kept(Segment),
    /// Returned.
    Gone,
}

impl Buffer {
    /// A buffer of unspecified values, left over from earlier use, for the caller to overwrite.
    pub(crate) fn new(len: usize) -> Self {
        let count = len.div_ceil(LINE);
        let small = count * size_of::<Line>() < SMALLEST_KEPT;
        let memory = match small {
            true => Allocation::Own(vec![Line([0.0; LINE]); count]),
            false => Allocation::Kept(segment(count)),
        };
        Self { memory, len }
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
        // SAFETY: `Storage::memory` returns the buffer's `len` floats, which are exactly `bytes` initialised bytes.
        unsafe { Bytes::from_controller(Box::new(Storage(self)), bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Allocation::Kept(segment) = std::mem::replace(&mut self.memory, Allocation::Gone) {
            store().put(segment);
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let lines: &[Line] = match &self.memory {
            Allocation::Own(lines) => lines,
            // SAFETY: a block's lines are initialised when it is allocated; the segment is inside its block, belongs to this
            // buffer alone, and lives until the buffer is dropped.
            Allocation::Kept(of) => unsafe { std::slice::from_raw_parts(of.memory.as_ptr(), of.lines) },
            Allocation::Gone => &[],
        };
        &floats(lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let lines: &mut [Line] = match &mut self.memory {
            Allocation::Own(lines) => lines,
            // SAFETY: as in `deref`, and the buffer is borrowed mutably.
            Allocation::Kept(of) => unsafe { std::slice::from_raw_parts_mut(of.memory.as_ptr(), of.lines) },
            Allocation::Gone => &mut [],
        };
        &mut floats_mut(lines)[..self.len]
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
        // With a larger alignment, which the engine does not support, copies of the tensor would fail.
        align_of::<u128>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Native
    }

    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let floats: &mut [f32] = &mut self.0;
        // SAFETY: the bytes are those of the floats, borrowed mutably; every bit pattern is a valid `f32`, and the caller
        // promises to write initialised bytes only.
        Ok(unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) })
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let floats: &[f32] = &self.0;
        // SAFETY: the bytes are those of the floats, which are initialised.
        Ok(unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) })
    }
}

thread_local! {
    static SCRATCH: [RefCell<Vec<Line>>; 4] = const { [const { RefCell::new(Vec::new()) }; 4] };
}

/// Runs `work` with `len` floats of this thread's scratch memory (unspecified values).
///
/// `slot` 0 to 3 are separate memories, so that four may be in use at once: 0 and 1 hold the operands of a product that
/// are computed for a tile, 2 and 3 operands rounded to bf16 or copied in another order.
pub(crate) fn with_scratch<R>(slot: usize, len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with(|scratch| {
        let mut lines = scratch[slot].borrow_mut();
        if lines.len() * LINE < len {
            lines.resize(len.div_ceil(LINE), Line([0.0; LINE]));
        }
        work(&mut floats_mut(&mut lines)[..len])
    })
}

/// Floats as bytes.
pub(crate) fn bytes_of(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: the bytes are those of the floats, borrowed mutably, and every value of a byte is one.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
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

    impl Store {
        /// As [`segment`], in this store.
        fn segment(&mut self, lines: usize) -> Segment {
            self.take(lines).unwrap_or_else(|| {
                let (id, _) = self.prepare_block(lines);
                self.add(Block::new(id, lines))
            })
        }
    }

    /// The buffers of a pass without gradients: of each layer's maps those before it and its own are in use.
    fn pass(store: &mut Store, sizes: &[usize]) {
        let mut before: Option<Segment> = None;
        for &lines in sizes {
            let own = store.segment(lines);
            if let Some(before) = before.replace(own) {
                store.put(before);
            }
        }
        store.put(before.unwrap());
    }

    #[test]
    fn passes_whose_maps_have_many_sizes_take_memory_once_and_no_more_than_they_use() {
        // A network that halves its maps, from wide to narrow and back in every block.
        let sizes: Vec<usize> =
            (0..6).flat_map(|block| [1000, 6000, 5900, 900].map(|lines| (lines * 9) >> block)).collect();
        let mut store = Store::new();
        pass(&mut store, &sizes);
        pass(&mut store, &sizes);
        let (grown, held) = (store.grown, store.held_lines);
        for _ in 0..20 {
            pass(&mut store, &sizes);
        }
        assert_eq!(
            (store.grown, store.held_lines),
            (grown, held),
            "later passes take nothing from the system"
        );
        assert!(held <= store.peak_lines + store.peak_lines / 4, "{held} held, {} used", store.peak_lines);
        assert_eq!(store.live_lines, 0);
    }

    #[test]
    fn free_neighbours_become_one_segment_again() {
        let mut store = Store::new();
        let whole = store.segment(4000);
        store.put(whole);
        let parts = [1000, 1000, 2000].map(|lines| store.segment(lines));
        assert_eq!((store.grown, store.free.len()), (1, 0));
        let [first, second, third] = parts;
        store.put(first);
        store.put(third);
        assert_eq!(store.free.len(), 2);
        store.put(second);
        assert_eq!(store.free.values().copied().collect::<Vec<_>>(), [4000]);
        let again = store.segment(4000);
        assert_eq!(store.grown, 1);
        store.put(again);
    }

    #[test]
    fn little_more_is_held_than_was_ever_in_use() {
        let mut store = Store::new();
        for lines in [1000, 2000, 3000, 4000, 5000] {
            let segment = store.segment(lines);
            store.put(segment);
            assert!(store.held_lines <= lines + lines / 4, "{} lines for {lines}", store.held_lines);
        }
        let released = store.release(0, 0);
        assert_eq!((released.len(), store.held_lines, store.free.len()), (1, 0, 0));
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
