//! Which kernels a GPU runs, and how long they take (features `cuda` and `wgpu`): those of the engine, and the work of
//! [`gallerist_kernels`] on NVIDIA GPUs by its kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cubecl::future::block_on;
use cubecl::logging::{LaunchObservation, LaunchObserver, ProfileDuration, TimingMethod, TimingRequest};

/// All runs of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The engine's name of the kernel, without paths, or the name of a kind of work (`cuDNN: convolution`).
    pub kernel: String,
    /// How often it ran.
    pub runs: u64,
    /// Its time on the device in seconds, all runs together.
    pub seconds: f64,
}

/// What [`KernelTimes::stop`] returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    /// The kernels, the longest time first.
    pub kernels: Vec<KernelTime>,
    /// From the start of the engine's first kernel to the end of its last, in seconds.
    pub span: f64,
}

/// Measures every kernel that this process starts on a GPU, from [`KernelTimes::start`] to [`KernelTimes::stop`].
///
/// The device does not wait between kernels for the measurement, but the thread that starts them does a little more work.
pub struct KernelTimes {
    since: Instant,
    measured: Arc<Measured>,
    observation: LaunchObservation,
}

#[derive(Default)]
struct Measured {
    pending: Mutex<Vec<(&'static str, ProfileDuration)>>,
    known: Mutex<Vec<(&'static str, Duration)>>,
}

impl LaunchObserver for Measured {
    fn launched(&self, _: &'static str) {}

    fn timing(&self) -> TimingRequest {
        TimingRequest::Deferred
    }

    fn profiled(&self, kernel: &'static str, profile: ProfileDuration) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).push((kernel, profile));
    }

    /// In place of `profiled`, if the engine's own profiling log is on.
    fn timed(&self, kernel: &'static str, duration: Duration, _: TimingMethod) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).push((kernel, duration));
    }
}

impl KernelTimes {
    /// Starts to measure.
    pub fn start() -> Self {
        let measured = Arc::new(Measured::default());
        #[cfg(feature = "cuda")]
        gallerist_kernels::cuda::start_times();
        KernelTimes { since: Instant::now(), observation: LaunchObservation::new(measured.clone()), measured }
    }

    /// Waits for the kernels that were started and returns their times.
    pub fn stop(self) -> Kernels {
        drop(self.observation);
        let pending =
            std::mem::take(&mut *self.measured.pending.lock().unwrap_or_else(PoisonError::into_inner));
        let mut times =
            std::mem::take(&mut *self.measured.known.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut first, mut last) = (Duration::MAX, Duration::ZERO);
        for (kernel, profile) in pending {
            let Some(ticks) = block_on(profile.resolve()) else { continue };
            first = first.min(ticks.start_duration_since(self.since));
            last = last.max(ticks.end_duration_since(self.since));
            times.push((kernel, ticks.duration()));
        }
        #[cfg(feature = "cuda")]
        times.extend(gallerist_kernels::cuda::stop_times());
        let mut sums: HashMap<String, (u64, f64)> = HashMap::new();
        for (kernel, time) in times {
            let (runs, seconds) = sums.entry(without_paths(kernel)).or_default();
            *runs += 1;
            *seconds += time.as_secs_f64();
        }
        let mut kernels: Vec<KernelTime> =
            sums.into_iter().map(|(kernel, (runs, seconds))| KernelTime { kernel, runs, seconds }).collect();
        kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.kernel.cmp(&b.kernel)));
        Kernels { kernels, span: last.saturating_sub(first).as_secs_f64() }
    }
}

/// `a::b::C<d::E>` as `C<E>`.
fn without_paths(name: &str) -> String {
    let mut short = String::new();
    for part in name.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        short.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    short
}

#[cfg(test)]
mod tests {
    use super::without_paths;

    #[test]
    fn names_have_no_paths() {
        assert_eq!(without_paths("a::b::C<d::e::F, g::H<u32>>"), "C<F, H<u32>>");
        assert_eq!(without_paths("Kernel"), "Kernel");
    }
}
