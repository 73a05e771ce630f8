//! Values of the host on their way to the GPU. All threads copy them into page-locked memory, and the GPU copies them from there; the
//! host does not wait for that.

use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::library::{Declined, Library, Outcome, library, lock};
use super::operations::{empty, start};

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

/// Memory that is kept for the next values, by the number of the GPU. It has a lock of its own, because values are also dropped where
/// the library is in use.
static FREE: Mutex<Vec<(usize, Pinned)>> = Mutex::new(Vec::new());

/// Memory that is kept at most; more is given back.
const KEPT: usize = 3;

fn free() -> MutexGuard<'static, Vec<(usize, Pinned)>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pinned {
    /// Memory for `length` values that no copy reads any more; the context of the GPU is current.
    fn new(gpu: usize, length: usize) -> Outcome<Self> {
        let (found, surplus) = {
            let mut free = free();
            let fits = |(of, pinned): &(usize, Pinned)| *of == gpu && pinned.length >= length;
            let found = free.iter().position(fits).map(|at| free.swap_remove(at).1);
            let surplus: Vec<(usize, Pinned)> = match free.len() > KEPT {
                true => free.extract_if(.., |(of, _)| *of == gpu).collect(),
                false => Vec::new(),
            };
            (found, surplus)
        };
        surplus.into_iter().for_each(|(_, pinned)| pinned.give_back());
        if let Some(pinned) = found {
            // SAFETY: the event was created below and is destroyed with its memory.
            unsafe { result::event::synchronize(pinned.copied)? };
            return Ok(pinned);
        }
        let copied = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: a context is current; the memory belongs to this value until it is given back.
        let at = unsafe { result::malloc_host(length * size_of::<f32>(), 0)? };
        Ok(Pinned { at: at.cast(), length, copied })
    }

    /// Gives the memory back to the system; the context of the GPU is current.
    fn give_back(self) {
        // SAFETY: memory and event were made by `new` and have no other owner; copies from the memory have ended. There is nothing
        // to do about a failure.
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
        free().extend(self.pinned.take().map(|pinned| (self.gpu, pinned)));
    }
}

impl Staged {
    /// Copies values into page-locked memory.
    pub(super) fn new(gpu: usize, values: &[f32]) -> Outcome<Self> {
        let opened = library(gpu).map_err(Declined)?;
        let pinned = lock(&opened).with_context(|_| Pinned::new(gpu, values.len()))?;
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
        let pinned = self.0.pinned.as_ref().expect("it is taken only when the values are dropped");
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
        let result = empty(&place, [values.length()], DType::F32);
        start([&result], move |library, [address]| values.copy(library, address));
        result
    }
}
