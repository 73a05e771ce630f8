//! A run by its name and its run file.

use std::path::{Path, PathBuf};

use gallerist_train::{EvaluationConfig, LogConfig, ReportConfig, RunConfig};
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
    /// Threads, caches, logs, the report, the steps between checkpoints, and what is done about broken images and steps
    /// that are not finite are left out. Paths are absolute.
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
    /// training key share their training. `None` for a job that validates: it measures while it trains.
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
    // The first head may be computed from features of these products.
    let products = config.evaluation.products;
    config.evaluation = EvaluationConfig { products, ..EvaluationConfig::default() };
    Some(key(&config))
}

/// See [`Job::key`].
pub(super) fn key(config: &RunConfig) -> String {
    let mut config = config.clone();
    let defaults = RunConfig::default();
    let train = &mut config.train;
    (train.threads, train.loader_threads) = (0, 0);
    train.prefetch = defaults.train.prefetch;
    train.on_nonfinite = defaults.train.on_nonfinite;
    train.checkpoint_every = defaults.train.checkpoint_every;
    let evaluation = &mut config.evaluation;
    (evaluation.batch_size, evaluation.memory_mib) = (0, 0);
    config.report = ReportConfig::default();
    config.log = LogConfig::default();
    let data = &mut config.data;
    (data.run_directory, data.cache_folder) = (None, None);
    data.cache_mib = defaults.data.cache_mib;
    data.strict = false;
    let lists = [&mut data.train, &mut data.test, &mut data.query, &mut data.gallery];
    let of_network = [&mut config.network.weights, &mut config.network.file];
    // Texts are no part of training.
    config.text = None;
    for path in lists.into_iter().flatten().chain(of_network.into_iter().flatten()) {
        *path = located(path);
    }
    let decisive = format!("gallerist {}\n{}", env!("CARGO_PKG_VERSION"), config.to_toml());
    hex::short(&hex::sha256(decisive.as_bytes())).to_owned()
}

/// One path for each file, however it is named; the address of an image source stays.
pub(super) fn located(path: &Path) -> PathBuf {
    match path.to_str().and_then(text::address) {
        Some(_) => path.to_path_buf(),
        None => path.canonicalize().unwrap_or_else(|_| text::absolute(path)),
    }
}
