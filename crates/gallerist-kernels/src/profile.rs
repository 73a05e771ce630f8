//! A profile of the kernels: wall time, calls and multiply-adds of every operation and size.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::geometry::Geometry;

static RUNNING: AtomicBool = AtomicBool::new(false);
static TIMES: Mutex<Option<HashMap<Key, Sum>>> = Mutex::new(None);

type Key = (&'static str, Option<[usize; 12]>);

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    time: Duration,
    fastest: Duration,
    multiply_adds: u64,
}

/// The cost of one operation at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Name of the operation, such as `convolution, weight gradient`.
    pub operation: &'static str,
    /// Sizes of a convolution, such as `16 x 28 x 28 x 192 to 64, 3 x 3`; empty for others.
    pub sizes: String,
    /// How often it ran.
    pub calls: u64,
    /// Wall time of all calls, in seconds.
    pub seconds: f64,
    /// Wall time of the fastest call, in seconds: closest to the time on an idle machine.
    pub fastest: f64,
    /// Multiply-adds of all calls; 0 for operations that are limited by memory bandwidth.
    pub multiply_adds: u64,
}

/// Starts to measure every kernel of this process, from zero.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
/// use gallerist_kernels::profile;
///
/// profile::start();
/// let device = Device::flex();
/// let x = Tensor::<4>::ones([1, 8, 9, 9], &device);
/// let weight = Tensor::<4>::ones([4, 8, 3, 3], &device);
/// gallerist_kernels::conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
/// let timings = profile::stop();
/// let convolution = timings.iter().find(|timing| timing.operation == "convolution").unwrap();
/// assert_eq!(convolution.sizes, "1 x 9 x 9 x 8 to 4, 3 x 3");
/// assert_eq!(convolution.multiply_adds, 9 * 9 * 4 * 8 * 3 * 3);
/// ```
pub fn start() {
    *times() = Some(HashMap::new());
    RUNNING.store(true, Ordering::Relaxed);
}

/// Stops the measurement. Returns the cost of every operation, the longest wall time first.
pub fn stop() -> Vec<Timing> {
    RUNNING.store(false, Ordering::Relaxed);
    let sums = times().take().unwrap_or_default();
    let mut timings: Vec<Timing> = sums
        .into_iter()
        .map(|((operation, sizes), sum)| Timing {
            operation,
            sizes: sizes.map(described).unwrap_or_default(),
            calls: sum.calls,
            seconds: sum.time.as_secs_f64(),
            fastest: sum.fastest.as_secs_f64(),
            multiply_adds: sum.multiply_adds,
        })
        .collect();
    timings.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.sizes.cmp(&b.sizes)));
    timings
}

/// Pauses the measurement until the result is dropped.
#[must_use = "measuring resumes when this is dropped"]
pub fn pause() -> Pause {
    Pause { running: RUNNING.swap(false, Ordering::Relaxed) }
}

/// A pause of the measurement ([`pause`]).
#[derive(Debug)]
pub struct Pause {
    running: bool,
}

impl Drop for Pause {
    fn drop(&mut self) {
        if self.running {
            RUNNING.store(true, Ordering::Relaxed);
        }
    }
}

fn times() -> MutexGuard<'static, Option<HashMap<Key, Sum>>> {
    TIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures until it is dropped.
pub(crate) struct Scope(Option<(Key, u64, Instant)>);

/// Measures an operation, if measuring is on. Scopes are not nested: no time counts twice.
pub(crate) fn scope(operation: &'static str) -> Scope {
    Scope(RUNNING.load(Ordering::Relaxed).then(|| ((operation, None), 0, Instant::now())))
}

/// Measures a convolution, or `passes` of its gradients.
pub(crate) fn convolution(operation: &'static str, sizes: &Geometry, passes: usize) -> Scope {
    let window = sizes.taps() * sizes.channels_in_group();
    sized(operation, sizes, passes * sizes.output.len() * window)
}

/// Measures an operation with the sizes of a convolution.
pub(crate) fn sized(operation: &'static str, sizes: &Geometry, multiply_adds: usize) -> Scope {
    Scope(RUNNING.load(Ordering::Relaxed).then(|| {
        let Geometry { input, output, kernel, stride, groups, .. } = sizes;
        let key = [
            input.images,
            input.height,
            input.width,
            input.channels,
            output.height,
            output.width,
            output.channels,
            kernel[0],
            kernel[1],
            stride[0],
            stride[1],
            *groups,
        ];
        ((operation, Some(key)), multiply_adds as u64, Instant::now())
    }))
}

impl Drop for Scope {
    fn drop(&mut self) {
        let Some((key, multiply_adds, start)) = self.0.take() else { return };
        let time = start.elapsed();
        if let Some(sums) = times().as_mut() {
            let sum = sums.entry(key).or_default();
            sum.fastest = if sum.calls == 0 { time } else { sum.fastest.min(time) };
            sum.calls += 1;
            sum.time += time;
            sum.multiply_adds += multiply_adds;
        }
    }
}

fn described(sizes: [usize; 12]) -> String {
    let [images, height, width, inputs, _, _, outputs, a, b, down, right, groups] = sizes;
    let mut text = format!("{images} x {height} x {width} x {inputs} to {outputs}, {a} x {b}");
    if [down, right] != [1, 1] {
        text += &format!(", stride {down}");
    }
    if groups > 1 {
        text += &format!(", {groups} groups");
    }
    text
}
