//! How long to wait before a call is made again.

use std::time::{Duration, Instant};

use crate::Result;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The longest time between two questions whether something is done.
const LONGEST_POLL: Duration = Duration::from_millis(500);

/// Waits that double from 0.1 s to 5 s, each shortened by up to a half at random, so that many
/// clients of a server that comes back do not call at the same moment.
pub(crate) struct Backoff {
    deadline: Instant,
    next: Duration,
}

impl Backoff {
    /// Waits for no longer than `patience` in all.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, next: FIRST }
    }

    /// The next wait, or `None` where patience has run out.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let wait = self.next.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.next = (2 * self.next).min(LONGEST);
        Some(wait.min(left))
    }
}

/// Calls `left` until it is 0; false if it has not fallen for `patience`.
pub(crate) fn falls_to_none(mut left: impl FnMut() -> Result<usize>, patience: Duration) -> Result<bool> {
    let mut least = usize::MAX;
    let mut backoff = Backoff::new(patience);
    loop {
        let now = left()?;
        if now == 0 {
            return Ok(true);
        }
        if now < least {
            (least, backoff) = (now, Backoff::new(patience));
        }
        let Some(pause) = backoff.next() else { return Ok(false) };
        std::thread::sleep(pause.min(LONGEST_POLL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_end_with_patience() {
        let mut backoff = Backoff::new(Duration::from_secs(3600));
        let mut longest = FIRST;
        for _ in 0..12 {
            let wait = backoff.next().unwrap();
            assert!(longest / 2 <= wait && wait <= longest, "{wait:?} of at most {longest:?}");
            longest = (2 * longest).min(LONGEST);
        }
        assert_eq!(longest, LONGEST);
        assert_eq!(Backoff::new(Duration::ZERO).next(), None);
        assert!(Backoff::new(Duration::from_millis(20)).next().unwrap() <= Duration::from_millis(20));
    }

    #[test]
    fn a_number_that_falls_is_waited_for_and_one_that_stays_is_given_up() {
        let patience = Duration::from_millis(300);
        let start = Instant::now();
        let falling = || Ok(1_000_usize.saturating_sub(start.elapsed().as_millis() as usize));
        assert!(falls_to_none(falling, patience).unwrap(), "more than three times the patience");
        let start = Instant::now();
        assert!(!falls_to_none(|| Ok(7), patience).unwrap());
        assert!(start.elapsed() >= patience);
        assert!(falls_to_none(|| Ok(0), Duration::ZERO).unwrap());
    }
}
