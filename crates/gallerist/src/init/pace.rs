//! The speed of training on this machine.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gallerist_data::ImageSet;
use gallerist_nn::HeadInit;
use gallerist_train::log::Step;
use gallerist_train::{self as training, RunConfig, TrainerBuilder};

use crate::{Observer, Result, set_threads};

const MEASURING: &str = "measuring the speed of training";

/// Steps after which enough are measured, if they take [`SECONDS`].
const STEPS: usize = 3;
/// Steps after which enough are measured in any case.
const MOST_STEPS: usize = 30;
const SECONDS: f64 = 2.0;

/// Seconds of a training step of this run file on these images: the median of a few real steps without the first, which
/// allocates. They are taken in a temporary run directory.
pub(super) fn step_seconds(
    config: &RunConfig,
    images: ImageSet,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<f64> {
    set_threads(config.train.threads);
    let mut config = config.clone();
    config.train.steps = 1_000_000;
    config.train.checkpoint_every = 0;
    (config.network.head_init, config.network.head_distance) = (HeadInit::Random, None);
    config.data.without_test = true;
    observer.phase(&training::Phase { what: MEASURING, done: 0, total: 0 });
    let directory = Temporary::new();
    let enough = AtomicBool::new(false);
    let mut watch = Watch { seconds: Vec::new(), enough: &enough, stop, begun: Instant::now() };
    let mut trainer =
        TrainerBuilder::new(&config).images(images, None).start_with(&directory.0, &mut watch, stop)?;
    watch.begun = Instant::now();
    trainer.run(&mut watch, &enough)?;
    observer.phase_done();
    if stop.load(Ordering::Relaxed) {
        return Err(training::Error::Interrupted { what: MEASURING }.into());
    }
    let mut later = watch.seconds.split_off(1.min(watch.seconds.len() - 1));
    later.sort_by(f64::total_cmp);
    Ok(later[later.len() / 2])
}

/// Collects the times of steps, and ends the run when there are enough.
struct Watch<'a> {
    seconds: Vec<f64>,
    enough: &'a AtomicBool,
    stop: &'a AtomicBool,
    begun: Instant,
}

impl training::Observer for Watch<'_> {
    fn step(&mut self, record: &Step) {
        self.seconds.push(record.seconds);
        let steps = self.seconds.len();
        let enough = steps >= STEPS && self.begun.elapsed().as_secs_f64() >= SECONDS;
        if enough || steps >= MOST_STEPS || self.stop.load(Ordering::Relaxed) {
            self.enough.store(true, Ordering::Relaxed);
        }
    }
}

/// A directory that is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        let name = |n: usize| format!("gallerist-init-{}-{n}", std::process::id());
        let free = (0..).map(|n| std::env::temp_dir().join(name(n))).find(|path| !path.exists());
        Temporary(free.expect("numbers do not end"))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        // What cannot be removed stays in the folder for temporary files.
        let _ = std::fs::remove_dir_all(path);
    }
}
