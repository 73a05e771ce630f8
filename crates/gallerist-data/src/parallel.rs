//! Work on many images at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `work` for 0 to `count - 1`, in this order, computed on `threads` threads (0 counts as 1). `progress`
/// gets the number of results that are there.
pub(crate) fn each_in_parallel<T: Send>(
    count: usize,
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((0, Vec::with_capacity(count)));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        break;
                    }
                    let result = work(i);
                    let mut done = done.lock().expect("no code panics while holding it");
                    done.0 += 1;
                    done.1.push((i, result));
                    progress(done.0);
                }
            });
        }
    });
    let mut results = done.into_inner().expect("no thread is left").1;
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
