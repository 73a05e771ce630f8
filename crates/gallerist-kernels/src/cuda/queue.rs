//! Work for the engine's thread of a GPU, which starts everything on it in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cubecl::client::Client;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl_common::device_handle::DeviceHandle;

/// Our service on that thread. It has no state: the library has.
struct Work;

impl DeviceService for Work {
    fn init(_: DeviceId) -> Self {
        Work
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }
}

/// Hands `work` over to the thread of the client's GPU. It runs there after everything that was handed over before. The caller does
/// not wait: two threads that wait for each other take longer than most kernels.
pub(super) fn hand_over(client: &Client, work: impl FnOnce() + Send + 'static) {
    DeviceHandle::<Work>::new(client.service_id().device).submit(move |_| work());
}

/// Why work that was handed over failed; nobody was there to be told.
static REASON: Mutex<String> = Mutex::new(String::new());
static FAILED: AtomicBool = AtomicBool::new(false);

/// Remembers a failure of work that was handed over.
pub(super) fn fail(reason: String) {
    eprintln!("error: a kernel on the GPU failed, the results are wrong: {reason}");
    *REASON.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    FAILED.store(true, Ordering::Release);
}

/// Panics if work that was handed over has failed.
pub(super) fn check() {
    if FAILED.load(Ordering::Acquire) {
        panic!("a kernel on the GPU: {}", REASON.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
