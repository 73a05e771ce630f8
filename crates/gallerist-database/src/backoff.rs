//! How long to wait before a call is made again.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

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
}
