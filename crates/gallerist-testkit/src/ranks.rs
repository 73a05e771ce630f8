//! Ranks as threads of one process: what several ranks compute is tested without MPI.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gallerist_collective::{Collective, Error, Result};

/// For how long a rank waits for the others: one of them may have panicked.
const PATIENCE: Duration = Duration::from_secs(60);

/// One of several ranks.
#[derive(Debug)]
pub struct ThreadRank {
    rank: usize,
    shared: Arc<Shared>,
    second: Option<Arc<ThreadRank>>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What every rank sends to every rank.
    sent: Vec<Option<Vec<Vec<u8>>>>,
    /// Ranks that have read it.
    readers: usize,
}

/// Calls `work` on a thread for every rank of `size`; returns the results in the order of the ranks.
///
/// # Panics
///
/// If a rank panics.
pub fn with_ranks<R: Send>(size: usize, work: impl Fn(Arc<dyn Collective>) -> R + Sync) -> Vec<R> {
    let connection = || {
        let state = Mutex::new(State { sent: vec![None; size], readers: 0 });
        Arc::new(Shared { size, state, changed: Condvar::new() })
    };
    let (first, second) = (connection(), connection());
    std::thread::scope(|scope| {
        let start = |rank| {
            let work = &work;
            let second = Arc::new(ThreadRank { rank, shared: second.clone(), second: None });
            let rank = Arc::new(ThreadRank { rank, shared: first.clone(), second: Some(second) });
            scope.spawn(move || work(rank))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank has panicked")).collect()
    })
}

impl ThreadRank {
    /// Waits until `ready`, and then changes the state.
    fn when<R>(&self, ready: impl Fn(&State) -> bool, change: impl FnOnce(&mut State) -> R) -> Result<R> {
        let state = self.shared.state.lock().expect("no rank panics with the lock");
        let waited = self.shared.changed.wait_timeout_while(state, PATIENCE, |state| !ready(state));
        let (mut state, waited) = waited.expect("no rank panics with the lock");
        if waited.timed_out() {
            let (own, size, seconds) = (self.rank, self.shared.size, PATIENCE.as_secs());
            return Err(Error::Timeout { own, size, seconds, operation: "a test" });
        }
        let result = change(&mut state);
        self.shared.changed.notify_all();
        Ok(result)
    }
}

impl Collective for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn second(&self) -> Option<Arc<dyn Collective>> {
        self.second.clone().map(|second| second as Arc<dyn Collective>)
    }

    fn all_gather(&self, own: &[u8], lengths: &[usize]) -> Result<Vec<u8>> {
        self.all_to_all(&vec![own; self.size()], lengths)
    }

    fn all_to_all(&self, parts: &[&[u8]], lengths: &[usize]) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank, self.shared.size);
        assert_eq!((parts.len(), lengths.len()), (size, size), "parts and lengths of {size} ranks");
        let own = parts.iter().map(|part| part.to_vec()).collect();
        // The operation before may not have been read by all.
        self.when(
            |state| state.readers == 0 && state.sent[rank].is_none(),
            |state| state.sent[rank] = Some(own),
        )?;
        let all_sent = |state: &State| state.readers > 0 || state.sent.iter().all(Option::is_some);
        self.when(all_sent, |state| {
            let of_ranks = state.sent.iter().map(|sent| sent.as_ref().expect("all have sent")[rank].clone());
            let of_ranks: Vec<Vec<u8>> = of_ranks.collect();
            let found: Vec<usize> = of_ranks.iter().map(Vec::len).collect();
            assert_eq!(found, lengths, "lengths that rank {rank} expects: the ranks are out of step");
            state.readers += 1;
            if state.readers == size {
                *state = State { sent: vec![None; size], readers: 0 };
            }
            of_ranks.concat()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_the_bytes_of_all_in_their_order() {
        for size in [1, 2, 3, 8] {
            let all = with_ranks(size, |ranks| {
                let own = vec![ranks.rank() as u8; ranks.rank() * 3];
                (0..50).map(|_| ranks.all_gather_any(&own).unwrap()).collect::<Vec<_>>()
            });
            let wanted: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8; rank * 3]).collect();
            assert!(all.iter().flatten().all(|found| *found == wanted), "{size} ranks");
        }
    }

    #[test]
    fn sums_are_those_of_the_values_in_the_order_of_the_ranks() {
        for size in [1, 2, 3, 4, 8] {
            for length in [0, 1, 63, 4096, 4097, 10_007] {
                let value =
                    |rank: usize, i: usize| ((i * 7919 + rank * 104_729) % 1009) as f32 * 0.37 - 100.0;
                let sums = with_ranks(size, |ranks| {
                    let mut values: Vec<f32> = (0..length).map(|i| value(ranks.rank(), i)).collect();
                    ranks.all_reduce(&mut values).unwrap();
                    values
                });
                let wanted = |i| (0..size).map(|rank| f64::from(value(rank, i))).sum::<f64>() as f32;
                let wanted: Vec<f32> = (0..length).map(wanted).collect();
                assert!(sums.iter().all(|sums| *sums == wanted), "{length} values of {size} ranks");
            }
        }
    }

    #[test]
    fn the_bytes_of_rank_0_are_broadcast_and_a_flag_of_any_rank_is_known_to_all() {
        let found = with_ranks(3, |ranks| {
            let mut bytes = vec![7 + ranks.rank() as u8; 4];
            ranks.broadcast(&mut bytes).unwrap();
            ranks.barrier().unwrap();
            let flags = [ranks.any(ranks.rank() == 2).unwrap(), ranks.any(false).unwrap()];
            let agreed =
                [ranks.agree(b"same", "").is_ok(), ranks.agree(&[ranks.rank() as u8 / 2], "").is_ok()];
            (bytes, flags, agreed)
        });
        assert!(found.iter().all(|found| *found == (vec![7; 4], [true, false], [true, false])), "{found:?}");
    }
}
