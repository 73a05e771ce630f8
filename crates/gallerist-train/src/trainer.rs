//! The training loop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsAccumulator;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_data::{
    Batch, BatchPlan, BatchSampler, Broken, ClassMeans, ImageSet, ImageStore, Loader, LoaderOptions,
    Transform,
};
use gallerist_retrieval::eval::Evaluation;

use super::average::Average;
use super::config::threads;
use super::crossing::Crossing;
use super::diagnostics::Diagnostics;
use super::log::{Log, Record, Step};
use super::objective::{Memories, Objective};
use super::phase::Watch;
use super::validation::Validation;
use super::{
    LossScale, Phase, Precision, Profile, RankWatch, RunConfig, RunDirectory, State, Which, head_init,
    limits, means, notices, open_test,
};
use crate::checkpoint::{Best, Checkpoint, Header};
use crate::model::{Model, description};
use crate::optim::{Optimizer, Part, clip_by_global_norm, multiply};
use gallerist_loss::{Labels, Progress, Queries};
use gallerist_nn::{HeadInit, InputShape, Network};
use gallerist_tensor::device::{DeviceChoice, OpenDevice, on_device};
use gallerist_tensor::pairwise::host;
use gallerist_tensor::params;
use gallerist_weights as weights;

use crate::{Error, Result, checkpoint};

/// Watches a run; every method has an empty default.
pub trait Observer {
    /// A step was taken.
    fn step(&mut self, _record: &Step) {}
    /// A validation was done; `best` says whether it is the best so far.
    fn validation(&mut self, _step: usize, _evaluation: &Evaluation, _best: bool) {}
    /// Something the user should look at.
    fn warning(&mut self, _message: &str) {}
    /// Something other than steps has begun or has come further. It is over with the next step or validation, or
    /// when the call returns.
    fn phase(&mut self, _phase: &Phase) {}
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
/// use gallerist_train::{RunConfig, Trainer};
///
/// let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
/// let mut trainer = Trainer::start(&config, Path::new("runs/first"))?;
/// trainer.run(&mut (), &AtomicBool::new(false))?;
/// # Ok::<(), gallerist_train::Error>(())
/// ```
pub struct Trainer {
    config: RunConfig,
    directory: RunDirectory,
    opened: OpenDevice,
    /// Where the network is, with gradients.
    device: Device,
    /// Where the objective is, with gradients.
    host: Device,
    loss_scale: Option<LossScale>,
    input: InputShape,
    store: Arc<ImageStore>,
    sampler: Arc<dyn BatchSampler>,
    validation: Option<Arc<ImageStore>>,
    network: Network,
    average: Option<Average>,
    objective: Objective,
    memories: Memories,
    class_means: Option<Arc<ClassMeans>>,
    optimizer: Optimizer,
    log: Log,
    step: usize,
    best: Option<Best>,
    seconds: f64,
    /// Of the seconds, those spent waiting for images since the call of [`run`](Self::run).
    waited: f64,
    broken: Vec<Broken>,
    warned: Warned,
    rank_watch: RankWatch,
    pretrained: Option<weights::Report>,
    test_notes: Vec<String>,
    profile: Option<Profile>,
    moved_from: Option<String>,
    head_seconds: Option<f64>,
}

const READING_IMAGES: &str = "reading the training images";
const READING_TEST: &str = "reading the test images";
const BUILDING: &str = "building the network";
const READING_WEIGHTS: &str = "reading the weights";
const MEANS: &str = "computing the class means";
const VALIDATING: &str = "validating";

/// What has been warned of, each once.
#[derive(Debug, Default)]
struct Warned {
    collapsed: bool,
    trivial_steps: usize,
    trivial: bool,
    note: bool,
    cache: bool,
}

impl Trainer {
    /// Starts a run in a new directory.
    ///
    /// # Errors
    ///
    /// When the run file's values are out of range, its images cannot be read or cannot form its
    /// batches, or the directory holds something already.
    pub fn start(config: &RunConfig, directory: &Path) -> Result<Self> {
        Self::start_with(config, directory, &mut (), &AtomicBool::new(false))
    }

    /// [`start`](Self::start), watched by `observer`, and given up when `stop` is raised.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and [`Error::Interrupted`]; then no run directory was made.
    pub fn start_with(
        config: &RunConfig,
        directory: &Path,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Self> {
        config.validate()?;
        // Everything that can fail for the user's reasons fails before the directory is made.
        RunDirectory::check(directory)?;
        let begun = Instant::now();
        let mut watch = Watch::new(observer, stop);
        watch.phase(READING_IMAGES, 0, 0)?;
        let (train, validation) = open_training(config)?;
        let mut test_notes = Vec::new();
        watch.phase(READING_TEST, 0, 0)?;
        if let Some(test) = open_test(config)? {
            test.plan(&config.evaluation)?;
            test_notes = test.notes(&config.evaluation);
            let overlap = test.queries.overlap_with(&train).filter(|overlap| overlap.shared > 0);
            test_notes.extend(overlap.map(|overlap| {
                format!("{overlap}: the test will say how well known classes are found, not new ones")
            }));
        }
        watch.phase(BUILDING, 0, 0)?;
        let mut parts = Parts::new(config, train, validation)?;
        let mut pretrained = None;
        if let Some(path) = &config.network.weights {
            watch.phase(READING_WEIGHTS, 0, 0)?;
            let (network, report) = weights::load(parts.network, weights::read(path)?)?;
            (parts.network, pretrained) = (network, Some(report));
        }
        limits::check_maps(&parts.network, parts.sampler.batch_size())?;
        let notices = notices::of_start(config, &parts.network, parts.store.set());
        let opened = begun.elapsed();
        parts.network = head_init::begin(parts.network, config, parts.input, parts.store.set(), &mut watch)?;
        let head_seconds = (begun.elapsed() - opened).as_secs_f64();
        let config = &config.located_from(directory);
        let directory = RunDirectory::create(directory, config)?;
        let mut trainer = parts.into_trainer(config, directory, 0)?;
        trainer.pretrained = pretrained;
        trainer.test_notes = test_notes;
        if config.network.head_init != HeadInit::Random || config.network.head_distance.is_some() {
            trainer.seconds = head_seconds;
            trainer.head_seconds = Some(head_seconds);
        }
        trainer.save(Which::Last)?;
        for message in notices {
            observer.warning(&message);
            trainer.log.write(&Record::Warning { step: 0, message })?;
        }
        Ok(trainer)
    }

    /// Goes on with a run from its last checkpoint.
    ///
    /// # Errors
    ///
    /// When there is no run in `directory`, or its checkpoint does not fit its run file.
    pub fn resume(directory: &Path) -> Result<Self> {
        Self::resume_on(directory, None)
    }

    /// [`resume`](Self::resume) on another device than the run file's. The same steps have other bits there
    /// ([`moved_from`](Self::moved_from)).
    ///
    /// # Errors
    ///
    /// As [`resume`](Self::resume); when the device is not there.
    pub fn resume_on(directory: &Path, device: Option<DeviceChoice>) -> Result<Self> {
        Self::resume_with(directory, device, &mut (), &AtomicBool::new(false))
    }

    /// [`resume_on`](Self::resume_on), watched by `observer`, and given up when `stop` is raised. A run that was
    /// stopped before its first checkpoint is started from its run file.
    ///
    /// # Errors
    ///
    /// As [`resume_on`](Self::resume_on), and [`Error::Interrupted`].
    pub fn resume_with(
        directory: &Path,
        device: Option<DeviceChoice>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let at = directory;
        let directory = RunDirectory::open_to_write(at)?;
        let mut config = RunConfig::load(&directory.config(), &[])?;
        config.train.device = device.unwrap_or(config.train.device);
        config.check_files(&directory.config(), &["data.train"])?;
        match State::of(at)? {
            State::Begun { .. } => {
                drop(directory);
                return Self::start_with(&config, at, observer, stop);
            }
            State::Started => {}
            _ => return Err(directory.without_checkpoint()),
        }
        Watch::new(observer, stop).phase(READING_IMAGES, 0, 0)?;
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
        if let Some(average) = &mut trainer.average {
            average.restore(&mut last.network, &mut last.state);
        }
        let (network, mismatch) = params::load(trainer.network, std::mem::take(&mut last.network));
        if !mismatch.is_empty() {
            return Err(bad(format!("network: {mismatch}")));
        }
        let (objective, mismatch) = params::load(trainer.objective, std::mem::take(&mut last.loss));
        if !mismatch.is_empty() {
            return Err(bad(format!("loss: {mismatch}")));
        }
        (trainer.network, trainer.objective) = (network, objective);
        trainer.memories.restore(&mut last.state, &trainer.host).map_err(bad)?;
        if let Some(class_means) = means::restore(&mut last.state, trainer.training_set().class_names().len())
        {
            trainer.take_means(class_means);
        }
        let state = last.take_optimizer();
        trainer
            .optimizer
            .restore(state, &trainer.device, &trainer.host)
            .map_err(|name| bad(format!("the optimiser's state of `{name}` is incomplete")))?;
        let unfit = trainer.optimizer.unfit(Part::Network, &trainer.network);
        if let Some(name) = unfit.or_else(|| trainer.optimizer.unfit(Part::Loss, &trainer.objective)) {
            return Err(bad(format!(
                "the optimiser's state of `{name}` has another shape than the parameter"
            )));
        }
        trainer.step = last.header.step;
        trainer.best = last.header.best;
        trainer.seconds = last.header.seconds;
        trainer.rank_watch = last.header.rank_watch;
        if let (Some(scale), Some(saved)) = (&mut trainer.loss_scale, last.header.loss_scale) {
            if !saved.is_valid() {
                return Err(bad("the scale of the loss is out of its range".into()));
            }
            *scale = saved;
        }
        let before = if last.header.device.is_empty() { "cpu" } else { &last.header.device };
        trainer.moved_from = (before != trainer.opened.kind()).then(|| before.to_string());
        if !trainer.is_finished() {
            trainer.log.write(&Record::Resumed { step: trainer.step })?;
        }
        Ok(trainer)
    }

    /// Trains until all steps are done or `stop` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Diverged`] when the loss or the gradient stops being finite, the checkpoints
    /// staying as they were; errors of reading images and writing files.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome> {
        if !self.config.log.profile {
            return self.steps(observer, stop);
        }
        let (step, before) = (self.step, self.seconds);
        self.waited = 0.0;
        gallerist_kernels::profile::start();
        let ended = self.steps(observer, stop);
        let timings = gallerist_kernels::profile::stop();
        let outcome = ended?;
        let profile = Profile::new(timings, self.step - step, self.seconds - before, self.waited);
        profile.write(&self.directory.profile())?;
        self.profile = Some(profile);
        Ok(outcome)
    }

    fn steps(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome> {
        let options =
            LoaderOptions::training(self.config.train.seed, threads(self.config.train.loader_threads));
        let options = LoaderOptions { prefetch: self.config.train.prefetch, ..options };
        while self.step < self.config.train.steps {
            let end = self.refresh_sampler(observer)?;
            // The loader works ahead; up to `end` it knows what the batches will be.
            let mut loader = Loader::new(self.store.clone(), self.plan(end), options)?;
            while self.step < end {
                if stop.load(Ordering::Relaxed) {
                    self.save(Which::Last)?;
                    return Ok(Outcome::Interrupted);
                }
                self.one_step(&mut loader, observer)?;
            }
        }
        if self.validation.is_none() {
            self.save(Which::Best)?;
        }
        Ok(Outcome::Finished)
    }

    /// One step with all that follows it: the log, a validation, a checkpoint.
    fn one_step(&mut self, loader: &mut Loader, observer: &mut dyn Observer) -> Result<()> {
        let start = Instant::now();
        let mut broken = Vec::new();
        let mut record = self.train_on(
            &mut || {
                let mut batch = loader.next().expect("the plan has batches for every step")?;
                broken.append(&mut batch.broken);
                Ok(batch)
            },
            observer,
        )?;
        record.seconds = start.elapsed().as_secs_f64();
        self.seconds += record.seconds;
        self.waited += record.waited;
        self.step = record.step;
        observer.step(&record);
        self.log.write(&Record::Step(record))?;
        self.report_broken(broken, observer)?;

        let last = self.step == self.config.train.steps;
        if self.validation.is_some() && (last || self.step.is_multiple_of(self.config.validation.every)) {
            // What follows a step is not measured with it.
            let measured = gallerist_kernels::profile::pause();
            self.validate(observer)?;
            drop(measured);
        }
        let every = self.config.train.checkpoint_every;
        if last || (every > 0 && self.step.is_multiple_of(every)) {
            self.save(Which::Last)?;
        }
        Ok(())
    }

    /// Computes the class means anew where the sampler wants them now, and returns the step up to which its
    /// batches are known.
    fn refresh_sampler(&mut self, observer: &mut dyn Observer) -> Result<usize> {
        let steps = self.config.train.steps;
        let Some(refresh) = self.sampler.refresh() else { return Ok(steps) };
        if self.class_means.is_none() || self.step.is_multiple_of(refresh.every) {
            let start = Instant::now();
            let model = self.model();
            let set = self.store.set().clone();
            let found = means::compute(
                &model,
                &set,
                &self.config,
                refresh.images_per_class,
                self.step,
                &mut |done, total| {
                    observer.phase(&Phase { what: MEANS, done, total });
                    Ok(())
                },
            )?;
            self.take_means(found);
            self.seconds += start.elapsed().as_secs_f64();
        }
        Ok((self.step / refresh.every + 1).saturating_mul(refresh.every).min(steps))
    }

    fn take_means(&mut self, class_means: ClassMeans) {
        let class_means = Arc::new(class_means);
        if let Some(sampler) = self.sampler.with_means(class_means.clone()) {
            self.sampler = sampler;
        }
        self.class_means = Some(class_means);
    }

    /// The batches of the steps from the next one to the `end`-th.
    fn plan(&self, end: usize) -> impl Iterator<Item = BatchPlan> + Send + 'static {
        let (sampler, seed) = (self.sampler.clone(), self.config.train.seed);
        let batches = (0u64..).flat_map(move |epoch| BatchPlan::epoch(epoch, sampler.epoch(seed, epoch)));
        let accumulate = self.config.train.accumulate;
        batches.take(end * accumulate).skip(self.step * accumulate)
    }

    /// Forward and backward of every batch of a step, and one optimiser step.
    fn train_on(
        &mut self,
        next: &mut dyn FnMut() -> Result<Batch>,
        observer: &mut dyn Observer,
    ) -> Result<Step> {
        let step = self.step + 1;
        let count = self.config.train.accumulate;
        let mut network_gradients = GradientsAccumulator::new();
        let mut objective_gradients = GradientsAccumulator::new();
        let mut records = Vec::with_capacity(count);
        let scale = self.loss_scale.map_or(1.0, LossScale::factor);
        for _ in 0..count {
            let (record, value, crossing) = self.forward(next()?, observer)?;
            records.push(record);
            // The gradient of a single batch goes on as it is, to the last bit.
            let value = if count == 1 { value } else { value.mul_scalar(1.0 / count as f64) };
            let (of_network, of_objective) = self
                .config
                .train
                .precision
                .run(&self.opened, || crossing.backward(value, &self.network, &self.objective, scale));
            network_gradients.accumulate(&self.network, of_network);
            objective_gradients.accumulate(&self.objective, of_objective);
        }
        let (mut of_network, of_objective) = (network_gradients.grads(), objective_gradients.grads());
        if scale != 1.0 {
            multiply(&mut of_network, &self.network, 1.0 / scale);
        }
        let gradient_norm =
            clip_by_global_norm(&mut of_network, &self.network, self.config.optimizer.clip_norm) as f32;
        let finite = gradient_norm.is_finite();
        let scaled = self.loss_scale.as_mut().is_some_and(|scale| scale.update(finite));
        let rate = self.config.optimizer.learning_rate
            * self.config.schedule.factor(self.step, self.config.train.steps);
        if !finite {
            return match scaled {
                true => Ok(Step { left_out: true, learning_rate: rate, ..Step::mean(&records) }),
                false => Err(self.diverged(step, gradient_norm)),
            };
        }
        self.network = on_device(self.opened.device(), || {
            self.optimizer.step(rate, Part::Network, self.network.clone(), of_network)
        });
        self.objective = self.optimizer.step(rate, Part::Loss, self.objective.clone(), of_objective);
        if let Some(average) = &mut self.average {
            average.update(step, &self.network);
        }
        Ok(Step { gradient_norm, learning_rate: rate, ..Step::mean(&records) })
    }

    /// What the objective says of a batch, its value, and the way back to the network.
    fn forward(&mut self, batch: Batch, observer: &mut dyn Observer) -> Result<(Step, Tensor<1>, Crossing)> {
        let step = self.step + 1;
        let shape = batch.shape();
        let images = Tensor::<4>::from_data(TensorData::new(batch.images, shape), &self.device);
        let precision = self.config.train.precision;
        let images = match precision.of_maps(&self.opened) {
            DType::F32 => images,
            smaller => images.cast(smaller),
        };
        let outputs = precision.run(&self.opened, || self.network.forward(images));
        let crossing = Crossing::new(outputs, &self.host);
        let outputs = crossing.outputs();
        let embedding_norm = outputs.iter().map(mean_norm).sum::<f32>() / outputs.len() as f32;
        let sets: Option<Vec<Vec<u32>>> = self
            .store
            .set()
            .label_sets()
            .map(|sets| batch.items.iter().map(|&item| sets[item as usize].clone()).collect());
        let labels = sets.as_deref().map_or(Labels::Classes(&batch.labels), Labels::Sets);
        let progress = Progress { step: self.step, steps: self.config.train.steps };
        let output = self.objective.forward(outputs, labels, &self.memories, progress);
        let loss = output.value.clone().into_scalar::<f32>();
        if !loss.is_finite() {
            return Err(self.diverged(step, loss));
        }
        self.memories.push(self.step, &output.embeddings, labels);
        let seen = Diagnostics::of(&output.embeddings[0], labels);
        self.watch(step, &seen, &output.queries, observer)?;
        let mean = |of: &dyn Fn(&Queries) -> f32| {
            output.queries.iter().map(of).sum::<f32>() / output.queries.len() as f32
        };
        let per_query = |counts: &[u32]| counts.iter().sum::<u32>() as f32 / counts.len().max(1) as f32;
        let record = Step {
            step,
            epoch: batch.epoch as usize,
            loss,
            positive_share: mean(&Queries::positive_share),
            negative_share: mean(&Queries::negative_share),
            mined_positives: mean(&|queries| per_query(&queries.mined_positives)),
            mined_negatives: mean(&|queries| per_query(&queries.mined_negatives)),
            dead_share: mean(&Queries::dead_share),
            losses: if output.values.len() > 1 { output.values } else { Vec::new() },
            positive_distance: seen.positive_distance,
            negative_distance: seen.negative_distance,
            rank: seen.rank,
            embedding_norm,
            waited: batch.waited.as_secs_f64(),
            ..Step::default()
        };
        Ok((record, output.value, crossing))
    }

    fn diverged(&self, step: usize, value: f32) -> Error {
        let hint = format!(
            "lower optimizer.learning_rate (it is {}) or set schedule.warmup_steps; the checkpoints are of earlier \
             steps and still good",
            self.config.optimizer.learning_rate
        );
        Error::Diverged { step, value, hint }
    }

    /// Warns once when the embedding collapses, once when it gives up most of its dimensions, and once when nothing
    /// is left to learn.
    fn watch(
        &mut self,
        step: usize,
        seen: &Diagnostics,
        queries: &[Queries],
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut messages = Vec::new();
        if !self.warned.collapsed && seen.collapsed() {
            self.warned.collapsed = true;
            messages.push(
                "all embeddings of a batch are (nearly) the same point; lower optimizer.learning_rate, or use a \
                 longer warm-up (schedule.warmup_steps)",
            );
        }
        let lost = self.rank_watch.step(seen.rank, seen.possible_rank);
        // A collapse has its own warning.
        let lost = lost.filter(|_| !self.warned.collapsed).map(|lost| lost.message(&self.config));
        messages.extend(lost.as_deref());
        let mut mined = queries.iter().flat_map(|q| q.mined_positives.iter().chain(&q.mined_negatives));
        let trivial = mined.all(|&mined| mined == 0);
        self.warned.trivial_steps = if trivial { self.warned.trivial_steps + 1 } else { 0 };
        if !self.warned.trivial && self.warned.trivial_steps == 20 {
            self.warned.trivial = true;
            messages.push(
                "no pair of the last 20 batches gives a gradient; use larger batches (sampler.classes_per_batch) or \
                 a wider margin (loss.margin)",
            );
        }
        if let (false, Some(note)) = (self.warned.note, queries.iter().find_map(|q| q.note)) {
            self.warned.note = true;
            messages.push(note);
        }
        let stores = [Some(&self.store), self.validation.as_ref()];
        let full = stores
            .into_iter()
            .flatten()
            .find_map(|store| store.disk_problem())
            .map(|problem| format!("{problem}; further images are not kept there (data.cache_folder)"));
        if let (false, Some(message)) = (self.warned.cache, &full) {
            self.warned.cache = true;
            messages.push(message);
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
        let mut progress = |done, total| {
            observer.phase(&Phase { what: VALIDATING, done, total });
            Ok(())
        };
        let (embedded, items) =
            model.embed_with_items(store, self.config.train.loader_threads, &mut progress)?;
        let evaluation = Validation::new(&self.config, store.set())?.measure(embedded.set, &items)?;
        let metric = &self.config.validation.metric;
        let value = evaluation.metrics[metric.as_str()];
        let best = self.best.as_ref().is_none_or(|best| value > best.value);
        if best {
            self.best = Some(Best { metric: metric.clone(), value, step: self.step });
            self.save(Which::Best)?;
        }
        let metrics = evaluation.metrics.iter().map(|(name, value)| (name.to_string(), value)).collect();
        self.log.write(&Record::Validation {
            step: self.step,
            protocol: evaluation.protocol.clone(),
            metrics,
        })?;
        observer.validation(self.step, &evaluation, best);
        Ok(())
    }

    /// The network as it is now, ready to embed.
    fn model(&self) -> Model {
        let network = match &self.average {
            Some(average) => average.network(&self.network),
            None => self.network.valid(),
        };
        Model::new(self.config.clone(), self.input, network)
            .with_heads(self.config.evaluation.head_choice())
            .expect("the run file was checked")
    }

    /// Writes a checkpoint.
    fn save(&mut self, which: Which) -> Result<()> {
        let mut remembered = BTreeMap::new();
        let network = params::collect(&self.network);
        let network = match &self.average {
            Some(average) => average.save(network, &mut remembered),
            None => network,
        };
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
            device: self.opened.kind().into(),
            loss_scale: self.loss_scale,
            rank_watch: self.rank_watch.clone(),
            ..Header::default()
        };
        let loss = params::collect(&self.objective);
        if let Some(class_means) = &self.class_means {
            means::save(class_means, &mut remembered);
        }
        self.memories.save(&mut remembered);
        Checkpoint { header, network, loss, optimizer: state.tensors, state: remembered }
            .save(&self.directory.checkpoint(which))
    }

    /// Steps done.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Seconds of training so far, validations left out.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Of these, the seconds that computing the first heads took ([`HeadInit`]), where the run was started just now.
    pub fn head_seconds(&self) -> Option<f64> {
        self.head_seconds
    }

    /// Whether all steps are done.
    pub fn is_finished(&self) -> bool {
        self.step >= self.config.train.steps
    }

    /// The best validation so far.
    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Images that could not be read, each once.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// What became of the tensors of `network.weights`, where the run was started from them just now.
    pub fn pretrained(&self) -> Option<&weights::Report> {
        self.pretrained.as_ref()
    }

    /// What the user should know about the test images, where the run was started just now.
    pub fn test_notes(&self) -> &[String] {
        &self.test_notes
    }

    /// Where the time went, of the last call of [`run`](Self::run), with `log.profile`.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// The device that the network computes on.
    pub fn device(&self) -> &OpenDevice {
        &self.opened
    }

    /// The kind of device that trained so far, where the run was taken up on another: its steps are not the same to
    /// the last bit.
    pub fn moved_from(&self) -> Option<&str> {
        self.moved_from.as_deref()
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

    /// Images that one step sees.
    pub fn images_per_step(&self) -> usize {
        self.sampler.batch_size() * self.config.train.accumulate
    }

    /// Trainable numbers of the network, running statistics of batch norm included.
    pub fn parameter_count(&self) -> usize {
        self.network.num_params()
    }
}

/// What a trainer is made of, before there is a directory.
struct Parts {
    opened: OpenDevice,
    device: Device,
    host: Device,
    input: InputShape,
    store: Arc<ImageStore>,
    sampler: Arc<dyn BatchSampler>,
    validation: Option<Arc<ImageStore>>,
    network: Network,
    objective: Objective,
}

impl Parts {
    fn new(config: &RunConfig, train: ImageSet, validation: Option<ImageSet>) -> Result<Self> {
        let opened = config.train.device.open()?;
        config.train.precision.check(&opened)?;
        let device = opened.device().clone().autodiff();
        let host = Device::flex().autodiff();
        let sampler = config.sampler.build(&train)?;
        let transform = Transform::training(&config.image, &config.augment)?;
        let [channels, height, width] = transform.shape();
        let input = InputShape { channels, height, width };
        let network = config.network.init(input, config.train.seed, &device)?;
        let store = image_store(config, train, transform)?;
        let validation = match validation {
            Some(set) => Some(image_store(config, set, Transform::evaluation(&config.image)?)?),
            None => None,
        };
        let objective = Objective::new(config, store.set().label_names().len(), &host)?;
        Ok(Parts { opened, device, host, input, store, sampler, validation, network, objective })
    }

    fn into_trainer(self, config: &RunConfig, directory: RunDirectory, step: usize) -> Result<Trainer> {
        let mut log = Log::open(&directory.log())?;
        if config.log.tensorboard {
            log = log.with_events(&directory.tensorboard(), step)?;
        }
        Ok(Trainer {
            optimizer: Optimizer::new(&config.optimizer),
            config: config.clone(),
            directory,
            loss_scale: (config.train.precision == Precision::F16).then(LossScale::default),
            opened: self.opened,
            device: self.device,
            host: self.host,
            input: self.input,
            store: self.store,
            sampler: self.sampler,
            validation: self.validation,
            average: config.train.average_decay.map(|decay| Average::new(decay, &self.network)),
            network: self.network,
            memories: Memories::new(config, &self.objective),
            objective: self.objective,
            class_means: None,
            log,
            step,
            best: None,
            seconds: 0.0,
            waited: 0.0,
            broken: Vec::new(),
            warned: Warned::default(),
            rank_watch: RankWatch::default(),
            pretrained: None,
            test_notes: Vec::new(),
            profile: None,
            moved_from: None,
            head_seconds: None,
        })
    }
}

/// Images with the caches of the run file.
fn image_store(config: &RunConfig, images: ImageSet, transform: Transform) -> Result<Arc<ImageStore>> {
    let store = ImageStore::new(Arc::new(images), transform, config.data.cache_mib << 20);
    Ok(Arc::new(match &config.data.cache_folder {
        Some(folder) => store.with_disk_cache(folder)?,
        None => store,
    }))
}

/// The training set and the validation set, whose classes are disjoint.
fn open_training(config: &RunConfig) -> Result<(ImageSet, Option<ImageSet>)> {
    if config.data.train.is_empty() {
        return Err(gallerist_tensor::Error::Value {
            key: "data.train".into(),
            wanted: "a list of folders, zips or manifests".into(),
            found: "empty".into(),
        }
        .into());
    }
    let set = ImageSet::open_with(&config.data.train, &config.data.train_options())?;
    let (train, validation) = if config.validation.fraction > 0.0 {
        let (train, validation) = set.split_classes(config.validation.fraction, config.validation.seed)?;
        (train, Some(validation))
    } else {
        (set, None)
    };
    let train = if config.data.rotation_classes { train.with_rotation_classes()? } else { train };
    Ok((train, validation))
}

/// Mean length of the rows.
fn mean_norm(x: &Tensor<2>) -> f32 {
    let [n, d] = x.dims();
    let values = host(x);
    let norms = values.chunks(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt());
    (norms.sum::<f64>() / n.max(1) as f64) as f32
}
