//! A run by its name and its run file.

use std::path::{Path, PathBuf};

use gallerist_train::{LogConfig, ReportConfig, RunConfig};
use gallerist_util::{hex, text};

/// A run: a name for people, and the run file.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name in messages.
    pub name: String,
    /// The complete run file; its seed is `train.seed`.
    pub config: RunConfig,
}

impl Job {
    /// A job.
    pub fn new(name: impl Into<String>, config: RunConfig) -> Self {
        Job { name: name.into(), config }
    }

    /// 16 hexadecimal digits: a hash of every key of the run file that decides the result, and of the program's version.
    ///
    /// Threads, caches, logs, the report, and the steps between checkpoints are left out. Paths are absolute; corrections of
    /// labels (`data.relabel`) count with their content, images and weights by their paths alone: when they change, a run that
    /// is done counts as failed.
    ///
    /// ```
    /// use gallerist::{jobs::Job, train::RunConfig};
    /// let job = |seed, threads| {
    ///     let mut config = RunConfig::default();
    ///     (config.train.seed, config.train.threads) = (seed, threads);
    ///     Job::new("example", config)
    /// };
    /// assert_eq!(job(1, 1).key(), job(1, 2).key());
    /// assert_ne!(job(1, 1).key(), job(2, 1).key());
    /// ```
    pub fn key(&self) -> String {
        key(&self.config)
    }

    /// The [key](Self::key) without `[evaluation]`, which decides what is measured after the training. Jobs with the same
    /// training key share their training. `None` for a job that validates: it measures while it trains. Of a job whose sampler
    /// uses class means, `heads`, `combine` and `metric` count: they decide its batches.
    ///
    /// ```
    /// use gallerist::{jobs::Job, train::RunConfig};
    /// let job = |metrics: &str| {
    ///     let text = format!("[validation]\nfraction = 0.0\n[evaluation]\nmetrics = [\"{metrics}\"]");
    ///     Job::new("example", RunConfig::parse(&text, "an example", &[]).unwrap())
    /// };
    /// assert_ne!(job("map").key(), job("ndcg@5").key());
    /// assert_eq!(job("map").training_key(), job("ndcg@5").training_key());
    /// ```
    pub fn training_key(&self) -> Option<String> {
        training_key(&self.config)
    }
}

/// See [`Job::training_key`].
pub(super) fn training_key(config: &RunConfig) -> Option<String> {
    if config.validation.fold.is_some() || config.validation.fraction > 0.0 {
        return None;
    }
    let mut config = config.clone();
    let measured = std::mem::take(&mut config.evaluation);
    // The first head may be computed from features of these products.
    config.evaluation.products = measured.products;
    if config.sampler.uses_class_means() {
        // They are means of the embeddings that are measured.
        config.evaluation.heads = measured.heads;
        config.evaluation.combine = measured.combine;
        config.evaluation.metric = measured.metric;
    }
    Some(key(&config))
}

/// See [`Job::key`].
pub(super) fn key(config: &RunConfig) -> String {
    // Texts are no part of training.
    let mut config = RunConfig { text: None, ..config.clone() }.with_paths(located);
    let defaults = RunConfig::default();
    let train = &mut config.train;
    (train.threads, train.loader_threads) = (0, 0);
    train.prefetch = defaults.train.prefetch;
    train.checkpoint_every = defaults.train.checkpoint_every;
    let evaluation = &mut config.evaluation;
    (evaluation.batch_size, evaluation.memory_mib) = (0, 0);
    config.report = ReportConfig::default();
    config.log = LogConfig::default();
    let data = &mut config.data;
    (data.run_directory, data.cache_folder) = (None, None);
    data.cache_mib = defaults.data.cache_mib;
    if data.relabel_sha256.is_none() {
        // As a run notes it when it starts. What cannot be read ends the run.
        data.relabel_sha256 = data.digest_of_corrections().ok().flatten();
    }
    let decisive = format!("gallerist {}\n{}", env!("CARGO_PKG_VERSION"), config.to_toml());
    hex::short(&hex::sha256(decisive.as_bytes())).to_owned()
}

/// One path for each file, however it is named.
fn located(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| text::absolute(path))
}
