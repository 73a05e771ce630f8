//! Search for the best values of a run file, on folds of the training classes.
//!
//! [`tune`](tune()) trains a run file with different values of some keys and keeps those with the highest validation
//! metric. It never opens the test images. The training classes are divided into class-disjoint folds; each run trains
//! on all folds but one and is measured on that one (Musgrave, Belongie and Lim, A Metric Learning Reality Check, 2020,
//! with 4 folds and MAP@R, the defaults here).
//!
//! - A [`Space`] names the keys and their bounds.
//! - The first trial is the run file itself, if its values are in the space, and the next are those of [`Space::trials`].
//!   Up to [`Space::startup`], trials are drawn at random; later ones follow the results (a tree-structured Parzen
//!   estimator over all keys together).
//! - Successive halving over folds: each trial is run on the first fold; after 1, 2, 4, … folds, only those among the best
//!   share [`Space::keep`] of all trials so far continue. The best trial is chosen among those with all folds.
//! - The value of a run is the validation metric of the checkpoint that `evaluation.checkpoint` names.
//!
//! Runs are [`jobs`](crate::jobs): processes in parallel, each stored in a folder of its own. A search that was stopped or
//! killed is continued by the same call and makes the same trials as one that was not. The trials do not depend on the
//! number of jobs.
//!
//! | file of the folder | content |
//! | --- | --- |
//! | `run.toml`, `space.toml` | the run file and the space of the search; a change is an error |
//! | `trials.toml` | the trials and their values on each fold |
//! | `runs/` | the runs, without checkpoints once they are measured |
//! | `best.toml` | the run file with the best values, for `gallerist train` |
//! | `tune.html` | figures: metric by trial, importance, slices |
//! | `trials.md`, `trials.csv`, `result.json` | the trials as tables |

mod importance;
mod pages;
mod sampler;
mod search;
mod space;
mod store;
mod study;
mod table;

use std::sync::atomic::AtomicBool;

pub use importance::Importance;
pub use pages::page;
pub use search::{TuneObserver, TuneOptions, Tuned};
pub use space::{Bounds, Space};
pub use study::{Study, Trial};
pub use table::{TrialSummary, TuneSummary};

use crate::Result;

/// Searches for the best values of a run file.
///
/// When `stop` is raised, the runs write checkpoints and the call returns; the same call continues.
///
/// # Example
///
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use gallerist::tune::{Space, TuneOptions};
///
/// let space = Space::parse(
///     r#"
///     [space]
///     "loss.margin" = { low = 0.05, high = 1.0, log = true }
///     "optimizer.learning_rate" = { low = 1e-4, high = 1e-1, log = true }
///     "#,
///     "the example",
/// )?;
/// let options = TuneOptions { trials: 40, jobs: 2, ..TuneOptions::new("configs/omniglot.toml", "runs/tune") };
/// let tuned = gallerist::tune(&space, &options, &mut (), &AtomicBool::new(false))?;
/// if let Some(best) = tuned.study.best() {
///     println!("{}: MAP@R {:.4}", best.described(), best.mean().unwrap());
/// }
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// For a key that the run file does not have and a value that it does not take; when the training images have fewer
/// classes than there are folds; when the folder has another search; when every trial of the first round failed.
pub fn tune(
    space: &Space,
    options: &TuneOptions,
    observer: &mut dyn TuneObserver,
    stop: &AtomicBool,
) -> Result<Tuned> {
    search::search(space, options, observer, stop)
}
