//! The folder of a job: its content, and whether the job is done.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use gallerist_train::log::{self, Record};
use gallerist_train::{RunConfig, RunDirectory};
use gallerist_util::files;
use serde::{Deserialize, Serialize};

use super::job::{Job, key, training_key};
use crate::file::{io, write_text};
use crate::{Error, Result, RunMetrics};

/// What a finished run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Metrics of the test images by name: `recall@1`, `map@r`, `map`, `cmc@1`, with `evaluation.cluster` also `nmi`.
    /// Shares from 0 to 1. Empty without test images.
    pub metrics: BTreeMap<String, f64>,
    /// Metrics of the last validation. Empty without validation.
    pub last_validation: BTreeMap<String, f64>,
    /// Metrics of the best validation by `validation.metric`.
    pub best_validation: BTreeMap<String, f64>,
    /// Images, training and test, that could not be read.
    pub broken_images: usize,
    /// Steps taken.
    pub steps: usize,
    /// Seconds of a step: the median of all steps.
    pub seconds_per_step: Option<f64>,
    /// Largest resident memory of the process in MiB, where the system tells it (Linux).
    pub peak_memory_mib: Option<f64>,
    /// Compute threads that the run had; 0: one per core.
    pub threads: usize,
}

/// What a process used, over all starts of the job.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) peak_memory_mib: Option<f64>,
}

/// The folder of a job.
#[derive(Clone, Debug)]
pub struct JobFolder {
    path: PathBuf,
    key: String,
}

impl JobFolder {
    /// The folder of a job in a store; it need not exist.
    pub fn of(store: &Path, job: &Job) -> Self {
        let key = job.key();
        JobFolder { path: store.join(&key), key }
    }

    /// The run directory.
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The run file that starts the job.
    pub(super) fn run_file(&self) -> PathBuf {
        self.path.join("job.toml")
    }

    fn images_file(&self) -> PathBuf {
        self.path.join("images.sha256")
    }

    fn weights_file(&self) -> PathBuf {
        self.path.join("weights.sha256")
    }

    /// Whether the run was begun with other images than those of a fingerprint, if it is known; a store of an earlier version
    /// does not say.
    pub(super) fn has_other_images(&self, fingerprint: impl FnOnce() -> Option<String>) -> bool {
        differs(&self.images_file(), fingerprint)
    }

    /// The same for the weights.
    pub(super) fn has_other_weights(&self, fingerprint: impl FnOnce() -> Option<String>) -> bool {
        differs(&self.weights_file(), fingerprint)
    }

    /// Notes the fingerprints of the images and of the weights that the run begins with.
    pub(super) fn set_originals(&self, images: Option<&str>, weights: Option<&str>) -> Result<()> {
        for (file, fingerprint) in [(self.images_file(), images), (self.weights_file(), weights)] {
            fingerprint.map_or(Ok(()), |fingerprint| write_text(&file, fingerprint))?;
        }
        Ok(())
    }

    /// The hint to begin a run anew.
    pub(super) fn hint_to_remove(&self) -> String {
        format!("remove the folder {}: then the run starts again", self.path.display())
    }

    /// What the process prints.
    pub(super) fn stderr(&self) -> PathBuf {
        self.path.join("stderr.txt")
    }

    /// An empty file for what the process prints. Its name is durable: a job whose run is done after a loss of power is not started
    /// again, which would make the file.
    pub(super) fn create_stderr(&self) -> Result<File> {
        let path = self.stderr();
        let file = File::create(&path).map_err(|e| io("create", &path, e))?;
        files::sync_folder(&self.path).map_err(|e| io("write", &path, e))?;
        Ok(file)
    }

    fn usage_file(&self) -> PathBuf {
        self.path.join("usage.json")
    }

    fn failure_file(&self) -> PathBuf {
        self.path.join("failure.txt")
    }

    /// The log of the run.
    pub(super) fn log(&self) -> PathBuf {
        self.run().join("log.jsonl")
    }

    /// The numbers of the job if it is done: its run directory has metrics and report, and its run file has the key
    /// of the job.
    ///
    /// # Errors
    ///
    /// When an existing file cannot be read. The hint says what to remove.
    pub fn numbers(&self) -> Result<Option<Numbers>> {
        self.read_numbers().map_err(|error| Error::new(error.to_string(), Some(&self.hint_to_remove())))
    }

    fn read_numbers(&self) -> Result<Option<Numbers>> {
        let run = self.run();
        if !run.join("config.toml").is_file() || !run.join("report.html").is_file() {
            return Ok(None);
        }
        let directory = RunDirectory::open(&run)?;
        let config = RunConfig::load(&directory.config(), &[])?;
        let tested = config.data.has_test();
        if key(&config) != self.key || (tested && !directory.metrics().is_file()) {
            return Ok(None);
        }
        let mut numbers = Numbers { threads: config.train.threads, ..Numbers::default() };
        numbers.take_log(&log::read(&directory.log())?, &config.validation.metric);
        if tested {
            let measured = RunMetrics::load(&directory.metrics())?;
            // Those of the training, which the log has, and of the test.
            numbers.broken_images = measured.broken_images;
            let named = measured.evaluation.metrics.iter();
            numbers.metrics.extend(named.map(|(name, value)| (name.to_string(), value)));
            for (name, row) in measured.further.rows() {
                let of_row =
                    row.evaluation.metrics.iter().map(|(metric, value)| (format!("{name} {metric}"), value));
                numbers.metrics.extend(of_row);
            }
            if let Some(clusters) = measured.further.clustering {
                numbers.metrics.insert("nmi".into(), clusters.nmi);
            }
        }
        numbers.peak_memory_mib = self.usage().peak_memory_mib;
        // A user can continue a run with more steps; that run has another key.
        Ok((numbers.steps >= config.train.steps).then_some(numbers))
    }

    /// Why the job failed the last time, if it did.
    pub fn failure(&self) -> Option<String> {
        fs::read_to_string(self.failure_file()).ok()
    }

    pub(super) fn set_failure(&self, reason: Option<&str>) -> Result<()> {
        let path = self.failure_file();
        match reason {
            Some(reason) => write_text(&path, reason),
            None => match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io("write", &path, e)),
                _ => Ok(()),
            },
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let text = fs::read_to_string(self.usage_file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(super) fn add_usage(&self, peak_memory_mib: Option<f64>) -> Result<()> {
        let before = self.usage().peak_memory_mib;
        let peak_memory_mib = match (before, peak_memory_mib) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let path = self.usage_file();
        files::write(&path, |file| Ok(serde_json::to_writer(file, &Usage { peak_memory_mib })?))
            .map_err(|e| io("write", &path, e))
    }

    /// Makes the folder and locks it; `None` if another process has the lock or trains into the run directory. Removes what a
    /// killed process left: the folder of a job that is done is not written again, which would do so.
    pub(super) fn lock(&self) -> Result<Option<File>> {
        files::create_dir_all(&self.path).map_err(|e| io("create", &self.path, e))?;
        let path = self.path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| io("create", &path, e))?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(None);
        }
        files::sweep(&self.path).map_err(|e| io("clean", &self.path, e))?;
        // The training process of a killed program continues and holds the lock of its run directory.
        let trained =
            File::open(self.run()).is_ok_and(|run| matches!(run.try_lock(), Err(TryLockError::WouldBlock)));
        Ok((!trained).then_some(file))
    }

    /// Begins the run of a job with the training of another one in the store, if one with the same
    /// [training](Job::training_key) is done, on images and with weights of these fingerprints.
    pub(super) fn take_training(
        &self,
        store: &Path,
        job: &Job,
        threads: usize,
        images: Option<&str>,
        weights: Option<&str>,
    ) -> Result<bool> {
        let Some(training) = job.training_key() else { return Ok(false) };
        let entries = fs::read_dir(store).map_err(|e| io("read", store, e))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.into_iter().filter(|path| *path != self.path) {
            let run_file = path.join("run").join("config.toml");
            // Folders that are no run's, and damaged ones, have no training to share.
            let Ok(config) = RunConfig::load(&run_file, &[]) else { continue };
            if training_key(&config).as_ref() != Some(&training) {
                continue;
            }
            let other = JobFolder { path, key: key(&config) };
            if other.has_other_images(|| images.map(str::to_owned))
                || other.has_other_weights(|| weights.map(str::to_owned))
                || !matches!(other.numbers(), Ok(Some(_)))
            {
                continue;
            }
            let config = with_places(&job.config, threads);
            let taken = RunDirectory::open(&other.run())
                .and_then(|trained| RunDirectory::create_trained(&self.run(), &config, &trained));
            if taken.is_err() {
                // A damaged training is not taken: the job trains itself.
                let _ = fs::remove_dir_all(self.run());
                continue;
            }
            self.add_usage(other.usage().peak_memory_mib)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes the run file of the job with absolute paths and its number of threads.
    pub(super) fn write_run_file(&self, job: &Job, threads: usize) -> Result<()> {
        write_text(&self.run_file(), &with_places(&job.config, threads).to_toml())
    }
}

/// A run file with absolute paths and this number of threads.
fn with_places(config: &RunConfig, threads: usize) -> RunConfig {
    let mut config = config.with_absolute_paths();
    (config.train.threads, config.train.loader_threads) = (threads, threads);
    config
}

impl Numbers {
    /// Takes steps, their time, validations and images that could not be read from the records of a log.
    fn take_log(&mut self, records: &[Record], metric: &str) {
        let mut seconds = Vec::new();
        let mut best = f64::NEG_INFINITY;
        for record in records {
            match record {
                Record::Step(step) => {
                    self.steps = self.steps.max(step.step);
                    seconds.push(step.seconds);
                }
                Record::Validation { metrics, .. } => {
                    self.last_validation.clone_from(metrics);
                    let value = metrics.get(metric).copied().unwrap_or(f64::NEG_INFINITY);
                    if value > best {
                        best = value;
                        self.best_validation.clone_from(metrics);
                    }
                }
                Record::BrokenImage { .. } => self.broken_images += 1,
                Record::Warning { .. } | Record::Resumed { .. } => {}
            }
        }
        seconds.sort_by(f64::total_cmp);
        self.seconds_per_step = seconds.get(seconds.len() / 2).copied();
    }
}

/// Whether a file has another fingerprint than that of now, if both are known.
fn differs(file: &Path, fingerprint: impl FnOnce() -> Option<String>) -> bool {
    let Ok(before) = fs::read_to_string(file) else { return false };
    fingerprint().is_some_and(|now| now != before)
}
