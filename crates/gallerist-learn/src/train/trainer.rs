//! The training loop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_data::{
    Batch, BatchPlan, BatchSampler, Broken, ImageSet, ImageStore, Loader, LoaderOptions, OpenOptions,
    Transform,
};
use gallerist_retrieval::eval::{self, EvalOptions, Evaluation};

use super::config::threads;
use super::log::{Log, Record, Step};
use super::{DataConfig, RunConfig, RunDirectory, Which};
use crate::checkpoint::{Best, Checkpoint, Header};
use crate::loss::{Labels, Loss, LossShape, Progress, RankingLoss};
use crate::model::{Model, description};
use crate::network::{InputShape, Network};
use crate::optim::{Optimizer, Part, clip_by_global_norm};
use crate::pairwise::{host, l2_normalize};
use crate::{Error, Result, checkpoint, params};

/// Watches a run; every method has an empty default.
pub trait Observer {
    /// A step was taken.
    fn step(&mut self, _record: &Step) {}
    /// A validation was done; `best` says whether it is the best so far.
    fn validation(&mut self, _step: usize, _evaluation: &Evaluation, _best: bool) {}
    /// Something the user should look at.
    fn warning(&mut self, _message: &str) {}
}

impl Observer for () {}

/// How a call of [`Trainer::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// The stop flag was raised; a checkpoint was written and [`Trainer::resume`] goes on from it.
    Interrupted,
}

/// A run in training.
///
/// # Example
///
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use gallerist_learn::train::{RunConfig, Trainer};
///
/// let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
/// let mut trainer = Trainer::start(&config, Path::new("runs/first"))?;
/// trainer.run(&mut (), &AtomicBool::new(false))?;
/// # Ok::<(), gallerist_learn::Error>(())
/// ```
pub struct Trainer {
    config: RunConfig,
    directory: RunDirectory,
    device: Device,
    input: InputShape,
    store: Arc<ImageStore>,
    sampler: Arc<dyn BatchSampler>,
    validation: Option<Arc<ImageStore>>,
    network: Network,
    loss: Loss,
    optimizer: Optimizer,
    log: Log,
    step: usize,
    best: Option<Best>,
    seconds: f64,
    broken: Vec<Broken>,
    warned: Warned,
}

/// What has been warned of, each once.
#[derive(Debug, Default)]
struct Warned {
    collapsed: bool,
    trivial_steps: usize,
    trivial: bool,
    note: bool,
}

impl Trainer {
    /// Starts a run in a new directory.
    ///
    /// # Errors
    ///
    /// When the run file's values are out of range, its images cannot be read or cannot form its
    /// batches, or the directory holds something already.
    pub fn start(config: &RunConfig, directory: &Path) -> Result<Self> {
        config.validate()?;
        // Everything that can fail for the user's reasons fails before the directory is made.
        let (train, validation) = open_training(config)?;
        let parts = Parts::new(config, train, validation)?;
        let directory = RunDirectory::create(directory, config)?;
        let mut trainer = parts.into_trainer(config, directory, 0)?;
        trainer.save(Which::Last)?;
        Ok(trainer)
    }

    /// Goes on with a run from its last checkpoint.
    ///
    /// # Errors
    ///
    /// When there is no run in `directory`, or its checkpoint does not fit its run file.
    pub fn resume(directory: &Path) -> Result<Self> {
        let directory = RunDirectory::open(directory)?;
        let config = RunConfig::load(&directory.config(), &[])?;
        let path = directory.checkpoint(Which::Last);
        let mut last = Checkpoint::load(&path)?;
        let bad = |reason: String| Error::Checkpoint {
            path: path.clone(),
            reason,
            hint: Some("config.toml and the checkpoint must be of the same run".into()),
        };
        let (train, validation) = open_training(&config)?;
        let parts = Parts::new(&config, train, validation)?;
        let mut trainer = parts.into_trainer(&config, directory, last.header.step)?;
        let (network, mismatch) = params::load(trainer.network, std::mem::take(&mut last.network));
        if !mismatch.is_empty() {
            return Err(bad(format!("network: {mismatch}")));
        }
        let (loss, mismatch) = params::load(trainer.loss, std::mem::take(&mut last.loss));
        if !mismatch.is_empty() {
            return Err(bad(format!("loss: {mismatch}")));
        }
        (trainer.network, trainer.loss) = (network, loss);
        let state = last.take_optimizer();
        trainer
            .optimizer
            .restore(state, &trainer.device)
            .map_err(|name| bad(format!("the optimiser's state of `{name}` is incomplete")))?;
        trainer.step = last.header.step;
        trainer.best = last.header.best;
        trainer.seconds = last.header.seconds;
        trainer.log.write(&Record::Resumed { step: trainer.step })?;
        Ok(trainer)
    }

    /// Trains until all steps are done or `stop` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Diverged`] when the loss or the gradient stops being finite, the checkpoints
    /// staying as they were; errors of reading images and writing files.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome> {
        let options =
            LoaderOptions::training(self.config.train.seed, threads(self.config.train.loader_threads));
        let options = LoaderOptions { prefetch: self.config.train.prefetch, ..options };
        let mut loader = Loader::new(self.store.clone(), self.plan(), options)?;
        while self.step < self.config.train.steps {
            if stop.load(Ordering::Relaxed) {
                self.save(Which::Last)?;
                return Ok(Outcome::Interrupted);
            }
            let start = Instant::now();
            let mut batch = loader.next().expect("the plan has a batch for every step")?;
            let broken = std::mem::take(&mut batch.broken);
            let mut record = self.train_on(batch, observer)?;
            record.seconds = start.elapsed().as_secs_f64();
            self.seconds += record.seconds;
            self.step = record.step;
            observer.step(&record);
            self.log.write(&Record::Step(record))?;
            self.report_broken(broken, observer)?;

            let last = self.step == self.config.train.steps;
            if self.validation.is_some() && (last || self.step.is_multiple_of(self.config.validation.every)) {
                self.validate(observer)?;
            }
            let every = self.config.train.checkpoint_every;
            if last || (every > 0 && self.step.is_multiple_of(every)) {
                self.save(Which::Last)?;
            }
        }
        if self.validation.is_none() {
            self.save(Which::Best)?;
        }
        Ok(Outcome::Finished)
    }

    /// The batches from the next step to the last.
    fn plan(&self) -> impl Iterator<Item = BatchPlan> + Send + 'static {
        let (sampler, seed, steps) = (self.sampler.clone(), self.config.train.seed, self.config.train.steps);
        let batches = (0u64..).flat_map(move |epoch| BatchPlan::epoch(epoch, sampler.epoch(seed, epoch)));
        batches.take(steps).skip(self.step)
    }

    /// Forward, backward and one optimiser step.
    fn train_on(&mut self, batch: Batch, observer: &mut dyn Observer) -> Result<Step> {
        let step = self.step + 1;
        let shape = batch.shape();
        let images = Tensor::<4>::from_data(TensorData::new(batch.images, shape), &self.device);
        let raw = self.network.forward(images);
        let embedding_norm = mean_norm(&raw);
        let embeddings = if self.config.normalize() { l2_normalize(raw) } else { raw };
        let progress = Progress { step: self.step, steps: self.config.train.steps };
        let output = self.loss.forward(embeddings.clone(), Labels::Classes(&batch.labels), progress);
        let loss = output.value.clone().into_scalar::<f32>();
        if !loss.is_finite() {
            return Err(self.diverged(step, loss));
        }
        let mut gradients = output.value.backward();
        let mut of_network = GradientsParams::from_module(&mut gradients, &self.network);
        let of_loss = GradientsParams::from_module(&mut gradients, &self.loss);
        let gradient_norm =
            clip_by_global_norm(&mut of_network, &self.network, self.config.optimizer.clip_norm) as f32;
        if !gradient_norm.is_finite() {
            return Err(self.diverged(step, gradient_norm));
        }
        let factor = self.config.schedule.factor(self.step, self.config.train.steps);
        let rate = self.config.optimizer.learning_rate * factor;
        self.network = self.optimizer.step(rate, Part::Network, self.network.clone(), of_network);
        self.loss = self.optimizer.step(rate, Part::Loss, self.loss.clone(), of_loss);
        self.watch(step, &embeddings, &output.queries, observer)?;
        let per_query = |counts: &[u32]| counts.iter().sum::<u32>() as f32 / counts.len().max(1) as f32;
        Ok(Step {
            step,
            epoch: batch.epoch as usize,
            loss,
            positive_share: output.queries.positive_share(),
            negative_share: output.queries.negative_share(),
            mined_positives: per_query(&output.queries.mined_positives),
            mined_negatives: per_query(&output.queries.mined_negatives),
            dead_share: output.queries.dead_share(),
            gradient_norm,
            embedding_norm,
            learning_rate: rate,
            seconds: 0.0,
            waited: batch.waited.as_secs_f64(),
        })
    }

    fn diverged(&self, step: usize, value: f32) -> Error {
        let hint = format!(
            "lower optimizer.learning_rate (it is {}) or set schedule.warmup_steps; the checkpoints are of earlier \
             steps and still good",
            self.config.optimizer.learning_rate
        );
        Error::Diverged { step, value, hint }
    }

    /// Warns once when the embedding collapses, and once when nothing is left to learn.
    fn watch(
        &mut self,
        step: usize,
        embeddings: &Tensor<2>,
        queries: &crate::loss::Queries,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut messages = Vec::new();
        if !self.warned.collapsed && spread(embeddings) < 1e-6 {
            self.warned.collapsed = true;
            messages.push(
                "all embeddings of a batch are (nearly) the same point; lower optimizer.learning_rate, or use a \
                 longer warm-up (schedule.warmup_steps)",
            );
        }
        let trivial = queries.mined_positives.iter().chain(&queries.mined_negatives).all(|&mined| mined == 0);
        self.warned.trivial_steps = if trivial { self.warned.trivial_steps + 1 } else { 0 };
        if !self.warned.trivial && self.warned.trivial_steps == 20 {
            self.warned.trivial = true;
            messages.push(
                "no pair of the last 20 batches gives a gradient; use larger batches (sampler.classes_per_batch) or \
                 a wider margin (loss.margin)",
            );
        }
        if let (false, Some(note)) = (self.warned.note, queries.note) {
            self.warned.note = true;
            messages.push(note);
        }
        for message in messages {
            observer.warning(message);
            self.log.write(&Record::Warning { step, message: message.into() })?;
        }
        Ok(())
    }

    fn report_broken(&mut self, broken: Vec<Broken>, observer: &mut dyn Observer) -> Result<()> {
        for one in broken {
            let message = format!("{one}; another image of its class takes its place");
            observer.warning(&message);
            self.log.write(&Record::Warning { step: self.step, message })?;
            self.broken.push(one);
        }
        Ok(())
    }

    /// Measures the validation classes and keeps the best checkpoint.
    fn validate(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(store) = &self.validation else { return Ok(()) };
        let model = self.model();
        let embedded = model.embed_store(store, self.config.train.loader_threads, &mut |_, _| {})?;
        let labels = embedded.label_ids()?;
        let options = EvalOptions::recall_at(&self.config.evaluation.recall_at);
        let evaluation = eval::evaluate(&embedded.set.embeddings, &labels, &options)?;
        let metric = &self.config.validation.metric;
        let value = evaluation.metrics[metric.as_str()];
        let best = self.best.as_ref().is_none_or(|best| value > best.value);
        if best {
            self.best = Some(Best { metric: metric.clone(), value, step: self.step });
            self.save(Which::Best)?;
        }
        let metrics = evaluation.metrics.iter().map(|(name, value)| (name.to_string(), value)).collect();
        self.log.write(&Record::Validation { step: self.step, metrics })?;
        observer.validation(self.step, &evaluation, best);
        Ok(())
    }

    /// The network as it is now, ready to embed.
    fn model(&self) -> Model {
        Model::new(self.config.clone(), self.input, self.network.valid())
    }

    /// Writes a checkpoint.
    fn save(&mut self, which: Which) -> Result<()> {
        let network = params::collect(&self.network);
        let state = self.optimizer.state();
        let header = Header {
            step: self.step,
            config: self.config.to_toml(),
            fingerprint: checkpoint::fingerprint(&network, &description(&self.config, self.input)),
            input: [self.input.channels, self.input.height, self.input.width],
            best: self.best.clone(),
            optimizer_counters: state.counters,
            optimizer_ranks: state.ranks,
            seconds: self.seconds,
            ..Header::default()
        };
        let loss = params::collect(&self.loss);
        Checkpoint { header, network, loss, optimizer: state.tensors }.save(&self.directory.checkpoint(which))
    }

    /// Steps done.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Seconds of training so far, validations left out.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The best validation so far.
    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Images that could not be read, each once.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// The run's directory.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// The run file.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The training set, validation classes taken out.
    pub fn training_set(&self) -> &ImageSet {
        self.store.set()
    }

    /// How batches are put together.
    pub fn sampler(&self) -> &dyn BatchSampler {
        &*self.sampler
    }

    /// Trainable numbers of the network, running statistics of batch norm included.
    pub fn parameter_count(&self) -> usize {
        self.network.num_params()
    }
}

/// What a trainer is made of, before there is a directory.
struct Parts {
    device: Device,
    input: InputShape,
    store: Arc<ImageStore>,
    sampler: Arc<dyn BatchSampler>,
    validation: Option<Arc<ImageStore>>,
    network: Network,
    loss: Loss,
}

impl Parts {
    fn new(config: &RunConfig, train: ImageSet, validation: Option<ImageSet>) -> Result<Self> {
        let device = Device::flex().autodiff();
        let sampler = Arc::from(config.sampler.build(&train)?);
        let transform = Transform::training(&config.image, &config.augment)?;
        let [channels, height, width] = transform.shape();
        let input = InputShape { channels, height, width };
        let network = config.network.init(input, config.train.seed, &device)?;
        let bytes = config.data.cache_mib << 20;
        let store = Arc::new(ImageStore::new(Arc::new(train), transform, bytes));
        let validation = match validation {
            Some(set) => {
                Some(Arc::new(ImageStore::new(Arc::new(set), Transform::evaluation(&config.image)?, bytes)))
            }
            None => None,
        };
        let shape =
            LossShape { classes: store.set().class_names().len(), dimensions: config.network.dimensions() };
        let loss = config.loss.init(shape, config.train.seed, &device);
        Ok(Parts { device, input, store, sampler, validation, network, loss })
    }

    fn into_trainer(self, config: &RunConfig, directory: RunDirectory, step: usize) -> Result<Trainer> {
        let log = Log::open(&directory.log(), step)?;
        Ok(Trainer {
            optimizer: Optimizer::new(&config.optimizer),
            config: config.clone(),
            directory,
            device: self.device,
            input: self.input,
            store: self.store,
            sampler: self.sampler,
            validation: self.validation,
            network: self.network,
            loss: self.loss,
            log,
            step,
            best: None,
            seconds: 0.0,
            broken: Vec::new(),
            warned: Warned::default(),
        })
    }
}

/// The training set and the validation set, whose classes are disjoint.
fn open_training(config: &RunConfig) -> Result<(ImageSet, Option<ImageSet>)> {
    if config.data.train.is_empty() {
        return Err(Error::Value {
            key: "data.train".into(),
            wanted: "a list of folders, zips or manifests".into(),
            found: "empty".into(),
        });
    }
    let DataConfig { train_split, max_train_classes, .. } = &config.data;
    let options = OpenOptions {
        split: train_split.clone(),
        max_classes: limit(*max_train_classes),
        ..Default::default()
    };
    let set = ImageSet::open_with(&config.data.train, &options)?;
    let (train, validation) = if config.validation.fraction > 0.0 {
        let (train, validation) = set.split_classes(config.validation.fraction, config.validation.seed)?;
        (train, Some(validation))
    } else {
        (set, None)
    };
    let train = if config.data.rotation_classes { train.with_rotation_classes()? } else { train };
    Ok((train, validation))
}

/// The test images of a run file; `None` where it names none.
///
/// # Errors
///
/// When they cannot be read.
pub fn open_test(config: &RunConfig) -> Result<Option<ImageSet>> {
    if config.data.test.is_empty() {
        return Ok(None);
    }
    let DataConfig { test_split, max_test_classes, .. } = &config.data;
    let options = OpenOptions {
        split: test_split.clone(),
        max_classes: limit(*max_test_classes),
        ..Default::default()
    };
    Ok(Some(ImageSet::open_with(&config.data.test, &options)?))
}

/// 0 means no limit.
fn limit(count: usize) -> Option<usize> {
    (count > 0).then_some(count)
}

/// Mean length of the rows.
fn mean_norm(x: &Tensor<2>) -> f32 {
    let [n, d] = x.dims();
    let values = host(x);
    let norms = values.chunks(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt());
    (norms.sum::<f64>() / n.max(1) as f64) as f32
}

/// Mean squared distance of the rows from their mean, over the mean squared norm: 0 when all rows are the same.
fn spread(x: &Tensor<2>) -> f64 {
    let [n, d] = x.dims();
    let values = host(x);
    let mut mean = vec![0.0; d];
    for row in values.chunks(d.max(1)) {
        for (m, v) in mean.iter_mut().zip(row) {
            *m += v / n as f64;
        }
    }
    let square = |it: &mut dyn Iterator<Item = f64>| it.map(|v| v * v).sum::<f64>();
    let total = square(&mut values.iter().copied());
    let off = square(&mut values.iter().enumerate().map(|(i, v)| v - mean[i % d]));
    if n < 2 || total == 0.0 { 1.0 } else { off / total }
}
