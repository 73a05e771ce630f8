//! The run file: TOML, every key with a default, unknown keys refused.

use std::path::{Path, PathBuf};

use gallerist_data::{
    AugmentConfig, DatasetLayout, ImageConfig, LabelFrom, OpenOptions, SamplerConfig, Transform,
};
use gallerist_retrieval::cluster::Preset;
use gallerist_retrieval::eval::{Bootstrap, FewShotOptions, Measure, VerificationOptions};
use gallerist_retrieval::rerank::{KReciprocal, QueryExpansion};
use gallerist_retrieval::search::Metric;
use serde::{Deserialize, Serialize};

use super::explain::{self, Fault};
use super::{LossTerm, LossTerms, Precision, limits};
use crate::optim::{OptimizerConfig, ScheduleConfig};
use gallerist_loss::memory::XbmConfig;
use gallerist_loss::{LossConfig, preset};
use gallerist_nn::{Architecture, Combine, HeadChoice, NetworkConfig};
use gallerist_tensor::device::DeviceChoice;
use gallerist_util::text::nearest;
use gallerist_weights as weights;

use crate::{Error, Result};

/// The run file with every key, its default and what it means.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// A run file, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Steps, seed, threads.
    pub train: TrainConfig,
    /// Where the images are.
    pub data: DataConfig,
    /// Held-out classes for choosing the best checkpoint.
    pub validation: ValidationConfig,
    /// What the network is given.
    pub image: ImageConfig,
    /// Random changes of the training images.
    pub augment: AugmentConfig,
    /// How batches are put together.
    pub sampler: SamplerConfig,
    /// The network.
    pub network: NetworkConfig,
    /// The loss, or the losses whose weighted sum is minimised.
    pub loss: LossTerms,
    /// Cross-batch memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xbm: Option<XbmConfig>,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// What is measured.
    pub evaluation: EvaluationConfig,
    /// What is shown.
    pub report: ReportConfig,
    /// What is logged beside `log.jsonl`.
    pub log: LogConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            train: TrainConfig::default(),
            data: DataConfig::default(),
            validation: ValidationConfig::default(),
            image: ImageConfig::new(224, 3),
            augment: AugmentConfig::default(),
            sampler: SamplerConfig::default(),
            network: NetworkConfig::default(),
            loss: LossTerms::default(),
            xbm: None,
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            evaluation: EvaluationConfig::default(),
            report: ReportConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimiser steps.
    pub steps: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Where the network computes.
    pub device: DeviceChoice,
    /// In which numbers the network computes; its weights are kept in f32 in any case.
    pub precision: Precision,
    /// Compute threads; 0: one per core.
    pub threads: usize,
    /// Threads that decode and augment; 0: one per core.
    pub loader_threads: usize,
    /// Batches prepared ahead.
    pub prefetch: usize,
    /// Whether embeddings are L2-normalised before the loss; absent: as the loss's paper does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// A checkpoint is written every so many steps; 0: only at the end.
    pub checkpoint_every: usize,
    /// Batches whose mean gradient makes one step.
    pub accumulate: usize,
    /// Decay of a moving average of the weights, which then embeds in place of them; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_decay: Option<f64>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: 2000,
            seed: 1,
            device: DeviceChoice::Auto,
            precision: Precision::F32,
            threads: 0,
            loader_threads: 0,
            prefetch: 4,
            normalize: None,
            checkpoint_every: 500,
            accumulate: 1,
            average_decay: None,
        }
    }
}

/// Threads for loading: `0` means one per core.
pub(crate) fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Training images: folders, zips or CSV manifests; relative paths start at the run file's
    /// directory or, where nothing is found there, at the current one.
    pub train: Vec<PathBuf>,
    /// Test images, whose classes take no part in training; absent: nothing is evaluated at the end. Where they
    /// have the splits `query` and `gallery`, the queries are compared with the gallery, else every image
    /// with the others.
    pub test: Vec<PathBuf>,
    /// In place of `test`: images that are compared with those of `gallery`.
    pub query: Vec<PathBuf>,
    /// In place of `test`: images that those of `query` are compared with.
    pub gallery: Vec<PathBuf>,
    /// How the images are laid out; absent: told by the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<DatasetLayout>,
    /// The split to train on, as the layout, the `split` column of a manifest or the names of folders have
    /// it; absent: `train` where the layout is a published data set's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_split: Option<String>,
    /// The split to test on; absent: `test` where the layout is a published data set's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_split: Option<String>,
    /// The split of `query`; absent: `query` where there is one, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_split: Option<String>,
    /// The split of `gallery`; absent: `gallery` where there is one, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gallery_split: Option<String>,
    /// Which part of a label is the class: `path` (`Fruit/Apple`) or `leaf` (`Apple`).
    pub label: LabelFrom,
    /// Images cut to their bounding boxes, in training and test, where the annotations have them.
    pub crop_boxes: bool,
    /// At most so many training classes, the first in the order of the set; 0: all.
    pub max_train_classes: usize,
    /// At most so many test classes; 0: all. Of queries and a gallery, the queries' classes are counted, and the
    /// gallery keeps these and what no query looks for.
    pub max_test_classes: usize,
    /// Every training class also turned by 90, 180 and 270 degrees, as three further classes.
    pub rotation_classes: bool,
    /// Memory for decoded images, in MiB; what does not fit is decoded again when needed.
    pub cache_mib: usize,
    /// Folder for decoded images that later runs, and embedding with this one, find again, at the size at which they
    /// are kept; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_folder: Option<PathBuf>,
    /// The run directory that this run file was written into; the program writes it. Paths that are gone are looked
    /// for at the same place relative to where the run file is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_directory: Option<PathBuf>,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            train: Vec::new(),
            test: Vec::new(),
            query: Vec::new(),
            gallery: Vec::new(),
            layout: None,
            train_split: None,
            test_split: None,
            query_split: None,
            gallery_split: None,
            label: LabelFrom::Path,
            crop_boxes: false,
            max_train_classes: 0,
            max_test_classes: 0,
            rotation_classes: false,
            cache_mib: 1024,
            cache_folder: None,
            run_directory: None,
        }
    }
}

impl DataConfig {
    /// How the training images are opened.
    pub fn train_options(&self) -> OpenOptions {
        self.options(&self.train_split, "train", self.max_train_classes)
    }

    /// How the test images are opened.
    pub fn test_options(&self) -> OpenOptions {
        self.options(&self.test_split, "test", self.max_test_classes)
    }

    /// How the images of `query` are opened.
    pub fn query_options(&self) -> OpenOptions {
        self.options(&self.query_split, "query", 0)
    }

    /// How the images of `gallery` are opened.
    pub fn gallery_options(&self) -> OpenOptions {
        self.options(&self.gallery_split, "gallery", 0)
    }

    fn validate(&self) -> Result<()> {
        let refuse = |problem: String, hint: &str| Err(Error::TestImages { problem, hint: hint.into() });
        let given = |paths: &Vec<PathBuf>| !paths.is_empty();
        let sides = [("data.query", &self.query), ("data.gallery", &self.gallery)];
        if let (true, Some((key, _))) = (given(&self.test), sides.iter().find(|(_, paths)| given(paths))) {
            return refuse(
                format!("data.test and {key} are both given"),
                "give data.test (every image against the others, or its split `query` against its split `gallery`), \
                 or data.query and data.gallery",
            );
        }
        if given(&self.query) != given(&self.gallery) {
            let [there, missing] = if given(&self.query) { [0, 1] } else { [1, 0] };
            return refuse(
                format!("{} is given, and {} is not", sides[there].0, sides[missing].0),
                "give both, or data.test in place of them to compare every image with the others",
            );
        }
        let splits = [("data.query_split", &self.query_split), ("data.gallery_split", &self.gallery_split)];
        if let (false, Some((key, _))) =
            (given(&self.query), splits.iter().find(|(_, split)| split.is_some()))
        {
            return refuse(
                format!("{key} is given, and data.query and data.gallery are not"),
                "give the images as data.query and data.gallery; they may be the same",
            );
        }
        Ok(())
    }

    fn options(&self, split: &Option<String>, default: &str, max_classes: usize) -> OpenOptions {
        OpenOptions {
            layout: self.layout,
            split: split.clone(),
            default_split: Some(default.to_owned()),
            label_from: self.label,
            crop_boxes: self.crop_boxes,
            // 0 means no limit.
            max_classes: (max_classes > 0).then_some(max_classes),
            max_images: None,
        }
    }
}

/// `[validation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// Share of the training classes that is held out for validation; 0: no validation, the last
    /// checkpoint is the best.
    pub fraction: f64,
    /// Seed of the choice of classes.
    pub seed: u64,
    /// Validation every so many steps, and at the last.
    pub every: usize,
    /// The metric by which the best checkpoint is chosen.
    pub metric: String,
}

impl Default for ValidationConfig {
    fn default() -> Self {
        ValidationConfig { fraction: 0.1, seed: 0, every: 200, metric: "map@r".into() }
    }
}

/// Memory for the feature maps of a batch that is embedded, in MiB for each compute thread, unless the run file says
/// otherwise. More is slower: maps that leave the processor's caches are read from memory again.
pub const MEMORY_PER_THREAD_MIB: usize = 16;

/// The same on a GPU, for all of it. A GPU is busy with many images at once only.
pub const MEMORY_OF_GPU_MIB: usize = 2048;

/// `[evaluation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// The K of Recall@K.
    pub recall_at: Vec<usize>,
    /// How embeddings are compared: `cosine` (they are written with length 1) or `euclidean` (they are written as the
    /// network gives them). Absent: as the loss was trained, see [`RunConfig::metric`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Images embedded at once; 0: as many as `memory_mib` has room for.
    pub batch_size: usize,
    /// Memory for the feature maps of the images that are embedded at once, in MiB; 0: [`MEMORY_PER_THREAD_MIB`] for
    /// each compute thread, [`MEMORY_OF_GPU_MIB`] on a GPU.
    pub memory_mib: usize,
    /// Which weights are evaluated on the test set: `last` or `best` (on the validation classes).
    pub checkpoint: Which,
    /// The network's heads that make the embedding; empty: all.
    pub heads: Vec<String>,
    /// How several heads become one embedding.
    pub combine: Combine,
    /// The benchmark whose metrics are measured; absent: Recall@K of `recall_at`, precision@1, MAP@R and
    /// R-precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What is measured in place of those; empty: those.
    pub metrics: Vec<String>,
    /// The k-means for NMI, AMI and pair F1; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Preset>,
    /// Measured again after re-ranking; absent: not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank: Option<KReciprocal>,
    /// Measured again with expanded queries; absent: not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_expansion: Option<QueryExpansion>,
    /// The true accept rates over all pairs; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationOptions>,
    /// Retrieval in small galleries; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few_shot: Option<FewShotOptions>,
    /// Confidence intervals; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
}

impl EvaluationConfig {
    /// Which heads make the embedding, and how.
    pub fn head_choice(&self) -> HeadChoice {
        HeadChoice { heads: self.heads.clone(), combine: self.combine }
    }
}

/// One of a run's two checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// After the last step.
    Last,
    /// With the best validation.
    #[default]
    Best,
}

impl Which {
    /// File name in the run's `checkpoints` directory.
    pub fn file_name(self) -> &'static str {
        match self {
            Which::Last => "last.safetensors",
            Which::Best => "best.safetensors",
        }
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        EvaluationConfig {
            recall_at: vec![1, 2, 4, 8],
            metric: None,
            batch_size: 0,
            memory_mib: 0,
            checkpoint: Which::Best,
            heads: Vec::new(),
            combine: Combine::default(),
            protocol: None,
            metrics: Vec::new(),
            rerank: None,
            query_expansion: None,
            cluster: None,
            verification: None,
            few_shot: None,
            bootstrap: None,
        }
    }
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// Ranked lists shown of queries drawn at random.
    pub queries: usize,
    /// Ranked lists shown of the queries with the lowest average precision.
    pub failures: usize,
    /// Results shown per query.
    pub results: usize,
}

impl Default for ReportConfig {
    fn default() -> Self {
        ReportConfig { queries: 16, failures: 16, results: 10 }
    }
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Writes event files and the Embedding Projector's files into the run's folder `tensorboard`.
    pub tensorboard: bool,
    /// Measures the network's kernels on the CPU and writes the seconds of each operation to the run's
    /// `profile.json`; costs no time worth mentioning.
    pub profile: bool,
}

impl RunConfig {
    /// Reads a run file and applies `key=value` settings to it.
    ///
    /// Relative data paths are resolved against the run file's directory, else left relative to the current
    /// one; see [`DataConfig`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the line, or the unknown key and the nearest known one;
    /// [`Error::Value`] for a value out of its range.
    pub fn load(path: &Path, settings: &[String]) -> Result<Self> {
        let text = gallerist_retrieval::file::read_regular_to_string(path).map_err(|e| Error::Config {
            origin: format!("`{}`", path.display()),
            reason: if e.kind() == std::io::ErrorKind::NotFound {
                "no such file".into()
            } else {
                e.to_string()
            },
            hint: Some("`gallerist config --print-defaults > run.toml` writes one with every key".into()),
        })?;
        let mut config = Self::parse(&text, &format!("`{}`", path.display()), settings)?;
        config.find_files(path.parent().unwrap_or(Path::new("")));
        config.suit_weights(&given(&text, settings));
        config.validate()?;
        Ok(config)
    }

    /// Reads the text of a run file and applies settings; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] as for [`RunConfig::load`]. Ranges are checked by [`RunConfig::validate`].
    ///
    /// ```
    /// use gallerist_train::RunConfig;
    /// let config = RunConfig::parse("[train]\nsteps = 10", "example", &["loss.margin=0.2".into()]).unwrap();
    /// assert_eq!(config.train.steps, 10);
    /// let error = RunConfig::parse("[train]\nstep = 10", "example", &[]).unwrap_err();
    /// assert_eq!(error.hint().unwrap(), "did you mean `steps`?");
    /// ```
    pub fn parse(text: &str, origin: &str, settings: &[String]) -> Result<Self> {
        let error =
            |reason: String, hint: Option<String>| Error::Config { origin: origin.into(), reason, hint };
        let mut table: toml::Table = toml::from_str(text).map_err(|e| error(at_line(text, &e), None))?;
        forget_old_batch_size(&mut table);
        // The file by itself first: its faults have a line. A key that it lacks may come from a setting.
        if let Err(Fault { key, reason, hint, missing: false }) = resolve(table.clone()) {
            let line = key.and_then(|key| explain::line_of(text, &key));
            return Err(error(line.map_or(String::new(), |line| format!("line {line}: ")) + &reason, hint));
        }
        for setting in settings {
            set(&mut table, setting).map_err(|(reason, hint)| Error::Config {
                origin: format!("{origin} with `--set {setting}`"),
                reason,
                hint: Some(hint),
            })?;
        }
        resolve(table).map_err(|Fault { reason, hint, .. }| Error::Config {
            origin: match settings {
                [] => origin.into(),
                _ => format!("{origin} with `--set {}`", settings.join(" --set ")),
            },
            reason,
            hint,
        })
    }

    /// How the run's embeddings are compared: `evaluation.metric`, else as they were trained.
    ///
    /// Embeddings that were scaled to length 1 before the loss are compared by the cosine; others as
    /// [`LossConfig::metric`] says. With several losses the first decides. `evaluation.combine =
    /// "normalize_then_concat"` scales rows, and so implies the cosine.
    ///
    /// ```
    /// use gallerist_train::RunConfig;
    /// use gallerist_retrieval::search::Metric;
    ///
    /// let metric = |text| RunConfig::parse(text, "example", &[]).unwrap().metric();
    /// assert_eq!(metric("[loss]\nname = \"rll\""), Metric::Cosine);
    /// assert_eq!(metric("[loss]\nname = \"srt\""), Metric::Euclidean);
    /// assert_eq!(metric("[loss]\nname = \"srt\"\n[train]\nnormalize = true"), Metric::Cosine);
    /// assert_eq!(metric("[loss]\nname = \"srt\"\n[evaluation]\nmetric = \"cosine\""), Metric::Cosine);
    /// ```
    pub fn metric(&self) -> Metric {
        if self.evaluation.combine == Combine::NormalizeThenConcat {
            return Metric::Cosine;
        }
        let of_loss =
            |term: &LossTerm| term.loss.metric(self.train.normalize.unwrap_or(term.loss.normalized()));
        self.evaluation.metric.or_else(|| self.loss.0.first().map(of_loss)).unwrap_or_default()
    }

    /// Takes from the file of `network.weights` what the run file, as it was `given`, does not say: the layout of
    /// MobileNetV2, and how images are prepared.
    fn suit_weights(&mut self, given: &toml::Table) {
        let Some(path) = self.network.weights.clone().filter(|path| path.is_file()) else { return };
        let says = |section: &str, keys: &[&str]| {
            let section = given.get(section).and_then(toml::Value::as_table);
            keys.iter().any(|key| section.is_some_and(|section| section.contains_key(*key)))
        };
        if let Architecture::MobileNetV2(network) = &mut self.network.architecture
            && !says("network", &["layout"])
            && let Some(layout) = weights::layout_of(&path)
        {
            network.layout = layout;
        }
        let Some(known) = weights::Preprocessing::of_weights(&path, self.network.name()) else { return };
        // The values of pixels belong together: a run file that says one of them says all.
        if !says("image", &["channels", "mean", "std", "range", "bgr", "invert"]) {
            known.apply(&mut self.image);
        }
        if !says("image", &["size"]) {
            self.image.size = known.size;
        }
    }

    /// The resolved run file as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a run file is plain data")
    }

    /// Checks every range.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] naming the key, what it may be and what was found; [`Error::Retrieval`] for an
    /// evaluation that cannot be run.
    pub fn validate(&self) -> Result<()> {
        let error = |key: &str, wanted: &str, found: String| {
            Err(gallerist_tensor::Error::Value { key: key.into(), wanted: wanted.into(), found }.into())
        };
        if self.train.steps == 0 {
            return error("train.steps", "1 or more", "0".into());
        }
        if self.train.accumulate == 0 {
            return error("train.accumulate", "1 or more", "0".into());
        }
        if let Some(decay) = self.train.average_decay {
            let fits = (0.0..1.0).contains(&decay);
            gallerist_tensor::Error::require("train.average_decay".into(), decay, fits, "from 0 to below 1")?;
        }
        if self.train.prefetch == 0 {
            return error("train.prefetch", "1 or more", "0".into());
        }
        if !(0.0..1.0).contains(&self.validation.fraction) {
            return error("validation.fraction", "from 0 to below 1", self.validation.fraction.to_string());
        }
        if self.validation.every == 0 {
            return error("validation.every", "1 or more", "0".into());
        }
        let metric = &self.validation.metric;
        if metric.parse::<Measure>().is_err() {
            let wanted = format!("one of {} with K a number of 1 or more", Measure::names().join(", "));
            return error("validation.metric", &wanted, format!("`{metric}`"));
        }
        if self.evaluation.recall_at.is_empty() || self.evaluation.recall_at.contains(&0) {
            return error(
                "evaluation.recall_at",
                "a list of numbers of 1 or more",
                format!("{:?}", self.evaluation.recall_at),
            );
        }
        self.data.validate()?;
        if let Some(metric) = self.evaluation.metric {
            if metric == Metric::InnerProduct {
                return error("evaluation.metric", "`cosine` or `euclidean`", format!("`{}`", metric.name()));
            }
            if metric == Metric::Euclidean && self.evaluation.combine == Combine::NormalizeThenConcat {
                let wanted = "`cosine` where evaluation.combine = \"normalize_then_concat\" scales the rows";
                return error("evaluation.metric", wanted, "`euclidean`".into());
            }
        }
        self.network.validate()?;
        limits::check(self)?;
        self.evaluation.plan()?;
        self.evaluation.head_choice().places(&self.network.heads())?;
        self.loss.validate(&self.network.heads(), self.xbm.as_ref())?;
        self.optimizer.validate()?;
        self.schedule.validate()?;
        Transform::training(&self.image, &self.augment)?;
        Ok(())
    }
}

/// Earlier versions wrote the default of `evaluation.batch_size`, 256, into every resolved run file, and knew no
/// `evaluation.memory_mib`. It is not the user's choice, and slow.
fn forget_old_batch_size(table: &mut toml::Table) {
    let Some(evaluation) = table.get_mut("evaluation").and_then(toml::Value::as_table_mut) else { return };
    let is_old = evaluation.get("batch_size").and_then(toml::Value::as_integer) == Some(256);
    if is_old && !evaluation.contains_key("memory_mib") {
        evaluation.remove("batch_size");
    }
}

/// The table of a run file that can be read, with the settings.
fn given(text: &str, settings: &[String]) -> toml::Table {
    let mut table = text.parse::<toml::Table>().unwrap_or_default();
    for setting in settings {
        // What is wrong with a setting was said when it was applied first.
        let _ = set(&mut table, setting);
    }
    table
}

/// What a table says, with the defaults filled in.
fn resolve(mut table: toml::Table) -> std::result::Result<RunConfig, Fault> {
    for loss in losses(&mut table) {
        refuse_miner(loss).and_then(|()| expand_preset(loss)).map_err(|(reason, hint)| Fault {
            key: None,
            reason,
            hint,
            missing: false,
        })?;
    }
    let known = toml::Table::try_from(RunConfig::default()).expect("a run file is plain data");
    explain::read(table, &known, |table| {
        let mut table = table.clone();
        fill_in_defaults(&mut table);
        table.try_into().map_err(|e: toml::de::Error| e.message().to_string())
    })
}

/// The tables `[loss]` or `[[loss]]`.
fn losses(table: &mut toml::Table) -> impl Iterator<Item = &mut toml::Table> {
    let losses = match table.get_mut("loss") {
        Some(toml::Value::Array(several)) => several.iter_mut().collect(),
        Some(only) => vec![only],
        None => Vec::new(),
    };
    losses.into_iter().filter_map(toml::Value::as_table_mut)
}

/// Puts the keys of `preset = "…"` in its place; keys given beside it stay.
fn expand_preset(loss: &mut toml::Table) -> std::result::Result<(), (String, Option<String>)> {
    let Some(name) = loss.remove("preset") else { return Ok(()) };
    let name = name.as_str().unwrap_or_default().to_string();
    let Some(preset) = preset::find(&name) else {
        let known: Vec<&str> = preset::PRESETS.iter().map(|preset| preset.name).collect();
        let hint = did_you_mean(&name, &known);
        return Err((
            format!("unknown preset `{name}` of a loss, expected one of {}", known.join(", ")),
            hint,
        ));
    };
    let keys: toml::Table = preset.keys.parse().expect("a preset is TOML");
    for (key, value) in keys {
        loss.entry(key).or_insert(value);
    }
    Ok(())
}

/// Refuses a miner where the loss takes none.
fn refuse_miner(loss: &toml::Table) -> std::result::Result<(), (String, Option<String>)> {
    let name = loss.get("name").and_then(|name| name.as_str()).unwrap_or("rll");
    let takes_one = LossConfig::WITH_MINER.contains(&name) || !LossConfig::NAMES.contains(&name);
    if takes_one || !loss.contains_key("miner") {
        return Ok(());
    }
    let known = LossConfig::WITH_MINER.join(", ");
    Err((format!("`{name}` takes no miner"), Some(format!("these losses do: {known}"))))
}

/// A loss from its name or a preset, and `key=value` settings: what `[loss]` would say.
///
/// # Errors
///
/// [`Error::Config`] for an unknown loss, preset or parameter, with the nearest known one;
/// [`Error::Value`] for a value out of its range.
///
/// ```
/// use gallerist_train::config::loss_from_settings;
/// let loss = loss_from_settings(Some("ice"), None, &["scale=16".into()])?;
/// assert_eq!(loss.name(), "ice");
/// let error = loss_from_settings(Some("contrastiv"), None, &[]).unwrap_err();
/// assert_eq!(error.hint().unwrap(), "did you mean `contrastive`?");
/// # Ok::<(), gallerist_train::Error>(())
/// ```
pub fn loss_from_settings(
    name: Option<&str>,
    preset: Option<&str>,
    settings: &[String],
) -> Result<LossConfig> {
    let mut table = toml::Table::new();
    for (key, value) in [("name", name), ("preset", preset)] {
        if let Some(value) = value {
            table.insert(key.into(), value.into());
        }
    }
    let described = name.or(preset).unwrap_or("rll");
    let error = |reason, hint| Error::Config { origin: format!("for the loss `{described}`"), reason, hint };
    for setting in settings {
        set(&mut table, setting).map_err(|(reason, _)| {
            error(reason, Some("write it as key=value, e.g. --set margin=0.2".into()))
        })?;
    }
    expand_preset(&mut table).map_err(|(reason, hint)| error(reason, hint))?;
    refuse_miner(&table).map_err(|(reason, hint)| error(reason, hint))?;
    let found = explain::read(table, &toml::Table::new(), |table| {
        table.clone().try_into().map_err(|e: toml::de::Error| e.message().to_string())
    });
    let config: LossConfig = found.map_err(|Fault { reason, hint, .. }| error(reason, hint))?;
    config.validate()?;
    Ok(config)
}

/// The message of a TOML error with its line.
fn at_line(text: &str, e: &toml::de::Error) -> String {
    let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or(String::new(), |line| format!("line {line}: "));
    format!("{place}{}", one_line(e.message()))
}

/// Sections whose keys depend on a choice (which network, which loss) get the keys they lack from
/// the default of the same choice; without a choice, the default's.
fn fill_in_defaults(table: &mut toml::Table) {
    let defaults = toml::Table::try_from(RunConfig::default()).expect("a run file is plain data");
    for (section, choice) in [("image", None), ("sampler", Some("kind")), ("network", Some("kind"))] {
        if let Some(toml::Value::Table(given)) = table.get_mut(section) {
            fill_in(given, &defaults[section], choice);
        }
    }
    for given in losses(table) {
        fill_in(given, &defaults["loss"], Some("name"));
    }
}

/// Gives a table the keys it lacks from `default`, where both make the same `choice`.
fn fill_in(given: &mut toml::Table, default: &toml::Value, choice: Option<&str>) {
    let default = default.as_table().expect("a section is a table");
    if choice.is_none_or(|key| given.get(key).is_none_or(|name| *name == default[key])) {
        for (key, value) in default {
            given.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Applies one `dotted.key=value`; the value is TOML, or else a plain string.
fn set(table: &mut toml::Table, setting: &str) -> std::result::Result<(), (String, String)> {
    let example = "write it as section.key=value, e.g. --set train.steps=500";
    let Some((key, value)) = setting.split_once('=') else {
        return Err(("there is no `=` in it".into(), example.into()));
    };
    let (key, value) = (key.trim(), value.trim());
    let parsed = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .filter(|t| t.len() == 1)
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.into()));
    let parts: Vec<&str> = key.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err((format!("`{key}` is no key"), example.into()));
    }
    let (last, sections) = parts.split_last().expect("split gives one part at least");
    let mut table = table;
    let mut sections = sections.iter();
    while let Some(section) = sections.next() {
        let entry =
            table.entry(section.to_string()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = match entry {
            toml::Value::Table(inner) => inner,
            toml::Value::Array(several) => {
                let count = several.len();
                let place = sections.next().and_then(|place| place.parse::<usize>().ok());
                let Some(inner) =
                    place.and_then(|place| several.get_mut(place)).and_then(toml::Value::as_table_mut)
                else {
                    let example =
                        format!("name the table by its place, e.g. --set {section}.0.{last}={value}");
                    return Err((format!("`{section}` is a list of {count}"), example));
                };
                inner
            }
            _ => return Err((format!("`{section}` is a value, not a section"), example.into())),
        };
    }
    table.insert(last.to_string(), parsed);
    Ok(())
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}
