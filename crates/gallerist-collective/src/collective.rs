//! The trait.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::numbers::{bytes_of, numbers_of};
use crate::placement::{self, Placement};
use crate::sum::{self, BUCKET, FEW};
use crate::{Error, Result};

/// Bytes that the ranks exchange at once in [`Collective::all_gather_any`].
const AT_ONCE: usize = 1 << 28;

/// The ranks of a run.
///
/// Every rank calls the same operations in the same order; an operation returns when all ranks have called it. After an
/// error, the ranks are out of step: the process is to end.
pub trait Collective: Debug + Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The bytes of all ranks, in their order. `lengths` has the number of bytes of every rank.
    ///
    /// # Errors
    ///
    /// When another rank is gone or does not come.
    fn all_gather(&self, own: &[u8], lengths: &[usize]) -> Result<Vec<u8>>;

    /// Sends `parts[r]` to rank `r`, and returns what the ranks have sent here, in their order. `lengths[r]` is the
    /// number of bytes that rank `r` sends here.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn all_to_all(&self, parts: &[&[u8]], lengths: &[usize]) -> Result<Vec<u8>>;

    /// A second connection of the same ranks. Another thread may use it while this one is used, and the two need not be
    /// in step. Nothing if there is only one.
    fn second(&self) -> Option<Arc<dyn Collective>> {
        None
    }

    /// Limits the time that an operation waits for the other ranks.
    fn set_timeout(&self, _timeout: Duration) {}

    /// Declares that this rank needs the others no more. A process that ends without this call ends all ranks.
    fn finish(&self) {}

    /// The bytes of every rank, whose numbers need not be known.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn all_gather_any(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let words = self.all_gather(&(own.len() as u64).to_ne_bytes(), &vec![8; self.size()])?;
        let length = |word: &[u8]| u64::from_ne_bytes(word.try_into().expect("8 bytes")) as usize;
        let lengths: Vec<usize> = words.chunks_exact(8).map(length).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let step = (AT_ONCE / self.size()).max(1);
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        for start in (0..longest).step_by(step) {
            let now = |length: usize| start.min(length)..(start + step).min(length);
            let of_ranks: Vec<usize> = lengths.iter().map(|&length| now(length).len()).collect();
            let gathered = self.all_gather(&own[now(own.len())], &of_ranks)?;
            let mut rest = &gathered[..];
            for (all, length) in all.iter_mut().zip(of_ranks) {
                let (part, others) = rest.split_at(length);
                all.extend_from_slice(part);
                rest = others;
            }
        }
        Ok(all)
    }

    /// Replaces `values` on every rank by the sums over the ranks. Each sum is accumulated in f64 in the order of the
    /// ranks; all ranks have the same number of values, and get the same bits.
    ///
    /// Every rank sends and receives `2 (n - 1) / n` times the bytes of the values.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        if values.len() <= FEW {
            let bytes = bytes_of(values);
            let all = self.all_gather(bytes, &vec![bytes.len(); size])?;
            sum::add(&numbers_of(&all), values);
            return Ok(());
        }
        // Every rank receives one part of the values from all ranks, sums it, and sends the sums to all.
        for bucket in values.chunks_mut(BUCKET) {
            let parts: Vec<_> = (0..size).map(|rank| part(bucket.len(), rank, size)).collect();
            let sent: Vec<&[u8]> = parts.iter().map(|part| bytes_of(&bucket[part.clone()])).collect();
            let mut sums = vec![0.0; parts[rank].len()];
            let received = self.all_to_all(&sent, &vec![sums.len() * size_of::<f32>(); size])?;
            sum::add(&numbers_of(&received), &mut sums);
            let lengths: Vec<usize> = sent.iter().map(|part| part.len()).collect();
            let all = self.all_gather(bytes_of(&sums), &lengths)?;
            bucket.copy_from_slice(&numbers_of(&all));
        }
        Ok(())
    }

    /// Replaces `bytes` on every rank by those of rank 0.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let own: &[u8] = if self.rank() == 0 { bytes } else { &[] };
        *bytes = self.all_gather_any(own)?.swap_remove(0);
        Ok(())
    }

    /// Returns when all ranks have come here.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&self) -> Result<()> {
        self.all_gather(&[], &vec![0; self.size()]).map(|_| ())
    }

    /// Whether `value` is true on any rank.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn any(&self, value: bool) -> Result<bool> {
        let all = self.all_gather(&[u8::from(value)], &vec![1; self.size()])?;
        Ok(all.contains(&1))
    }

    /// Refuses `bytes` that are not the same on all ranks; `what` completes "rank 1 of 2 has _ than rank 0".
    ///
    /// # Errors
    ///
    /// [`Error::Disagreement`] on every rank; as [`all_gather`](Self::all_gather).
    fn agree(&self, bytes: &[u8], what: &str) -> Result<()> {
        let all = self.all_gather_any(bytes)?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::Disagreement { rank, size: self.size(), what: what.into() }),
        }
    }

    /// The threads that this rank should compute with: its share of the cores that it may use, where other ranks of the
    /// same machine may use the same cores.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn threads(&self) -> Result<usize> {
        let own = Placement::of_process();
        let all = self.all_gather_any(own.as_bytes())?;
        let sharing = all.iter().filter(|other| own.as_bytes() == **other).count();
        Ok((placement::cores() / sharing.max(1)).max(1))
    }
}

/// The part of `length` things that belongs to rank `rank` of `size`: contiguous, and of sizes that differ by at most 1.
///
/// ```
/// use gallerist_collective::part;
/// assert_eq!([part(10, 0, 3), part(10, 1, 3), part(10, 2, 3)], [0..3, 3..6, 6..10]);
/// ```
pub fn part(length: usize, rank: usize, size: usize) -> Range<usize> {
    let start = |rank: usize| (length as u128 * rank as u128 / size as u128) as usize;
    start(rank)..start(rank + 1)
}
