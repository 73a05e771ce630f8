//! NVIDIA's libraries on one GPU: handles, stream, scratch memory, and the order of their work with that of the engine.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::cublas::sys as blas;
use cudarc::cudnn::sys as dnn;
use cudarc::driver::{result, sys};

use super::notes::note;
use super::times;

/// Most scratch memory that an algorithm may take, in bytes.
pub(super) const MAX_WORKSPACE: usize = 1 << 30;

/// Why a library did not compute. The engine computes in its place.
#[derive(Debug)]
pub(super) struct Declined(pub(super) String);

impl From<result::DriverError> for Declined {
    fn from(error: result::DriverError) -> Self {
        Declined(format!("driver: {error:?}"))
    }
}

pub(super) type Outcome<T> = Result<T, Declined>;

/// The status of a call of cuDNN as a result.
pub(super) fn checked(call: &str, status: dnn::cudnnStatus_t) -> Outcome<()> {
    match status {
        dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        status => Err(Declined(format!("{call}: {status:?}"))),
    }
}

/// The status of a call of cuBLAS as a result.
pub(super) fn blas_checked(call: &str, status: blas::cublasStatus_t) -> Outcome<()> {
    match status {
        blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(Declined(format!("{call}: {status:?}"))),
    }
}

/// The libraries on one GPU. They compute on a stream of their own: the engine does not give its streams away.
pub(super) struct Library {
    pub(super) handle: dnn::cudnnHandle_t,
    context: sys::CUcontext,
    stream: sys::CUstream,
    engine_done: sys::CUevent,
    ours_done: sys::CUevent,
    /// The driver orders streams by events of the whole context (CUDA 12.5 and newer); otherwise the host waits.
    ordered: bool,
    workspace: (sys::CUdeviceptr, usize),
    device: sys::CUdevice,
    blas: Option<blas::cublasHandle_t>,
    /// What the users of the library keep with it, by type.
    kept: HashMap<TypeId, Box<dyn Any>>,
}

// SAFETY: the handles of CUDA and cuDNN may be used from any thread, by one at a time; the library is behind a mutex, and
// every use makes its context current first.
unsafe impl Send for Library {}

type Opened = Result<Arc<Mutex<Library>>, String>;

/// The library of a GPU, or why there is none. It is opened once.
pub(super) fn library(gpu: usize) -> Opened {
    static OPENED: OnceLock<Mutex<HashMap<usize, Opened>>> = OnceLock::new();
    let mut opened = OPENED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let open = || match Library::open(gpu) {
        Ok(library) => Ok(Arc::new(Mutex::new(library))),
        Err(Declined(reason)) => Err(reason),
    };
    opened.entry(gpu).or_insert_with(open).clone()
}

pub(super) fn lock(library: &Mutex<Library>) -> MutexGuard<'_, Library> {
    library.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    fn open(gpu: usize) -> Outcome<Self> {
        // SAFETY: opening the vendor's library runs its initialisers, which is what using it means.
        if !unsafe { dnn::is_culib_present() } {
            return Err(Declined("cuDNN (libcudnn) is not found".into()));
        }
        // SAFETY: as for cuDNN.
        if !unsafe { blas::is_culib_present() } {
            return Err(Declined("cuBLAS (libcublas) is not found".into()));
        }
        let device = result::device::get(gpu as i32)?;
        // SAFETY: the device exists; the primary context, which the engine uses too, is retained until the process ends.
        let context = unsafe { result::primary_ctx::retain(device)? };
        // SAFETY: the context was retained above.
        unsafe { result::ctx::set_current(context)? };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let (engine_done, ours_done) = (event()?, event()?);
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current, and `handle` is a place for a handle.
        checked("cudnnCreate", unsafe { dnn::cudnnCreate(&mut handle) })?;
        // SAFETY: handle and stream were created above, in the same context.
        checked("cudnnSetStream", unsafe { dnn::cudnnSetStream(handle, stream.cast()) })?;
        let mut library = Library {
            handle,
            context,
            stream,
            engine_done,
            ours_done,
            ordered: true,
            workspace: (0, 0),
            device,
            blas: None,
            kept: HashMap::new(),
        };
        library.ordered = library.after_the_engine().and_then(|()| library.before_the_engine()).is_ok();
        if !library.ordered {
            note("the driver has no events of a context; the host waits for each operation");
        }
        Ok(library)
    }

    /// Runs `work`, which starts kernels on the library's stream: on the device they run after everything that the engine has
    /// started, and what it starts next runs after them. The host does not wait.
    /// `name` is that of the work in [`stop_times`](super::stop_times).
    pub(super) fn between<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.with_context(|library| {
            library.after_the_engine()?;
            let started = times::begin(library.stream)?;
            let done = work(library);
            times::end(name, started, library.stream)?;
            library.before_the_engine()?;
            done
        })
    }

    /// Runs `work` with the GPU's context as the current one.
    pub(super) fn with_context<T>(&mut self, work: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        // SAFETY: the context is retained as long as the process runs.
        unsafe { result::ctx::set_current(self.context)? };
        work(self)
    }

    /// The milliseconds that the GPU takes for work on the library's stream, for which the host waits.
    pub(super) fn milliseconds(&mut self, work: impl FnOnce(&mut Self) -> Outcome<()>) -> Outcome<f32> {
        let started = times::recorded(self.stream)?;
        work(self)?;
        let ended = times::recorded(self.stream)?;
        Ok(times::elapsed(started, ended)?)
    }

    fn after_the_engine(&self) -> Outcome<()> {
        // SAFETY: context, stream and event belong together and live as long as the library. The event captures the work of
        // all streams of the context, those of the engine among them.
        unsafe {
            if !self.ordered {
                return Ok(sys::cuCtxSynchronize().result()?);
            }
            sys::cuCtxRecordEvent(self.context, self.engine_done).result()?;
            sys::cuStreamWaitEvent(self.stream, self.engine_done, 0).result()?;
        }
        Ok(())
    }

    fn before_the_engine(&self) -> Outcome<()> {
        // SAFETY: as above.
        unsafe {
            if !self.ordered {
                return Ok(sys::cuStreamSynchronize(self.stream).result()?);
            }
            sys::cuEventRecord(self.ours_done, self.stream).result()?;
            sys::cuCtxWaitEvent(self.context, self.ours_done).result()?;
        }
        Ok(())
    }

    /// Scratch memory of at least `size` bytes, for the next kernel on the library's stream.
    pub(super) fn workspace(&mut self, size: usize) -> Outcome<*mut c_void> {
        let (pointer, held) = self.workspace;
        if size > held {
            if held > 0 {
                // SAFETY: the pointer came from `malloc_sync`; freeing waits for the kernels that use it.
                unsafe { result::free_sync(pointer)? };
                self.workspace = (0, 0);
            }
            // SAFETY: a context is current.
            self.workspace = (unsafe { result::malloc_sync(size)? }, size);
        }
        Ok(self.workspace.0 as *mut c_void)
    }

    /// What is kept with the library, one value of each type.
    pub(super) fn kept<T: Default + 'static>(&mut self) -> &mut T {
        let value = self.kept.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        value.downcast_mut().expect("the value of a type has this type")
    }

    /// The handle of cuBLAS, on the library's stream.
    pub(super) fn blas(&mut self) -> Outcome<blas::cublasHandle_t> {
        if let Some(handle) = self.blas {
            return Ok(handle);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current, and `handle` is a place for a handle.
        blas_checked("cublasCreate", unsafe { blas::cublasCreate_v2(&mut handle) })?;
        // SAFETY: handle and stream belong to the same context.
        blas_checked("cublasSetStream", unsafe { blas::cublasSetStream_v2(handle, self.stream.cast()) })?;
        self.blas = Some(handle);
        Ok(handle)
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// The compute capability without the point: 90 for 9.0.
    pub(super) fn capability(&self) -> Outcome<i32> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: the device exists.
        let [major, minor] =
            [MAJOR, MINOR].map(|which| unsafe { result::device::get_attribute(self.device, which) });
        Ok(10 * major? + minor?)
    }
}
