//! How long the work of this module takes on the GPU, while somebody measures it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::{DriverError, result, sys};

/// What the driver answers.
type Driven<T> = Result<T, DriverError>;

/// Two events around some work, by its name.
struct Timed {
    name: &'static str,
    started: sys::CUevent,
    ended: sys::CUevent,
}

// SAFETY: events may be used from any thread, by one at a time; these are used by the one that takes them out of the list.
unsafe impl Send for Timed {}

/// The work since the start of the measurement; `None` while nobody measures.
static TIMED: Mutex<Option<Vec<Timed>>> = Mutex::new(None);

fn timed() -> std::sync::MutexGuard<'static, Option<Vec<Timed>>> {
    TIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to measure the work of this module on all GPUs.
pub fn start_times() {
    timed().get_or_insert_default();
}

/// Waits for the work since [`start_times`] and returns its times on the GPU, each with the name of the kind of work.
pub fn stop_times() -> Vec<(&'static str, Duration)> {
    let all = timed().take().unwrap_or_default();
    let of = |timed: Timed| {
        let milliseconds = elapsed(timed.started, timed.ended).ok()?;
        Some((timed.name, Duration::from_secs_f32(milliseconds / 1000.0)))
    };
    all.into_iter().filter_map(of).collect()
}

/// Waits for both events, which are not used afterwards, and returns the milliseconds between them. Both are of [`recorded`].
pub(super) fn elapsed(started: sys::CUevent, ended: sys::CUevent) -> Driven<f32> {
    // SAFETY: both events were recorded on streams of one context, and are destroyed once, here. There is nothing to do about an event
    // that cannot be destroyed.
    unsafe {
        let waited = result::event::synchronize(ended);
        let milliseconds = waited.and_then(|()| result::event::elapsed(started, ended));
        let _ = result::event::destroy(started);
        let _ = result::event::destroy(ended);
        milliseconds
    }
}

/// A new event that has a time, recorded on `stream`; a context is current.
pub(super) fn recorded(stream: sys::CUstream) -> Driven<sys::CUevent> {
    let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
    // SAFETY: the event was created above, the stream lives as long as the library.
    unsafe { result::event::record(event, stream)? };
    Ok(event)
}

/// An event before work, if somebody measures.
pub(super) fn begin(stream: sys::CUstream) -> Driven<Option<sys::CUevent>> {
    let measures = timed().is_some();
    measures.then(|| recorded(stream)).transpose()
}

/// Notes the work named `name` since `started`.
pub(super) fn end(name: &'static str, started: Option<sys::CUevent>, stream: sys::CUstream) -> Driven<()> {
    if let Some(started) = started {
        let work = Timed { name, started, ended: recorded(stream)? };
        // Of a measurement that was stopped in between nothing is kept.
        if let Some(all) = timed().as_mut() {
            all.push(work);
        }
    }
    Ok(())
}
