//! Values of the host on their way to the GPU: copied by all threads into page-locked memory, from which the GPU fetches them while
//! the host goes on.

use std::ffi::c_uint;
use std::slice;
use std::sync::Arc;

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::library::{Declined, Library, Outcome, library, lock};
use super::operations::{computed, empty, on_its_thread, with_addresses};

/// Values that a thread copies at once.
const PART: usize = 1 << 16;

/// Page-locked memory of the host.
struct Pinned {
    at: *mut f32,
    /// In values.
    length: usize,
    /// After the last copy from here to the GPU.
    copied: sys::CUevent,
}

// SAFETY: the memory may be used from any thread; it has one owner at a time.
unsafe impl Send for Pinned {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Pinned {}

/// Memory that is kept for the next values.
#[derive(Default)]
struct Free(Vec<Pinned>);

/// Memory that is kept at most; more is given back.
const KEPT: usize = 3;

impl Pinned {
    /// Memory for `length` values that no copy reads any more; a context is current.
    fn new(library: &mut Library, length: usize) -> Outcome<Self> {
        let free = &mut library.kept::<Free>().0;
        if let Some(found) = free.iter().position(|pinned| pinned.length >= length) {
            let pinned = free.swap_remove(found);
            // SAFETY: the event was created below and is destroyed with its memory.
            unsafe { result::event::synchronize(pinned.copied)? };
            return Ok(pinned);
        }
        let copied = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: a context is current; the memory belongs to this value until it is freed.
        let at = unsafe { result::malloc_host(length * size_of::<f32>(), 0 as c_uint)? };
        Ok(Pinned { at: at.cast(), length, copied })
    }

    /// Gives the memory back; a context is current.
    fn free(self) {
        // SAFETY: memory and event were made by `new` and have no other owner; freeing waits for copies from the memory. There is
        // nothing to do about a failure.
        unsafe {
            let _ = result::event::synchronize(self.copied);
            let _ = result::free_host(self.at.cast());
            let _ = result::event::destroy(self.copied);
        }
    }
}

/// Values in page-locked memory, to be copied to one GPU.
#[derive(Clone)]
pub(super) struct Staged(Arc<Values>);

struct Values {
    gpu: usize,
    length: usize,
    /// `None` only while it is dropped.
    pinned: Option<Pinned>,
}

impl Drop for Values {
    fn drop(&mut self) {
        let (Some(pinned), Ok(library)) = (self.pinned.take(), library(self.gpu)) else { return };
        let mut library = lock(&library);
        let free = &mut library.kept::<Free>().0;
        free.push(pinned);
        if free.len() > KEPT {
            let first = free.remove(0);
            let _ = library.with_context(|_| {
                first.free();
                Ok(())
            });
        }
    }
}

impl Staged {
    /// Copies values into page-locked memory.
    pub(super) fn new(gpu: usize, values: &[f32]) -> Outcome<Self> {
        let opened = library(gpu).map_err(Declined)?;
        let pinned = lock(&opened).with_context(|library| Pinned::new(library, values.len()))?;
        // SAFETY: the memory has room for these values, this is its only owner, and no copy reads it. Every bit pattern is an f32.
        let to = unsafe { slice::from_raw_parts_mut(pinned.at, values.len()) };
        let parts = to.par_chunks_mut(PART).zip(values.par_chunks(PART));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
        Ok(Staged(Arc::new(Values { gpu, length: values.len(), pinned: Some(pinned) })))
    }

    /// How many values there are.
    pub(super) fn length(&self) -> usize {
        self.0.length
    }

    /// Starts to copy them to `address`, where the GPU has room for them.
    pub(super) fn copy(&self, library: &mut Library, address: u64) -> Outcome<()> {
        let Some(pinned) = &self.0.pinned else { return Ok(()) };
        library.between("upload", |library| {
            // SAFETY: the memory holds so many values, and is not written before `copied` has happened; the caller holds the
            // memory on the GPU.
            unsafe {
                let values = slice::from_raw_parts(pinned.at, self.0.length);
                result::memcpy_htod_async(address, values, library.stream())?;
                result::event::record(pinned.copied, library.stream())?;
            }
            Ok(())
        })
    }
}

/// Values of the host as a tensor, `[length]`, on the device of `place`.
#[backend_extension(Cube, Fusion)]
pub(super) trait CudaUpload: Backend {
    /// See [`CudaUpload`].
    #[fusion(meta = |_place: &TensorSpec, values: &Staged| TensorSpec::new(Shape::from([values.length()]), DType::F32))]
    fn cuda_upload(place: FloatTensor<Self>, values: Staged) -> FloatTensor<Self>;
}

impl CudaUpload for CubeBackend {
    fn cuda_upload(place: CubeTensor, values: Staged) -> CubeTensor {
        on_its_thread(place.client.clone(), move || {
            let result = empty(&place, [values.length()], DType::F32);
            computed(with_addresses([&result], |library, [address]| values.copy(library, address)));
            result
        })
    }
}
