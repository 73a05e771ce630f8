//! Memory of the kernels' results, kept for the next pass.
//!
//! A training step, and the embedding of a batch, allocate the same large tensors again and again. The system's
//! allocator hands blocks of this size back to the kernel, so that every pass pays for the page faults of all its
//! activations. Freed memory is kept here instead and given out again.
//!
//! Memory comes from the system in blocks. A buffer is a segment of a block; free neighbours become one segment again.
//! So memory serves buffers of any size one after the other: the passes of a network without gradients, whose maps have
//! many sizes and are needed for a short time each, take as much as is in use at one time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use gallerist_util::memory::prefer_large_pages;

/// A cache line: 64-byte alignment keeps every vector load inside one line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// Buffers below this size come from the system: it keeps small blocks by itself.
const SMALLEST_KEPT: usize = 16 * 1024;

/// Memory from the system.
struct Block {
    id: u64,
    memory: NonNull<[Line]>,
}

// SAFETY: a block owns its memory.
unsafe impl Send for Block {}

impl Block {
    fn new(id: u64, lines: usize) -> Self {
        let memory = Box::into_raw(zeros(lines).into_boxed_slice());
        Self { id, memory: NonNull::new(memory).expect("a box is not null") }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory was a box, and a block is dropped only when no segment of it is given out.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

/// A part of a block that is given out.
struct Segment {
    block: u64,
    start: usize,
    lines: usize,
    memory: NonNull<Line>,
}

// SAFETY: a segment is the only one to reach its part of the block.
unsafe impl Send for Segment {}
// SAFETY: as a vector of lines: shared references only read.
unsafe impl Sync for Segment {}

struct Store {
    /// In the order in which they came from the system.
    blocks: Vec<Block>,
    /// The lines of each free segment by its block and start. No two touch.
    free: BTreeMap<(u64, usize), usize>,
    /// Blocks that ever came from the system.
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

    /// The start of the smallest free segment of at least `lines` lines; `None`: memory must come from the system.
    fn take(&mut self, lines: usize) -> Option<Segment> {
        let fits = self.free.iter().filter(|&(_, &free)| free >= lines);
        let (&(block, start), &free) = fits.min_by_key(|&(_, &free)| free)?;
        self.free.remove(&(block, start));
        let rest = free - lines;
        // A rest that no buffer fits into stays with this one.
        let lines = if rest * size_of::<Line>() < SMALLEST_KEPT { free } else { lines };
        if lines < free {
            self.free.insert((block, start + lines), free - lines);
        }
        self.count_live(lines);
        let memory = self.blocks.iter().find(|of| of.id == block)?.memory.cast::<Line>();
        // SAFETY: the segment is inside the block.
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

    /// Takes a segment back and joins it with its free neighbours.
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

    /// The number of a new block of `lines` lines, and the blocks to give back before it is made. Free blocks are given
    /// back, the oldest first, until the memory held is at most a quarter above the largest amount ever in use.
    /// Otherwise memory in pieces that are each too small would be held for nothing.
    fn make_room(&mut self, lines: usize) -> (u64, Vec<Block>) {
        let peak = self.peak_lines.max(self.live_lines + lines);
        let given_back = self.give_back(lines, peak + peak / 4);
        self.grown += 1;
        (self.grown, given_back)
    }

    /// Takes out free blocks until what is held and `lines` more is no more than `most`.
    fn give_back(&mut self, lines: usize, most: usize) -> Vec<Block> {
        let mut given_back = Vec::new();
        let mut at = 0;
        while self.held_lines + lines > most && at < self.blocks.len() {
            let (id, of_block) = (self.blocks[at].id, self.blocks[at].memory.len());
            if self.free.get(&(id, 0)) == Some(&of_block) {
                self.free.remove(&(id, 0));
                self.held_lines -= of_block;
                given_back.push(self.blocks.remove(at));
            } else {
                at += 1;
            }
        }
        given_back
    }
}

/// A segment of memory that is kept, or else of new memory.
fn segment(lines: usize) -> Segment {
    let (id, given_back) = {
        let mut store = store();
        if let Some(segment) = store.take(lines) {
            return segment;
        }
        store.make_room(lines)
    };
    // The system takes its time, for which nobody waits.
    drop(given_back);
    let block = Block::new(id, lines);
    store().add(block)
}

/// Gives the memory that is kept for later results back to the system.
///
/// Worth calling between training and a phase of other shapes; never needed for correctness.
pub fn release_memory() {
    let given_back = {
        let mut store = store();
        store.peak_lines = store.live_lines;
        store.give_back(0, 0)
    };
    drop(given_back);
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
    memory: Memory,
    len: usize,
}

enum Memory {
    /// Too small to be kept.
    Own(Vec<Line>),
    /// Given back to the store when the buffer is dropped.
    Kept(Segment),
    /// Given back.
    Gone,
}

impl Buffer {
    /// A buffer whose values the caller will overwrite: they are left over from earlier use.
    pub(crate) fn new(len: usize) -> Self {
        let count = len.div_ceil(LINE);
        let small = count * size_of::<Line>() < SMALLEST_KEPT;
        let memory = match small {
            true => Memory::Own(vec![Line([0.0; LINE]); count]),
            false => Memory::Kept(segment(count)),
        };
        Self { memory, len }
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
        if let Memory::Kept(segment) = std::mem::replace(&mut self.memory, Memory::Gone) {
            store().put(segment);
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let lines: &[Line] = match &self.memory {
            Memory::Own(lines) => lines,
            // SAFETY: the segment's lines are initialised, and reached through this buffer only.
            Memory::Kept(of) => unsafe { std::slice::from_raw_parts(of.memory.as_ptr(), of.lines) },
            Memory::Gone => &[],
        };
        &floats(lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let lines: &mut [Line] = match &mut self.memory {
            Memory::Own(lines) => lines,
            // SAFETY: as above, and the buffer is borrowed mutably.
            Memory::Kept(of) => unsafe { std::slice::from_raw_parts_mut(of.memory.as_ptr(), of.lines) },
            Memory::Gone => &mut [],
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

    impl Store {
        /// As [`segment`], in this store.
        fn segment(&mut self, lines: usize) -> Segment {
            self.take(lines).unwrap_or_else(|| {
                let (id, _) = self.make_room(lines);
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
        let given_back = store.give_back(0, 0);
        assert_eq!((given_back.len(), store.held_lines, store.free.len()), (1, 0, 0));
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
