//! Work that threads divide among themselves while they do it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Items in order, such as the rows of maps, of which each task has a range at first. It takes them from the front, and when
/// there are none, the second half of what another task has left. So the tasks end together, although one of them may be on a
/// thread that is slower, or that the system has stopped.
pub(crate) struct Shares {
    /// The first item and the end of each range.
    ranges: Vec<AtomicU64>,
}

impl Shares {
    /// # Panics
    ///
    /// If there are 2^32 items or more.
    pub(crate) fn new(items: usize, tasks: usize) -> Self {
        assert!(u32::try_from(items).is_ok(), "{items} items");
        let range = |task: usize| task * items / tasks..(task + 1) * items / tasks;
        Self { ranges: (0..tasks).map(|task| AtomicU64::new(packed(range(task)))).collect() }
    }

    /// The number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.ranges.len()
    }

    /// Items that `task` does next, at least one, if any are left. `some` tells the number of them from the range that is left; it
    /// is given no empty range, and a number that is too large means all.
    ///
    /// No item is given twice.
    pub(crate) fn take(&self, task: usize, some: impl Fn(Range<usize>) -> usize) -> Option<Range<usize>> {
        loop {
            let own = split(&self.ranges[task], |range| {
                let middle = range.start.saturating_add(some(range.clone()).max(1)).min(range.end);
                (range.start..middle, middle..range.end)
            });
            if own.is_some() {
                return own;
            }
            let left = |range: &&AtomicU64| unpacked(range.load(Ordering::Relaxed)).len();
            let most = self.ranges.iter().max_by_key(left).filter(|range| left(range) > 0)?;
            let taken = split(most, |range| {
                let middle = range.start + range.len() / 2;
                (middle..range.end, range.start..middle)
            });
            if let Some(range) = taken {
                // Others change a range only by `split`, which leaves this one alone while it is empty.
                self.ranges[task].store(packed(range), Ordering::Relaxed);
            }
        }
    }
}

/// Takes the first part out of a range and leaves the second one, unless it is empty.
///
/// An exchange succeeds only if nothing was taken since the range was read: ranges have items that were not given yet, so that none
/// comes a second time.
fn split(
    range: &AtomicU64,
    parts: impl Fn(Range<usize>) -> (Range<usize>, Range<usize>),
) -> Option<Range<usize>> {
    let mut value = range.load(Ordering::Relaxed);
    loop {
        let now = unpacked(value);
        if now.is_empty() {
            return None;
        }
        let (taken, left) = parts(now);
        match range.compare_exchange_weak(value, packed(left), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(taken),
            Err(changed) => value = changed,
        }
    }
}

fn packed(range: Range<usize>) -> u64 {
    (range.start as u64) << 32 | range.end as u64
}

fn unpacked(value: u64) -> Range<usize> {
    (value >> 32) as usize..(value & u64::from(u32::MAX)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_given_once_and_tasks_without_any_take_half_of_the_others() {
        let shares = Shares::new(10, 2);
        let two = |_: Range<usize>| 2;
        assert_eq!(shares.take(0, two), Some(0..2));
        assert_eq!(shares.take(0, |left| left.len()), Some(2..5));
        // Half of 5..10, rounded up.
        assert_eq!(shares.take(0, two), Some(7..9));
        assert_eq!(shares.take(1, |_| usize::MAX), Some(5..7));
        assert_eq!(shares.take(1, |_| 0), Some(9..10));
        assert_eq!([0, 1].map(|task| shares.take(task, two)), [None, None]);
        assert_eq!(Shares::new(0, 3).take(1, two), None);
    }

    #[test]
    fn threads_that_take_at_the_same_time_get_different_items() {
        let (items, tasks) = if cfg!(miri) { (60, 3) } else { (20_000, 4) };
        for round in 0..if cfg!(miri) { 2 } else { 50 } {
            let shares = Shares::new(items, tasks);
            let mut all: Vec<usize> = std::thread::scope(|scope| {
                let work = |task: usize| {
                    let some = move |left: Range<usize>| (left.start + task + round) % 5;
                    let shares = &shares;
                    move || std::iter::from_fn(|| shares.take(task, some)).flatten().collect::<Vec<_>>()
                };
                let threads: Vec<_> = (0..tasks).map(|task| scope.spawn(work(task))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            all.sort_unstable();
            assert!(all.into_iter().eq(0..items));
        }
    }
}
