//! From a run file, or a checkpoint, to a trainer.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use gallerist_collective::{Collective, Shared};
use gallerist_data::{
    BatchSampler, DataRecord, ImageSet, ImageStore, LoaderOptions, Transform, checked_epoch,
};
use gallerist_nn::{AnyEmbedder, HeadInit, InputShape, Network};
use gallerist_retrieval::file::write_atomically;
use gallerist_tensor::params;
use gallerist_weights as weights;
use serde_json::{Value, json};

use super::carry::carry_over;
use super::refused::Refused;
use super::state::{Batches, Counters, Devices, Started, Trainer, Warnings};
use super::warnings::{TRAIN, VALIDATION};
use crate::average::Average;
use crate::checkpoint::{Checkpoint, Header};
use crate::config::{CheckpointKind, Difference, RunConfig, by_classes, differences, threads as resolved};
use crate::directory::{RunDirectory, State};
use crate::gradient_sums::Order;
use crate::log::{Log, Record};
use crate::nonfinite::Place;
use crate::objective::{Memories, Objective};
use crate::observer::{Observer, Watch};
use crate::optim::{Optimizer, Part};
use crate::precision::{LossScale, Precision};
use crate::test_images::{self, Opened, TEST, TestImages};
use crate::timing::Timing;
use crate::{Error, Result, features, head_init, limits, means, notices};
use gallerist_tensor::device::{DeviceChoice, OpenDevice};

const READING_IMAGES: &str = "reading the training images";
const READING_TEST: &str = "reading the test images";
const BUILDING: &str = "building the network";
const READING_WEIGHTS: &str = "reading the weights";

/// A run whose parts are given as values instead of by the names and paths of a run file.
///
/// Network, losses, sampler and transforms are parts of the configuration: `config.network =
/// MyNetworkConfig::default().into()` needs no registration. The images are given by [`images`](Self::images). A run
/// is resumed with the same parts given again, because its directory keeps only their names and parameters. What reads the
/// directory needs the names: [`Trainer::resume`], [`Model::open`](crate::model::Model::open), `gallerist::complete` with
/// its report ([`RunConfig::check_registered`]).
///
/// # Example
///
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use gallerist_data::ImageSet;
/// use gallerist_train::{RunConfig, TrainerBuilder};
///
/// let mut config = RunConfig::default();
/// config.train.steps = 100;
/// let (train, validation) = ImageSet::open("photos")?.split_classes(0.1, 0)?;
/// let mut trainer = TrainerBuilder::new(&config).images(train, Some(validation)).start(Path::new("runs/mine"))?;
/// trainer.run(&mut (), &AtomicBool::new(false))?;
/// # Ok::<(), gallerist_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrainerBuilder {
    config: RunConfig,
    images: Option<TrainingImages>,
    ranks: Option<Arc<dyn Collective>>,
    force_data: bool,
}

/// How a run is resumed. The default is as it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumeOptions {
    /// Another device than the run file's. The same steps have other bits there ([`Trainer::moved_from`]).
    pub device: Option<DeviceChoice>,
    /// Continues also where images, labels or corrections have changed since, with the images as they are.
    pub force_data: bool,
    /// The first image that cannot be read is an error (`data.strict`).
    pub strict: bool,
}

impl From<Option<DeviceChoice>> for ResumeOptions {
    fn from(device: Option<DeviceChoice>) -> Self {
        ResumeOptions { device, ..Self::default() }
    }
}

/// The training set and the validation set, whose classes are disjoint.
#[derive(Clone, Debug)]
struct TrainingImages {
    train: ImageSet,
    validation: Option<ImageSet>,
}

impl TrainerBuilder {
    /// A run of this configuration.
    pub fn new(config: &RunConfig) -> Self {
        TrainerBuilder { config: config.clone(), images: None, ranks: None, force_data: false }
    }

    /// Trains on `train`, and chooses the best checkpoint by `validation`, in place of the images of `data.train`.
    /// The classes of the two should be disjoint.
    pub fn images(self, train: ImageSet, validation: Option<ImageSet>) -> Self {
        TrainerBuilder { images: Some(TrainingImages { train, validation }), ..self }
    }

    /// Trains by all of `ranks` in place of [`world`](gallerist_collective::world): each runs this with the same
    /// configuration, directory and images, and the run is that of one process.
    pub fn ranks(self, ranks: Arc<dyn Collective>) -> Self {
        TrainerBuilder { ranks: Some(ranks), ..self }
    }

    /// [Resumes](Self::resume) also with other images or labels than those of the checkpoint
    /// ([`Error::ChangedData`]).
    pub fn force_data(self, force_data: bool) -> Self {
        TrainerBuilder { force_data, ..self }
    }

    /// Starts the run in a new directory.
    ///
    /// # Errors
    ///
    /// As [`Trainer::start`].
    pub fn start(self, directory: &Path) -> Result<Trainer> {
        self.start_with(directory, &mut (), &AtomicBool::new(false))
    }

    /// [`start`](Self::start), watched by `observer`, and given up when `stop` is raised.
    ///
    /// # Errors
    ///
    /// As [`Trainer::start_with`].
    pub fn start_with(
        self,
        directory: &Path,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Trainer> {
        let TrainerBuilder { config, images, ranks, .. } = self;
        config.validate()?;
        let ranks = ranks.map_or_else(gallerist_collective::world, Ok)?;
        // Everything that can fail for the user's reasons fails before the directory is made.
        if ranks.rank() == 0 {
            RunDirectory::check(directory)?;
        }
        let begun = Instant::now();
        let mut watch = Watch::new(observer, stop);
        watch.phase(READING_IMAGES, 0, 0)?;
        let images = images.map_or_else(|| TrainingImages::open(&config, &KeptClasses::default()), Ok)?;
        watch.phase(READING_TEST, 0, 0)?;
        let (test_notes, held_out) = match test_images::open(&config, None)? {
            Some(Opened { test, held_out }) => (notes_of_test(&config, &test, &images.train)?, held_out),
            None => Default::default(),
        };
        watch.phase(BUILDING, 0, 0)?;
        let mut parts = Parts::new(&config, images, ranks)?;
        let mut pretrained = None;
        if let Some(path) = &config.network.weights {
            watch.phase(READING_WEIGHTS, 0, 0)?;
            let (network, report) = weights::load(parts.network, weights::read(path)?)?;
            (parts.network, pretrained) = (network, Some(report));
        }
        limits::check_maps(&*parts.network, parts.sampler.batch_size())?;
        let mut notices = notices::of_start(&config, &*parts.network, parts.store.set());
        notices.extend(notices::of_schedule(&config));
        let (name, images) = (config.sampler.name(), parts.store.set().len());
        let first = checked_epoch(&*parts.sampler, name, images, config.train.seed, 0)?;
        notices.extend(notices::of_batches(&config, &first[0], parts.store.set()));
        notices.extend(parts.validation.as_ref().and_then(|store| notices::of_validation(store.set())));
        notices.extend(notices::of_little_data(&config, parts.store.set().len()));
        let opened = begun.elapsed();
        parts.compute_features(&config, config.data.cache_folder.as_deref(), &mut watch)?;
        parts.network =
            head_init::begin(parts.network, &config, parts.input, &parts.store, &parts.ranks, &mut watch)?;
        let head_seconds = (begun.elapsed() - opened).as_secs_f64();
        if let Some(name) = params::first_nonfinite(&parts.network) {
            return Err(Error::Nonfinite {
                step: 0,
                found: Place::Weights(name).to_string(),
                skipped: 0,
                file: None,
                hint: "check the file of network.weights, or the network's own initialization".into(),
            });
        }
        let mut config = config.with_absolute_paths();
        config.data.relabel_sha256 = config.data.digest_of_corrections()?;
        let directory = match parts.ranks.rank() {
            0 => {
                let created = RunDirectory::create(directory, &config)?;
                parts.keep_features(&config, &created)?;
                keep_list(&parts.data, &held_out, &created)?;
                created
            }
            _ => RunDirectory::of_rank(directory),
        };
        let mut trainer = parts.into_trainer(&config, directory, 0)?;
        trainer.started.pretrained = pretrained;
        trainer.started.test_notes = test_notes;
        if config.network.head_init != HeadInit::Random || config.network.head_distance.is_some() {
            trainer.state.seconds = head_seconds;
            trainer.started.head_seconds = Some(head_seconds);
        }
        trainer.save(CheckpointKind::Last)?;
        for message in notices {
            observer.warning(&message);
            trainer.log.write(&Record::Warning { step: 0, message })?;
        }
        Ok(trainer)
    }

    /// Continues the run in `directory` from its last checkpoint, with the parts given again.
    ///
    /// # Errors
    ///
    /// When there is no run in `directory`, or its checkpoint does not fit these parts.
    pub fn resume(self, directory: &Path) -> Result<Trainer> {
        self.resume_with(directory, &mut (), &AtomicBool::new(false))
    }

    /// [`resume`](Self::resume), watched by `observer`, and given up when `stop` is raised. A run that was stopped
    /// before its first checkpoint is started.
    ///
    /// # Errors
    ///
    /// As [`resume`](Self::resume), and [`Error::Interrupted`].
    pub fn resume_with(
        self,
        directory: &Path,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Trainer> {
        let ranks = self.ranks.clone().map_or_else(gallerist_collective::world, Ok)?;
        let opened = RunDirectory::open_among(directory, &*ranks)?;
        let begun = match ranks.rank() {
            0 => match State::of(directory)? {
                State::Begun { .. } => true,
                State::Started => false,
                _ => return Err(opened.without_checkpoint()),
            },
            _ => false,
        };
        if ranks.any(begun)? {
            drop(opened);
            return self.ranks(ranks).start_with(directory, observer, stop);
        }
        let TrainerBuilder { config, images, force_data, .. } = self;
        Watch::new(observer, stop).phase(READING_IMAGES, 0, 0)?;
        let path = opened.checkpoint(CheckpointKind::Last);
        let mut last = Checkpoint::load(&path)?;
        let (held_out, trained) = opened.image_list().unwrap_or_default().split_off(TEST);
        let before = RunConfig::parse(&last.header.config, "in the checkpoint", &[]);
        let is_split_alike =
            before.as_ref().is_ok_and(|before| before.validation.holds_out_as(&config.validation));
        let (validated, _) = trained.clone().split_off(VALIDATION);
        let kept = KeptClasses {
            test: classes(&held_out),
            validation: classes(&validated).filter(|_| is_split_alike),
        };
        let images = images.map_or_else(|| TrainingImages::open(&config, &kept), Ok)?;
        let mut parts = Parts::new(&config, images, ranks)?;
        let changes = changes(&last.header, &parts.data, &trained, &opened);
        let changed = before.ok().and_then(|before| changed_settings(&before, &config));
        if let (Some(changes), false) = (&changes, force_data) {
            return Err(Error::ChangedData { step: last.header.step, changes: changes.clone() });
        }
        let notes = match &changes {
            Some(_) => parts.take_over(&mut last, &path, &config, &trained)?,
            None => Vec::new(),
        };
        // Values of two metrics, or of other images, cannot be compared. Without a further validation the best one stays.
        let others = changes.is_some() && validated != parts.data.clone().split_off(VALIDATION).0;
        let validates = parts.validation.is_some() && last.header.step < config.train.steps;
        let metric = &config.validation.metric;
        let other_best = last.header.best.take_if(|best| validates && (others || best.metric != *metric));
        let other_best = other_best.map(|best| {
            let of = if others { " of other validation images" } else { "" };
            format!(
                "the best checkpoint is that of step {} by `{}`{of}; from now on `{metric}` chooses, and the next validation \
                 replaces it",
                best.step, best.metric
            )
        });
        // Checkpoints of earlier versions do not know their images.
        let is_listed = !last.header.data.is_empty();
        let list = parts.data.clone();
        let folder = config.data.cache_folder.clone().unwrap_or_else(|| opened.features());
        parts.compute_features(&config, Some(&folder), &mut Watch::new(observer, stop))?;
        let mut trainer = parts.into_trainer(&config, opened, last.header.step)?;
        trainer.restore(last, &path, changed.as_deref())?;
        let step = trainer.state.step;
        if !trainer.is_finished() {
            trainer.log.write(&Record::Resumed { step })?;
        }
        let changed = changed.map(|changed| {
            format!(
                "the run file `config.toml` was changed since step {step}, and the run continues with it: {changed}"
            )
        });
        let mut messages: Vec<String> = changed.into_iter().chain(other_best).collect();
        if let Some(changes) = changes {
            trainer.save(CheckpointKind::Last)?;
            let all = [vec![changes], notes].concat().join("; ");
            messages.push(format!(
                "the images of the run have changed since step {step}, and it continues with them: {all}"
            ));
        }
        // After the checkpoint: if the process ends in between, the next resume writes the list.
        if is_listed && trained != list && trainer.ranks.rank() == 0 {
            keep_list(&list, &held_out, &trainer.directory)?;
        }
        for message in messages {
            observer.warning(&message);
            trainer.log.write(&Record::Warning { step, message })?;
        }
        Ok(trainer)
    }
}

impl Trainer {
    /// Starts a run in a new directory.
    ///
    /// # Errors
    ///
    /// When the run file's values are out of range, its images cannot be read or cannot form its
    /// batches, or the directory holds something already.
    pub fn start(config: &RunConfig, directory: &Path) -> Result<Self> {
        TrainerBuilder::new(config).start(directory)
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
        TrainerBuilder::new(config).start_with(directory, observer, stop)
    }

    /// Continues a run from its last checkpoint.
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
        Self::resume_with(directory, &device.into(), &mut (), &AtomicBool::new(false))
    }

    /// [`resume`](Self::resume) with options, watched by `observer`, and given up when `stop` is raised. A run that was
    /// stopped before its first checkpoint is started from its run file.
    ///
    /// # Errors
    ///
    /// As [`resume_on`](Self::resume_on), [`Error::Interrupted`], and [`Error::ChangedData`] unless that is forced.
    pub fn resume_with(
        directory: &Path,
        options: &ResumeOptions,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let ranks = gallerist_collective::world()?;
        let opened = RunDirectory::open_among(directory, &*ranks)?;
        let run_file = opened.config();
        let mut config = RunConfig::load(&run_file, &[])?;
        config.check_files(&run_file, &["data.train", "data.relabel"])?;
        if options.force_data && config.data.relabel_sha256 != config.data.digest_of_corrections()? {
            config.data.relabel_sha256 = config.data.digest_of_corrections()?;
            if ranks.rank() == 0 {
                opened.write_config(&config)?;
            }
        }
        drop(opened);
        config.train.device = options.device.unwrap_or(config.train.device);
        config.data.strict |= options.strict;
        TrainerBuilder::new(&config).force_data(options.force_data).resume_with(directory, observer, stop)
    }

    /// Takes everything that a checkpoint holds; `path` names it in errors, `changed` the keys that the run file has changed
    /// since.
    fn restore(&mut self, mut last: Checkpoint, path: &Path, changed: Option<&str>) -> Result<()> {
        let run_file = self.directory.config();
        let bad = |reason: String| Error::Checkpoint {
            path: path.into(),
            reason,
            hint: Some(match changed {
                Some(changed) => format!(
                    "put back what was changed in `{}` since the checkpoint, or start a new run: {changed}",
                    run_file.display()
                ),
                None => "config.toml and the checkpoint must be of the same run".into(),
            }),
        };
        // Also if the run file has lost its average: the state of the optimiser is that of the trained weights.
        let averaged = Average::take(&mut last.network, &mut last.state);
        if let Some(average) = &mut self.average {
            // An average that the run file has gained begins with the trained weights.
            average.restore(averaged.unwrap_or_else(|| last.network.clone()));
        }
        let (network, mismatch) = params::load(self.network.clone(), std::mem::take(&mut last.network));
        if !mismatch.is_empty() {
            return Err(bad(format!("network: {mismatch}")));
        }
        let (objective, mismatch) = params::load(self.objective.clone(), std::mem::take(&mut last.loss));
        if !mismatch.is_empty() {
            return Err(bad(format!("loss: {mismatch}")));
        }
        (self.network, self.objective) = (network, objective);
        self.memories.restore(&mut last.state, &self.devices.host).map_err(bad)?;
        if let Some(class_means) = means::restore(&mut last.state, self.training_set().class_names().len()) {
            self.take_means(class_means);
        }
        let state = last.take_optimizer();
        self.optimizer
            .restore(state, &self.devices.network, &self.devices.host)
            .map_err(|name| bad(format!("the optimiser's state of `{name}` is incomplete")))?;
        let unfit = self.optimizer.unfit(Part::Network, &self.network);
        if let Some(name) = unfit.or_else(|| self.optimizer.unfit(Part::Loss, &self.objective)) {
            return Err(bad(format!(
                "the optimiser's state of `{name}` has another shape than the parameter"
            )));
        }
        self.state.step = last.header.step;
        self.state.best = last.header.best;
        // Earlier versions have the time in the checkpoint.
        self.state.seconds = match Timing::load(&self.directory.timing())? {
            Some(timing) if last.header.seconds == 0.0 => timing.training_seconds,
            _ => last.header.seconds,
        };
        self.state.skipped = last.header.skipped;
        self.warnings.rank_watch = last.header.rank_watch;
        self.warnings.collapse_watch = last.header.collapse_watch;
        self.warnings.broken = last.header.broken;
        if let (Some(scale), Some(saved)) = (&mut self.loss_scale, last.header.loss_scale) {
            if !saved.is_valid() {
                return Err(bad("the scale of the loss is out of its range".into()));
            }
            *scale = saved;
        }
        let before = if last.header.device.is_empty() { "cpu" } else { &last.header.device };
        self.started.moved_from = (before != self.devices.opened.kind()).then(|| before.to_string());
        Ok(())
    }
}

/// Writes the list of the images of a run, and of those that it has held out.
fn keep_list(list: &DataRecord, held_out: &DataRecord, directory: &RunDirectory) -> Result<()> {
    let text = list.clone().joined(held_out.clone()).to_csv();
    write_atomically(directory.images(), |file| std::io::Write::write_all(file, text.as_bytes()))?;
    Ok(())
}

/// The keys of a run file that have other values than the steps before were taken with, with both values; `None`: no key.
fn changed_settings(before: &RunConfig, now: &RunConfig) -> Option<String> {
    // Where images and files are is not what they are, and the device is reported otherwise.
    let settings = |config: &RunConfig| {
        let mut settings = json!(config);
        for (section, key) in [("train", "device"), ("network", "weights"), ("network", "file")] {
            settings[section].as_object_mut()?.remove(key);
        }
        for section in ["data", "text"] {
            settings.as_object_mut()?.remove(section);
        }
        Some(settings)
    };
    let shown = |of: Difference| {
        let value = |value: Option<Value>| value.map_or("absent".into(), |value| value.to_string());
        format!("{} = {} (was {})", of.key, value(of.now), value(of.before))
    };
    let changes: Vec<String> =
        differences(&settings(before)?, &settings(now)?).into_iter().map(shown).collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

/// The labels of a list; `None` if it is empty.
fn classes(list: &DataRecord) -> Option<BTreeSet<String>> {
    (!list.is_empty()).then(|| list.labels())
}

/// The classes that a run has held out. They stay held out when it is resumed with other images.
#[derive(Default)]
struct KeptClasses {
    test: Option<BTreeSet<String>>,
    validation: Option<BTreeSet<String>>,
}

/// What differs between the images of a checkpoint and those of now; `None`: nothing, or the checkpoint is of an earlier
/// version, which did not keep it. `before` is the list of the run.
fn changes(last: &Header, now: &DataRecord, before: &DataRecord, directory: &RunDirectory) -> Option<String> {
    if last.data.is_empty() || last.data == now.fingerprint() {
        return None;
    }
    Some(match before.fingerprint() == last.data {
        true => now.changes_since(before).to_string(),
        false => format!(
            "images, labels, cameras or splits differ; `{}` is not the list of that step, so which is unknown",
            directory.images().display()
        ),
    })
}

/// What the user should know about the test images.
fn notes_of_test(config: &RunConfig, test: &TestImages, train: &ImageSet) -> Result<Vec<String>> {
    test.plan(&config.evaluation)?;
    let mut notes = test.notes(&config.evaluation);
    let overlap = test.queries.overlap_with(train).filter(|overlap| overlap.shared > 0);
    notes.extend(overlap.map(|overlap| {
        format!("{overlap}: the test will say how well known classes are found, not new ones")
    }));
    Ok(notes)
}

/// Why a network cannot be trained with gradient checkpointing, and what to set.
fn why_not_checkpointed(network: &AnyEmbedder) -> (String, String) {
    const OFF: &str = "train.gradient_checkpointing = false";
    let Some(graph) = network.graph() else {
        return ("it has no list of layers".into(), format!("set {OFF}"));
    };
    let of_batch = graph.batch_norms().filter(|(_, uses_batch)| *uses_batch).map(|(name, _)| name);
    let (new, others): (Vec<&str>, Vec<&str>) = of_batch.partition(|name| Network::may_be_new(name));
    let mut keys = Vec::new();
    if !others.is_empty() {
        keys.push("network.freeze_batch_norm = \"all\"");
    }
    let reason = match new.first() {
        Some(name) => {
            keys.push(match Network::is_head(name) {
                true if network.extractor().is_some() => "network.hidden = 0",
                true => "network.hidden_norm = false",
                false => "network.heads = [\"H\"]",
            });
            format!(
                "its batch norm `{name}` uses the statistics of the batch; those of new layers are never frozen"
            )
        }
        None => "its batch norms use the statistics of the batch".into(),
    };
    (reason, format!("set {}, or {OFF}", keys.join(" and ")))
}

/// What a trainer is made of, before there is a directory.
struct Parts {
    ranks: Arc<dyn Collective>,
    opened: OpenDevice,
    device: Device,
    host: Device,
    input: InputShape,
    /// The images of training and validation.
    data: DataRecord,
    store: Arc<ImageStore>,
    sampler: Arc<dyn BatchSampler>,
    validation: Option<Arc<ImageStore>>,
    network: AnyEmbedder,
    objective: Objective,
}

impl Parts {
    fn new(config: &RunConfig, images: TrainingImages, ranks: Arc<dyn Collective>) -> Result<Self> {
        let TrainingImages { train, validation } = images;
        ranks.set_timeout(Duration::from_secs(config.distributed.timeout_seconds));
        let opened = config.train.device.open()?;
        config.train.precision.check(&opened)?;
        let device = opened.device().clone().autodiff();
        let host = Device::flex().autodiff();
        let sampler = config.sampler.build(&train)?;
        if train.labels().is_none() && train.label_sets().is_none() {
            return Err(gallerist_data::Error::NoLabels {
                purpose: "training",
                path: train.name().to_owned(),
            }
            .into());
        }
        let has_label_sets = train.label_sets().is_some();
        config.loss.0.iter().try_for_each(|term| term.loss.require_one_class(has_label_sets))?;
        if sampler.batch_size() < ranks.size() {
            return Err(gallerist_tensor::Error::Value {
                key: config.sampler.batch_size_keys().into(),
                wanted: format!("batches of {} images or more, one for every rank", ranks.size()),
                found: sampler.batch_size().to_string(),
            }
            .into());
        }
        let held_out = validation.as_ref().map(|set| (VALIDATION, set));
        let data = DataRecord::of(&[(TRAIN, &train)].into_iter().chain(held_out).collect::<Vec<_>>());
        if ranks.size() > 1 {
            // Each rank may have a GPU of its own. On devices of several kinds, the parameters would differ after a step.
            ranks.agree(opened.kind().as_bytes(), "another kind of device")?;
            let mut common = config.clone();
            common.train.device = DeviceChoice::default();
            let all = format!("{}\n{}", common.to_toml(), data.fingerprint());
            ranks.agree(all.as_bytes(), "another run file or other images")?;
        }
        let transform = Transform::training(&config.image, &config.augment)?;
        let [channels, height, width] = transform.shape();
        let input = InputShape { channels, height, width };
        // Parts of a program may draw from the engine's generator, also on the first use of a parameter.
        device.seed(config.train.seed);
        let network = config.network.init(input, config.train.seed, &device)?;
        params::initialize(&network);
        if config.optimizer.layer_decay != 1.0 && network.blocks().is_none() {
            return Err(gallerist_tensor::Error::Value {
                key: "optimizer.layer_decay".into(),
                wanted: format!("1 for the network `{}`, which has no blocks", config.network.name()),
                found: config.optimizer.layer_decay.to_string(),
            }
            .into());
        }
        if config.train.gradient_checkpointing && !network.can_checkpoint() {
            let (reason, hint) = why_not_checkpointed(&network);
            return Err(gallerist_tensor::Error::Conflict {
                message: format!(
                    "train.gradient_checkpointing is not possible with the network `{}`: {reason}",
                    config.network.name()
                ),
                hint,
            }
            .into());
        }
        if network.extractor().is_some() && params::collect(&network).is_empty() {
            return Err(gallerist_tensor::Error::Conflict {
                message: "there is nothing to train: the model is frozen, and it has no head".into(),
                hint: "set network.dimensions to the length of an embedding; `gallerist model import` uses a model as it is"
                    .into(),
            }
            .into());
        }
        let store = image_store(config, train, transform)?;
        let validation = match validation {
            Some(set) => Some(image_store(config, set, Transform::evaluation(&config.image)?)?),
            None => None,
        };
        let objective = Objective::new(config, store.set().label_names().len(), &host)?;
        Ok(Parts { ranks, opened, device, host, input, data, store, sampler, validation, network, objective })
    }

    /// Computes the features of a frozen model for all images, where images are not changed at random.
    fn compute_features(
        &mut self,
        config: &RunConfig,
        folder: Option<&Path>,
        watch: &mut Watch<'_>,
    ) -> Result<()> {
        let Some(extractor) = features::frozen(config, &*self.network) else { return Ok(()) };
        let options = LoaderOptions::evaluation(resolved(config.train.loader_threads));
        let options = options.strict(config.data.strict);
        let mut of = |store: &ImageStore| {
            let progress = &mut |done, all| watch.phase("computing features", done, all);
            features::with_features(store, extractor, config, folder, options, progress)
        };
        self.store = of(&self.store)?;
        self.validation = self.validation.as_deref().map(of).transpose()?;
        Ok(())
    }

    /// Makes a checkpoint of other images one of these: what it has of a class becomes that of the class of this name, and
    /// what it has of single images is dropped. `before` is the list of the run. Returns what to say of it.
    fn take_over(
        &self,
        last: &mut Checkpoint,
        path: &Path,
        config: &RunConfig,
        before: &DataRecord,
    ) -> Result<Vec<String>> {
        let names = |list: &DataRecord| list.clone().split_off(TRAIN).0.label_names();
        let now = self.store.set().label_names();
        // A program may have put together a set that numbers its classes otherwise.
        let are_known = before.fingerprint() == last.header.data && names(&self.data) == now;
        let before = are_known.then(|| names(before));
        let carried = carry_over(last, path, config, &self.objective, before.as_deref(), now, &self.host)?;
        let mut notes: Vec<String> = carried.into_iter().collect();
        if Memories::forget(&mut last.state) {
            notes.push("the cross-batch memory begins anew".into());
        }
        means::forget(&mut last.state);
        Ok(notes)
    }

    /// Keeps the features in the run directory, where they have no other place.
    fn keep_features(&self, config: &RunConfig, directory: &RunDirectory) -> Result<()> {
        let Some(extractor) = features::frozen(config, &*self.network) else { return Ok(()) };
        if config.data.cache_folder.is_some() {
            return Ok(());
        }
        let stores = [Some(&self.store), self.validation.as_ref()];
        stores
            .into_iter()
            .flatten()
            .try_for_each(|store| features::keep(store, extractor, config, &directory.features()))
    }

    fn into_trainer(self, config: &RunConfig, directory: RunDirectory, step: usize) -> Result<Trainer> {
        let mut log = if self.ranks.rank() == 0 { Log::open(&directory.log())? } else { Log::silent() };
        if config.log.tensorboard && self.ranks.rank() == 0 {
            log = log.with_events(&directory.tensorboard(), step)?;
        }
        Ok(Trainer {
            optimizer: Optimizer::new(&config.optimizer).with_blocks(self.network.blocks().unwrap_or(0)),
            config: config.clone(),
            directory,
            gradient_order: Order::default(),
            shared: (self.ranks.size() > 1).then(|| Shared::new(self.ranks.clone())),
            ranks: self.ranks,
            data: self.data.fingerprint(),
            loss_scale: (config.train.precision == Precision::F16).then(LossScale::default),
            devices: Devices { opened: self.opened, network: self.device, host: self.host },
            input: self.input,
            store: self.store,
            validation: self.validation,
            batches: Batches { sampler: self.sampler, means: None, refused: Refused::default() },
            average: config.train.average_decay.map(|decay| Average::new(decay, &self.network)),
            network: self.network,
            memories: Memories::new(config, &self.objective),
            objective: self.objective,
            log,
            state: Counters { step, ..Counters::default() },
            warnings: Warnings::default(),
            started: Started::default(),
            profile: None,
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

impl TrainingImages {
    /// The images of `data.train`.
    fn open(config: &RunConfig, kept: &KeptClasses) -> Result<Self> {
        config.data.check_corrections()?;
        let (set, held_out) = config.data.open_train_without(kept.test.as_ref())?;
        if let ([class], false) = (set.class_names(), config.data.rotation_classes) {
            let [found, hint] = match &held_out {
                Some(test) => [
                    format!(
                        "data.test_fraction holds out {} of {} classes",
                        test.class_names().len(),
                        test.class_names().len() + 1
                    ),
                    "give a smaller data.test_fraction, images of more classes, or test images of their own (data.test)".into(),
                ],
                None => [
                    format!("there is one class, `{class}`, with {} images", set.len()),
                    "put the images of each class into a folder of their own: photos/heron/1.jpg, photos/wren/7.jpg; images \
                     of one class are embedded and searched with a network that is trained on others"
                        .into(),
                ],
            };
            return Err(gallerist_data::Error::Batches {
                wanted: "images of two or more classes".into(),
                path: set.name().into(),
                found,
                hint: Some(hint),
            }
            .into());
        }
        let of = &config.validation;
        let (train, validation) = if let Some(classes) = &kept.validation {
            let (train, validation) = by_classes(&set, classes);
            (train, Some(validation).filter(|validation| !validation.is_empty()))
        } else if let Some(fold) = of.fold {
            let (train, validation) = set.class_fold(fold.number - 1, fold.of, of.seed)?;
            (train, Some(validation))
        } else if of.fraction > 0.0 {
            let (train, validation) = set.split_classes(of.fraction, of.seed)?;
            (train, Some(validation))
        } else {
            (set, None)
        };
        let train = if config.data.rotation_classes { train.with_rotation_classes()? } else { train };
        Ok(TrainingImages { train, validation })
    }
}
