//! The thread that starts the operations of a pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gallerist_collective::Shared;

use crate::product::Choice;

/// Runs `work`, such as a forward pass, on a thread of rayon's pool, and waits for it.
///
/// Every operation divides its work among these threads. An operation that another thread starts wakes one of them at
/// its start and is woken at its end; a network runs hundreds of operations in a step. The products of
/// [`with_products`](crate::with_products) and the ranks of [`Shared::within`] apply to `work`.
///
/// Use it for passes that run one after the other, as in training. Do not use it for concurrent passes, as in a server: a
/// thread that waits for a part of one pass may start another one, which delays the first.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::ones([1, 3, 4, 4], &device);
/// let weight = Tensor::<4>::ones([8, 3, 3, 3], &device);
/// let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
/// let y = gallerist_kernels::on_worker(|| gallerist_kernels::conv2d(x, weight, None, options));
/// assert_eq!(y.dims(), [1, 8, 4, 4]);
/// ```
pub fn on_worker<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let (choice, ranks) = (Choice::current(), Shared::current());
    rayon::scope(|_| choice.scope(|| Shared::scope(ranks, work)))
}

/// Runs `work`, which divides one short operation after another among the threads of rayon's pool. Meanwhile the other threads
/// look for work in a loop: to wake one that went to sleep after an operation takes longer than some operations do.
///
/// Of concurrent calls, only the first keeps the threads awake. A thread that is busy then is waited for only briefly.
pub(crate) fn awake<R>(work: impl FnOnce() -> R) -> R {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if rayon::current_num_threads() == 1 || TAKEN.swap(true, Ordering::Acquire) {
        return work();
    }

    /// Ends the loops, also if `work` panics.
    struct End(Arc<Watch>);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.ended.store(true, Ordering::Relaxed);
            TAKEN.store(false, Ordering::Release);
        }
    }
    let end = End(Arc::default());
    let watch = end.0.clone();
    rayon::spawn_broadcast(move |_| watch.keep());
    // A thread of the pool does not come to its own job before it waits for a part of the work.
    end.0.begin(rayon::current_num_threads() - usize::from(rayon::current_thread_index().is_some()));
    work()
}

/// What the threads that look for work know of the work.
///
/// A thread that waits for a part of an operation may start any other job meanwhile. If it started to look for work until the
/// whole work has ended, it would never return to the operation that it is needed for. Therefore only threads that come before the
/// work begins stay: they cannot be in the middle of one of its operations.
///
/// Nothing else lies in its cache lines, which these threads read all the time: passes of MobileNetV2 took 15 % longer.
#[derive(Default)]
#[repr(align(128))]
struct Watch {
    arrived: AtomicUsize,
    begun: AtomicBool,
    ended: AtomicBool,
}

impl Watch {
    /// Waits until `threads` have arrived, but not for long, and lets no others stay.
    fn begin(&self, threads: usize) {
        /// Somewhat longer than it takes to wake a thread.
        const LONGEST: Duration = Duration::from_micros(100);

        let start = Instant::now();
        while self.arrived.load(Ordering::Relaxed) < threads && start.elapsed() < LONGEST {
            std::hint::spin_loop();
        }
        // Seen by every thread that has taken a part of an operation: the operation was handed over after this.
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Looks for work on this thread until the end, or not at all if the work has begun.
    fn keep(&self) {
        /// Attempts to find work before the system may run another thread.
        const PATIENCE: u32 = 100;

        if self.begun.load(Ordering::Relaxed) {
            return;
        }
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let mut idle = 0;
        while !self.ended.load(Ordering::Relaxed) {
            match rayon::yield_now() {
                Some(rayon::Yield::Executed) => idle = 0,
                _ if idle < PATIENCE => {
                    idle += 1;
                    (0..16).for_each(|_| std::hint::spin_loop());
                }
                _ => std::thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;
    use crate::product::{Precision, Unit};

    #[test]
    fn the_choice_of_products_is_inherited() {
        let choice = Choice { precision: Precision::Bf16(Unit::PORTABLE), winograd: true };
        assert_eq!(choice.scope(|| on_worker(Choice::current)), choice);
        assert!(!on_worker(Choice::current).winograd);
    }

    #[test]
    fn work_runs_where_loops_run() {
        assert!(on_worker(rayon::current_thread_index).is_some());
        assert!(on_worker(|| on_worker(rayon::current_thread_index)).is_some());
    }

    #[test]
    fn threads_that_are_kept_awake_do_the_work_and_are_let_go() {
        let sum = |to: usize| (0..to).into_par_iter().with_max_len(1).sum::<usize>();
        let (most, callers) = if cfg!(miri) { (5, 3) } else { (100, 8) };
        let sums = || awake(|| (0..most).map(sum).sum::<usize>());
        let wanted: usize = (0..most).map(|to: usize| (0..to).sum::<usize>()).sum();
        assert_eq!(sums(), wanted);
        assert_eq!(on_worker(sums), wanted);
        // One within another, and several at a time.
        assert_eq!(awake(sums), wanted);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..callers)
                .map(|i| scope.spawn(move || if i % 2 == 0 { on_worker(sums) } else { sums() }))
                .collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == wanted));
        });
        assert!(std::panic::catch_unwind(|| awake(|| panic!("in the work"))).is_err());
        assert_eq!(sums(), wanted);
    }
}
