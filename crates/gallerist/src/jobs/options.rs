//! How jobs are run.

use std::path::PathBuf;

/// How jobs are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder with the folders of the jobs.
    pub store: PathBuf,
    /// Jobs at the same time, 1 or more.
    pub jobs: usize,
    /// Compute threads of all jobs together; 0: one per core. Each job gets its share, at least one.
    pub threads: usize,
    /// The program that is started with `train`; absent: the current one.
    pub program: Option<PathBuf>,
}

impl Options {
    /// One job at a time on all cores.
    pub fn new(store: impl Into<PathBuf>) -> Self {
        Options { store: store.into(), jobs: 1, threads: 0, program: None }
    }

    /// Compute threads of each job.
    ///
    /// ```
    /// use gallerist::jobs::Options;
    /// let options = Options { jobs: 3, threads: 8, ..Options::new("runs") };
    /// assert_eq!(options.threads_each(), 2);
    /// ```
    pub fn threads_each(&self) -> usize {
        let all = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        (all / self.jobs.max(1)).max(1)
    }
}
