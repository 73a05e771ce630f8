//! Many training runs: in parallel, each in a separate process, resumable; no run is done twice.
//!
//! A [`Job`] is a name and a complete run file. The [key](Job::key) of a job is a hash of what decides its result; the
//! job is stored in the folder `STORE/KEY`, so that two experiments share a run that both need. [`run()`] skips the jobs
//! that are done, continues those that were interrupted, and keeps going when one fails. Jobs that differ only in what is measured
//! after the training, such as the heads of the embedding, are trained once where the training does not depend on it
//! ([`Job::training_key`]).
//!
//! | file of `STORE/KEY` | content |
//! | --- | --- |
//! | `job.toml` | the run file |
//! | `run/` | the run directory that `gallerist train` writes |
//! | `stderr.txt` | what the process printed, of its last start |
//! | `images.sha256` | a hash of the list of images that the run began with |
//! | `weights.sha256` | the SHA-256 of `network.weights` and `network.file` when the run began, if it names such |
//! | `usage.json` | peak memory of the process |
//! | `failure.txt` | why the job failed, if it did |
//! | `lock` | locked by the process that works on the job |
//!
//! Processes, not threads: a run that fails or needs too much memory ends alone, and the steps of one run never wait
//! for another. A process is the current program with `train`: its `main` must call [`cli::run`](crate::cli::run), as that of a program
//! with its own parts does. For any other program, [`Options::program`] is one that has the command `train`, such as `gallerist`.
//!
//! # Example
//!
//! ```no_run
//! use std::{path::Path, sync::atomic::AtomicBool};
//! use gallerist::jobs::{self, Job, Options};
//! use gallerist::train::RunConfig;
//!
//! let mut jobs = Vec::new();
//! for margin in [0.2, 0.4, 0.6] {
//!     let config = RunConfig::load(Path::new("run.toml"), &[format!("loss.margin={margin}")])?;
//!     jobs.push(Job::new(format!("margin {margin}"), config));
//! }
//! let program = Some("target/release/gallerist".into());
//! let options = Options { jobs: 2, program, ..Options::new("runs/jobs") };
//! for outcome in jobs::run(&jobs, &options, &mut (), &AtomicBool::new(false))? {
//!     if let Some(numbers) = outcome.numbers() {
//!         println!("{}: MAP@R {:.3}", outcome.name, numbers.metrics["map@r"]);
//!     }
//! }
//! # Ok::<(), gallerist::Error>(())
//! ```

mod folder;
mod images;
mod job;
mod options;
mod outcome;
mod pool;
mod progress;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use folder::{JobFolder, Numbers};
pub(crate) use images::Fingerprints;
pub use job::Job;
pub use options::Options;
pub use outcome::{End, JobOutcome};
pub use pool::Pool;
pub use progress::State;

use crate::Result;

/// Follows the jobs of [`run()`]. `()` ignores everything.
pub trait Observer {
    /// The state of a job has changed; `job` is its place in the list of jobs.
    fn state(&mut self, job: usize, state: &State);
}

impl Observer for () {
    fn state(&mut self, _job: usize, _state: &State) {}
}

/// The time between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs jobs, and returns their outcomes in the same order.
///
/// Jobs that are done are not run again. Jobs with equal keys are run once. A job that another process works on is
/// waited for. When `stop` is raised, the processes write a checkpoint and end; the next call continues there. The same
/// holds when this process is killed.
///
/// # Errors
///
/// When the store cannot be written, or the program cannot be started. A job that fails is no error:
/// see [`End::Failed`].
pub fn run(
    jobs: &[Job],
    options: &Options,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Vec<JobOutcome>> {
    let mut pool = Pool::new(options)?;
    // Jobs with the same key: the first is run.
    let keys: Vec<String> = jobs.iter().map(Job::key).collect();
    let trainings: Vec<Option<String>> = jobs.iter().map(Job::training_key).collect();
    let mut same: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut waiting = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let places = same.entry(key).or_default();
        if places.is_empty() {
            waiting.push(i);
        }
        places.push(i);
        observer.state(i, &State::Waiting);
    }
    waiting.reverse();
    let mut ends: Vec<Option<End>> = jobs.iter().map(|_| None).collect();
    loop {
        if stop.load(Ordering::Relaxed) {
            pool.stop();
            waiting.clear();
        }
        while pool.has_room() {
            let is_free =
                |&job: &usize| trainings[job].as_ref().is_none_or(|training| !pool.trains(training));
            let Some(place) = waiting.iter().rposition(is_free) else { break };
            let next = waiting.remove(place);
            pool.start(next, &jobs[next])?;
        }
        for (first, state, end) in pool.poll()? {
            for &place in &same[keys[first].as_str()] {
                observer.state(place, &state);
                ends[place].clone_from(&end);
            }
        }
        if pool.is_empty() && waiting.is_empty() {
            break;
        }
        if !pool.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    let outcome = |((job, key), end): ((&Job, &String), Option<End>)| JobOutcome {
        name: job.name.clone(),
        key: key.clone(),
        directory: JobFolder::of(&options.store, job).run(),
        end: end.unwrap_or(End::Stopped),
    };
    Ok(jobs.iter().zip(&keys).zip(ends).map(outcome).collect())
}
