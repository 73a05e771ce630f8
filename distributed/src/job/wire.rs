//! A job as bytes: the JSON of the job, then the keys of relevant items as integers.

use super::Job;
use crate::{Error, Result};

/// The first bytes of a job. Scheduler, executors and clients must be of one version.
const MAGIC: &[u8; 8] = b"gallery1";

impl Job {
    /// The job as bytes.
    ///
    /// # Errors
    /// [`Error::Input`] for a path that is not Unicode.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self).map_err(|error| {
            Error::input(format!("cannot send the job: {error}"), Some("give paths of Unicode characters"))
        })?;
        let keys: usize = self.relevant.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(MAGIC.len() + 8 * (2 + self.relevant.len() + keys) + json.len());
        bytes.extend(MAGIC);
        bytes.extend((json.len() as u64).to_le_bytes());
        bytes.extend(json);
        bytes.extend((self.relevant.len() as u64).to_le_bytes());
        for keys in &self.relevant {
            bytes.extend((keys.len() as u64).to_le_bytes());
            bytes.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
        }
        Ok(bytes)
    }

    /// The job of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`Error::Input`] for other bytes, and for a job of rows that its files do not have.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::input("these bytes are no job of this version of gallerist-cluster", None);
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let number = |rest: &mut &[u8]| -> Result<usize> {
            let (number, after) = rest.split_first_chunk().ok_or_else(damaged)?;
            *rest = after;
            usize::try_from(u64::from_le_bytes(*number)).map_err(|_| damaged())
        };
        let length = number(&mut rest)?;
        let (json, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
        rest = after;
        let mut job: Self = serde_json::from_slice(json).map_err(|_| damaged())?;
        for _ in 0..number(&mut rest)? {
            let length = number(&mut rest)?.checked_mul(8).ok_or_else(damaged)?;
            let (keys, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
            rest = after;
            job.relevant.push(keys.as_chunks().0.iter().map(|key| u64::from_le_bytes(*key)).collect());
        }
        if rest.is_empty() && job.has_its_rows() { Ok(job) } else { Err(damaged()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Block, Rules, Work};
    use crate::shards::ShardFile;
    use gallerist_retrieval::search::Metric;
    use gallerist_util::random::Random;

    fn file(first: usize, rows: usize) -> ShardFile {
        ShardFile { path: "/shards/a.parquet".into(), first, rows }
    }

    /// Counts for the queries `rows` of a file.
    fn job(file: ShardFile, rows: std::ops::Range<usize>) -> Job {
        let rules = Rules { protocol: None, ignore_cameras: true, metric: Metric::Euclidean, one_set: false };
        let work = Work::Count { queries: Block { file: file.clone(), rows }, rules };
        Job { gallery: vec![file], work, relevant: vec![vec![u64::MAX, 3], vec![], vec![1]] }
    }

    #[test]
    fn a_job_comes_back_from_its_bytes_and_damage_is_refused() {
        let job = job(file(3, 7), 1..4);
        let bytes = job.to_bytes().unwrap();
        assert_eq!(Job::from_bytes(&bytes).unwrap(), job);
        for length in 0..bytes.len() {
            assert!(Job::from_bytes(&bytes[..length]).is_err(), "cut to {length} bytes");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Job::from_bytes(&longer).is_err());
    }

    #[test]
    fn a_job_of_rows_that_its_files_do_not_have_is_refused() {
        let is_read = |job: &Job| Job::from_bytes(&job.to_bytes().unwrap()).is_ok();
        assert!(is_read(&job(file(3, 7), 0..7)));
        #[expect(clippy::reversed_empty_ranges, reason = "as a damaged job has them")]
        let damaged = [job(file(3, 7), 0..8), job(file(3, 7), 4..1), job(file(3, 7), 0..1 << 60)];
        assert!(!damaged.iter().any(is_read));
        assert!(!is_read(&job(file(usize::MAX, 7), 0..7)));
        assert!(!is_read(&job(file(u32::MAX as usize - 7, 7), 0..7)));
    }

    #[test]
    fn what_is_read_of_changed_bytes_can_be_sent_again() {
        let whole = job(file(3, 7), 1..4).to_bytes().unwrap();
        let mut random = Random::new(1, "changes of a job", 0, 0);
        let mut read = 0;
        for _ in 0..100_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => bytes[at] = b'0' + random.below(10) as u8,
                    2 => bytes.insert(at, b'0' + random.below(10) as u8),
                    _ => drop(bytes.remove(at)),
                }
            }
            if let Ok(job) = Job::from_bytes(&bytes) {
                assert!(job.has_its_rows());
                assert_eq!(Job::from_bytes(&job.to_bytes().unwrap()).unwrap(), job);
                read += 1;
            }
        }
        assert!(read > 1000, "{read} were read");
    }
}
